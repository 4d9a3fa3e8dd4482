"""Telling others what a run came to."""
