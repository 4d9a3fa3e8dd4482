"""gert: governed execution for people and agents."""

from gert._version import __version__

__all__ = ["__version__"]
