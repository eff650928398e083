"""Helpers of the Python tests: run programs in many ways, and read their output and captures."""
