"""Scenarios on disk: finding, replaying, testing, recording and comparing them."""
