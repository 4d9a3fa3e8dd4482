"""Contracts, policies and tickets as text."""
