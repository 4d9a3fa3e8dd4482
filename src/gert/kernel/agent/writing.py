"""What is appended to a run: composed, guarded and noted where the ledger calls for it."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from gert.errors import GertError, InputError, RunBlocked, RunNotFound, TraceError
from gert.kernel.agent.trail import Trail
from gert.kernel.events.agent import RunReopened
from gert.kernel.ledger.compose import Entry, compose
from gert.kernel.ledger.record import Batch, Head, Written

Entries = Sequence[Entry] | Callable[[Head], Sequence[Entry]]


class Standing(NamedTuple):
    """What was found under a key: all its calls, by number, when the run ended with this hash."""

    hash: str
    key: str
    seqs: tuple[int, ...]


class Moved(Exception):
    """Something may have changed since it was looked at."""


class Writing:
    """Writes entries at the end of a run.

    refused: what kept it from writing anything
    """

    __slots__ = ("_entries", "_guard", "_run_id", "_tenant", "_trail", "_tried", "refused")

    def __init__(
        self,
        trail: Trail,
        run_id: str,
        tenant: str,
        entries: Entries,
        guard: Callable[[Head], None] | None,
        tried: list[Batch] | None = None,
    ) -> None:
        self._trail = trail
        self._run_id = run_id
        self._tenant = tenant
        self._entries = entries
        self._guard = guard
        self._tried = tried
        self.refused: Exception | None = None

    def __call__(self, head: Head, moment: str) -> Batch:
        """Make the batch, or say why there is none."""
        try:
            if not head.count:
                raise no_run(self._run_id)
            if self._guard is not None:
                self._guard(head)
            entries = self._entries
            batch = compose(head, moment, self._tenant, entries(head) if callable(entries) else entries)
        except (GertError, Moved) as error:
            self.refused = error
            raise
        self._trail.made(head.hash, batch)
        if self._tried is not None:
            self._tried.append(batch)
        return batch


def reopening(entries: Entries) -> Entries:
    """The entries of a new step: where the run has ended, the event that reopens it comes first."""

    def after(head: Head) -> Sequence[Entry]:
        has_ended = head.snapshot is not None and head.snapshot.asleep is not None
        before = (Entry(RunReopened()),) if has_ended else ()
        # Entries that are made from their numbers are numbered after it.
        head = msgspec.structs.replace(head, count=head.count + len(before))
        return (*before, *(entries(head) if callable(entries) else entries))

    return after


def refuse_if_blocked(head: Head) -> None:
    """A run that is paused or blocked takes no steps."""
    snapshot = head.snapshot
    if snapshot is None or not snapshot.pauses:
        return
    pause = snapshot.pauses[-1]
    word, way = ("blocked", "unblock_run") if pause.blocked else ("paused", "resume")
    raise RunBlocked(
        f"run `{head.run_id}` is {word}: {pause.reason}", blocked_on=snapshot.blocked_on, hint=f"call `{way}` first"
    )


def no_run(run_id: str) -> RunNotFound:
    """There is no run of this id."""
    return RunNotFound(f"there is no run `{run_id}`", hint="start it first")


def done(answer: Any) -> Written:
    """An append that expects nothing and holds nothing is written, or raises."""
    if not isinstance(answer, Written):
        raise TraceError("the ledger refused what it had nothing to refuse by")
    return answer


def check_key(key: str) -> None:
    """Refuse a key that cannot be written down."""
    if key.isascii():
        return
    try:
        key.encode()
    except UnicodeEncodeError:
        raise InputError("the step key holds half a character, which cannot be written down") from None
