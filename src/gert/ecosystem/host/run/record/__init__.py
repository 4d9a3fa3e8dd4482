"""Writes a run to the ledger: journal, lease, live output, claims on limits."""
