"""Explain and test policies."""
