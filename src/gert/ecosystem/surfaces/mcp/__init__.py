"""`gert-mcp`: gert for agents, over the Model Context Protocol."""
