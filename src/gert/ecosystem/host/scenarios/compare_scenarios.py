"""Compare the replay of scenarios with a baseline: their recorded trace, their test, or another revision.

Both sides are replays of the same scenario, or one replay and the observation of a trace. All answers come from the
scenario, so no record of a run is driven again (ADR 56).
"""

import asyncio
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from typing import Final, Literal

import msgspec
from msgspec import field

from gert.ecosystem.host.config.files import is_file
from gert.ecosystem.host.config.settings import require_sound
from gert.ecosystem.host.config.workspace import Checked, Workspace
from gert.ecosystem.host.run.options import RunOptions
from gert.ecosystem.host.run.prepare import Prepared
from gert.ecosystem.host.runs.traces import Unreadable, events_of, open_trace
from gert.ecosystem.host.scenarios.folders import (
    SCENARIO_FILE,
    TRACE_FILE,
    Folder,
    Loaded,
    find_scenario,
    is_archived,
    scenarios_of,
)
from gert.ecosystem.host.scenarios.replay import Replayed, replay
from gert.ecosystem.host.scenarios.revisions import extract_revision
from gert.ecosystem.host.scenarios.suite import TESTER
from gert.errors import GertError, TraceError, UsageError
from gert.kernel.events.runbook import RunStart
from gert.kernel.foundation.redaction import Redactor
from gert.kernel.runbook.finding import Severity
from gert.kernel.runbook.program import Program
from gert.kernel.scenario.changes import Changes, changes, changes_since
from gert.kernel.scenario.expect import differences
from gert.kernel.scenario.inputs import replayed_inputs
from gert.kernel.scenario.observed import RunObservation

PATIENCE: Final = 60.0
"""Seconds one replay may take."""

MOST_EVENTS: Final = 1_000_000

Baseline = Literal["trace", "test", "none", "revision"]
# Names in a scenario that the runbook no longer has: the comparison reports them.
_GONE: Final = frozenset({"D60", "D61"})


class Compared(msgspec.Struct, frozen=True, kw_only=True):
    """One scenario, before and now.

    baseline: what it was compared with
    missing: what the runbook asks and the scenario does not answer
    problem: why it could not be compared; that is a change, too
    notes: what is worth knowing and no change
    """

    scenario: str
    folder: str
    baseline: Baseline
    changes: Changes | None = None
    missing: tuple[str, ...] = ()
    problem: str | None = None
    notes: tuple[str, ...] = ()

    @property
    def is_same(self) -> bool:
        """Whether nothing changed."""
        return self.problem is None and not self.missing and self.changes is not None and self.changes.is_none


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """A runbook, its scenarios before and now.

    against: the revision it was compared with, and `commit` what that is
    """

    runbook: str
    file: str
    compared: list[Compared] = field(default_factory=list)
    against: str | None = None
    commit: str | None = None

    @property
    def changed(self) -> int:
        """How many scenarios changed."""
        return sum(not each.is_same for each in self.compared)


class ReplayedRunbook:
    """A runbook that scenarios are replayed on."""

    def __init__(self, file: str, environ: Mapping[str, str], workspace: Workspace | None = None) -> None:
        self.workspace = workspace or Workspace()
        options = RunOptions(file=file, mode="replay", scenario=file, actor=TESTER)
        self._prepared = Prepared(options, environ, self.workspace)

    @property
    def program(self) -> Program:
        """The runbook and its tools."""
        return self._prepared.program

    def load(self, folder: Folder) -> tuple[Loaded, tuple[str, ...]]:
        """A scenario with what it names that is not there; unlike a test, a comparison continues without."""
        if not is_file(folder.scenario):
            raise UsageError(f"there is no `{SCENARIO_FILE}` in `{folder.path}`")
        scenario = self.workspace.check(folder.scenario, kind="scenario", runbook=self.program)
        gone = [*_missing_references(scenario)]
        expected = None
        if folder.has_test:
            test = self.workspace.check(folder.test, kind="test", runbook=self.program)
            gone += _missing_references(test)
            expected = test.document.model
        model = scenario.document.model
        for given in (model.inputs, model.input_answers):
            for name in [name for name in given if name not in self.program.runbook.meta.inputs]:
                del given[name]
        return Loaded(folder, model, expected), tuple(dict.fromkeys(gone))

    async def replay(self, loaded: Loaded, actor: str | None) -> Replayed:
        """Run it on a scenario, as the person it names, or who ran it first."""
        inputs = replayed_inputs(self.program.runbook.meta.inputs, loaded.scenario)
        setup = self._prepared.setup(inputs, Redactor(), loaded.folder.name, loaded.scenario.actor or actor)
        ran = await replay(loaded, setup, PATIENCE)
        if ran.timed_out:
            raise UsageError(f"its replay takes longer than {PATIENCE:g} seconds")
        return ran


def compare(
    file: str,
    folders: Iterable[Folder],
    *,
    against: str | None = None,
    environ: Mapping[str, str] | None = None,
) -> Comparison:
    """Replay scenarios on a runbook as it is, and compare them with their record or with another revision."""
    environ = dict(os.environ) if environ is None else environ
    today = ReplayedRunbook(file, environ)
    name = today.program.runbook.meta.name
    with ExitStack() as stack, asyncio.Runner() as runner:
        if against is None:
            found = [_one(folder, lambda each: _since_recorded(each, today, runner), "none") for folder in folders]
            return Comparison(runbook=name, file=file, compared=found)
        was = stack.enter_context(extract_revision(file, against, environ))
        try:
            before = ReplayedRunbook(was.runbook, environ, Workspace(was.working))
        except GertError as problem:
            raise UsageError(
                f"the runbook cannot be run as it was at `{against}`: {_without(was.runbook, file, problem.message)}"
            ) from None
        found = [_one(folder, lambda each: _since(each, before, today, runner), "revision") for folder in folders]
        return Comparison(runbook=name, file=file, compared=found, against=against, commit=was.commit)


def select_scenarios(file: str, names: Iterable[str], *, include_archived: bool) -> list[Folder]:
    """The scenarios that are named, or those that are golden."""
    named = [find_scenario(file, name) for name in dict.fromkeys(names)]
    return named or [folder for folder in scenarios_of(file) if include_archived or not is_archived(folder)]


def recorded_run(folder: Folder) -> tuple[RunObservation | None, str | None, str | None]:
    """The observation of the run a scenario was recorded from, its actor, and why it cannot be read."""
    if not is_file(folder.trace):
        return None, None, None
    seen, actor = RunObservation(), None
    try:
        for number, event in enumerate(events_of(open_trace(folder.trace, None, None)), 1):
            if isinstance(event, Unreadable):
                return None, actor, f"line {event.line} of `{TRACE_FILE}` cannot be read: {event.reason}"
            if number > MOST_EVENTS:
                return None, actor, f"`{TRACE_FILE}` has more than {MOST_EVENTS} events"
            if event.type == RunStart.type and isinstance(start := event.payload, RunStart):
                actor = start.actor
            seen.take_all((event,))
    except GertError as problem:
        return None, actor, f"`{TRACE_FILE}` cannot be read: {problem.message}"
    if seen.status is None:
        return None, actor, f"`{TRACE_FILE}` does not say how the run ended"
    return seen, actor, None


def _one(folder: Folder, compared: Callable[[Folder], Compared], baseline: Baseline) -> Compared:
    try:
        return compared(folder)
    except TraceError:
        raise
    except GertError as problem:
        return Compared(scenario=folder.name, folder=folder.path, baseline=baseline, problem=problem.message)


def _since_recorded(folder: Folder, book: ReplayedRunbook, runner: asyncio.Runner) -> Compared:
    recorded, actor, broken = recorded_run(folder)
    loaded, gone = book.load(folder)
    ran = runner.run(book.replay(loaded, actor))
    notes = [*gone, *([broken] if broken is not None else [])]
    expected = loaded.expected
    if recorded is not None and expected is not None and (stale := _contradicts(loaded, recorded)):
        notes.append(f"its test no longer expects what its trace recorded ({stale}): the test counts")
        recorded = None
    baseline: Baseline = "trace" if recorded is not None else "test" if expected is not None else "none"
    if baseline == "none":
        notes.append("nothing was recorded and nothing is expected: it was only seen to complete")
    return Compared(
        scenario=folder.name,
        folder=folder.path,
        baseline=baseline,
        changes=changes(recorded, ran.seen, expected) if recorded is not None else changes_since(expected, ran.seen),
        missing=tuple(ran.missing),
        notes=tuple(notes),
    )


def _contradicts(loaded: Loaded, recorded: RunObservation) -> str | None:
    """What the test expects by now and the record does not show: an updated test is newer than the trace."""
    found = next(differences(loaded.expected, recorded, []), None)
    return found.name if found is not None and found.name != "expected_events" else None


def _since(folder: Folder, before: ReplayedRunbook, today: ReplayedRunbook, runner: asyncio.Runner) -> Compared:
    actor = recorded_run(folder)[1]
    loaded, gone = today.load(folder)
    ran = runner.run(today.replay(loaded, actor))
    try:
        earlier, _ = before.load(folder)
        was = runner.run(before.replay(earlier, actor))
    except GertError as problem:
        raise UsageError(f"it does not run as it was: {problem.message}") from None
    notes = [*gone, *(f"before: {each}" for each in was.missing)]
    # What neither asks to be answered is no change.
    missing = tuple(each for each in ran.missing if each not in was.missing)
    return Compared(
        scenario=folder.name,
        folder=folder.path,
        baseline="revision",
        changes=changes(was.seen, ran.seen),
        missing=missing,
        notes=tuple(notes),
    )


def _missing_references(checked: Checked) -> Iterator[str]:
    """What a document names that is not there; any other error is one."""
    errors = [finding for finding in checked.findings if finding.severity is Severity.ERROR]
    if any(finding.rule not in _GONE for finding in errors) or checked.document.model is None:
        require_sound(checked)
    yield from (finding.message for finding in errors)


def _without(path: str, file: str, message: str) -> str:
    """A message about a file that is about to go away, by the name people know."""
    return message.replace(path, file).replace(os.path.dirname(path) + os.sep, "")
