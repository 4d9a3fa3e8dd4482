"""Recording a run: a scenario, a test that expects what happened, and the trace, written together or not at all."""

import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any, BinaryIO, Final

import msgspec

from gert.ecosystem.host.config.workspace import Workspace
from gert.ecosystem.host.run.options import Recorded
from gert.ecosystem.host.run.record.journal import read_answers
from gert.ecosystem.host.scenarios.folders import (
    SCENARIO_FILE,
    TEST_FILE,
    TRACE_FILE,
    Folder,
    Loaded,
    load,
    scenario_folder,
)
from gert.ecosystem.host.scenarios.replay import Replayed, replay
from gert.errors import GertError, UsageError
from gert.kernel.engine.frame import Setup
from gert.kernel.engine.requests import Request
from gert.kernel.events.envelope import decode
from gert.kernel.foundation.text import os_reason
from gert.kernel.runbook.writer import to_yaml
from gert.kernel.scenario.expect import differences
from gert.kernel.scenario.inputs import replayed_inputs
from gert.kernel.scenario.observed import RunObservation
from gert.kernel.scenario.recorded_test import recorded_test
from gert.kernel.scenario.recording import recorded_scenario

X_RECORDED: Final = "x-recorded"
_YES: Final = frozenset({"1", "true", "yes", "on"})


def recording_folder(chosen: str | None, runbook: str, run_id: str, environ: Mapping[str, str]) -> str | None:
    """Where a run is to be recorded as a scenario, if it is; a folder that holds something is left alone."""
    if chosen is None:
        if environ.get("GERT_AUTO_RECORD", "").strip().lower() not in _YES:
            return None
        return scenario_folder(runbook, run_id).path
    # One reading of `a/../b`, before the run and after it, whether or not there is an `a`.
    chosen = os.path.normpath(chosen)
    try:
        taken = os.path.lexists(chosen) and (not os.path.isdir(chosen) or bool(os.listdir(chosen)))
    except OSError as problem:
        raise UsageError(f"`{chosen}` cannot be read: {os_reason(problem)}") from None
    if taken:
        raise UsageError(f"`{chosen}` is there already", hint="record into a folder of its own")
    if not _is_writable(chosen):
        raise UsageError(f"nothing can be recorded in `{chosen}`", hint="record into a folder you may write to")
    return chosen


def _is_writable(path: str) -> bool:
    """Whether a folder can be made there, as far as can be checked before a run."""
    above = os.path.dirname(os.path.abspath(path))
    while not os.path.lexists(above):
        above = os.path.dirname(above)
    return os.path.isdir(above) and os.access(above, os.W_OK | os.X_OK)


class Recording:
    """The requests of a run, collected while it runs.

    is_written: whether the folder is the scenario of this run, and not of another
    """

    def __init__(self, folder: str, runbook: str) -> None:
        self.folder = folder
        self.is_written = False
        self._runbook = runbook
        self.asks: dict[str, Request[Any]] = {}

    async def write(self, setup: Setup, lines: Sequence[bytes], answered: Sequence[bytes]) -> Recorded:
        """Write the scenario, and replay it at once to see that it leads to the same."""
        seen = RunObservation(program=setup.program, policies=setup.policies).take_all(map(decode, lines))
        answers = ((entry.key, entry.answer) for entry in read_answers(answered))
        scenario = recorded_scenario(setup, self.asks, answers)
        scenario["extensions"] = {
            X_RECORDED: {
                "run_id": setup.run_id,
                "runbook": os.path.relpath(self._runbook, self.folder),
                "runbook_hash": setup.started.runbook_hash,
                "gert_version": setup.started.gert_version,
            }
        }
        title = f"{setup.program.runbook.meta.name}, recorded from run {setup.run_id}"
        test = recorded_test(seen, title)
        try:
            write_folder(
                self.folder,
                {
                    SCENARIO_FILE: to_yaml(scenario).encode(),
                    TEST_FILE: to_yaml(test).encode(),
                    TRACE_FILE: b"".join(line + b"\n" for line in lines),
                },
            )
            self.is_written = True
            return Recorded(self.folder, await self._differs(setup, seen))
        except GertError as problem:
            # The run is over and recorded; that it makes no scenario must not change how it ended.
            if self.is_written:
                return Recorded(self.folder, problem.message)
            return Recorded(self.folder, problem=problem.message)

    async def _differs(self, setup: Setup, seen: RunObservation) -> str | None:
        loaded = load(Workspace(), Folder(self.folder), setup.program)
        again = await _replay_again(loaded, setup)
        if again.missing:
            return again.missing[0]
        # As observed: within the run, an outcome may contain references to secrets.
        if again.seen.status != seen.status:
            failure = again.seen.failure
            why = f" at `{again.seen.failed_step}`: {failure.message}" if failure is not None else ""
            return f"the run is {seen.status}, and its replay {again.seen.status}{why}"
        if again.seen.outcome != seen.outcome:
            return "the replay has another outcome"
        first, second = set(seen.visited), set(again.seen.visited)
        # Where a run was stopped, lanes that had not begun yet begin in its replay, and are stopped at once.
        if first != second and not (seen.status == "cancelled" and first < second):
            return "the replay visits other steps"
        unmet = next(differences(loaded.expected, again.seen, []), None)
        return f"its own test fails: {unmet}" if unmet is not None else None


async def _replay_again(loaded: Loaded, setup: Setup) -> Replayed:
    """Replay a scenario in place of the run it was recorded from."""
    inputs = replayed_inputs(setup.program.runbook.meta.inputs, loaded.scenario)
    started = msgspec.structs.replace(setup.started, mode="replay", inputs=inputs.values, input_sources=inputs.sources)
    again = msgspec.structs.replace(setup, started=started, secret_inputs=frozenset(inputs.secrets))
    return await replay(loaded, again)


def write_folder(path: str, files: Mapping[str, bytes]) -> None:
    """Write files into a new folder that appears whole, or into an empty one; only its owner can read it."""
    target = os.path.abspath(path)
    try:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        if os.path.isdir(target) and not os.listdir(target):
            _fill(target, files)
        else:
            _appear(target, files)
    except OSError as problem:
        raise _unwritable(path, problem) from None


def _appear(target: str, files: Mapping[str, bytes]) -> None:
    temporary = tempfile.mkdtemp(dir=os.path.dirname(target), prefix=".recording-")
    try:
        for name, data in files.items():
            _write(os.path.join(temporary, name), data)
        os.rename(temporary, target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _fill(target: str, files: Mapping[str, bytes]) -> None:
    """Fill a folder that is there, without replacing it: a shell may be in it, or a link lead to it.

    The process that creates the first file wins; the answers come last, so that no reader finds half a scenario.
    """
    written: list[str] = []
    try:
        for name in sorted(files, key=lambda name: name == SCENARIO_FILE):
            with open(os.path.join(target, name), "xb", opener=_for_owner) as file:
                written.append(file.name)
                _keep(file, files[name])
    except OSError:
        for path in written:
            os.unlink(path)
        raise


def _write(path: str, data: bytes) -> None:
    with open(path, "xb") as file:
        _keep(file, data)


def _keep(file: BinaryIO, data: bytes) -> None:
    file.write(data)
    file.flush()
    os.fsync(file.fileno())


def _for_owner(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _unwritable(path: str, problem: OSError) -> UsageError:
    return UsageError(f"the scenario cannot be written to `{path}`: {os_reason(problem)}")


def recorded_from(extensions: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a scenario says about the run it was recorded from; nothing where it was written by hand."""
    said = extensions.get(X_RECORDED)
    return said if isinstance(said, Mapping) else {}
