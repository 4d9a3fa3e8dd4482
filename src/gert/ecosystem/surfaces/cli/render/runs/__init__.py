"""Runs as text, JSON and rows: their result, their steps, and outcomes of many."""
