"""Commands that run runbooks and look at runs."""
