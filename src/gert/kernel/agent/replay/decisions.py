"""Decide what a step does, given the recorded requests under its key."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from gert.kernel.ledger.record import Call, last_seq_of

ANSWERED = "success"


@dataclass(frozen=True, slots=True)
class Replay:
    """Replay the recorded answer."""

    call: Call


@dataclass(frozen=True, slots=True)
class Compare:
    """Compare with a recorded answer to a different request under the same key."""

    call: Call


@dataclass(frozen=True, slots=True)
class Fail:
    """Replay the recorded failure."""

    call: Call


@dataclass(frozen=True, slots=True)
class InDoubt:
    """The outcome of the call is unknown; it must be reconciled."""

    call: Call


@dataclass(frozen=True, slots=True)
class Resume:
    """Continue a call that was interrupted, under its recorded request."""

    call: Call


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait for the same step, which is in flight in this process."""

    call: Call


@dataclass(frozen=True, slots=True)
class Request:
    """Request an answer, since none is recorded.

    last: the number of the last event under the key
    abandoned: open requests without a caller, which are ended first
    """

    last: int = 0
    abandoned: tuple[Call, ...] = ()


ModelDecision = Replay | Compare | Wait | Request
ToolDecision = Replay | Compare | Fail | InDoubt | Resume | Wait | Request


def decide_model(calls: Sequence[Call], input_hash: str, in_flight: frozenset[int]) -> ModelDecision:
    """Decide what a model step does, from the requests under its key, newest first.

    1. Replay an answer to the same question; of several, the one that was recorded first.
    2. Compare with an answer to another question under the same step key; the caller's policy decides about drift.
    3. Wait for the same question in flight in this process.
    4. Otherwise call the model, and end the abandoned requests.
    """
    if (same := first_answer(calls, (input_hash,))) is not None:
        return Replay(same)
    if (other := first_answer(calls)) is not None:
        return Compare(other)
    return _wait_or_request(calls, in_flight)


def decide_tool(
    calls: Sequence[Call],
    hashes: Collection[str],
    in_flight: frozenset[int],
    *,
    side_effect: bool,
    resumable: bool = False,
) -> ToolDecision:
    """Decide what a tool step does, from the requests under its key, newest first.

    1. Refuse another call under the same step key.
    2. Replay a call that succeeded; of several, the one that was recorded first.
    3. Replay a permanent failure.
    4. Continue a call without a recorded end if the tool is resumable.
    5. Require a reconciliation if the outcome is unknown, or if a call with side effects has no recorded end.
    6. Wait for the same call in flight in this process.
    7. Otherwise call the tool: it was not called, is known not to have happened, or has no side effects.
    """
    for call in calls:
        if call.input_hash not in hashes:
            return Compare(call)
    if (answered := first_answer(calls)) is not None:
        return Replay(answered)
    for call in calls:
        if call.outcome == "permanent_error":
            return Fail(call)
        if call.outcome == "unknown_outcome":
            return InDoubt(call)
        if call.outcome == "open" and call.seq not in in_flight and (resumable or side_effect):
            return Resume(call) if resumable else InDoubt(call)
    return _wait_or_request(calls, in_flight)


def first_answer(calls: Sequence[Call], hashes: Collection[str] | None = None) -> Call | None:
    """Return the call whose success was recorded first, of those with one of these hashes."""
    found: Call | None = None
    for call in calls:
        if call.outcome != ANSWERED or (hashes is not None and call.input_hash not in hashes):
            continue
        if found is None or (call.done_seq or call.seq) < (found.done_seq or found.seq):
            found = call
    return found


def _wait_or_request(calls: Sequence[Call], in_flight: frozenset[int]) -> Wait | Request:
    unfinished = tuple(call for call in calls if call.outcome == "open")
    for call in unfinished:
        if call.seq in in_flight:
            return Wait(call)
    return Request(last_seq_of(calls), unfinished)
