"""Durable agent runs: what is asked of a model or a tool, and what is taken from the record instead."""
