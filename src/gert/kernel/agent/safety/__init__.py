"""Safety policy: what a tool call of an agent must satisfy before it is made."""
