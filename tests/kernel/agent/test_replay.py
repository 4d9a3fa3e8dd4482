"""What is done with a step that may have been taken before, as tables."""

import pytest

from gert.kernel.agent.ledger import Call
from gert.kernel.agent.replay import Ask, Compare, Fail, InDoubt, Replay, Wait, decide_model, decide_tool

NONE: frozenset[int] = frozenset()


def call(seq: int, outcome: str = "success", hashed: str = "same", kind: str = "model", done: int = 0) -> Call:
    return Call("r", seq, kind, "key", "name", "acme", "", hashed, None, outcome, done or None)  # type: ignore[arg-type]


MODEL = [
    pytest.param([], NONE, True, Ask(), id="never asked: ask"),
    pytest.param([call(2)], NONE, True, Replay(call(2)), id="answered: replay"),
    pytest.param([call(2)], NONE, False, Replay(call(2)), id="answered, without a key: replay"),
    pytest.param(
        [call(5, done=6), call(2, done=9)], NONE, True, Replay(call(5, done=6)), id="answered twice: what came first"
    ),
    pytest.param(
        [call(5, done=9), call(2, done=6)], NONE, True, Replay(call(2, done=6)), id="answered twice, in order: the same"
    ),
    pytest.param(
        [call(5, hashed="other", done=9), call(2, hashed="third", done=6)],
        NONE,
        True,
        Compare(call(2, hashed="third", done=6)),
        id="two other questions: what was answered first",
    ),
    pytest.param([call(2, hashed="other")], NONE, True, Compare(call(2, hashed="other")), id="another question"),
    pytest.param(
        [call(5, hashed="other"), call(2)], NONE, True, Replay(call(2)), id="the same before another: replay the same"
    ),
    pytest.param(
        [call(5, "failed"), call(2)], NONE, True, Replay(call(2)), id="an answer stands whatever failed after it"
    ),
    *(
        pytest.param([call(2, word)], NONE, True, Ask(2, (), again=True), id=f"{word}: ask again")
        for word in ("failed", "timeout", "cancelled", "abandoned")
    ),
    pytest.param(
        [call(2, "open")], NONE, True, Ask(2, (call(2, "open"),), again=True), id="nobody waits: abandoned, ask again"
    ),
    pytest.param([call(2, "open")], frozenset({2}), True, Wait(call(2, "open")), id="under way: wait"),
    pytest.param([call(2, "open")], frozenset({2}), False, Ask(2, ()), id="under way, without a key: ask beside it"),
    pytest.param(
        [call(4, "open"), call(2, "open")],
        frozenset({4}),
        False,
        Ask(4, (call(2, "open"),), again=True),
        id="without a key only the dead one is abandoned",
    ),
    pytest.param(
        [call(4, "open"), call(2, "failed")], frozenset({4}), True, Wait(call(4, "open")), id="being retried: wait"
    ),
    pytest.param([call(3, "open", "other"), call(2)], NONE, True, Replay(call(2)), id="another question is open"),
]

TOOL = [
    pytest.param([], NONE, True, True, Ask(), id="never called: call"),
    pytest.param([call(2)], NONE, True, True, Replay(call(2)), id="succeeded: replay"),
    pytest.param(
        [call(5, done=6), call(2, done=9)], NONE, True, True, Replay(call(5, done=6)), id="succeeded twice: the first"
    ),
    pytest.param(
        [call(5, "permanent_error"), call(4, "unknown_outcome"), call(2, done=9)],
        NONE,
        True,
        True,
        Replay(call(2, done=9)),
        id="a success stands whatever failed after it",
    ),
    pytest.param([call(2, hashed="alike")], NONE, True, True, Replay(call(2, hashed="alike")), id="the same otherwise"),
    pytest.param([call(2, hashed="other")], NONE, True, True, Compare(call(2, hashed="other")), id="another call"),
    pytest.param(
        [call(5), call(2, "failed", "other")],
        NONE,
        True,
        True,
        Compare(call(2, "failed", "other")),
        id="another call ever: refused",
    ),
    pytest.param(
        [call(2, "permanent_error")], NONE, True, True, Fail(call(2, "permanent_error")), id="failed for good"
    ),
    pytest.param([call(2, "unknown_outcome")], NONE, True, True, InDoubt(call(2, "unknown_outcome")), id="in doubt"),
    pytest.param(
        [call(2, "unknown_outcome")],
        NONE,
        True,
        False,
        InDoubt(call(2, "unknown_outcome")),
        id="in doubt also without effects",
    ),
    pytest.param([call(2, "transient_error")], NONE, True, True, Ask(2, (), again=True), id="failed for now: again"),
    pytest.param([call(2, "open")], NONE, True, True, InDoubt(call(2, "open")), id="no end, with effects: in doubt"),
    pytest.param([call(2, "open")], NONE, False, True, InDoubt(call(2, "open")), id="the same without a key"),
    pytest.param(
        [call(2, "open")],
        NONE,
        True,
        False,
        Ask(2, (call(2, "open"),), again=True),
        id="no end, without effects: again",
    ),
    pytest.param([call(2, "open")], frozenset({2}), True, True, Wait(call(2, "open")), id="under way: wait"),
    pytest.param([call(2, "open")], frozenset({2}), False, True, Ask(2), id="under way, without a key: beside it"),
    pytest.param(
        [call(4, "transient_error"), call(2, "unknown_outcome")],
        NONE,
        True,
        True,
        InDoubt(call(2, "unknown_outcome")),
        id="doubt about an earlier one is not forgotten",
    ),
    pytest.param(
        [call(4, "transient_error"), call(2, "transient_error")], NONE, True, True, Ask(4, (), again=True), id="thrice"
    ),
]


@pytest.mark.parametrize(("calls", "in_flight", "keyed", "decision"), MODEL)
def test_what_a_model_step_does(calls: list[Call], in_flight: frozenset[int], keyed: bool, decision: object) -> None:
    assert decide_model(calls, "same", in_flight, keyed=keyed) == decision


@pytest.mark.parametrize(("calls", "in_flight", "keyed", "side_effect", "decision"), TOOL)
def test_what_a_tool_step_does(
    calls: list[Call], in_flight: frozenset[int], keyed: bool, side_effect: bool, decision: object
) -> None:
    assert decide_tool(calls, {"same", "alike"}, in_flight, keyed=keyed, side_effect=side_effect) == decision
