"""Ledgers: SQLite and Postgres behind the one port, and JSONL as mirror, export and reader."""
