"""`gert trace`: verify, show and export what a run recorded."""

import os
import sys
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any, Final, TypeVar, cast

import click
import msgspec

from gert.ecosystem.host.config.dsn import read_dsn
from gert.ecosystem.host.config.keys.trace_keys import key_hint, verification_keys
from gert.ecosystem.host.config.project_root import project_root
from gert.ecosystem.host.config.state_dir import state_dir as state_directory
from gert.ecosystem.host.runs.traces import Trace, Unreadable, events_of, open_trace, verify_trace
from gert.ecosystem.host.shapes.reports import VerifiedTrace
from gert.ecosystem.surfaces.cli.render.output import (
    plural,
    print_error,
    print_json,
    print_json_line,
    print_line,
    print_written,
)
from gert.errors import UsageError
from gert.kernel.events.chain import ChainReport
from gert.kernel.events.envelope import Envelope
from gert.kernel.events.trace_seal import SealReport
from gert.kernel.foundation.text import printable

MARKS: Final = {True: ("✓", "green"), False: ("✗", "red"), None: ("-", "yellow")}
# What each check is called when it passed, failed, or was not made.
TITLES: Final = {
    "chain": {True: "Chain integrity", False: "Chain broken", None: "Chain not checked"},
    "answers": {True: "Answers", False: "Answers changed", None: "Answers not checked"},
    "count": {True: "Number of events", False: "Events missing or added", None: "Number of events not checked"},
    "complete": {True: "Complete", False: "Incomplete", None: "End not checked"},
    "head": {True: "Chain head", False: "Chain head wrong", None: "Chain head not checked"},
    "derived": {True: "Columns of the ledger", False: "Columns of the ledger changed", None: "Columns not checked"},
    "signature": {True: "Signature valid", False: "Signature invalid", None: "Signature not checked"},
    "seal": {True: "Seal of the ledger valid", False: "Seal of the ledger invalid", None: "Seal not checked"},
    "body": {True: "Seal valid", False: "Seal invalid", None: "Seal not checked"},
}
MOST_SHOWN: Final = 10

_Command = TypeVar("_Command", bound=Callable[..., Any])


def _takes_trace(command: _Command) -> _Command:
    """The three ways to name a trace, the same for every subcommand, which gets the trace."""

    @wraps(command)
    def opened(
        file: str | None, run_id: str | None, state_dir: str | None, db: str | None, dsn: str | None, **rest: Any
    ) -> Any:
        address = read_dsn(dsn, os.environ) if dsn is not None else None
        folder = state_directory(state_dir, project_root(os.getcwd()), os.environ)
        return command(trace=open_trace(file, db, run_id, address, folder), **rest)

    for option in (
        click.option("--run", "run_id", metavar="RUN", help="Run to read, instead of the argument."),
        click.option("--dsn", metavar="DSN", help="Read the run from this Postgres ledger; env:NAME for a variable."),
        click.option("--db", metavar="FILE", help="Read the run from this SQLite ledger."),
        click.option("--state-dir", metavar="DIR", help="State directory (default: the project's, or your own)."),
        click.argument("file", required=False, metavar="[FILE|RUN]"),
    ):
        opened = option(opened)
    return cast("_Command", opened)


@click.group(epilog="Example: gert trace verify run.jsonl --key-id prod-2026")
def command() -> None:
    """Verify, show and export the trace of a run.

    A trace is a JSONL FILE, `-` for standard input, or a run of a ledger: its id, a unique prefix of it, or `last`. A
    file with the name of a run is `./last`. With --db or --dsn it may be left out if the ledger has only one run.
    """


@command.command(epilog="Example: gert trace verify run.jsonl --key-id prod-2026")
@_takes_trace
@click.option("--key-id", metavar="ID", help="Require a signature by this key.")
@click.option("--require-signature", is_flag=True, help="Require a signature by any key that is set.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@click.option("--quiet", "-q", is_flag=True, help="Print only the checks that fail.")
def verify(trace: Trace, key_id: str | None, require_signature: bool, as_json: bool, quiet: bool) -> int:
    """Verify that a trace is complete, unchanged, and sealed by a key you trust.

    Keys come from the environment: GERT_TRACE_KEY_<ID>, then GERT_TRACE_SIGNING_KEY. Where one is set, a trace
    without a signature is invalid.
    """
    keys = verification_keys(os.environ, key_id)
    report, seal = verify_trace(trace, keys, key_id=key_id, require_signature=require_signature)
    if as_json:
        print_json(_report(trace, report, seal))
    else:
        _print(report, seal, quiet=quiet)
        demanded = key_id is not None or require_signature
        if demanded and not len(keys):
            print_error("no key to verify with is set", key_hint(key_id))
    return 0 if seal.holds else 1


@command.command(epilog="Example: gert trace show run.jsonl --verbose")
@_takes_trace
@click.option("--verbose", "-v", is_flag=True, help="Show each event in full.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per event and line.")
def show(trace: Trace, verbose: bool, as_json: bool) -> int:
    """Show the events of a run.

    Nothing is verified. Lines that cannot be read are reported, and the others are shown.
    """
    readable = _Readable(trace)
    if as_json:
        _print_json(readable)
    else:
        from gert.ecosystem.surfaces.cli.render.views.timeline import print_timeline

        print_timeline(readable, verbose=verbose)
    return 0 if readable.count else 1


@command.command(epilog="Example: gert trace export last --output run.jsonl")
@_takes_trace
@click.option("--output", "-o", metavar="FILE", help="Write to this new file instead of standard output.")
def export(trace: Trace, output: str | None) -> int:
    """Export the JSONL of a run, byte for byte as recorded."""
    write_out(trace.chunks(), output)
    return 0


def write_out(chunks: Iterator[bytes], output: str | None) -> None:
    """Write bytes to a new file, or to standard output."""
    if output is not None:
        _write_new(output, chunks)
        print_written(output)
    elif sys.stdout is not None:
        for chunk in chunks:
            sys.stdout.buffer.write(chunk)


class _Readable:
    """The events of a trace that can be read; an error is printed for each other line."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self.count = 0

    def __iter__(self) -> Iterator[Envelope]:
        unreadable = 0
        for event in events_of(self._trace):
            if not isinstance(event, Unreadable):
                self.count += 1
                yield event
                continue
            unreadable += 1
            if unreadable <= MOST_SHOWN:
                print_error(f"line {event.line}: {event.reason}")
        if unreadable > MOST_SHOWN:
            print_error(f"{plural(unreadable - MOST_SHOWN, 'more line')} cannot be read")
        if not self.count:
            print_error("there are no events")


def _print_json(events: _Readable) -> None:
    for event in events:
        try:
            print_json_line(event)
        except RecursionError:
            print_error(f"event {event.seq}: it is nested too deep to be shown")


def _write_new(path: str, chunks: Iterator[bytes]) -> None:
    """Write a new file; it is removed if the export fails."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o600)
    except FileExistsError:
        raise UsageError(f"`{path}` exists already", hint="choose another file") from None
    except FileNotFoundError:
        raise UsageError(f"there is no folder `{os.path.dirname(path)}`") from None
    try:
        with open(descriptor, "wb") as file:
            for chunk in chunks:
                file.write(chunk)
    except BaseException:
        os.unlink(path)
        raise


def _print(report: ChainReport, seal: SealReport, *, quiet: bool) -> None:
    for check in seal.checks:
        if quiet and check.passed is not False:
            continue
        mark, colour = MARKS[check.passed]
        print_line(f"{click.style(mark, fg=colour)} {TITLES[check.name][check.passed]}: {printable(check.reason)}")
        if check.name == "chain":
            _print_breaks(report)
    if not quiet and seal.holds and not seal.proven:
        print_line(click.style("The chain is valid, but no signature was checked.", fg="yellow"))


def _print_breaks(report: ChainReport) -> None:
    # Where there are events, the check itself names the first break.
    for each in report.breaks[1 if report.events else 0 : MOST_SHOWN]:
        print_line(f"  line {each.line}: {printable(each.message)}")
    if report.break_count > MOST_SHOWN:
        print_line(f"  and {plural(report.break_count - MOST_SHOWN, 'more break')}")


def _report(trace: Trace, report: ChainReport, seal: SealReport) -> VerifiedTrace:
    return {
        "valid": seal.holds,
        "proven": seal.proven,
        "trace": trace.name,
        "run_id": report.run_id,
        "events": report.events,
        "head": report.head,
        "complete": report.complete,
        "signed_by": seal.signed_by,
        "sealed": seal.sealed,
        "after_seal": seal.after_seal,
        "torn": report.torn,
        "breaks": msgspec.to_builtins(report.breaks),
        "break_count": report.break_count,
        "checks": msgspec.to_builtins(seal.checks),
    }
