"""Rules about names: what is known at a point of a runbook, and what a reference resolves to."""
