"""`gert approve`."""

from gert.ecosystem.surfaces.cli.commands.respond import approve as command

__all__ = ["command"]
