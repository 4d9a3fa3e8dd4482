"""Process groups."""

import os
import sys


def signal_group(group: int, number: int) -> bool:
    """Send a signal to a group, and tell whether there was one to get it."""
    if sys.platform == "win32":
        return False
    try:
        os.killpg(group, number)
    except PermissionError:
        return True  # it runs as somebody else
    except OSError:
        return False
    return True
