"""`gert reject`."""

from gert.ecosystem.surfaces.cli.commands.respond import reject as command

__all__ = ["command"]
