"""Events of every kind of run, chained and sealed in one way."""
