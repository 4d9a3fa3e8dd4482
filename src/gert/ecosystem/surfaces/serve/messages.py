"""The messages of `gert serve` that are no operations: the connection, streams, and notifications."""

from collections.abc import Mapping
from typing import Annotated, Any, Final, NotRequired, TypedDict

import msgspec
from msgspec import Meta

from gert.ecosystem.host.operations.runs import RunId
from gert.ecosystem.host.shapes.documents import Finding

PROTOCOL: Final = "1"


class Initialize(msgspec.Struct, frozen=True, kw_only=True):
    """Begin. Keys that this version does not know are ignored."""

    protocol_version: str = PROTOCOL


class Nothing(msgspec.Struct, frozen=True, kw_only=True):
    """No parameters."""


class Follow(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Stream the events of a run as `gert/event` notifications, and its status as `gert/status`."""

    run_id: RunId
    since: Annotated[int, Meta(ge=0, description="Events after this number of the ledger.")] = 0


class Unfollow(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Stop following a run."""

    run_id: RunId


class Unwatch(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Stop watching files."""

    paths: Annotated[list[str], Meta(description="Paths as they were given to `gert/watch`.", max_length=1000)]


class Initialized(TypedDict):
    """What this server offers."""

    protocol_version: str
    server: str
    root: str
    methods: list[str]
    notifications: list[str]


class Following(TypedDict):
    """A run that is followed."""

    run_id: str


class Unfollowed(TypedDict):
    """Whether the run was followed."""

    stopped: bool


class Watching(TypedDict):
    """Every file that is watched now."""

    watching: list[str]


class Unwatched(TypedDict):
    """The files that are no longer watched."""

    stopped: list[str]


class Reference(TypedDict):
    """Every method with its parameters and result, and every notification."""

    protocol_version: str
    methods: dict[str, dict[str, Any]]
    notifications: dict[str, dict[str, Any]]


class Done(TypedDict):
    """An empty answer."""


class EventNote(TypedDict):
    """An event of a run that the client follows."""

    run_id: str
    event: dict[str, Any]


class StatusNote(TypedDict):
    """The status of a run that the client follows has changed."""

    run_id: str
    status: str
    message: NotRequired[str]


class DiagnosticsNote(TypedDict):
    """The findings of a watched file, now and whenever it changes."""

    path: str
    findings: list[Finding]


class ProgressNote(TypedDict):
    """Progress of a request that has a `progress_token`."""

    token: str | int
    done: int
    running: list[str]


NOTIFICATIONS: Final[Mapping[str, Any]] = {
    "gert/event": EventNote,
    "gert/status": StatusNote,
    "gert/diagnostics": DiagnosticsNote,
    "gert/progress": ProgressNote,
}
