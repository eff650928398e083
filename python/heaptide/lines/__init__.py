"""Lines: memory line by line, brackets of functions in timelines, and the size of a process over time."""
