"""The position of an event's line: its indentation and its name.

Steps are indented as they are nested. Lanes are different: their lines arrive in any order, so indentation
does not show which lane a line belongs to. Inside lanes every name begins with its lane.
"""

from typing import Final, NamedTuple
from urllib.parse import unquote

from gert.ecosystem.surfaces.cli.render.text import LONGEST_NAME, clip
from gert.kernel.events import runbook as says
from gert.kernel.events.envelope import Envelope
from gert.kernel.events.path import ancestors
from gert.kernel.events.payload import Payload
from gert.kernel.foundation.text import path_text

DEEPEST: Final = 16
"""Deeper indentation is not readable."""

MOST_OPEN: Final = 1000
"""A limit, because a foreign trace may open any number of blocks."""

# Events of a step that come before its end are shown below the line with its name.
_BENEATH: Final = (
    says.InputResolved, says.ApprovalSubmitted, says.ApprovalResponse, says.ApprovalEscalated, says.ApprovalResolved,
    says.ApprovalRefused, says.PreviewCaptured, says.PreviewSkipped, says.ApprovalOutdated,
    says.StepRetry, says.RedactionApplied, says.ContractViolation, says.MissingKey, says.ScopeExport,
    says.BranchEnter, says.BranchExit, says.ParallelFork, says.ParallelMerge,
    says.RepeatStart, says.RepeatIteration, says.GroupStart, says.GroupComplete,
)  # fmt: skip


class Position(NamedTuple):
    """A depth and a name that is safe to print."""

    depth: int
    name: str


class Positions:
    """Finds the position of each event; it must receive them in order."""

    def __init__(self) -> None:
        self._lanes: dict[str, None] = {}

    def of(self, event: Envelope, payload: Payload) -> Position:
        """Find the position of an event."""
        path = event.path
        if isinstance(payload, says.ParallelFork) or (isinstance(payload, says.ForEachStart) and payload.parallel):
            self._open(path)
        elif isinstance(payload, says.StepComplete) and path is not None:
            self._lanes.pop(path, None)
        step_id = getattr(payload, "step_id", None)
        if path is None:
            place = Position(0, clip(event.run_id if step_id is None else step_id, LONGEST_NAME))
        else:
            place = self.of_path(_own_path(path, step_id))
        return place._replace(depth=place.depth + 1) if isinstance(payload, _BENEATH) else place

    def of_path(self, path: str) -> Position:
        """Find the position of a step or its output."""
        fork = self._fork_around(path) if self._lanes else None
        if fork is None:
            return Position(min(depth_of(path), DEEPEST), shown(_distinct(path)))
        inside = path[len(fork) :]
        name = inside[1:] if inside.startswith("/") else last_segment(fork) + inside
        return Position(min(depth_of(fork) + 1, DEEPEST), shown(name))

    def is_in_lanes(self, path: str) -> bool:
        """Whether other lanes may emit lines at the same time."""
        return bool(self._lanes) and self._fork_around(path) is not None

    def _open(self, path: str | None) -> None:
        if path is not None and len(self._lanes) < MOST_OPEN:
            self._lanes[path] = None

    def _fork_around(self, path: str) -> str | None:
        return next((outer for outer in reversed(list(ancestors(path))) if outer in self._lanes), None)


def depth_of(path: str) -> int:
    """Count the ancestors of a path; an iteration is inside its step."""
    return path.count("/") + path.count("[")


def last_segment(path: str) -> str:
    """The innermost segment, as written."""
    return path[path.rfind("/") + 1 :]


def _distinct(path: str) -> str:
    """The innermost segment; the whole path where a step around it without an id has the same name."""
    *outer, name = path.split("/")
    is_repeated = "#" in name and any(each.partition("[")[0] == name for each in outer)
    return path if is_repeated else name


def shown(name: str) -> str:
    """A path segment in readable form."""
    return clip(path_text(name[: 4 * LONGEST_NAME]), LONGEST_NAME)


def _own_path(path: str, step_id: str | None) -> str:
    """The path of an event's step: an event of an arm may carry the path of the arm, below its step."""
    if step_id is None or unquote(last_segment(path)) == step_id:
        return path
    return next((outer for outer in ancestors(path) if unquote(last_segment(outer)) == step_id), path)
