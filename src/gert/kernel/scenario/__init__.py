"""Scenarios: recorded answers of a run, expectations on its result, and changes since it was recorded."""
