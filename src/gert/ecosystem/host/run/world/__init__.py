"""Answers the requests of a run: tools, people, inputs, evidence."""
