"""Runs a runbook as a generator: it yields events to write and questions to ask, and touches nothing itself."""
