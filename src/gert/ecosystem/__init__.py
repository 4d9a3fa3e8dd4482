"""The room that acts: everything that touches the world, and nothing that decides."""
