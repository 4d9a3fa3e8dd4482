"""List, read, follow and verify recorded runs."""
