"""Nothing: what is measured is the start and the end."""
