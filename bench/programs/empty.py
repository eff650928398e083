"""Does nothing, to measure the start and end of an interpreter."""
