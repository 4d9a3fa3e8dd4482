"""What gert does for programs that drive it: one table of operations that the MCP server and `gert serve` share."""
