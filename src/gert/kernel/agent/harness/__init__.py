"""Harnesses: programs around durable runs that wake, work and sleep, and resume where they stopped."""
