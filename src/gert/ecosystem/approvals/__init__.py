"""Providers of approval: the terminal, tickets and the drop box."""
