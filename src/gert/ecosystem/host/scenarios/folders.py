"""Scenario folders: `<runbook dir>/scenarios/<runbook file stem>/<scenario>/` (DECISIONS 14)."""

import os
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from gert.ecosystem.host.config.files import SCENARIOS, is_file, is_searched, require_read, runbook_of, suggested_file
from gert.ecosystem.host.config.settings import require_sound
from gert.ecosystem.host.config.workspace import Workspace
from gert.errors import DocumentError, UsageError
from gert.kernel.foundation.names import is_safe_name, listing, suggestion
from gert.kernel.foundation.text import os_reason
from gert.kernel.runbook.documents.expectations import Expectations
from gert.kernel.runbook.documents.scenario import Scenario
from gert.kernel.runbook.program import Program
from gert.kernel.runbook.reader import read
from gert.kernel.runbook.tree import Map

SCENARIO_FILE: Final = "scenario.yaml"
TEST_FILE: Final = "test.yaml"
TRACE_FILE: Final = "trace.jsonl"


class Folder(msgspec.Struct, frozen=True):
    """One scenario: its folder, and its runbook if known."""

    path: str
    runbook: str | None = None

    @property
    def name(self) -> str:
        """The name of the scenario."""
        return os.path.basename(os.path.normpath(self.path))

    @property
    def scenario(self) -> str:
        """The file with the answers."""
        return os.path.join(self.path, SCENARIO_FILE)

    @property
    def test(self) -> str:
        """The file with the expectations; it may not exist."""
        return os.path.join(self.path, TEST_FILE)

    @property
    def has_test(self) -> bool:
        """Whether the file exists; a broken link counts, because its expectations are missing."""
        return os.path.lexists(self.test)

    @property
    def trace(self) -> str:
        """The trace of the recorded run; it may not exist."""
        return os.path.join(self.path, TRACE_FILE)


class Loaded(msgspec.Struct, frozen=True):
    """A valid scenario."""

    folder: Folder
    scenario: Scenario
    expected: Expectations | None

    @property
    def runs_by_default(self) -> bool:
        """Whether it is golden: promoted, or written by hand."""
        return self.expected is None or self.expected.golden is not False


def load(workspace: Workspace, folder: Folder, program: Program) -> Loaded:
    """Read a scenario and its expectations, or raise their first error."""
    require_read(folder.path)
    if not is_file(folder.scenario):
        raise UsageError(f"there is no `{SCENARIO_FILE}` in `{folder.path}`")
    scenario = require_sound(workspace.check(folder.scenario, kind="scenario", runbook=program)).document.model
    expected = None
    if folder.has_test:
        expected = require_sound(workspace.check(folder.test, kind="test", runbook=program)).document.model
    return Loaded(folder, scenario, expected)


def is_archived(folder: Folder) -> bool:
    """Whether a scenario is archived, even if it no longer loads."""
    if not is_file(folder.test):
        return False
    try:
        with open(folder.test, "rb") as file:
            root = read(file.read(1 << 20)).tree.root
    except OSError:
        return False
    return isinstance(root, Map) and root.get("golden") is False


def scenario_folder(runbook: str, name: str) -> Folder:
    """The folder of a runbook's scenario."""
    if not is_safe_name(name):
        raise UsageError(f"invalid scenario name `{name}`", hint="use letters, digits, `-`, `_` and `.`")
    return Folder(os.path.join(_all_of(runbook), name), runbook)


def scenarios_of(runbook: str) -> list[Folder]:
    """The scenarios of a runbook, by name."""
    below = _all_of(runbook)
    try:
        names = sorted(os.listdir(below))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as problem:
        raise DocumentError(f"`{below}` cannot be read: {os_reason(problem)}") from None
    folders = [Folder(os.path.join(below, name), runbook) for name in names]
    for each in folders:
        require_read(each.path)
    return [each for each in folders if os.path.lexists(each.scenario) and not os.path.isdir(each.scenario)]


def find_scenario(runbook: str, named: str) -> Folder:
    """Find a scenario of a runbook by its name or its folder."""
    known = {folder.name: folder for folder in scenarios_of(runbook)}
    if named in known:
        return known[named]
    folder = os.path.dirname(named) if os.path.basename(named) == SCENARIO_FILE else named
    if is_file(os.path.join(folder, SCENARIO_FILE)):
        return Folder(os.path.normpath(folder), runbook)
    listed = f"there are {listing(known)}" if known else "the runbook has no scenarios yet"
    raise UsageError(f"there is no scenario `{named}`", hint=suggestion(named, known) or listed)


def find_scenarios(names: Iterable[str]) -> list[Folder]:
    """Find the scenarios of runbooks, scenario folders, and everything below other folders, each once."""
    found: dict[str, Folder] = {}
    for name in names:
        for folder in _find_by_name(name):
            found.setdefault(os.path.abspath(_text(folder.path)), folder)
    return list(found.values())


def _find_by_name(name: str) -> list[Folder]:
    if os.path.isdir(name):
        if is_file(os.path.join(name, SCENARIO_FILE)):
            return [Folder(os.path.normpath(name), runbook_of(name))]
        return list(_below(name))
    if not is_file(name):
        raise UsageError(f"there is no file or folder `{name}`", hint=suggested_file(name))
    if os.path.basename(name) in (SCENARIO_FILE, TEST_FILE):
        folder = os.path.dirname(name) or "."
        return [Folder(folder, runbook_of(folder))]
    return scenarios_of(name)


def _text(path: str) -> str:
    """Refuse a path that is not UTF-8: it would break a report half-way."""
    shown = path.encode("utf-8", "replace").decode()
    if shown != path:
        raise UsageError(f"the name of the folder `{shown}` is not UTF-8 text", hint="rename it")
    return path


def _below(top: str) -> Iterator[Folder]:
    for where, folders, files in os.walk(top, onerror=_unreadable):
        folders[:] = sorted(name for name in folders if is_searched(name))
        require_read(os.path.normpath(where))
        if SCENARIO_FILE in files:
            path = os.path.normpath(where)
            yield Folder(path, runbook_of(path))
        for path in (os.path.normpath(os.path.join(where, name)) for name in folders):
            # A scenario of a runbook may be a link; other links may form cycles.
            if os.path.islink(path) and (runbook := runbook_of(path)) and is_file(os.path.join(path, SCENARIO_FILE)):
                yield Folder(path, runbook)


def _unreadable(problem: OSError) -> None:
    """Report an unreadable scenario folder, whose scenarios would otherwise count as tested; ignore other folders."""
    folder = os.fsdecode(problem.filename)
    if SCENARIOS in os.path.abspath(folder).split(os.sep):
        raise DocumentError(f"`{folder}` cannot be read: {os_reason(problem)}")


def _all_of(runbook: str) -> str:
    stem = os.path.splitext(os.path.basename(runbook))[0]
    return os.path.join(os.path.dirname(runbook), SCENARIOS, stem)
