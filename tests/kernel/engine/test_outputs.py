"""What a step gave, held against its contract: what is kept, and which violations are told."""

from typing import Any

import pytest
import yaml

from gert.kernel.engine.clock import Clock
from gert.kernel.engine.frame import Frame, LaneContext, Run, Setup
from gert.kernel.engine.outputs import keep_declared
from gert.kernel.engine.requests import ToolAnswer
from gert.kernel.engine.results import Result
from gert.kernel.engine.state import State
from gert.kernel.events.runbook import ContractViolation, Failure, RunStart
from gert.kernel.foundation.principal import Principal
from gert.kernel.governance.rules import Policy, Rule
from gert.kernel.runbook.document import load
from gert.kernel.runbook.program import Program, ToolLookup
from gert.kernel.template.unknown import Unknown

END = {"type": "end", "outcome": {"category": "resolved", "code": "x"}}
DENY = Policy(name="p", rules=(Rule(contract_violations="deny"),))
BOTH = {"n": {"type": "int", "required": True}, "t": {"type": "string"}}


class Bench:
    """A step with a contract, and a run it belongs to."""

    def __init__(
        self,
        outputs: dict[str, Any],
        *policies: Policy,
        deterministic: bool = False,
        extract: tuple[str, ...] = (),
    ) -> None:
        tool = {
            "apiVersion": "tool/v0",
            "meta": {"name": "t"},
            "contract": {"effects": [], "outputs": outputs, "deterministic": deterministic},
            "actions": {"go": {"argv": ["t"], "extract": {name: {"from": "stdout"} for name in extract}}},
        }
        steps = [{"id": each, "type": "tool", "tool": "t"} for each in ("a", "b")]
        book = {"apiVersion": "kernel/v0", "meta": {"name": "b"}, "tools": ["t"], "steps": [*steps, END]}
        lookup = ToolLookup("t", (), "t.tool.yaml", load(yaml.safe_dump(tool).encode(), kind="tool"))
        program = Program(load(yaml.safe_dump(book).encode(), kind="runbook").model, {"t": lookup})
        started = RunStart(runbook="b", runbook_hash="h", mode="real", actor="alice", host="h", gert_version="g")
        self.run = Run(Setup(program=program, run_id="r", started=started, policies=policies))

    def keep(
        self, answer: ToolAnswer, inputs: dict[str, Any] | None = None, step: int = 0
    ) -> tuple[Result, list[ContractViolation]]:
        frame = Frame(LaneContext(run=self.run, state=State({}), clock=Clock()), "a", "a", "a[0]")
        frame.take_answer(answer)
        plan = self.run.plan(self.run.program.runbook.steps[step])
        assert plan is not None
        result, remarks = keep_declared(answer, frame, plan, inputs or {})
        return result, [remark for remark in remarks if isinstance(remark, ContractViolation)]


def kept(outputs: dict[str, Any], declared: dict[str, Any] = BOTH, **answer: Any) -> tuple[Result, list[str]]:
    result, violations = Bench(declared).keep(ToolAnswer(outputs=outputs, **answer))
    assert all(each.step_id == "a[0]" and each.severity == "warning" for each in violations)
    return result, [each.kind for each in violations]


@pytest.mark.parametrize(
    ("outputs", "left", "violations"),
    [
        pytest.param({"n": 1, "t": "x"}, {"n": 1, "t": "x"}, [], id="what is declared"),
        pytest.param({"n": 1}, {"n": 1}, [], id="one that is not required may be missing"),
        pytest.param({"n": " 7"}, {"n": 7}, [], id="text is brought to its type"),
        pytest.param({"n": 1, "x": 2}, {"n": 1}, ["undeclared_output"], id="what is not declared is stripped"),
        pytest.param({"t": "x"}, {"t": "x"}, ["missing_output"], id="one that is required is missing"),
        pytest.param({}, {}, ["missing_output"], id="nothing at all"),
        pytest.param({"n": "many"}, {}, ["wrong_type"], id="one of another type is left out"),
        pytest.param({"n": None}, {}, ["wrong_type"], id="null is not of the type"),
        pytest.param(
            {"t": [1], "x": 1},
            {},
            ["wrong_type", "undeclared_output", "missing_output"],
            id="all at once, in the order they are found",
        ),
    ],
)
def test_what_is_kept(outputs: dict[str, Any], left: dict[str, Any], violations: list[str]) -> None:
    result, found = kept(outputs)
    assert (result.outputs, found) == (left, violations)
    assert result.status == "success", "a violation alone is a warning"


def test_an_output_that_is_extracted_must_be_there() -> None:
    bench = Bench({"t": {"type": "string"}, "u": {"type": "string"}}, extract=("t",))
    _, violations = bench.keep(ToolAnswer(outputs={}))
    assert [each.message for each in violations] == [
        "`t:go` did not produce the output `t`, which its contract declares"
    ]


def test_a_failure_keeps_what_there_is_and_nothing_is_missing() -> None:
    failure = Failure("exit_code", "m")
    result, violations = kept({"t": "x", "odd": 1}, failure=failure, exit_code=3)
    assert (result.failure, result.status, result.exit_code) == (failure, "failed", 3)
    assert (result.outputs, violations) == ({"t": "x"}, ["undeclared_output"])


def test_who_an_extension_says_acted_is_kept() -> None:
    assert kept({"n": 1}, principal=Principal("agent", "x"))[0].principal == Principal("agent", "x")


# --- policy that denies violations


@pytest.mark.parametrize("outputs", [{"n": 1, "x": 2}, {}, {"n": "many"}], ids=["undeclared", "missing", "wrong type"])
def test_a_violation_is_an_error_where_policy_denies_it(outputs: dict[str, Any]) -> None:
    result, violations = Bench(BOTH, DENY).keep(ToolAnswer(outputs=outputs))
    assert result.failure == Failure("contract_violation", violations[0].message)
    assert result.status == "error"
    assert {each.severity for each in violations} == {"error"}


def test_a_contract_that_is_kept_is_no_error_there() -> None:
    result, violations = Bench(BOTH, DENY).keep(ToolAnswer(outputs={"n": 1}))
    assert (result.failure, violations) == (None, [])


def test_a_violation_is_told_before_any_other_failure_where_policy_denies_it() -> None:
    answer = ToolAnswer(outputs={"x": 1}, failure=Failure("exit_code", "m"))
    result, _ = Bench(BOTH, DENY).keep(answer)
    assert result.failure is not None
    assert result.failure.kind == "contract_violation"


# --- determinism


ONE = {"v": {"type": "any"}}


def steady() -> Bench:
    return Bench(ONE, deterministic=True)


def nondeterministic(violations: list[ContractViolation]) -> bool:
    assert all(each.severity == "error" for each in violations if each.kind == "nondeterministic")
    return any(each.kind == "nondeterministic" for each in violations)


@pytest.mark.parametrize(
    ("first", "second", "differ"),
    [
        pytest.param(({"i": 1}, 1), ({"i": 1}, 2), True, id="equal inputs and another output"),
        pytest.param(({"i": 1}, 1), ({"i": 1}, 1), False, id="equal inputs and the same output"),
        pytest.param(({"i": 1}, 1), ({"i": 2}, 2), False, id="other inputs"),
        pytest.param(({"i": 1, "j": 2}, 1), ({"j": 2, "i": 1}, 2), True, id="inputs in another order"),
        pytest.param(({}, 1), ({}, 2), True, id="no inputs"),
        pytest.param(({"i": "1"}, 1), ({"i": 1}, 2), False, id="text is not a number"),
        pytest.param(({"i": True}, 1), ({"i": 1}, 2), False, id="a boolean is not a number"),
        pytest.param(({}, [1, {"a": 2}]), ({}, [1, {"a": 3}]), True, id="another output deep inside"),
        pytest.param(({}, 1), ({}, True), True, id="an output that is a boolean now"),
    ],
)
def test_two_executions_of_a_deterministic_step(first: Any, second: Any, differ: bool) -> None:
    bench = steady()
    for number, (inputs, value) in enumerate((first, second)):
        _, violations = bench.keep(ToolAnswer(outputs={"v": value}), inputs)
        assert nondeterministic(violations) is (differ and number == 1)


def test_the_outputs_that_differ_are_named() -> None:
    bench = Bench({"v": {"type": "any"}, "w": {"type": "any"}, "x": {"type": "any"}}, deterministic=True)
    bench.keep(ToolAnswer(outputs={"v": 1, "w": 1, "x": 1}))
    _, (violation,) = bench.keep(ToolAnswer(outputs={"w": 2, "x": 1}))
    assert violation.message == "`t:go` is declared deterministic and gave a different `v`, `w` for equal inputs"


def test_another_step_is_another_matter() -> None:
    bench = steady()
    bench.keep(ToolAnswer(outputs={"v": 1}), step=0)
    assert not nondeterministic(bench.keep(ToolAnswer(outputs={"v": 2}), step=1)[1])


def test_a_step_that_does_not_claim_it_may_differ() -> None:
    bench = Bench(ONE)
    bench.keep(ToolAnswer(outputs={"v": 1}))
    assert bench.keep(ToolAnswer(outputs={"v": 2}, again={"v": 3}))[1] == []


def test_a_second_execution_that_gave_something_else_is_told() -> None:
    assert nondeterministic(steady().keep(ToolAnswer(outputs={"v": 1}, again={"v": 2}))[1])
    assert not nondeterministic(steady().keep(ToolAnswer(outputs={"v": 1}, again={"v": 1}))[1])
    assert not nondeterministic(steady().keep(ToolAnswer(outputs={"v": 1}, again={"v": 1, "undeclared": 2}))[1])


def test_a_failure_is_not_held_against_an_earlier_success() -> None:
    bench = steady()
    bench.keep(ToolAnswer(outputs={"v": 1}))
    assert not nondeterministic(bench.keep(ToolAnswer(failure=Failure("timeout", "m")))[1])
    assert nondeterministic(bench.keep(ToolAnswer(outputs={"v": 2}))[1])


def test_only_so_much_is_remembered() -> None:
    bench = steady()
    for number in range(1000):
        bench.keep(ToolAnswer(outputs={"v": number}), {"i": number})
    assert sum(map(len, bench.run._remembered.values())) <= 256


def test_unequal_outputs_are_an_error_where_policy_denies_it() -> None:
    bench = Bench(ONE, DENY, deterministic=True)
    result, _ = bench.keep(ToolAnswer(outputs={"v": 1}, again={"v": 2}))
    assert result.failure is not None
    assert result.failure.kind == "contract_violation"


# --- nobody was asked


def test_what_was_assumed_is_unknown_and_breaks_no_contract() -> None:
    result, violations = Bench(BOTH, DENY, deterministic=True).keep(ToolAnswer(assumed="probe"))
    assert (result.status, result.reason, result.assumed, violations) == ("skipped", "probe", True, [])
    assert result.outputs.keys() == BOTH.keys()
    assert all(isinstance(each, Unknown) for each in result.outputs.values())
