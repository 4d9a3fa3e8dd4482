"""Events: what every kind of run writes, chained and sealed in one way."""
