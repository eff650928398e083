"""Helpers of the Python tests: run programs in many ways, and read what they print and record."""
