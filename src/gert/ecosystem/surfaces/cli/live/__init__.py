"""A run shown while it happens."""
