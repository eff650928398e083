"""Recording: the tracker, the decorator, recordings started by settings, and names of capture files."""
