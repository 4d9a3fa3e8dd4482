"""Scripts: which answer a question gets, and what is said where there is none."""

from typing import Any

import pytest
from tests.kernel.scenario.plays import call, drive, play, program, scenario, setup

from gert.kernel.engine.run import run
from gert.kernel.scenario.keys import keys_of
from gert.kernel.scenario.observed import RunObservation
from gert.kernel.scenario.script import Script


def answers(*texts: str) -> list[dict[str, Any]]:
    return [{"stdout": f"x={text}\n"} for text in texts]


@pytest.mark.parametrize(
    ("path", "step_id", "keys"),
    [
        pytest.param("a", "a", ["a"], id="at the top"),
        pytest.param("b/arm/a", "a", ["b/arm/a", "a"], id="in an arm"),
        pytest.param("a[0]", "a[0]", ["a[0]", "a"], id="an iteration"),
        pytest.param("b/x/a[k]", "a[k]", ["b/x/a[k]", "a[k]", "a"], id="an iteration in an arm"),
        pytest.param("a[k%2Fl]", "a[k%2Fl]", ["a[k%2Fl]", "a[k/l]", "a"], id="a key with a slash"),
        pytest.param("a[%5Bk%5D]", "a[%5Bk%5D]", ["a[%5Bk%5D]", "a[[k]]", "a"], id="a key with brackets"),
        pytest.param("a[100%25]", "a[100%25]", ["a[100%25]", "a[100%]", "a"], id="a key with a percent sign"),
        pytest.param("a[ü]", "a[ü]", ["a[ü]", "a"], id="a key beyond ASCII"),
        pytest.param("r[1]/2/a", "a", ["r[1]/2/a", "a"], id="inside an iteration"),
        pytest.param("odd[", "odd", ["odd[", "odd"], id="what is no path is still a key"),
    ],
)
def test_how_an_execution_is_named(path: str, step_id: str, keys: list[str]) -> None:
    assert keys_of(path, step_id) == keys


@pytest.mark.parametrize(
    ("responses", "given"),
    [
        pytest.param({"t": answers("1")[0]}, ["1", "1", "1"], id="one answer stands for every call"),
        pytest.param({"t": answers("1", "2", "3")}, ["1", "2", "3"], id="a list is used up"),
        pytest.param({"t:go": answers("1", "2"), "b": answers("9")}, ["1", "9", "2"], id="each key for itself"),
        pytest.param({"a": answers("1"), "t:go": answers("8")[0], "t": answers("7")[0]}, ["1", "8", "8"], id="closest"),
        pytest.param({"t:other": answers("0")[0], "t": answers("7")[0]}, ["7", "7", "7"], id="another action"),
    ],
)
def test_which_answer_is_given(responses: dict[str, Any], given: list[str]) -> None:
    _, seen, script = play(program(call("a"), call("b"), call("c")), scenario(tool_responses=responses))
    assert [seen.by_step[step]["x"] for step in "abc"] == given
    assert script.missing == []


@pytest.mark.parametrize(
    ("responses", "words"),
    [
        pytest.param({}, ["`a`", "`t:go`", "`tool_responses`"], id="none at all"),
        pytest.param({"t:other": {}}, ["`a`", "`t:go`"], id="of another action"),
        pytest.param({"a": []}, ["0 answers", "`a`"], id="an empty list"),
        pytest.param({"t": answers("1")}, ["1 answer ", "`t`", "`b` needs another"], id="one too few"),
        pytest.param({"a": answers("1", "2"), "c": answers("3")}, ["`b`"], id="in the middle"),
    ],
)
def test_an_answer_that_is_not_there_is_named(responses: dict[str, Any], words: list[str]) -> None:
    result, _, script = play(program(call("a"), call("b")), scenario(tool_responses=responses))
    assert result.status in ("failed", "error")
    assert result.failure is not None
    assert (result.failure.kind, [result.failure.message]) == ("not_found", script.missing)
    assert all(word in script.missing[0] for word in words)


def test_a_closer_key_that_is_used_up_does_not_fall_back_to_a_wider_one() -> None:
    made = program(call("a", for_each={"as": "i", "over": [1, 2]}))
    result, _, script = play(made, scenario(tool_responses={"a": answers("1"), "t": answers("9")[0]}))
    assert result.status != "completed"
    assert "`a`" in script.missing[0]


def test_unused_answers_are_listed_and_used_ones_are_not() -> None:
    made = program(call("a"), call("b", when="{{ false }}"))
    responses = {"a": answers("1", "2"), "b": answers("3")[0], "t": answers("4")}
    _, _, script = play(made, scenario(tool_responses=responses, approvals={"a": {"approved": True}}))
    assert list(script.unused()) == [
        "tool_responses.a",
        "tool_responses.b",
        "tool_responses.t",
        "approvals.a",
    ]


def test_two_contracts_do_not_share_what_one_answer_gave() -> None:
    narrowed = call("b", contract={"outputs": {"x": {"type": "string", "secret": True}}})
    _, seen, _ = play(program(call("a"), narrowed, call("c")), scenario(tool_responses={"t": answers("1")[0]}))
    assert (seen.by_step["a"]["x"], seen.by_step["c"]["x"]) == ("1", "1")


def test_a_run_that_was_stopped_stops_at_the_same_question() -> None:
    made = program(call("a"), call("b"), call("c"), after=(call("tidy"),))
    first: list[str] = []

    class Listening:
        def __init__(self, script: Any) -> None:
            self._script = script

        def answer(self, ask: Any) -> Any:
            first.append(ask.key)
            return self._script.answer(ask)

    plain = scenario(tool_responses={"t": answers("1")[0]})
    drive(run(setup(made)), Listening(Script(plain, made)), RunObservation())  # type: ignore[arg-type]
    stopped = scenario(tool_responses={"t": answers("1")[0]}, cancelled={"reason": "enough", "questions": [first[1]]})
    result, seen, script = play(made, stopped)
    assert result.status == "cancelled"
    assert "c" not in seen.visited
    assert "tidy" in seen.visited
    assert script.missing == []


def test_an_answer_that_is_missing_in_a_loop_is_named_by_its_path() -> None:
    group = {
        "id": "each",
        "type": "group",
        "for_each": {"as": "i", "over": ["x/1", "y"], "key": "{{ .i }}"},
        "steps": [call("scan")],
    }
    _, _, script = play(program(group), scenario(tool_responses={}))
    [said, *_] = script.missing
    path = said.partition("add `")[2].partition("`")[0]
    assert "%2F1]/" in path
    assert said.startswith(f"the scenario has no answer for `{path.replace('%2F', '/')}`: add `{path}` to")
    _, _, script = play(program(group), scenario(tool_responses={path: answers("1")[0]}))
    assert len(script.missing) == 1
    assert f"`{path}`" not in script.missing[0]


@pytest.mark.parametrize("submitted", [True, False])
def test_an_approval_that_is_used_up_is_missed(submitted: bool) -> None:
    rules = [{"effects": ["network"], "action": "require-approval"}, {"default": "allow"}]
    made = program(call("a", for_each={"as": "i", "over": [1, 2]}), governance={"rules": rules})
    said = {"approved": True} if submitted else {"submitted": False}
    result, _, script = play(made, scenario(tool_responses={"t": answers("1")[0]}, approvals={"a": [said]}))
    assert result.status == ("failed" if submitted else "error")
    if submitted:
        assert "only 1 answer" in script.missing[0]


@pytest.mark.parametrize(
    ("rule", "people"),
    [
        pytest.param({"min_approvers": 2, "approvers": ["bob", "BOB", "cyd"]}, {"bob", "cyd"}, id="a name twice"),
        pytest.param({"min_approvers": 2, "approvers": ["bob", "cyd", "dee"]}, {"bob", "cyd"}, id="the first of them"),
        pytest.param({"separation_of_duties": True, "approvers": ["ANN", "bob"]}, {"bob"}, id="not who started it"),
        pytest.param({"separation_of_duties": True}, {"scripted-1"}, id="any person but the one who started it"),
        pytest.param({"min_approvers": 3}, {"scripted-1", "scripted-2", "scripted-3"}, id="any three"),
    ],
)
def test_an_approval_that_is_not_written_is_given_by_people_who_may(rule: dict[str, Any], people: set[str]) -> None:
    rules = [{"effects": ["network"], "action": "require-approval", **rule}, {"default": "allow"}]
    made = program(call("a"), governance={"rules": rules})
    script = Script(scenario(tool_responses={"t": answers("1")[0]}), made, "ann")
    heard: list[str] = []

    class Overheard:
        def answer(self, ask: Any) -> Any:
            answer = script.answer(ask)
            heard.extend(each.approver for each in getattr(answer, "responses", ()))
            return answer

    result = drive(run(setup(made)), Overheard(), RunObservation())  # type: ignore[arg-type]
    assert result.status == "completed"
    assert script.approved_by_default == ["a"]
    assert {each.lower() for each in heard} == people


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        pytest.param(True, None, id="all of it"),
        pytest.param(["b", "a"], None, id="each item, in any order"),
        pytest.param(["a", 7, "b"], None, id="and more"),
        pytest.param(["a"], "rejected", id="an item that was left open"),
        pytest.param([], "rejected", id="nothing of it"),
        pytest.param(False, "rejected", id="a no"),
        pytest.param({"a": True}, "evidence", id="what is no checklist"),
        pytest.param("a, b", "evidence", id="a text"),
    ],
)
def test_a_checklist_counts_when_a_person_could_have_gone_on(given: Any, kind: str | None) -> None:
    """A scenario in which somebody says no must not pass for one in which they said yes."""
    piece = {"kind": "checklist", "name": "c", "items": ["a", "b"]}
    made = program({"id": "m", "type": "manual", "instructions": "look", "required_evidence": [piece]})
    result, _, _ = play(made, scenario(evidence={"m": {"c": given}}))
    assert (result.failure.kind if result.failure is not None else None) == kind


def test_a_checklist_that_was_masked_on_record_is_taken_as_it_is() -> None:
    piece = {"kind": "checklist", "name": "c", "items": ["the key is k3y", "b"]}
    made = program({"id": "m", "type": "manual", "instructions": "look", "required_evidence": [piece]})
    given = {"c": ["the key is [REDACTED]", "b"], "redacted": 1}
    assert play(made, scenario(evidence={"m": given}))[0].status == "completed"
