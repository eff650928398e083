"""Does nothing: its start and end are measured."""
