"""Text, JSON and tables that commands print."""
