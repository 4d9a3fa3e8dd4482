"""Expectations: exact, in type as well as in value; what differs is named, shown and explained."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kernel.scenario.plays import call, expectations, play, program, scenario

from gert.errors import PatternError
from gert.kernel.events.path import item
from gert.kernel.scenario.expect import absence_notes, differences, literal, matches
from gert.kernel.scenario.observed import RunObservation
from gert.kernel.scenario.update import updates

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.from_regex(r"/.+/", fullmatch=True),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@pytest.mark.parametrize(
    ("want", "found"),
    [
        (200, 200),
        ("200", "200"),
        (1, 1.0),
        (True, True),
        (None, None),
        ([], []),
        ({}, {}),
        ("/2../", 200),
        ("/^200$/", "200"),
        ("/a/", ["a"]),
        ({"a": "/x/"}, {"a": "xyz"}),
        ([["/x/"]], [["x"]]),
        ("/true/", True),
        ("//", "//"),
        ("/", "/"),
    ],
)
def test_what_matches(want: Any, found: Any) -> None:
    assert matches(want, found)


@pytest.mark.parametrize(
    ("want", "found"),
    [
        (200, "200"),
        ("200", 200),
        (1, True),
        (True, 1),
        (0, False),
        (None, ""),
        ("", None),
        (None, 0),
        ([1], [1, 2]),
        ([1, 2], [2, 1]),
        ({"a": 1}, {"a": 1, "b": 2}),
        ({"a": 1, "b": 2}, {"a": 1}),
        ({"a": None}, {}),
        ([1], {"0": 1}),
        ([True], [1]),
        ("/^2$/", 200),
        ("/x/", None),
        ("//", ""),
        ("/X/", "x"),
        ("a", "A"),
        ("a", "a "),
    ],
)
def test_what_does_not_match(want: Any, found: Any) -> None:
    assert not matches(want, found)


@pytest.mark.parametrize("want", ["/(/", "/a**/", "/(?=x)/", "/" + "x" * 2000 + "/", {"a": ["/[/"]}])
def test_a_pattern_that_is_none_is_an_error_wherever_it_stands(want: Any) -> None:
    found = {"a": ["x"]} if isinstance(want, dict) else "x"
    with pytest.raises(PatternError):
        matches(want, found)


@given(PLAIN)
def test_a_value_written_as_an_expectation_expects_just_that(value: Any) -> None:
    assert matches(literal(value), value)


@pytest.mark.parametrize("text", ["/opt/c++/", "/a(/", "/var/log/", "/^$/", "/\\d/", "/a\nb/", "/ü€/", "/a b/"])
def test_text_that_looks_like_a_pattern_is_expected_as_text(text: str) -> None:
    assert matches(literal(text), text)
    assert not matches(literal(text), text + "x")
    assert not matches(literal(text), "x" + text)


@pytest.mark.parametrize("letter", ["x", "+", "\n", "é"])
@pytest.mark.parametrize("length", [490, 998, 999, 1000, 5000])
def test_a_long_text_that_looks_like_a_pattern_is_still_an_expectation(letter: str, length: int) -> None:
    text = f"/a{letter * length}b/"
    assert matches(literal(text), text)
    for other in (text + "x", "x" + text, text.replace("a", "c"), text.replace("b", "c")):
        assert not matches(literal(text), other)


@pytest.mark.parametrize("key", ["feat/c", "a[0]", "50%", "x%2Fy"])
@pytest.mark.parametrize("is_escaped", [False, True], ids=["as people write it", "as in events"])
def test_the_key_of_an_item_may_be_any_text(key: str, is_escaped: bool) -> None:
    looped = call("a", for_each={"as": "each", "over": [key, "other"], "key": "{{ .each }}"})
    spelled = item("a", key) if is_escaped else f"a[{key}]"
    answers = scenario(tool_responses={"a": {"stdout": "x=1"}})
    _, seen, script = play(program(looped), answers, (f"step_complete {spelled}",))
    met = expectations(
        must_reach=[spelled],
        expected_decisions={spelled: "allow"},
        expected_risk={spelled: "low"},
        expected_outputs={f"{spelled}.x": "1"},
        expected_events=[f"step_complete {spelled}"],
    )
    assert list(differences(met, seen, script.missing)) == []
    assert updates(met, seen) == {}
    [found] = differences(expectations(must_not_reach=[spelled]), seen, script.missing)
    assert found.name == "must_not_reach"


LOOPED = {
    "id": "grp",
    "type": "group",
    "for_each": {"as": "each", "over": ["x/y", "z"], "key": "{{ .each }}"},
    "steps": [call("say"), call("skipped", when="{{ false }}")],
}
INSIDE = {"type": "branch", "branches": [{"condition": "{{ true }}", "label": "full", "steps": [LOOPED]}]}


@pytest.mark.parametrize(
    ("name", "is_reached"),
    [
        ("say", True),
        ("grp/say", True),
        ("grp[x/y]/say", True),
        ("grp[x%2Fy]/say", True),
        ("full/grp[z]/say", True),
        ("branch#1/full/grp[x/y]/say", True),
        ("branch#1/full/grp/say", True),
        ("grp[other]/say", False),
        ("say[0]", False),
        ("rp/say", False),
        ("grp[x/y]/skipped", False),
    ],
)
def test_a_step_is_named_by_the_end_of_its_path_with_or_without_items(name: str, is_reached: bool) -> None:
    _, seen, script = play(program(INSIDE), scenario(tool_responses={"say": {"stdout": "x=1"}}))
    reached = differences(expectations(must_reach=[name]), seen, script.missing)
    avoided = differences(expectations(must_not_reach=[name]), seen, script.missing)
    assert (bool(list(reached)), bool(list(avoided))) == (not is_reached, is_reached)
    if is_reached:
        met = expectations(expected_decisions={name: "allow"}, expected_risk={name: "low"})
        assert list(differences(met, seen, script.missing)) == []


@pytest.mark.parametrize(("answers", "is_reached"), [([False, False], False), ([True, False], True)])
@pytest.mark.parametrize("parallel", [False, True])
def test_a_loop_is_reached_if_one_of_its_items_ran(answers: list[bool], is_reached: bool, parallel: bool) -> None:
    looped = call("a", for_each={"as": "each", "over": ["x", "y"], "parallel": parallel}, continue_on_fail=True)
    asked = program(looped, governance={"rules": [{"default": "require-approval"}]})
    given = scenario(
        tool_responses={"a": {"stdout": "x=1"}},
        approvals={f"a[{at}]": {"approved": approved} for at, approved in enumerate(answers)},
    )
    _, seen, _ = play(asked, given)
    assert seen.is_reached("a") is is_reached
    assert seen.is_reached("a[0]") is is_reached
    assert not seen.is_reached("a[1]")


def test_a_loop_without_items_is_reached() -> None:
    _, seen, _ = play(program(call("a", for_each={"as": "each", "over": []})), scenario())
    assert seen.is_reached("a")


def test_an_event_of_an_item_is_one_of_its_step() -> None:
    looped = call("a", for_each={"as": "each", "over": ["x/y"], "key": "{{ .each }}"}, retry={"max": 2})
    failing = [{"exit_code": 1}, {"stdout": "x=1"}]
    for wanted in ("step_retry a", "step_retry a[x/y]", "step_retry a[x%2Fy]"):
        _, seen, _ = play(program(looped), scenario(tool_responses={"a": failing}), (wanted,))
        assert seen.pending == []
    _, seen, _ = play(program(looped), scenario(tool_responses={"a": failing}), ("step_retry b",))
    assert len(seen.pending) == 1


def test_every_difference_is_named_in_the_order_of_the_document() -> None:
    answers = scenario(tool_responses={"a": {"stdout": "x=1"}})
    _, seen, script = play(program(call("a")), answers, ("step_retry a",))
    expected = expectations(
        expected_events=["step_retry a"],
        expected_decisions={"a": "deny"},
        expected_risk={"a": "critical"},
        expected_meta={"m": 1},
        expected_outputs={"x": 1, "gone": 2},
        must_not_reach=["a"],
        must_reach=["b"],
        expected_code="other",
        expected_outcome="escalated",
        expected_status="failed",
    )
    assert [each.name for each in differences(expected, seen, script.missing)] == [
        "expected_status",
        "expected_outcome",
        "expected_code",
        "must_reach",
        "must_not_reach",
        "expected_outputs.x",
        "expected_outputs.gone",
        "expected_meta.m",
        "expected_risk.a",
        "expected_decisions.a",
        "expected_events",
    ]
    for each in differences(expected, seen, script.missing):
        assert each.expected in str(each)
        assert each.found in str(each)
        assert "\n" not in str(each)


def test_a_missing_answer_goes_before_everything_even_where_nothing_else_differs() -> None:
    _, seen, script = play(program(call("a", continue_on_fail=True)), scenario())
    (first,) = differences(expectations(expected_status="completed"), seen, script.missing)
    assert first.name == "scenario"
    assert "`a`" in first.found


def test_without_expectations_a_failure_is_a_difference_and_says_why() -> None:
    _, seen, script = play(program(call("a")), scenario(tool_responses={"a": {"exit_code": 2, "stderr": "boom"}}))
    (only,) = differences(None, seen, script.missing)
    assert (only.name, only.found) == ("expected_status", "`failed`")
    assert "boom" in (only.hint or "")


def test_what_is_long_is_cut_and_what_could_steer_a_terminal_is_not_shown() -> None:
    made = program(call("a"))
    _, seen, script = play(made, scenario(tool_responses={"a": {"outputs": {"x": "\x1b[2J" + "y" * 10_000}}}))
    (only,) = differences(expectations(expected_outputs={"x": "z"}), seen, script.missing)
    assert "\x1b" not in str(only)
    assert len(str(only)) < 1000


def looped(key: str | None, over: list[str]) -> RunObservation:
    """A run of a loop `delete` in the group `grp`."""
    block = {"as": "each", "over": over} | ({"key": key} if key else {})
    group = {"id": "grp", "type": "group", "steps": [call("delete", for_each=block)]}
    _, seen, _ = play(program(group), scenario(tool_responses={"delete": {"stdout": "x=1"}}))
    return seen


KEYED = ("{{ .each }}", ["/l/a.log", "/l/b.log"])


@pytest.mark.parametrize(
    ("loop", "name", "found", "hint"),
    [
        (KEYED, "delete[0]", "that it had `/l/a.log`, `/l/b.log`", "name an item by its key"),
        (KEYED, "grp/delete[7]", "that it had `/l/a.log`, `/l/b.log`", "name an item by its key"),
        ((None, ["a", "b"]), "delete[a]", "that it had `0` to `1`", "name an item by its index"),
    ],
)
def test_an_item_that_cannot_be_reached_meets_no_expectation(
    loop: tuple[str | None, list[str]], name: str, found: str, hint: str
) -> None:
    seen = looped(*loop)
    expected = expectations(must_not_reach=[name])
    [difference] = differences(expected, seen, [])
    assert (difference.expected, difference.found) == (f"`{name}` to be an item of `delete`", found)
    assert difference.hint == hint
    assert list(absence_notes(expected, seen)) == []


@pytest.mark.parametrize(
    ("loop", "name", "had"),
    [
        (KEYED, "delete[b.log]", "`/l/a.log`, `/l/b.log`"),
        (KEYED, "delete[%2Fl%2Fzzz.log]", "`/l/a.log`, `/l/b.log`"),
        (("{{ .each }}", ["80", "443"]), "delete[0]", "`80`, `443`"),
        (("{{ .each }}", [f"k{at}" for at in range(9)]), "grp/delete[x]", "`k0`, `k1`, `k2` and 6 more"),
        ((None, ["a", "b"]), "delete[2]", "`0` to `1`"),
        ((None, ["a"]), "delete[2]", "`0`"),
        ((None, []), "delete[0]", "none"),
    ],
)
def test_an_item_that_the_loop_did_not_have_is_noted(loop: tuple[str | None, list[str]], name: str, had: str) -> None:
    seen = looped(*loop)
    expected = expectations(must_not_reach=[name])
    assert list(differences(expected, seen, [])) == []
    [noted] = absence_notes(expected, seen)
    item_name = name.partition("[")[2].removesuffix("]")
    assert noted == f"must_not_reach `{name}`: the loop `delete` had no item `{item_name}`; it had {had}"


@pytest.mark.parametrize("name", ["other[0]", "grp/delete", "delete", "elsewhere/delete[0]"])
def test_a_step_without_items_or_a_loop_that_did_not_run_is_not_noted(name: str) -> None:
    assert list(absence_notes(expectations(must_not_reach=[name]), looped(*KEYED))) == []
