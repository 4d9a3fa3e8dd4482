"""What the kernel may know of this machine, gathered here because the kernel does not look."""

import os
import socket
import sys
from typing import Final

from gert.ecosystem.host.supported import SUPPORTED
from gert.kernel.runbook.documents.project import Project
from gert.kernel.runbook.validate.facts import Facts

# GOOS names, as `platform` in a tool file uses them.
GOOS: Final = {"win32": "windows", "cygwin": "windows", "sunos5": "solaris"}


def platform() -> str:
    """The running system by its GOOS name."""
    name = GOOS.get(sys.platform, sys.platform)
    return name.rstrip("0123456789") or name


def host_name() -> str:
    """What this machine is called."""
    return socket.gethostname()


def facts_for(project: Project | None) -> Facts:
    """Facts about this machine and the project a document belongs to."""
    return Facts(
        platform=platform(),
        environment=os.environ,
        providers=project.providers if project is not None else None,
        groups=project.groups if project is not None else None,
        supported=SUPPORTED,
    )
