"""Middleware: where policy takes part in model and tool steps."""
