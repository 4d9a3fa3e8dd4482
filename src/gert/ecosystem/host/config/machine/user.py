"""The user of this process."""

import getpass
import os


def user_name() -> str:
    """The user of this machine."""
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        return f"uid-{os.getuid()}" if hasattr(os, "getuid") else "unknown"
