"""What an agent run needs from the world, as protocols."""
