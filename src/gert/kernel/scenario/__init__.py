"""Scenarios: what a run was answered, what it is expected to lead to, and what has changed since."""
