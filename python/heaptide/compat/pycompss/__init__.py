"""The package of PyCOMPSs, for programs in whose environment it is not installed."""
