"""The package of PyCOMPSs' functions, for programs in whose environment it is not installed."""
