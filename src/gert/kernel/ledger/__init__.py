"""The ledger: the one port that runs of every kind are recorded through, its rules, folds and verification."""
