"""The kernel, client and workflow that callers use."""
