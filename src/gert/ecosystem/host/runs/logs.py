"""The output of the steps of a run: from stored answers where they have ended, and live output while they run."""

import shlex
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Final

import msgspec

from gert.ecosystem.host.run.record.journal import RecordedAnswer, path_of, read_answers
from gert.ecosystem.host.runs.ledger_reader import LedgerReader
from gert.errors import TraceError, UsageError
from gert.kernel.engine.requests import ToolAnswer
from gert.kernel.events.envelope import decode
from gert.kernel.events.path import is_named, lineage, split
from gert.kernel.foundation.names import did_you_mean, listing
from gert.kernel.foundation.text import path_text, printable
from gert.kernel.ledger.port import Ledger
from gert.kernel.ledger.record import Head, Output

_PAGE: Final = 200
_STREAMS: Final = ("stdout", "stderr")
_MOST_NAMED: Final = 5
_MOST_KNOWN: Final = 1000
_OVERLAP: Final = 64 * 1024
_FEW: Final = 20
_MOST_SEARCHED: Final = 500
"""Answers at the end of a run that are searched for that of its failed step."""

_PRINTING: Final = frozenset(
    {"exit_code", "tool_error", "contract_violation", "timeout", "transport", "extraction", "cancelled"}
)
"""Failures of calls, which may have printed something."""


class Piece(msgspec.Struct, frozen=True, kw_only=True):
    """Some output of a step.

    request: the key of the request it answers; empty while the step runs
    exit_code: how the tool ended, with the last piece of it
    is_preview: it is output of the step's preview, not of its action
    """

    step: str
    stream: str
    text: str
    is_running: bool = False
    request: str = ""
    exit_code: int | None = None
    is_preview: bool = False


class Logs:
    """Reads the output of a run from where it was read last.

    step: only this one, by id or path
    """

    def __init__(self, reader: LedgerReader, run_id: str, step: str | None = None) -> None:
        self._archive = reader
        self._run_id = run_id
        self._step = step
        self._answers = 0
        self._seen = 0
        # How much was shown of a running step and how it ended, by step and stream: its answer says the same again.
        self._shown: dict[tuple[str, str], tuple[int, str]] = {}

    def read(self) -> Iterator[Piece]:
        """What is new since the last time: first of steps that have ended, then of those that run."""
        # Live output is read first: it is dropped when the answer is stored, and the answer has it.
        seen, live = self._archive.ask(lambda ledger: ledger.output(self._run_id, None, self._seen))
        head = self._archive.head(self._run_id)
        found = head.runbook if head is not None else None
        running = {call.path for call in found.open} if found is not None else set()
        for entry in self._new_answers():
            yield from self._of_answer(entry)
        self._seen = seen
        for piece in live:
            if piece.key in running:
                yield from self._of_running(piece)

    def require_step(self) -> None:
        """Refuse a step that the run has not come to: UsageError."""
        if self._step is None:
            return
        known: dict[str, None] = {}
        for line in self._archive.lines(self._run_id, 0):
            with suppress(TraceError):
                path = decode(line).path or ""
                if path and is_of(path, self._step):
                    return
                if path and len(known) < _MOST_KNOWN:
                    last = path[path.rfind("/") + 1 :]
                    known.update(dict.fromkeys((path_text(path), path_text(last), split(last)[0].name)))
        guess = did_you_mean(self._step, known)
        named = listing(list(known)[:_MOST_NAMED])
        raise UsageError(
            f"run `{self._run_id}` has not run a step `{printable(self._step)}`",
            hint=f"did you mean `{guess}`?" if guess else f"it has run {named or 'no step'}",
        )

    def _new_answers(self) -> Iterator[RecordedAnswer]:
        while lines := self._archive.ask(lambda ledger: ledger.answers(self._run_id, self._answers, _PAGE)):
            self._answers += len(lines)
            yield from read_answers(lines)

    def _of_answer(self, entry: RecordedAnswer) -> Iterator[Piece]:
        answer, path = entry.answer, path_of(entry.key)
        if not isinstance(answer, ToolAnswer):
            return
        texts = {"stdout": answer.stdout, "stderr": answer.stderr}
        rest = {stream: _rest(text, *self._shown.pop((path, stream), (0, ""))) for stream, text in texts.items()}
        if self._step is not None and not is_of(path, self._step):
            return
        for stream in _STREAMS:
            if rest[stream]:
                yield Piece(
                    step=path,
                    stream=stream,
                    text=rest[stream],
                    request=entry.key,
                    exit_code=answer.exit_code,
                    is_preview=answer.preview,
                )

    def _of_running(self, piece: Output) -> Iterator[Piece]:
        key = (piece.key, piece.stream)
        length, end = self._shown.get(key, (0, ""))
        self._shown[key] = length + len(piece.text), (end + piece.text)[-_OVERLAP:]
        if self._step is None or is_of(piece.key, self._step):
            yield Piece(step=piece.key, stream=piece.stream, text=piece.text, is_running=True)


def logs_command(run_id: str, kind: str | None, failed_step: str | None, where: str) -> str | None:
    """The command that shows what the failed step of a run printed; None where it called nothing.

    kind: what went wrong in the step
    where: the options that name the ledger
    """
    if kind not in _PRINTING or not failed_step:
        return None
    return f"gert logs {run_id} {shlex.quote(path_text(failed_step))}{where}"


def failed_output(reader: LedgerReader, head: Head) -> Mapping[str, str]:
    """What the failed step of a run printed when it was called last, by stream; nothing where that is long ago."""
    step = head.runbook.failed_step if head.runbook is not None else None
    if step is None:
        return {}
    for until in range(head.answers, max(head.answers - _MOST_SEARCHED, 0), -_FEW):
        since = max(until - _FEW, 0)
        for entry in reversed(read_answers(reader.ask(partial(_answers, head.run_id, since, until)))):
            answer = entry.answer
            if isinstance(answer, ToolAnswer) and not answer.preview and path_of(entry.key) == step:
                return {"stdout": answer.stdout, "stderr": answer.stderr}
    return {}


async def _answers(run_id: str, since: int, until: int, ledger: Ledger) -> list[bytes]:
    return await ledger.answers(run_id, since, until - since)


def is_of(path: str, step: str) -> bool:
    """Whether a path is that of a step, or lies within it; a step is named by its id or its path."""
    return any(is_named(each, step) for each in lineage(path))


def _rest(text: str, length: int, end: str) -> str:
    """The part of a stored output that was not shown while the step ran: so many characters, which ended so.

    Live output may lack its beginning, and the middle of a long output is not stored: the end of what was shown is
    searched for.
    """
    if text[length - len(end) : length] == end:
        return text[length:]
    at = text.find(end)
    return text if at < 0 else text[at + len(end) :]


def merged(pieces: Iterable[Piece]) -> list[Piece]:
    """Pieces that follow each other in one stream of one step, put together."""
    found: list[Piece] = []
    for piece in pieces:
        if found and _place(found[-1]) == _place(piece):
            found[-1] = msgspec.structs.replace(found[-1], text=found[-1].text + piece.text)
        else:
            found.append(piece)
    return found


def _place(piece: Piece) -> tuple[str, str, str, bool]:
    return piece.step, piece.stream, piece.request, piece.is_running
