"""Durable agent runs: model and tool steps are recorded once and replayed from the ledger."""
