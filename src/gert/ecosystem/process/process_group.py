"""Process groups."""

import os
import sys


def signal_group(group: int, number: int) -> bool:
    """Send a signal to a group, and return whether the group exists."""
    if sys.platform == "win32":
        return False
    try:
        os.killpg(group, number)
    except PermissionError:
        return True  # it runs as another user
    except OSError:
        return False
    return True
