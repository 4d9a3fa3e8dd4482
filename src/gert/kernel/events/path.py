"""Where in a run something happened: `triage/degraded/restart[2]`.

A path goes from the outermost step inwards: a step id, then the label of the arm or lane (or its index),
then the step inside, with the index or key of an iteration in brackets. Per-lane events carry their lane
this way: the lane's segment follows the id of its parallel block.
"""

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple
from urllib.parse import unquote

from gert.errors import TraceError
from gert.kernel.foundation.text import path_text

_UNSAFE = re.compile(r"[%/\[\]\x00-\x1f\x7f]")
_SEGMENT = re.compile(r"([^/\[\]]+)(?:\[([^/\[\]]+)\])?")


class PathSegment(NamedTuple):
    """One segment: a name, and the index or key of an iteration if there is one."""

    name: str
    item: str | None = None


def child(path: str | None, name: str | int) -> str:
    """Return the path of a child: a step, an arm or a lane."""
    segment = _escape(str(name))
    return f"{path}/{segment}" if path else segment


def item(path: str, key: str | int) -> str:
    """Return the path of one iteration of a step."""
    return f"{path}[{_escape(str(key))}]"


def split(path: str) -> tuple[PathSegment, ...]:
    """Split a path into its segments."""
    segments = []
    for text in path.split("/"):
        match = _SEGMENT.fullmatch(text)
        if match is None:
            raise TraceError(f"`{path}` is not a path of steps")
        name, key = match.groups()
        segments.append(PathSegment(unquote(name), None if key is None else unquote(key)))
    return tuple(segments)


def lineage(path: str) -> list[str]:
    """The path of every segment, the outermost first: `a[2]`, then `a[2]/b`, for `a[2]/b`."""
    parts = path.split("/")
    return ["/".join(parts[: count + 1]) for count in range(len(parts))]


def ancestors(path: str, most: int = 32) -> Iterator[str]:
    """The paths around a path, the innermost first and so many at most: `a[2]`, then `a`, for `a[2]/b`."""
    for _ in range(most):
        end = path.rfind("[") if path.endswith("]") else path.rfind("/")
        if end <= 0:
            return
        path = path[:end]
        yield path


def is_read_as(path: str, name: str) -> bool:
    """Whether a name is a path, as recorded or as people read it."""
    return name == path or ("%" in path and name in (unquote(path), path_text(path)))


def is_named(path: str, name: str) -> bool:
    """Whether a name means a step: its path or its id, as recorded or as people read it, with or without its item."""
    for whole in (path, path[path.rfind("/") + 1 :]):
        loop = whole[: whole.rfind("[")] if whole.endswith("]") else whole
        if is_read_as(whole, name) or is_read_as(loop, name):
            return True
    return False


def named(name: str, paths: Iterable[str]) -> list[str]:
    """The paths that a name means: the very path, or else all that it may mean."""
    known = list(dict.fromkeys(paths))
    return [name] if name in known else [path for path in known if is_named(path, name)]


def _escape(name: str) -> str:
    if not name:
        raise TraceError("a segment of a path cannot be empty")
    if _UNSAFE.search(name) is None:
        return name
    return _UNSAFE.sub(lambda match: f"%{ord(match.group()):02X}", name)
