"""Approval tickets for surfaces: list, show, answer."""
