"""JSONL traces: the mirror of a run, for people and auditors."""
