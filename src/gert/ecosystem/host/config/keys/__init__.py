"""Keys of traces, approvals and plans, from the environment and files."""
