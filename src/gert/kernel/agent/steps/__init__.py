"""Model and tool steps."""
