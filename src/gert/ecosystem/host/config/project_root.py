"""The folders that hold a project file."""

import os
from collections.abc import Iterator

from gert.ecosystem.host.config.files import hops, is_there
from gert.errors import DocumentError
from gert.kernel.runbook.documents.project import PROJECT_FILE


def project_roots(path: str) -> tuple[str, ...]:
    """Every folder, this one or above, that holds a project file, nearest first; of a file, those around it.

    Above a path is what its name says, and what is above each link on the way: a link leads out of no project.
    """
    above = dict.fromkeys(each for hop in hops(path) for each in _above(hop))
    found = {os.path.realpath(each): each for each in reversed(above) if _is_root(each)}
    return tuple(reversed(found.values()))


def project_root(folder: str) -> str | None:
    """The nearest folder, this one or above, that holds a project file."""
    return next(iter(project_roots(folder)), None)


def _above(folder: str) -> Iterator[str]:
    """A folder and those above it, nearest first."""
    while True:
        yield folder
        parent = os.path.dirname(folder)
        if parent == folder:
            return
        folder = parent


def _is_root(folder: str) -> bool:
    """Whether a folder holds a project file; one that is broken or spelled wrongly is not passed over."""
    other = os.path.join(folder, os.path.splitext(PROJECT_FILE)[0] + ".yml")
    if os.path.lexists(other):
        raise DocumentError(f"`{other}` is not read: rename it to `{PROJECT_FILE}`")
    return is_there(os.path.join(folder, PROJECT_FILE))
