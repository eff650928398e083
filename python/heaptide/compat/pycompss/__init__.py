"""The package of PyCOMPSs, for environments in which it is not installed."""
