"""The ledger on Postgres: shared by many machines."""
