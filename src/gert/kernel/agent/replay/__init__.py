"""Look up recorded steps and decide what is replayed."""
