"""The memray release whose behaviour this package offers."""

__version__ = "1.20.0"
