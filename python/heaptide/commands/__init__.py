"""The Python part of the commands that run Python code, such as `run`, `serve`, `worker` and `doctor`."""
