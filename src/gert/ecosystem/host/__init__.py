"""Use cases every surface calls."""
