"""JSONL traces: the mirror of a run for people and auditors, and the reader of traces from anywhere."""
