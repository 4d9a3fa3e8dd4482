"""Rules about documents other than runbooks."""
