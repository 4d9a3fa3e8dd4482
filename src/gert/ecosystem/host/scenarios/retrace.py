"""A recorded run made into a scenario: driven again by its own answers, to hear which questions they were to."""

import os
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from gert.ecosystem.host.documents import Workspace
from gert.ecosystem.host.driver import Driver
from gert.ecosystem.host.files import is_file
from gert.ecosystem.host.journal import Logged, read_answers
from gert.ecosystem.host.options import Recorded, RunOptions
from gert.ecosystem.host.prepare import Prepared
from gert.ecosystem.host.runs import ANSWERS_FILE, STATE_FILE, RunFolder, state_dir
from gert.ecosystem.host.scenarios.folders import TRACE_FILE, place_of
from gert.ecosystem.host.scenarios.record import Recording
from gert.ecosystem.host.scenarios.replay import Tape
from gert.ecosystem.host.scenarios.scaffold import require_free
from gert.ecosystem.host.state import MAX_STATE_BYTES, RunState, decode_state
from gert.ecosystem.host.traces import open_trace
from gert.ecosystem.stores.append_file import read_lines
from gert.ecosystem.stores.batch import MAX_ANSWER_BYTES
from gert.ecosystem.stores.memory import MemoryStore
from gert.errors import DocumentError, GertError, IntegrityError, UsageError
from gert.kernel.engine.asks import AnyAnswer, Ask, answer_with
from gert.kernel.engine.frame import Setup
from gert.kernel.engine.inputs import ResolvedInputs
from gert.kernel.engine.run import run
from gert.kernel.events.envelope import decode
from gert.kernel.events.runbook import Failure, RunComplete
from gert.kernel.foundation.redaction import PLACEHOLDER, Redactor
from gert.kernel.foundation.secret_refs import secret_ref
from gert.kernel.scenario.observed import Observed
from gert.kernel.scenario.recording import listening

MOST_LINES: Final = 1_000_000


class Silent:
    """A world that knows nothing beyond the log; what it is asked, the run never heard an answer to."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def immediate(self, ask: Ask[Any]) -> AnyAnswer:
        """Note the question."""
        self.asked.append(ask.path)
        return answer_with(ask, Failure("not_found", "the log has no answer"))

    async def answer(self, ask: Ask[Any]) -> AnyAnswer:
        """The same, for those who wait."""
        return self.immediate(ask)


def run_folder(
    run_id: str | None, trace: str | None, runbook: str, chosen: str | None, environ: Mapping[str, str]
) -> str:
    """The folder of a recorded run: by its id in the state directory, or by its trace."""
    root = Workspace().project_root(os.path.dirname(os.path.abspath(runbook)))
    state = state_dir(chosen, root, environ)
    if trace is not None:
        beside = trace if os.path.isdir(trace) else os.path.dirname(trace) or os.curdir
        if is_file(os.path.join(beside, STATE_FILE)) and is_file(os.path.join(beside, ANSWERS_FILE)):
            return beside
        # The trace may be kept elsewhere; the answers never are.
        run_id = _run_in(os.path.join(trace, TRACE_FILE) if os.path.isdir(trace) else trace)
    folder = RunFolder(state, run_id or "").path
    if not is_file(os.path.join(folder, STATE_FILE)):
        raise UsageError(
            f"there is no run `{run_id}` in `{state}`",
            hint="name its state folder with --state-dir; of a run in a database no scenario can be made",
        )
    return folder


async def retrace(runbook: str, name: str, folder: str, environ: Mapping[str, str], *, force: bool = False) -> Recorded:
    """Make a scenario of a run; refuse one of another runbook, unless told otherwise, and one that never ended."""
    target = place_of(runbook, name)
    require_free(target)
    state = _state(folder)
    if state.mode != "real":
        raise UsageError(f"a {state.mode} has no answers of the world to record")
    setup = _setup(runbook, state, environ)
    if setup.runbook_hash != state.runbook_hash and not force:
        raise UsageError(
            f"the runbook has changed since run `{state.run_id}`",
            hint="--force makes a scenario of it all the same, where the run still goes the same way",
        )
    answers, events = _answers(folder), _events(state, folder)
    recording = Recording(target.path, runbook)
    await _drive(setup, state, list(read_answers(answers)), recording)
    store = MemoryStore()
    store.append(setup.run_id, 1, events, answers)
    recorded = await recording.write(setup, store)
    if not recording.is_written:
        raise UsageError(f"run `{state.run_id}` makes no scenario: {recorded.differs}")
    return recorded


async def _drive(setup: Setup, state: RunState, answers: list[Logged], recording: Recording) -> None:
    world = Silent()
    driver = Driver(world, Tape(Observed()), max_parallel=state.max_parallel, recorded=answers)
    try:
        await driver.drive(listening(run(setup), recording.asks))
    except IntegrityError as problem:
        raise UsageError(f"the run does not go the same way again: {problem.message}", hint=problem.hint) from None
    if world.asked:
        raise UsageError(
            f"the run does not go the same way again: `{world.asked[0]}` was never answered",
            hint="the runbook, its tools or its policies are not those it ran with",
        )


def _setup(runbook: str, state: RunState, environ: Mapping[str, str]) -> Setup:
    options = RunOptions(
        file=runbook, mode="replay", scenario=state.run_id, actor=state.actor, policies=tuple(state.policies)
    )
    prepared = Prepared(options, environ)
    secrets = dict.fromkeys(state.secret_inputs, PLACEHOLDER)
    known = {**state.inputs, **{name: secret_ref(name) for name in secrets}}
    values = {name: known[name] for name in state.input_sources if name in known}
    setup = prepared.setup(ResolvedInputs(values, state.input_sources, secrets), Redactor())
    return msgspec.structs.replace(
        setup,
        mode="real",
        run_id=state.run_id,
        parent_run_id=state.parent_run_id,
        host=state.host,
        gert_version=state.gert_version,
        recent=state.recent,
    )


def _state(folder: str) -> RunState:
    path = os.path.join(folder, STATE_FILE)
    try:
        with open(path, "rb") as file:
            return decode_state(file.read(MAX_STATE_BYTES + 1), path)
    except OSError as problem:
        raise UsageError(f"`{path}` cannot be read: {(problem.strerror or str(problem)).lower()}") from None


def _answers(folder: str) -> list[bytes]:
    path = os.path.join(folder, ANSWERS_FILE)
    try:
        with open(path, "rb") as file:
            lines = list(_bounded(read_lines(file, MAX_ANSWER_BYTES), path))
        # Whatever is wrong with one of them is said now, not halfway through the run.
        for _ in read_answers(lines):
            pass
    except OSError as problem:
        raise UsageError(f"`{path}` cannot be read: {(problem.strerror or str(problem)).lower()}") from None
    except (msgspec.DecodeError, RecursionError):
        raise DocumentError(f"`{path}` is not a log of answers") from None
    return lines


def _events(state: RunState, folder: str) -> list[bytes]:
    """The trace, which says that the run ended."""
    beside = os.path.join(folder, TRACE_FILE)
    path = state.trace if state.trace is not None and is_file(state.trace) else beside
    lines = list(_bounded(open_trace(path, None, state.run_id).lines(), path))
    try:
        events = [decode(line) for line in lines]
    except GertError as problem:
        raise DocumentError(f"`{path}` cannot be read: {problem.message}") from None
    if any(event.run_id != state.run_id for event in events):
        raise DocumentError(f"`{path}` is not the trace of run `{state.run_id}`")
    if not any(event.type == RunComplete.type for event in events):
        raise UsageError(f"run `{state.run_id}` has not ended", hint="a scenario needs to know how it ends")
    return lines


def _bounded(lines: Iterator[bytes], path: str) -> Iterator[bytes]:
    for number, line in enumerate(lines):
        if number >= MOST_LINES:
            raise UsageError(f"`{path}` has more than {MOST_LINES} lines")
        yield line.removesuffix(b"\n")


def _run_in(trace: str) -> str:
    try:
        first = next(iter(open_trace(trace, None, None).lines()), b"")
        return decode(first.removesuffix(b"\n")).run_id
    except UsageError:
        raise
    except GertError as problem:
        raise DocumentError(f"`{trace}` cannot be read: {problem.message}") from None
