"""The domain phase: rules about the meaning of a document, one module per theme."""
