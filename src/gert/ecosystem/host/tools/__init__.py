"""Use cases about tool files: find, describe, check, import from MCP servers."""
