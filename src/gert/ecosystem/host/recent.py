"""What earlier runs executed in the last hour, counted in the ledger for `limits.max_per_hour` (DECISIONS 56).

Counted is what a real run said it was about to execute. What cannot be read cannot be counted, and then the limit
cannot be kept: a reason is given in place of a number, and the kernel denies.
"""

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime, timedelta
from typing import Final

from gert.ecosystem.host.database import Database, RunStore, open_database
from gert.ecosystem.host.dsn import Dsn
from gert.ecosystem.host.files import read_bounded
from gert.ecosystem.host.ledger import open_file
from gert.ecosystem.host.runs import ANSWERS_FILE, STATE_FILE, TRACE_FILE, RunFolder, known_runs
from gert.ecosystem.host.state import MAX_STATE_BYTES, decode_state
from gert.ecosystem.stores.append_file import read_lines
from gert.errors import GertError, TraceError
from gert.kernel.engine.frame import Recent
from gert.kernel.events.envelope import MAX_LINE_BYTES, Envelope, decode, format_timestamp, parse_timestamp
from gert.kernel.events.runbook import RunForked, RunStart, StepComplete, StepRetry, StepStart
from gert.kernel.governance.rules import Policy
from gert.kernel.runbook.documents.steps import ExtensionStep, Step, ToolStep
from gert.kernel.runbook.program import Program

WINDOW: Final = timedelta(hours=1)
SLACK: Final = timedelta(minutes=5)
"""How far the clock of a file server may be off before a file is taken for an old one."""

_TOOL_FILE: Final = re.compile(r"(?:\.tool)?\.ya?ml\Z")
_NEEDED: Final = (RunStart.type, StepStart.type, StepComplete.type, StepRetry.type, RunForked.type)
_passed_over: Final = re.compile(
    rb'\{"seq":[0-9]{1,16},"run_id":"[A-Za-z0-9._-]{1,128}","type":"(?!(?:%b)")[a-z][a-z0-9_]{0,63}"'
    % "|".join(_NEEDED).encode()
).match
"""Tells by the first bytes of a line that it says nothing about what was executed."""


def count_recent(
    program: Program, policies: Iterable[Policy], state: str, database: Database | None, now: datetime
) -> Recent | None:
    """How often each target of a program was executed in the last hour; none where no rule asks."""
    if all(rule.limits.max_per_hour is None for policy in policies for rule in policy.rules):
        return None
    since = now - WINDOW
    try:
        found: Counter[str] = Counter()
        with _opened(database) as ledger:
            for lines in (*_in_folders(state, since), *_in_ledger(ledger, since)):
                found.update(_executed(lines, since))
    except GertError as problem:
        return Recent(flaw=problem.message)
    except OSError as problem:
        return Recent(flaw=f"the ledger cannot be read: {(problem.strerror or str(problem)).lower()}")
    counts = {target: sum(found[name] for name in names) for target, names in _names(program).items()}
    return Recent({target: count for target, count in counts.items() if count})


# --- targets


def _names(program: Program) -> Mapping[str, frozenset[str]]:
    """The targets of a program, each with everything it may be called in a trace."""
    return {target: names for step in program.steps for target, names in (_names_of(step, program),)}


def _names_of(step: Step, program: Program) -> tuple[str, frozenset[str]]:
    if isinstance(step, ToolStep):
        tool, action = program.tool_of(step), program.action_of(step)
        called = {_plain(step.tool), *([tool.meta.name] if tool is not None else [])}
        if action is None:
            return step.tool, frozenset(called)
        return f"{step.tool}:{action[0]}", frozenset(f"{name}:{action[0]}" for name in called)
    name = step.extension if isinstance(step, ExtensionStep) else step.type
    return name, frozenset({name})


def _plain(tool: str) -> str:
    """A tool without the folder and the ending of its file: however it is written, it is the same one."""
    return _TOOL_FILE.sub("", tool.rpartition("/")[2])


def _target(event: Envelope) -> str | None:
    """What a step was about to execute; a loop as a whole, or a block, executes nothing itself."""
    data = event.data
    if not data.get("contract_summary"):
        return None
    if isinstance(data.get("tool"), str):
        return f"{_plain(data['tool'])}:{data['action']}" if data.get("action") else _plain(data["tool"])
    return str(data.get("extension") or data.get("type"))


# --- runs


def _executed(lines: Iterable[bytes], since: datetime) -> Counter[str]:
    """What one run executed. Steps that a rerun only took the answers of were not executed by it."""
    counted: Counter[str] = Counter()
    open_steps: dict[str, str] = {}
    earliest = format_timestamp(since)
    for event in _events(lines):
        if event.type == RunStart.type:
            if event.data.get("mode", "real") != "real":
                return Counter()
        elif event.type == RunForked.type:
            counted = Counter(open_steps.values())
        elif event.type == StepComplete.type:
            open_steps.pop(event.path or "", None)
        else:
            # Each attempt is an execution; what is retried says only which step it is.
            target = _target(event) if event.type == StepStart.type else open_steps.get(event.path or "")
            if target is not None:
                counted[target] += _is_since(event.timestamp, earliest, since)
                open_steps[event.path or ""] = target
    return counted


def _is_since(timestamp: str, earliest: str, since: datetime) -> bool:
    # As gert writes them, timestamps sort like text.
    if len(timestamp) == len(earliest) and timestamp.endswith("Z"):
        return timestamp >= earliest
    return parse_timestamp(timestamp) >= since


def _events(lines: Iterable[bytes]) -> Iterator[Envelope]:
    unread: TraceError | None = None
    for line in lines:
        if unread is not None:
            raise unread
        if _passed_over(line):
            continue
        try:
            event = decode(line.removesuffix(b"\n"))
        except TraceError as problem:
            # The last line may just be being written; any other that cannot be read may be an execution.
            unread = TraceError(f"a trace of the last hour cannot be read: {problem.message}")
            continue
        yield event


def _in_folders(state: str, since: datetime) -> Iterator[Iterator[bytes]]:
    for run_id in known_runs(state):
        trace = _trace_of(RunFolder(state, run_id), (since - SLACK).timestamp())
        if trace is not None:
            yield _lines_of(trace)


def _trace_of(folder: RunFolder, oldest: float) -> str | None:
    """The trace of a run that may have executed something since; none of one that cannot."""
    own = _changed(os.path.join(folder.path, TRACE_FILE))
    if own is not None:
        return folder.trace if own >= oldest else None
    answers = _changed(os.path.join(folder.path, ANSWERS_FILE))
    if answers is None or answers < oldest or _changed(os.path.join(folder.path, STATE_FILE)) is None:
        return None  # nobody's run, one that has not begun, or an old one
    return decode_state(read_bounded(folder.state, MAX_STATE_BYTES), folder.state).trace


def _changed(path: str) -> float | None:
    try:
        return os.stat(path).st_mtime
    except (FileNotFoundError, NotADirectoryError):
        return None


def _lines_of(trace: str) -> Iterator[bytes]:
    with open_file(trace) as file, open(file.fileno(), "rb", closefd=False) as lines:
        # One that is too long cannot be decoded, and says so.
        yield from read_lines(lines, MAX_LINE_BYTES)


def _opened(database: Database | None) -> AbstractContextManager[RunStore | None]:
    if isinstance(database, Dsn):
        # The run is about to be recorded there: where there is no ledger yet, one may as well be made now.
        return open_database(database)
    if database is None or not os.path.exists(database):
        return nullcontext()
    return open_database(database, read_only=True)


def _in_ledger(ledger: RunStore | None, since: datetime) -> Iterator[Iterator[bytes]]:
    if ledger is None:
        return
    earliest = format_timestamp(since)
    for run_id in ledger.runs():
        if _is_since(ledger.last_time(run_id), earliest, since):
            yield ledger.events(run_id)
