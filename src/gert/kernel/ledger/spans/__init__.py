"""Runs as spans of a trace, folded from events; names follow the GenAI semantic conventions of OpenTelemetry."""
