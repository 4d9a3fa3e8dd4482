"""The time, for agents."""

from gert.ecosystem.stores.naming import utc_now

__all__ = ["utc_now"]
