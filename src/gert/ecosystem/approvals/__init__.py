"""Ways to ask people for approval."""
