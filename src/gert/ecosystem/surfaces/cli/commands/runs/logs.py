"""`gert logs`: what the steps of a run printed."""

from collections.abc import Iterator
from typing import Final

import click

from gert.ecosystem.host.runs.listing import Runs
from gert.ecosystem.host.runs.logs import Logs, Piece, merged
from gert.ecosystem.host.shapes.runs import OutputPiece
from gert.ecosystem.surfaces.cli.live.interrupt import interrupt_event
from gert.ecosystem.surfaces.cli.options import LedgerChoice, open_runs, run_argument
from gert.ecosystem.surfaces.cli.render.output import print_json_line, print_line
from gert.errors import UsageError
from gert.kernel.foundation.text import output_line, path_text, printable

LOOK: Final = 0.3
"""Seconds between two looks at a run that is followed."""


@click.command(name="logs", epilog="Example: gert logs 20260228-1430 check --follow")
@click.option("--follow", "-f", is_flag=True, help="Show new output until the run ends or waits, or Ctrl-C.")
@run_argument
@click.argument("step", required=False, metavar="[STEP]")
def command(run_id: str, step: str | None, follow: bool, ledger: LedgerChoice, as_json: bool) -> int:
    """Show what the steps of a run printed, on standard output and standard error.

    RUN is the id of a run, a unique prefix of it, or `last`. STEP is the id of a step, `id[key]` for one item, or
    its path (default: all). Output is redacted; of a stream longer than 1 MiB the first and the last 512 KiB are kept.
    Bytes that are not UTF-8 are shown as \\xNN. A step that runs longer than half a second is shown while it runs. With
    --json each piece of output is one JSON document on a line.
    """
    with open_runs(*ledger) as runs:
        found = runs.find(run_id)
        entry = runs.entry(found)
        if entry.kind != "runbook":
            kind = "an agent run" if entry.kind == "agent" else "the execution of a plan"
            raise UsageError(f"run `{found}` is {kind}", hint=f"`gert run tail {found}` shows its events")
        logs = Logs(runs.reader, found, step)
        page = _Page(as_json=as_json)
        for pieces in _followed(runs, found, logs) if follow else iter([merged(logs.read())]):
            for piece in pieces:
                page.show(piece)
        if not page.is_empty:
            return 0
        logs.require_step()
        if not as_json:
            named = f"step `{printable(step)}` of run {found} has printed nothing" if step is not None else None
            print_line(named or f"no step of run {found} has printed anything")
    return 0


def _followed(runs: Runs, run_id: str, logs: Logs) -> Iterator[list[Piece]]:
    """New output as it comes, until no process drives the run, it waits for approval and prints nothing, or Ctrl-C."""
    with interrupt_event() as stop:
        while True:
            # Looked at first: what a process wrote before it ended is read once more.
            goes_on = not stop.is_set() and runs.reader.is_held(run_id)
            waits = goes_on and any(
                each.status == "pending" and not each.waiting for each in runs.entry(run_id).tickets
            )
            new = merged(logs.read())
            yield new
            if not goes_on:
                return
            if waits and not new:
                where = printable(runs.place.words)
                click.echo(f"the run waits for approval: gert run status {run_id}{where} shows its tickets", err=True)
                return
            stop.wait(LOOK)


class _Page:
    """Shows pieces under the name of their step, which is repeated only where another one came between."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._last: tuple[str, str] | None = None
        self.is_empty = True

    def show(self, piece: Piece) -> None:
        self.is_empty = False
        if self._as_json:
            print_json_line(_document(piece))
            return
        place = (piece.step, piece.stream)
        if place != self._last or (piece.request and not piece.is_running):
            print_line(click.style(f"▸ {path_text(piece.step)}  {_about(piece)}", fg="cyan"))
        self._last = place
        for line in piece.text.removesuffix("\n").split("\n"):
            print_line(output_line(line))


def _about(piece: Piece) -> str:
    ended = "running" if piece.is_running else f"exit {piece.exit_code}"
    known = piece.is_running or piece.exit_code is not None
    stream = f"preview {piece.stream}" if piece.is_preview else piece.stream
    return f"{stream} ({ended})" if known else stream


def _document(piece: Piece) -> OutputPiece:
    return {
        "step": piece.step,
        "request": piece.request or None,
        "stream": piece.stream,
        "preview": piece.is_preview,
        "running": piece.is_running,
        "exit_code": piece.exit_code,
        "text": piece.text,
    }
