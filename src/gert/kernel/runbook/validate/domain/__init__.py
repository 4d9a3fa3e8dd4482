"""The domain phase: rules about what a document means, one file per theme."""
