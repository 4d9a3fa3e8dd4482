"""Ledgers: SQLite and Postgres behind the one port, and JSONL mirrors."""
