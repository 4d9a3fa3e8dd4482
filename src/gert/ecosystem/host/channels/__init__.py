"""Channels: they send requests for approval to people, and post the responses to the ledger."""
