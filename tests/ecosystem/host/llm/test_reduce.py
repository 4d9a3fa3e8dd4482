"""Reducers: what several agents said, as one decision."""

from typing import Any

import pytest

from gert.ecosystem.host.llm.items import statements_of
from gert.ecosystem.host.llm.reduce import declared_only, merge, vote
from gert.errors import InputError


def said(**texts: str) -> dict[str, Any]:
    return {agent: {"response": text, "usage": {"tokens": 3}} for agent, text in texts.items()}


@pytest.mark.parametrize(
    ("items", "decision", "winner", "scores"),
    [
        pytest.param(said(a="yes", b="Yes "), "consensus", "yes", {"yes": 1.0}, id="all agree, whatever the case"),
        pytest.param(said(a="yes", b="no", c="yes"), "yes", "yes", {"yes": 0.6667, "no": 0.3333}, id="most agree"),
        pytest.param(said(a="yes", b="no"), "no_winner", "", {"yes": 0.5, "no": 0.5}, id="a tie"),
        pytest.param(said(a="Long.\n**Vote:** A\n", b="vote: b\nvote: a"), "consensus", "A", {"A": 1.0}, id="lines"),
        pytest.param({"a": "x", "b": "x", "c": "y"}, "x", "x", {"x": 0.6667, "y": 0.3333}, id="plain texts"),
        pytest.param({"r0": said(a="n", b="n"), "r1": said(a="y", b="y")}, "consensus", "y", {"y": 1.0}, id="rounds"),
        pytest.param({"a": {"n": 1}, "b": {"n": 1}}, "consensus", "1", {"1": 1.0}, id="the only output of a step"),
    ],
)  # fmt: skip
def test_a_vote(items: Any, decision: str, winner: str, scores: dict[str, float]) -> None:
    found = vote({"items": items})
    assert (found["decision"], found["winner"], found["scores"]) == (decision, winner, scores)
    assert found["summary"].startswith(f"{len(statements_of(items)) if 'r0' not in items else 2} votes; ")


def test_a_field_can_be_named() -> None:
    items = {"a": {"choice": "x", "why": 1}, "b": {"choice": "x", "why": 2}}
    assert vote({"items": items, "field": "choice"})["decision"] == "consensus"
    with pytest.raises(InputError, match="no field `choise`"):
        vote({"items": items, "field": "choise"})


@pytest.mark.parametrize("items", [None, {}, [], "text", 7])
def test_nothing_to_decide_is_an_error(items: Any) -> None:
    for reduce in (vote, merge):
        with pytest.raises(InputError, match="nothing to judge"):
            reduce({"items": items})


def test_a_merge_keeps_what_is_equal_and_lists_what_differs() -> None:
    items = {
        "a": {"port": 80, "host": "x"},
        "b": {"port": 80, "host": "y"},
        "c": {"port": 80, "host": "y", "new": True},
    }
    found = merge({"items": items})
    assert found["merged"] == {"port": 80, "host": ["x", "y"], "new": True}
    assert (found["decision"], found["scores"]) == ("no_winner", {"a": 0.5, "b": 1.0, "c": 1.0})
    assert found["summary"] == "3 items agree in 2 of 3 fields; they differ in `host`"
    assert merge({"items": said(a="same", b="same")})["decision"] == "consensus"
    assert merge({"items": {"a": 1, "b": True}})["merged"] == {"response": [1, True]}


def test_only_declared_outputs_are_given() -> None:
    assert declared_only({"a": 1, "b": 2}, {"outputs": {"a": {}}}) == {"a": 1}
    assert declared_only({"a": 1, "b": 2}, {}) == {"a": 1, "b": 2}
