"""Testing runbooks: replay every scenario and check its expectations."""

import asyncio
import fnmatch
import os
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final, Literal

import msgspec
from msgspec import field

from gert.ecosystem.host.config.files import read_document, yaml_files
from gert.ecosystem.host.config.workspace import Workspace
from gert.ecosystem.host.run.options import RunOptions
from gert.ecosystem.host.run.prepare import Prepared
from gert.ecosystem.host.scenarios.folders import Folder, Loaded, find_scenarios, is_archived, load
from gert.ecosystem.host.scenarios.replay import Replayed, replay
from gert.ecosystem.host.shapes.documents import TestReport
from gert.errors import GertError
from gert.kernel.foundation.names import listing
from gert.kernel.foundation.redaction import Redactor
from gert.kernel.scenario.coverage import Coverage, CoverageReport
from gert.kernel.scenario.expect import Difference, absence_notes, differences
from gert.kernel.scenario.inputs import replayed_inputs
from gert.kernel.scenario.recorded_test import recorded_test
from gert.kernel.scenario.update import updates

TESTER = "tester@gert"
"""The actor of a test: the same on every machine, so that a test has the same result everywhere."""

_HEAD = 64 * 1024

Verdict = Literal["passed", "failed", "error", "skipped", "updated"]
"""`updated`: it failed, and its expectations were updated."""


class SuiteOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Which scenarios to test, and how; times are in seconds.

    named: files and folders that the caller named: a recording there is tested even if it is not promoted
    scenarios: patterns of names; empty for all
    include_archived: also test scenarios that are not golden
    """

    named: tuple[str, ...] = ()
    scenarios: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    include_archived: bool = False
    policies: tuple[str, ...] = ()
    config: str | None = None
    timeout: float | None = None
    wants_updates: bool = False


class Tested(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one scenario.

    message: why it could not run, or was skipped
    notes: remarks that are not failures
    updates: the keys of its test file that must change for it to pass
    """

    runbook: str
    scenario: str
    folder: str
    verdict: Verdict
    seconds: float = 0.0
    description: str | None = None
    status: str | None = None
    outcome: str | None = None
    differences: list[Difference] = field(default_factory=list)
    message: str | None = None
    hint: str | None = None
    notes: list[str] = field(default_factory=list)
    updates: dict[str, Any] = field(default_factory=dict)


def report_of(tests: Sequence[Tested], seconds: float, *, stopped: bool = False) -> TestReport:
    """The results of scenarios as machines read them."""
    counted = Counter(each.verdict for each in tests)
    return {
        "passed": counted["passed"],
        "failed": counted["failed"],
        "errors": counted["error"],
        "skipped": counted["skipped"],
        "updated": counted["updated"],
        "seconds": round(seconds, 3),
        "stopped": stopped,
        "tests": msgspec.to_builtins(tests, enc_hook=str),
    }


class Covered(msgspec.Struct, frozen=True):
    """The coverage of one runbook by the scenarios that were run."""

    runbook: str
    report: CoverageReport


class Group(msgspec.Struct, frozen=True):
    """A runbook and its scenarios to test."""

    runbook: str | None
    folders: tuple[Folder, ...]


def groups_of(folders: Iterable[Folder]) -> list[Group]:
    """Scenarios by runbook, in order."""
    grouped: dict[str | None, list[Folder]] = {}
    for folder in folders:
        grouped.setdefault(folder.runbook, []).append(folder)
    return [Group(runbook, tuple(each)) for runbook, each in grouped.items()]


def run_groups(
    groups: Sequence[Group], options: SuiteOptions, environ: Mapping[str, str] | None = None
) -> Iterator[Tested | Covered]:
    """Test one scenario after the other; the coverage of a runbook follows its last scenario."""
    environ = dict(os.environ) if environ is None else environ
    with asyncio.Runner() as runner:
        for group in groups:
            yield from _RunbookTest(group, options, environ, runner).test()


def run_suite(names: Iterable[str] | str = ".", **options: Any) -> list[Tested]:
    """Test the scenarios of runbooks, files and folders; `options` are those of `SuiteOptions`."""
    folders = find_scenarios((names,) if isinstance(names, str) else names)
    return [found for found in run_groups(groups_of(folders), SuiteOptions(**options)) if isinstance(found, Tested)]


def untested(names: Iterable[str], tested: Collection[str | None]) -> Iterator[Covered]:
    """The runbooks in folders that have no scenario, with their missing coverage."""
    known = {os.path.abspath(runbook) for runbook in tested if runbook is not None}
    workspace = Workspace()
    for name in names:
        for file in yaml_files(name) if os.path.isdir(name) else ():
            if os.path.abspath(file) in known:
                continue
            try:
                program = workspace.check(file).program if b"kernel/v0" in read_document(file)[:_HEAD] else None
            except GertError:
                continue  # `gert validate` reports files that cannot be read
            if program is not None:
                yield Covered(file, Coverage(program).report())


class _RunbookTest:
    """One runbook under test."""

    def __init__(self, group: Group, options: SuiteOptions, environ: Mapping[str, str], runner: asyncio.Runner) -> None:
        self._group = group
        self._options = options
        self._environ = environ
        self._runner = runner
        self._workspace = Workspace()

    def test(self) -> Iterator[Tested | Covered]:
        """Test the selected scenarios."""
        folders = [folder for folder in self._group.folders if self._is_wanted(folder)]
        if not folders:
            return
        runbook = self._group.runbook
        try:
            if runbook is None:
                yield from map(self._stray, folders)
                return
            prepared = self._prepared(runbook)
        except GertError as problem:
            yield from (broken(folder, problem.message, problem.hint) for folder in folders)
            return
        coverage = Coverage(prepared.program)
        for folder in folders:
            tested = self._scenario(folder, prepared, coverage)
            if tested is not None:
                yield tested
        yield Covered(runbook, coverage.report())

    def _is_wanted(self, folder: Folder) -> bool:
        patterns = self._options.scenarios
        return not patterns or any(fnmatch.fnmatchcase(folder.name, pattern) for pattern in patterns)

    def _stray(self, folder: Folder) -> Tested:
        """A scenario without a runbook: an error, unless it is a recording that is not promoted yet."""
        asked = (
            self._options.include_archived
            or self._options.scenarios
            or os.path.abspath(folder.path) in self._options.named
        )
        if is_archived(folder) and not asked:
            return Tested(runbook="", scenario=folder.name, folder=folder.path, verdict="skipped", message=_ARCHIVED)
        return broken(folder, _STRAY, _STRAY_HINT)

    def _prepared(self, runbook: str) -> Prepared:
        options = RunOptions(
            file=runbook,
            mode="replay",
            scenario=runbook,
            actor=TESTER,
            policies=self._options.policies,
            config=self._options.config,
        )
        return Prepared(options, self._environ, self._workspace)

    def _scenario(self, folder: Folder, prepared: Prepared, coverage: Coverage) -> Tested | None:
        started = time.perf_counter()
        try:
            loaded = load(self._workspace, folder, prepared.program)
            tags = loaded.expected.tags if loaded.expected is not None else ()
            if self._options.tags and not set(self._options.tags) & set(tags):
                return None
            if not (loaded.runs_by_default or self._options.include_archived or self._options.scenarios):
                return _tested(loaded, "skipped", message=_ARCHIVED)
            inputs = replayed_inputs(prepared.program.runbook.meta.inputs, loaded.scenario)
            setup = prepared.setup(inputs, Redactor(), folder.name, loaded.scenario.actor)
            ran = self._runner.run(replay(loaded, setup, self._options.timeout))
            # Inside `try`: an invalid expectation is an error of this scenario only.
            judged = self._evaluate(loaded, ran, time.perf_counter() - started)
        except GertError as problem:
            return broken(folder, problem.message, problem.hint, time.perf_counter() - started)
        coverage.add(ran.seen)
        return judged

    def _evaluate(self, loaded: Loaded, ran: Replayed, seconds: float) -> Tested:
        found = [*_late(ran), *differences(loaded.expected, ran.seen, ran.missing)]
        outcome = ran.result.outcome
        return _tested(
            loaded,
            "failed" if found else "passed",
            seconds=round(seconds, 4),
            status=ran.result.status,
            outcome=f"{outcome.category} ({outcome.code})" if outcome is not None else None,
            differences=found,
            notes=list(_notes(loaded, ran)),
            updates=_updates(loaded, ran) if found and self._options.wants_updates else {},
        )


UNUSED: Final = "unused answers: "
"""The note on answers that a run did not ask for: often, the test does not test what its author thinks."""

_ARCHIVED = "archived: `golden: false`"
_STRAY = "the scenario has no runbook"
_STRAY_HINT = (
    "the scenarios of `check.yaml` are in `scenarios/check/<name>/` next to it; promote a recording to copy it there"
)


def _tested(loaded: Loaded, verdict: Verdict, **more: Any) -> Tested:
    folder = loaded.folder
    return Tested(
        runbook=folder.runbook or "",
        scenario=folder.name,
        folder=folder.path,
        verdict=verdict,
        description=loaded.expected.description if loaded.expected is not None else loaded.scenario.description,
        **more,
    )


def broken(folder: Folder, message: str, hint: str | None, seconds: float = 0.0) -> Tested:
    """A scenario that could not be run."""
    return Tested(
        runbook=folder.runbook or "",
        scenario=folder.name,
        folder=folder.path,
        verdict="error",
        message=message,
        hint=hint,
        seconds=round(seconds, 4),
    )


def _late(ran: Replayed) -> Iterator[Difference]:
    """A timeout is always a difference, even if the test expects a cancelled run."""
    if ran.timed_out:
        yield Difference(
            "scenario", "an end in time", "that it took longer than the timeout", "raise it with --timeout"
        )


def _notes(loaded: Loaded, ran: Replayed) -> Iterator[str]:
    if loaded.expected is None:
        yield f"there is no `{os.path.basename(loaded.folder.test)}`: only checked that the run completes"
    else:
        yield from islice(absence_notes(loaded.expected, ran.seen), 5)
    if ran.approved_by_default:
        yield f"approved by default, because the scenario has no answer: {listing(ran.approved_by_default, 5)}"
    if ran.unused:
        yield f"{UNUSED}{listing(ran.unused, 5)}"


def _updates(loaded: Loaded, ran: Replayed) -> dict[str, Any]:
    if ran.missing or ran.timed_out:
        return {}  # the scenario must be fixed, not its expectations
    if loaded.expected is None:
        fresh = recorded_test(ran.seen, loaded.scenario.description or loaded.folder.name)
        return {name: value for name, value in fresh.items() if name != "golden"}
    return updates(loaded.expected, ran.seen)
