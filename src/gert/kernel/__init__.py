"""The room that decides: no I/O, no clock, no randomness, no secrets."""
