"""Stores: where the events of runs, and the answers that led to them, are kept."""
