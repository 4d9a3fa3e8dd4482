"""Runs in processes of their own, started and controlled by surfaces that may end at any time."""
