"""Runs a runbook as a generator that yields events to record and requests to answer, and performs no I/O itself."""
