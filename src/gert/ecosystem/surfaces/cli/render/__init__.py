"""Rendering: the text, JSON and tables that commands print."""
