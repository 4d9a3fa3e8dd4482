"""What a run is asked to be, and what became of it."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec import field

from gert.ecosystem.host.driver import MAX_PARALLEL
from gert.ecosystem.host.worlds import PROBED_EFFECTS
from gert.kernel.engine.inputs import Given
from gert.kernel.engine.run import RunResult
from gert.kernel.events.vocabulary import RunMode
from gert.kernel.foundation.secret_refs import masked

MODES: Final[tuple[RunMode, ...]] = ("real", "dry-run", "probe", "replay")


class RunOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a run is asked to be; times are in seconds.

    sync: whether events are on disk before the next question is put
    scenario: the folder or the name of the scenario that answers in a replay
    record: the folder a scenario of this run is written to
    config: a file of settings beside those of the project
    """

    file: str
    given: Mapping[str, Given] = field(default_factory=dict)
    mode: RunMode = "real"
    actor: str | None = None
    trace: str | None = None
    db: str | None = None
    state_dir: str | None = None
    sync: bool = True
    policies: tuple[str, ...] = ()
    evidence: str | None = None
    scenario: str | None = None
    record: str | None = None
    config: str | None = None
    max_parallel: int = MAX_PARALLEL
    timeout: float | None = None
    probe_effects: frozenset[str] = PROBED_EFFECTS


class Recorded(msgspec.Struct, frozen=True):
    """A scenario that was recorded: its folder, and why it does not replay to the same, if it does not."""

    folder: str
    differs: str | None = None


class Executed(msgspec.Struct, frozen=True, kw_only=True):
    """A run that ended: its id, its result, and where it is recorded."""

    run_id: str
    runbook: str
    mode: RunMode
    result: RunResult
    events: int
    trace: str | None
    db: str | None
    interrupted: bool
    scenario: Recorded | None = None

    def as_json(self) -> dict[str, Any]:
        """The result as machines read it."""
        said: dict[str, Any] = masked(msgspec.to_builtins(self.result, enc_hook=str))
        return {
            "run_id": self.run_id,
            "runbook": self.runbook,
            "mode": self.mode,
            **{name: value for name, value in said.items() if value not in (None, [], ())},
            "duration": round(self.result.duration, 3),
            "events": self.events,
            "trace": self.trace,
            "db": self.db,
            **({"scenario": msgspec.to_builtins(self.scenario)} if self.scenario is not None else {}),
        }
