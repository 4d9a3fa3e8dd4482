"""Commands that list, answer and sign approvals."""
