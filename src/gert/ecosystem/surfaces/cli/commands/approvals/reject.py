"""`gert reject`."""

from gert.ecosystem.surfaces.cli.commands.approvals.respond import reject as command

__all__ = ["command"]
