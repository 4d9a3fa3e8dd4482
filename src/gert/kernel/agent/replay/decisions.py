"""What is done with a step that may have been taken before: the decisions, without any of the doing."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from gert.kernel.ledger.record import Call, last_seq_of

ANSWERED = "success"


@dataclass(frozen=True, slots=True)
class Replay:
    """The recorded answer stands."""

    call: Call


@dataclass(frozen=True, slots=True)
class Compare:
    """There is an answer under this key, to something else: what differs decides."""

    call: Call


@dataclass(frozen=True, slots=True)
class Fail:
    """The recorded failure stands."""

    call: Call


@dataclass(frozen=True, slots=True)
class InDoubt:
    """The call may have happened; only reconciling can go on."""

    call: Call


@dataclass(frozen=True, slots=True)
class Wait:
    """The same step is being taken right now; its answer is ours."""

    call: Call


@dataclass(frozen=True, slots=True)
class Ask:
    """Nothing on record answers this.

    last: the number of the last event about the requests under the key
    abandoned: requests of whoever died or gave up, which get an end first
    """

    last: int = 0
    abandoned: tuple[Call, ...] = ()


ModelDecision = Replay | Compare | Wait | Ask
ToolDecision = Replay | Compare | Fail | InDoubt | Wait | Ask


def decide_model(calls: Sequence[Call], input_hash: str, in_flight: frozenset[int]) -> ModelDecision:
    """What a model step does, from the requests under its key, the newest first.

    1. An answer to exactly this question is taken; of several the one that was recorded first, for ever.
    2. An answer to another question under the same step key is compared; who asked decides about drift.
    3. The same question under way in this process is waited for.
    4. Otherwise the model is asked, and requests nobody waits for any more are given an end.
    """
    if (same := first_answer(calls, (input_hash,))) is not None:
        return Replay(same)
    if (other := first_answer(calls)) is not None:
        return Compare(other)
    return _ask(calls, in_flight)


def decide_tool(
    calls: Sequence[Call], hashes: Collection[str], in_flight: frozenset[int], *, side_effect: bool
) -> ToolDecision:
    """What a tool step does, from the requests under its key, the newest first.

    1. Another call under the same step key is refused.
    2. A call that succeeded is taken as recorded; of several the one that was recorded first, for ever.
    3. A call that will never succeed is taken as recorded.
    4. A call that may have happened is left to reconciling; so is one that changes something and has no end.
    5. The same call under way in this process is waited for.
    6. Otherwise the tool is called: it never was, or is known not to have happened, or changes nothing.
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
        if call.outcome == "open" and call.seq not in in_flight and side_effect:
            return InDoubt(call)
    return _ask(calls, in_flight)


def first_answer(calls: Sequence[Call], hashes: Collection[str] | None = None) -> Call | None:
    """The call whose success was recorded first, of those that asked one of these questions."""
    found: Call | None = None
    for call in calls:
        if call.outcome != ANSWERED or (hashes is not None and call.input_hash not in hashes):
            continue
        if found is None or (call.done_seq or call.seq) < (found.done_seq or found.seq):
            found = call
    return found


def _ask(calls: Sequence[Call], in_flight: frozenset[int]) -> Wait | Ask:
    unfinished = tuple(call for call in calls if call.outcome == "open")
    for call in unfinished:
        if call.seq in in_flight:
            return Wait(call)
    return Ask(last_seq_of(calls), unfinished)
