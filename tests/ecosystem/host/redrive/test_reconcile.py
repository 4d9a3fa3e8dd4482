"""Calls without a result: made again where that does no harm, and settled by the operator where it might."""

import asyncio
from typing import Any

import pytest

from gert.ecosystem.host.redrive.reconcile import Reconciled, reconcile_calls
from gert.ecosystem.host.run.world.sanitize import Sanitizer
from gert.errors import InDoubt, OutputsMissing, UsageError
from gert.kernel.engine.requests import (
    AnyAnswer,
    CallExtension,
    CallPreview,
    CallTool,
    Pause,
    Request,
    ToolAnswer,
)
from gert.kernel.events.vocabulary import Reconciliation
from gert.kernel.foundation.redaction import Redactor
from gert.kernel.governance.contract import Contract
from gert.kernel.governance.parameter import Parameter

SAFE, SINGLE = Contract(idempotent=True), Contract(idempotent=False)
OUTPUTS = {
    "id": Parameter(type="string", required=True),
    "count": Parameter(type="int"),
    "token": Parameter(type="string", required=True, secret=True),
}
GIVES = Contract(idempotent=False, outputs=OUTPUTS)


def tool(path: str, contract: Contract = SINGLE) -> CallTool:
    step = path.rpartition("/")[2]
    return CallTool(key=f"{path}#1", path=path, step_id=step, tool="t", action="go", inputs={}, contract=contract)


def extension(path: str, contract: Contract = SINGLE) -> CallExtension:
    return CallExtension(key=f"{path}#1", path=path, step_id=path, extension="x", inputs={}, view={}, contract=contract)


def test_nothing_announced_is_nothing_to_settle() -> None:
    assert reconcile_calls([], {}) == []
    assert reconcile_calls([], {"*": "success"}) == []


def test_what_writes_nothing_is_no_call() -> None:
    preview = CallPreview(key="p", path="p", step_id="p", tool="t", action="go", inputs={}, contract=SINGLE)
    assert reconcile_calls([Pause(key="w", path="w", step_id="w", seconds=1.0), preview], {}) == []


def test_a_call_that_may_be_repeated_is_repeated() -> None:
    (choice,) = reconcile_calls([tool("a", SAFE)], {})
    assert (choice.key, choice.path, choice.event.choice, choice.event.automatic) == ("a#1", "a", "retry", True)


@pytest.mark.parametrize("call", [tool, extension])
def test_a_call_that_may_not_be_repeated_is_in_doubt(call: Any) -> None:
    with pytest.raises(InDoubt, match="outcome of `a` is unknown"):
        reconcile_calls([call("a")], {})


def test_all_that_is_in_doubt_is_named_and_nothing_else() -> None:
    with pytest.raises(InDoubt) as refusal:
        reconcile_calls([tool("p/0/a"), tool("p/1/b", SAFE), tool("p/2/c")], {})
    assert "`p/0/a`, `p/2/c`" in refusal.value.message
    assert "p/1/b" not in refusal.value.message


@pytest.mark.parametrize(
    ("said", "choices"),
    [
        pytest.param({"*": "success"}, {"p/a": "success", "p/b": "retry", "q/a": "success"}, id="for all in doubt"),
        pytest.param(
            {"*": "failed", "b": "success"}, {"p/a": "failed", "p/b": "success", "q/a": "failed"}, id="and one"
        ),
        pytest.param(
            {"p/a": "success", "q/a": "failed"},
            {"p/a": "success", "p/b": "retry", "q/a": "failed"},
            id="by its path",
        ),
    ],
)
def test_the_closest_word_counts(said: dict[str, Reconciliation], choices: dict[str, str]) -> None:
    found = reconcile_calls([tool("p/a"), tool("p/b", SAFE), tool("q/a")], said)
    assert {choice.path: choice.event.choice for choice in found} == choices


def test_what_the_operator_says_is_not_automatic() -> None:
    found = reconcile_calls([tool("a"), tool("b", SAFE)], {"*": "retry"})
    assert {choice.path: choice.event.automatic for choice in found} == {"a": False, "b": True}


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        pytest.param("c", "there is `a`", id="a step that is not open"),
        pytest.param("", "there is `a`", id="no step"),
        pytest.param("a/b", "there is `a`", id="a path that is not open"),
    ],
)
def test_a_word_about_a_step_that_is_not_open_is_refused(name: str, hint: str) -> None:
    with pytest.raises(UsageError, match="is not a call without a result") as refusal:
        reconcile_calls([tool("a")], {name: "success", "a": "success"})
    assert refusal.value.hint == hint


@pytest.mark.parametrize(
    "name", ["p/a", "q/x[logs%2Fbig]", "q/x[logs/big]", "x[logs%2Fbig]", "x[logs/big]", "x", "q/x"]
)
def test_a_call_is_named_by_its_path_or_its_id_as_recorded_or_as_people_read_it(name: str) -> None:
    calls = [tool("p/a", GIVES), tool("q/x[logs%2Fbig]", GIVES)]
    found = reconcile_calls(calls, {"*": "failed", name: "success"}, [f"{name}.id=7"])
    (only,) = [choice for choice in found if choice.event.choice == "success"]
    assert only.path == ("p/a" if name == "p/a" else "q/x[logs%2Fbig]")
    assert only.outputs["id"] == "7"


def test_a_name_of_several_calls_is_refused_and_they_are_listed() -> None:
    calls = [tool("p/x[a%2Fb]", GIVES), tool("q/x[c]", GIVES)]
    with pytest.raises(UsageError, match="`x` names 2 calls without a result") as refusal:
        reconcile_calls(calls, {"x": "success"})
    assert refusal.value.hint == "name one of `p/x[a%2Fb]`, `q/x[c]`"
    with pytest.raises(UsageError, match="`x` names 2 calls without a result"):
        reconcile_calls(calls, {"*": "success"}, ["x.id=1"])


def test_the_very_path_is_meant_where_another_one_reads_the_same() -> None:
    found = reconcile_calls([tool("x[a%2Fb]"), tool("x[a%252Fb]")], {"*": "failed", "x[a%2Fb]": "success"})
    assert [choice.event.choice for choice in found] == ["success", "failed"]


def test_two_choices_for_one_call_are_refused() -> None:
    with pytest.raises(UsageError, match="`p/a` is reconciled twice"):
        reconcile_calls([tool("p/a")], {"a": "success", "p/a": "failed"})


def test_messages_show_what_people_read() -> None:
    with pytest.raises(InDoubt, match=r"outcome of `x\[a/b\]` is unknown"):
        reconcile_calls([tool("x[a%2Fb]")], {})
    with pytest.raises(OutputsMissing) as refusal:
        reconcile_calls([tool("x[a%2Fb]", GIVES)], {"*": "success"})
    assert refusal.value.hint == "--reconcile-output x[a/b].id=VALUE"
    with pytest.raises(UsageError) as unknown:
        reconcile_calls([tool("x[a%2Fb]")], {"y": "success"})
    assert unknown.value.hint == "there is `x[a/b]`"


class World:
    def __init__(self) -> None:
        self.asked: list[str] = []

    def immediate(self, ask: Request[Any]) -> AnyAnswer | None:
        return None

    async def answer(self, ask: Request[Any]) -> AnyAnswer:
        self.asked.append(ask.key)
        return ToolAnswer(exit_code=0)


@pytest.mark.parametrize(
    ("choice", "asked", "failure"),
    [
        pytest.param("success", [], None, id="it happened"),
        pytest.param("failed", [], "reported", id="it failed"),
        pytest.param("retry", ["a#1"], None, id="it is done again"),
    ],
)
def test_a_settled_call_is_answered_as_it_was_settled(
    choice: Reconciliation, asked: list[str], failure: str | None
) -> None:
    world = World()
    reconciled = Reconciled(world, Sanitizer(Redactor()))
    reconciled.settled = {each.key: each for each in reconcile_calls([tool("a")], {"a": choice})}
    answer = asyncio.run(reconciled.answer(tool("a")))
    assert world.asked == asked
    assert (answer.failure.kind if answer.failure else None) == failure


def test_a_call_is_settled_once_and_then_the_world_is_asked() -> None:
    world = World()
    reconciled = Reconciled(world, Sanitizer(Redactor()))
    reconciled.settled = {each.key: each for each in reconcile_calls([tool("a")], {"a": "success"})}
    asyncio.run(reconciled.answer(tool("a")))
    asyncio.run(reconciled.answer(tool("a")))
    assert world.asked == ["a#1"]


# --- outputs of a success


def test_outputs_have_their_declared_types_and_secrets_are_not_asked_for() -> None:
    (choice,) = reconcile_calls([tool("p/a", GIVES)], {"a": "success"}, ["a.id=7", "p/a.count=8"])
    assert choice.outputs == {"id": "7", "count": 8, "token": "[REDACTED]"}


def test_the_longest_name_of_a_call_is_the_one_that_is_meant() -> None:
    first, second = tool("e[a]", GIVES), tool("e[a].b]", GIVES)
    found = reconcile_calls([first, second], {"*": "success"}, ["e[a].id=x", "e[a].b].id=a=b"])
    assert [choice.outputs["id"] for choice in found] == ["x", "a=b"]


def test_required_outputs_that_are_missing_are_all_named() -> None:
    with pytest.raises(OutputsMissing, match="`id` of `a`, `id` of `b`") as refusal:
        reconcile_calls([tool("a", GIVES), tool("b", GIVES), tool("c")], {"*": "success"})
    assert refusal.value.hint == "--reconcile-output a.id=VALUE --reconcile-output b.id=VALUE"


@pytest.mark.parametrize(
    ("choice", "given", "why"),
    [
        pytest.param("failed", "a.id=x", "reconciled as `failed`", id="a failure has no outputs"),
        pytest.param("retry", "a.id=x", "reconciled as `retry`", id="nor has what is done again"),
        pytest.param("success", "a.name=x", "has no output `name`", id="an output that is not declared"),
        pytest.param("success", "a.count=many", "expected an int", id="a value of another type"),
        pytest.param("success", "b.id=x", "not `b.id=x`", id="a call that has a result"),
        pytest.param("success", "a.id", "takes STEP.NAME=VALUE", id="no value"),
        pytest.param("success", "a=x", "takes STEP.NAME=VALUE", id="no output"),
    ],
)
def test_an_output_that_makes_no_sense_is_refused(choice: Reconciliation, given: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        reconcile_calls([tool("a", GIVES)], {"a": choice}, ["a.id=1", given] if choice == "success" else [given])


def test_outputs_the_operator_gives_are_redacted_like_those_of_a_tool() -> None:
    reconciled = Reconciled(World(), Sanitizer(Redactor(["hunter2"])))
    ask = tool("a", GIVES)
    choices = reconcile_calls([ask], {"a": "success"}, ["a.id=pass hunter2", "a.token=t0ken"])
    reconciled.settled = {each.key: each for each in choices}
    answer = reconciled.immediate(ask)
    assert isinstance(answer, ToolAnswer)
    assert answer.outputs == {"id": "pass [REDACTED]", "token": "[REDACTED]"}
    assert answer.reconciled
