"""Durable agent runs as people drive them: the kernel and what it needs from the world, put together."""
