"""Drives a run: turns, lanes, clock, signals and messages that control it."""
