"""The package of PyCOMPSs' functions, for environments in which it is not installed."""
