"""The ledger in a SQLite file: the embedded default."""
