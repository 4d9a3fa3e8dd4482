"""Read and verify the trace of a run: in a file, on standard input, or in a ledger."""

import os
import re
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, BinaryIO, Final

from gert.ecosystem.host.config.dsn import Dsn
from gert.ecosystem.host.config.ledger_location import ledger_of
from gert.ecosystem.host.runs.find import LAST, find_run, no_such_run
from gert.errors import Busy, DocumentError, TraceError, Unavailable, UsageError
from gert.kernel.events.agent import RunStarted
from gert.kernel.events.chain import ChainReader, ChainReport
from gert.kernel.events.envelope import MAX_LINE_BYTES, Envelope, decode
from gert.kernel.events.runner import PlanCreated
from gert.kernel.events.trace_seal import Check, SealReport, check_seal
from gert.kernel.foundation.names import is_run_id
from gert.kernel.foundation.signature import Keys
from gert.kernel.foundation.text import os_reason

if TYPE_CHECKING:
    from gert.ecosystem.host.runs.ledger_reader import LedgerReader
    from gert.ecosystem.host.runs.verify_ledger import Demands, Verified

STDIN: Final = "-"
_CHUNK: Final = 1 << 20
_RUNS_SHOWN: Final = 10
_OWN_ID: Final = re.compile(r"\d{8}-\d{6}-\d{3}-[0-9a-z]{6}")


@dataclass(frozen=True, slots=True)
class Trace:
    """Where the lines of a trace come from.

    name: its name in messages
    run_id: the run it must be of, if one was named
    chunks: its bytes
    lines: its lines with their line breaks; of one that is too long, only the beginning
    verify: verifies the run in its ledger; None for a file
    """

    name: str
    run_id: str | None
    chunks: Callable[[], Iterator[bytes]]
    lines: Callable[[], Iterator[bytes]]
    verify: "Callable[[Demands], Verified] | None" = None


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A line that is not an event."""

    line: int
    reason: str


def open_trace(
    file: str | None, db: str | None, run_id: str | None, dsn: Dsn | None = None, state: str | None = None
) -> Trace:
    """Find a trace: in a file, on standard input (`-`), or as a run in a ledger.

    file: the file, or a run where there is no such file
    state: the state directory whose ledger is meant where no other is named
    """
    may_be_run = state is not None or db is not None or dsn is not None
    if file is not None and may_be_run and names_run(file):
        if run_id is not None:
            raise UsageError("the run is named twice", hint="pass it as an argument or with --run")
        file, run_id = None, file
    if sum(place is not None for place in (file, db, dsn)) > 1:
        raise UsageError("expected a file or a database, found both", hint="leave out FILE, `--db` or `--dsn`")
    if db is not None:
        _require_file(db)
    ledger = db if db is not None else dsn
    if ledger is not None:
        return _trace_in_ledger(ledger, run_id)
    if file is None:
        if run_id is None or state is None:
            raise UsageError("expected a trace", hint="name a file, `-` for standard input, or name a run: `last`")
        if not os.path.exists(ledger_of(state)):
            raise no_such_run(run_id, ledger_of(state))
        return _trace_in_ledger(ledger_of(state), run_id)
    if file == STDIN:
        if sys.stdin is None:
            raise UsageError("there is no standard input")
        source = sys.stdin.buffer
        return Trace("<stdin>", run_id, lambda: _chunks_of(source), lambda: read_lines(source, MAX_LINE_BYTES))
    _require_file(file)
    return Trace(file, run_id, lambda: _file_chunks(file), lambda: _file_lines(file))


def names_run(text: str) -> bool:
    """Whether a text names a run: it is `last` or written like the ids of gert, or like no file that is there.

    A file with the name of a run is meant with `./` before it.
    """
    if text == LAST or _OWN_ID.fullmatch(text):
        return True
    return is_run_id(text) and not os.path.splitext(text)[1] and not os.path.lexists(text)


def verify_trace(
    trace: Trace, keys: Keys, *, key_id: str | None = None, require_signature: bool = False
) -> tuple[ChainReport, SealReport]:
    """Read a trace once and check its chain and its seal.

    A signature is required by a caller that asks for one, names a key, or has keys. A last line without its line break
    was not written completely. A run of an agent or a runner has no sealing event: in a ledger, its head is checked.
    """
    reader, first, last = ChainReader(), b"", b"\n"
    for line in trace.lines():
        reader.add(line)
        first, last = first or line, line
    report = reader.report()
    if not last.endswith(b"\n") and report.torn is None:
        report = replace(report, torn="it has no line break")
    if _has_no_end(first):
        return report, _check_open_end(trace, report, keys, key_id=key_id, require_signature=require_signature)
    seal = check_seal(report, keys, require_signature=require_signature, key_id=key_id, run_id=trace.run_id)
    return report, seal


def events_of(trace: Trace) -> Iterator[Envelope | Unreadable]:
    """The events of a trace, with an `Unreadable` for each line that is none."""
    for number, line in enumerate(trace.lines(), start=1):
        try:
            yield decode(line.removesuffix(b"\n"))
        except TraceError as error:
            yield Unreadable(number, error.message)


def _lines_in(chunk: bytes) -> Iterator[bytes]:
    """The lines of one exported event: one, unless the ledger was changed."""
    if chunk.index(b"\n") == len(chunk) - 1:
        yield chunk
    else:
        yield from (part + b"\n" for part in chunk[:-1].split(b"\n"))


def _has_no_end(line: bytes) -> bool:
    try:
        return decode(line.removesuffix(b"\n")).type in (RunStarted.type, PlanCreated.type)
    except TraceError:
        return False


def _check_open_end(
    trace: Trace, report: ChainReport, keys: Keys, *, key_id: str | None, require_signature: bool
) -> SealReport:
    """Check the trace of a run of an agent or a runner: only its ledger knows and seals its head."""
    from gert.ecosystem.host.runs.verify_ledger import Demands

    if trace.verify is not None:
        found = trace.verify(Demands(keys, key_id, require_signature))
        return SealReport(found.checks, found.signed_by, report.events)
    demanded = require_signature or key_id is not None or len(keys) > 0
    broken = report.breaks[0].message if report.breaks else report.torn
    chain = Check(1, "chain", broken is None, broken or f"{report.events} events, no breaks")
    head = Check(2, "head", None, "only its ledger says where this kind of run ends")
    seal = Check(3, "seal", False if demanded else None, "only the ledger of this kind of run holds its seal")
    return SealReport((chain, head, seal), None, report.events)


def _archive(ledger: str | Dsn) -> "LedgerReader":
    from gert.ecosystem.host.runs.ledger_reader import LedgerReader  # most traces are files, and need no event loop

    return LedgerReader(ledger)


def _trace_in_ledger(ledger: str | Dsn, run_id: str | None) -> Trace:
    with as_document(), _archive(ledger) as reader:
        run = _pick_run(reader, run_id)
        name = reader.name
    return Trace(
        f"run `{run}` in `{name}`",
        run,
        lambda: _run_chunks(ledger, run),
        lambda: (line for chunk in _run_chunks(ledger, run) for line in _lines_in(chunk)),
        lambda demands: _verified(ledger, run, demands),
    )


def _pick_run(reader: "LedgerReader", run_id: str | None) -> str:
    if run_id is not None:
        return reader.ask(lambda ledger: find_run(ledger, run_id, reader.name))
    first = list(islice(reader.heads(), _RUNS_SHOWN + 1))
    if not first:
        raise UsageError(f"there are no runs in `{reader.name}`")
    if len(first) > 1:
        listed = ", ".join(sorted(f"`{head.run_id}`" for head in first[:_RUNS_SHOWN]))
        more = ", and more" if len(first) > _RUNS_SHOWN else ""
        raise UsageError(f"there are several runs in `{reader.name}`", hint=f"name one: {listed}{more}")
    return first[0].run_id


def _run_chunks(ledger: str | Dsn, run_id: str) -> Iterator[bytes]:
    with as_document(), _archive(ledger) as reader:
        for line in reader.lines(run_id):
            yield line + b"\n"


def _verified(ledger: str | Dsn, run_id: str, demands: "Demands") -> "Verified":
    from gert.ecosystem.host.runs.verify_ledger import check_record  # most traces are files, and need no event loop

    with as_document(), _archive(ledger) as reader:
        return check_record(reader, run_id, demands)


def _file_chunks(path: str) -> Iterator[bytes]:
    with _reading(path) as file:
        yield from _chunks_of(file)


def _file_lines(path: str) -> Iterator[bytes]:
    with _reading(path) as file:
        yield from read_lines(file, MAX_LINE_BYTES)


def _chunks_of(file: BinaryIO) -> Iterator[bytes]:
    while chunk := file.read(_CHUNK):
        yield chunk


def read_lines(file: BinaryIO, longest: int) -> Iterator[bytes]:
    """The lines of a file, with their line breaks; of one that is too long, only the beginning."""
    while line := file.readline(longest + 2):
        if len(line) < longest + 2 or line.endswith(b"\n"):
            yield line
            continue
        rest = line
        while rest and not rest.endswith(b"\n"):
            rest = file.readline(_CHUNK)
        yield line[:-1] + rest[-1:]


def _require_file(path: str) -> None:
    try:
        # A pipe or device would block or never end.
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise DocumentError(f"`{path}` is not a regular file", hint="read it from standard input: `-`")
    except FileNotFoundError:
        raise UsageError(f"there is no file `{path}`") from None
    except OSError as problem:
        raise DocumentError(f"`{path}` cannot be read: {os_reason(problem)}") from None
    except ValueError:
        raise UsageError(f"`{path}` is not a path") from None


@contextmanager
def _reading(path: str) -> Iterator[BinaryIO]:
    try:
        with open(path, "rb") as file:
            yield file
    except OSError as problem:
        raise DocumentError(f"`{path}` cannot be read: {os_reason(problem)}") from None


@contextmanager
def as_document() -> Iterator[None]:
    """Turn TraceError into DocumentError: a ledger that cannot be read is not a fault of the engine."""
    try:
        yield
    except (Busy, Unavailable):
        raise  # it may be read, and not now
    except TraceError as error:
        raise DocumentError(error.message, hint=error.hint) from error
