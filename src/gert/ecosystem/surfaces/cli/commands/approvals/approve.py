"""`gert approve`."""

from gert.ecosystem.surfaces.cli.commands.approvals.respond import approve as command

__all__ = ["command"]
