"""Tool transports: how an action of a tool is executed."""
