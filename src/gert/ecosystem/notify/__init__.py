"""Notifications about the outcome of a run."""
