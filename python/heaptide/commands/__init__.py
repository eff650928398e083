"""Commands that run a program in this process: the part of them that is written in Python."""
