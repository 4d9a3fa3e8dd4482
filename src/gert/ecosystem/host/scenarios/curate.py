"""Curating scenarios: find them by name, list them, promote and demote them."""

import os
from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal

import msgspec

from gert.ecosystem.host.config.files import is_file, read_map, runbook_of
from gert.ecosystem.host.config.settings import require_sound
from gert.ecosystem.host.config.workspace import Workspace
from gert.ecosystem.host.runs.traces import Unreadable, events_of, open_trace
from gert.ecosystem.host.scenarios.edit import edit_file, edited, read_text, write_atomically
from gert.ecosystem.host.scenarios.folders import (
    SCENARIO_FILE,
    TEST_FILE,
    TRACE_FILE,
    Folder,
    find_scenario,
    find_scenarios,
    load,
    scenario_folder,
)
from gert.ecosystem.host.scenarios.record_scenario import X_RECORDED, recorded_from, write_folder
from gert.errors import DocumentError, GertError, UsageError
from gert.kernel.foundation.names import listing, suggestion
from gert.kernel.foundation.text import os_reason
from gert.kernel.runbook.writer import to_yaml
from gert.kernel.scenario.changes import Ending

Kind = Literal["golden", "archived", "by hand"]
LONGEST_TRACE: Final = 256 * 1024 * 1024
# The expectations of a scenario without a test.
_IMPLIED: Final = {"expected_status": "completed"}


class ScenarioInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A scenario as its files describe it.

    kind: promoted, archived, or written by hand (which runs by default)
    expects: the outcome or status that its test expects
    recorded: when it was recorded, or from which run
    problem: why its files cannot be read
    """

    runbook: str | None
    scenario: str
    folder: str
    kind: Kind = "by hand"
    expects: str | None = None
    recorded: str | None = None
    description: str | None = None
    problem: str | None = None


class Curated(msgspec.Struct, frozen=True, kw_only=True):
    """A scenario that was promoted or demoted.

    moved_from: its folder before; a scenario outside the layout is copied and stays there
    rewritten: whether its test was rewritten, without comments
    """

    folder: str
    runbook: str | None
    golden: bool
    changed: bool
    moved_from: str | None = None
    rewritten: bool = False


def list_scenarios(names: Iterable[str]) -> list[ScenarioInfo]:
    """List the scenarios of runbooks and below folders."""
    return [scenario_info(folder) for folder in find_scenarios(names)]


def scenario_info(folder: Folder) -> ScenarioInfo:
    """Describe a scenario by its files, whether or not it fits its runbook."""
    entry = ScenarioInfo(runbook=folder.runbook, scenario=folder.name, folder=folder.path)
    try:
        scenario = read_map(folder.scenario, "answers")
        test: Mapping[str, Any] = read_map(folder.test, "expectations") if folder.has_test else {}
    except GertError as problem:
        return msgspec.structs.replace(entry, problem=problem.message)
    golden = test.get("golden")
    ending = Ending(*(_text(test.get(f"expected_{name}")) for name in ("status", "outcome", "code")))
    kind: Kind = "golden" if golden is True else "archived" if golden is False else "by hand"
    return msgspec.structs.replace(
        entry,
        kind=kind,
        expects=str(ending) if ending != Ending() else None,
        recorded=_recorded(folder, scenario),
        description=_text(test.get("description")) or _text(scenario.get("description")),
    )


def locate(named: str, runbook: str | None = None) -> Folder:
    """Find a scenario: a folder, or a name among those of the runbook or below the working directory."""
    if runbook is not None:
        if not is_file(runbook):
            raise UsageError(f"there is no file `{runbook}`")
        return find_scenario(runbook, named)
    folder = os.path.dirname(named) if os.path.basename(named) == SCENARIO_FILE else named
    if is_file(os.path.join(folder, SCENARIO_FILE)):
        path = os.path.normpath(folder)
        return Folder(path, runbook_of(path))
    if os.path.basename(os.path.normpath(named)) != named or named in (os.curdir, os.pardir):
        raise UsageError(f"there is no `{SCENARIO_FILE}` in `{named}`")
    found = find_scenarios(["."])
    known = [each for each in found if each.name == named]
    if not known:
        raise UsageError(
            f"there is no scenario `{named}` below this folder",
            hint=suggestion(named, (each.name for each in found)) or "list the scenarios with `gert scenario list`",
        )
    if len(known) > 1:
        folders = listing((each.path for each in known), 10)
        raise UsageError(f"several scenarios are named `{named}`", hint=f"pass the folder: {folders}")
    return known[0]


def promote(folder: Folder, *, name: str | None = None, runbook: str | None = None) -> Curated:
    """Make a scenario golden; copy it to its runbook if it is elsewhere, and rename it if `name` differs."""
    target_book = runbook or runbook_of(folder.path) or _recorded_for(folder)
    workspace = Workspace()
    program = require_sound(workspace.program(target_book)).program
    if program is None:
        raise DocumentError(f"`{target_book}` is not a runbook")
    # A scenario that does not fit the runbook cannot run as a test.
    load(workspace, folder, program)
    target = scenario_folder(target_book, name or folder.name)
    if _is_same_folder(target.path, folder.path):
        return _mark(msgspec.structs.replace(folder, runbook=target_book), golden=True)
    if os.path.lexists(target.path):
        raise UsageError(f"scenario `{target.name}` already exists", hint="choose another name with --name")
    if os.path.dirname(os.path.realpath(folder.path)) == os.path.realpath(os.path.dirname(target.path)):
        _rename(folder.path, target.path)
        marked = _mark(target, golden=True)
        return msgspec.structs.replace(marked, moved_from=folder.path, changed=True)
    return _copy(folder, target)


def demote(folder: Folder) -> Curated:
    """Archive a scenario: it runs only with --all."""
    return _mark(folder, golden=False)


def _mark(folder: Folder, *, golden: bool) -> Curated:
    if not is_file(folder.scenario):
        raise UsageError(f"there is no `{SCENARIO_FILE}` in `{folder.path}`")
    said = Curated(folder=folder.path, runbook=folder.runbook, golden=golden, changed=True)
    if not is_file(folder.test):
        write_atomically(folder.test, to_yaml({"golden": golden, **_IMPLIED}))
        return said
    before = read_map(folder.test, "expectations").get("golden")
    kept = edit_file(folder.test, {"golden": golden})
    return msgspec.structs.replace(said, changed=before is not golden, rewritten=not kept)


def _copy(folder: Folder, target: Folder) -> Curated:
    """Copy a scenario to its runbook and make it golden; all files appear at once."""
    scenario = _changed(folder.scenario, _extensions(folder, target))
    rewritten = False
    if is_file(folder.test):
        test = edited(read_text(folder.test), {"golden": True})
        expectations, rewritten = test.text, test.rewritten
    else:
        expectations = to_yaml({"golden": True, **_IMPLIED})
    files = {SCENARIO_FILE: scenario.encode(), TEST_FILE: expectations.encode()}
    if is_file(folder.trace):
        files[TRACE_FILE] = _trace(folder.trace)
    write_folder(target.path, files)
    return Curated(
        folder=target.path,
        runbook=target.runbook,
        golden=True,
        changed=True,
        moved_from=folder.path,
        rewritten=rewritten,
    )


def _extensions(folder: Folder, target: Folder) -> dict[str, Any]:
    """The recorded path of the runbook, relative to the new folder."""
    extensions = read_map(folder.scenario, "answers").get("extensions")
    said = recorded_from(extensions) if isinstance(extensions, Mapping) else {}
    if "runbook" not in said or target.runbook is None or not isinstance(extensions, Mapping):
        return {}
    there = os.path.relpath(os.path.abspath(target.runbook), os.path.abspath(target.path))
    return {"extensions": {**extensions, X_RECORDED: {**said, "runbook": there}}}


def _recorded_for(folder: Folder) -> str:
    """The runbook that a scenario was recorded from, by its own record."""
    extensions = read_map(folder.scenario, "answers").get("extensions")
    said = recorded_from(extensions).get("runbook") if isinstance(extensions, Mapping) else None
    if not isinstance(said, str):
        raise UsageError(
            f"`{folder.path}` is not in the scenario folder of a runbook and does not name its runbook",
            hint="name the runbook with --runbook",
        )
    path = os.path.normpath(os.path.join(folder.path, said))
    if not is_file(path):
        raise UsageError(f"the runbook `{path}` no longer exists", hint="name the runbook with --runbook")
    relative = os.path.relpath(path)
    return path if relative.startswith(os.pardir) else relative


def _rename(before: str, after: str) -> None:
    try:
        os.rename(before, after)
    except OSError as problem:
        why = os_reason(problem)
        raise UsageError(f"`{before}` cannot be renamed to `{os.path.basename(after)}`: {why}") from None


def _changed(path: str, changes: Mapping[str, Any]) -> str:
    source = read_text(path)
    return edited(source, changes).text if changes else source


def _trace(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            data = file.read(LONGEST_TRACE + 1)
    except OSError as problem:
        raise DocumentError(f"`{path}` cannot be read: {os_reason(problem)}") from None
    if len(data) > LONGEST_TRACE:
        raise UsageError(
            f"`{path}` is larger than {LONGEST_TRACE // (1024 * 1024)} MiB", hint="remove the trace from the folder"
        )
    return data


def _is_same_folder(one: str, other: str) -> bool:
    return os.path.realpath(one) == os.path.realpath(other)


def _recorded(folder: Folder, scenario: Mapping[str, Any]) -> str | None:
    """The start time of the run by its trace, otherwise its id."""
    if is_file(folder.trace):
        try:
            first = next(iter(events_of(open_trace(folder.trace, None, None))), None)
        except GertError:
            first = None
        if first is not None and not isinstance(first, Unreadable):
            return first.timestamp
    extensions = scenario.get("extensions")
    return _text(recorded_from(extensions).get("run_id")) if isinstance(extensions, Mapping) else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
