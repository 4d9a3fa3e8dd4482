"""Reducers: aggregate the answers of several agents into a decision (ecosystem-v0 §18)."""

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from gert.ecosystem.host.llm.items import Statement, latest, statements_of
from gert.kernel.foundation.names import listing

CONSENSUS: Final = "consensus"
NO_WINNER: Final = "no_winner"
_VOTE: Final = re.compile(r"^[^\w\n]*vote[^\w\n]*:[^\w\n]*(.+?)[^\w\n]*$", re.IGNORECASE | re.MULTILINE)


def vote(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Count the votes of all agents; their last statements count.

    The vote is the last line of the form `vote: …`, or the whole text. A tie has no winner.
    """
    ballots = {
        agent: _ballot(each) for agent, each in latest(statements_of(inputs.get("items"), inputs.get("field"))).items()
    }
    counts = Counter(ballot.casefold() for ballot in ballots.values())
    spelled = {ballot.casefold(): ballot for ballot in reversed(ballots.values())}
    ranked = counts.most_common()
    is_tied = len(ranked) > 1 and ranked[0][1] == ranked[1][1]
    winner = "" if is_tied else spelled[ranked[0][0]]
    decision = NO_WINNER if is_tied else CONSENSUS if len(ranked) == 1 else winner
    listed = ", ".join(f"{spelled[ballot]}: {count}" for ballot, count in ranked)
    return {
        "decision": decision,
        "winner": winner,
        "scores": {spelled[ballot]: round(count / len(ballots), 4) for ballot, count in ranked},
        "summary": f"{len(ballots)} votes; {listed}",
    }


def merge(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Merge what all agents said, field by field: one value where they agree, a list of the values where they differ.

    An agent's score is the share of its fields that have the value most agents give.
    """
    said = {
        agent: each.value if isinstance(each.value, Mapping) else {"response": each.value}
        for agent, each in latest(statements_of(inputs.get("items"), inputs.get("field"))).items()
    }
    fields = list(dict.fromkeys(name for values in said.values() for name in values))
    given = {name: [values[name] for values in said.values() if name in values] for name in fields}
    distinct = {name: _distinct(values) for name, values in given.items()}
    differing = [name for name in fields if len(distinct[name]) > 1]
    common = {name: max(distinct[name], key=given[name].count) for name in fields}
    differ = f"; they differ in {listing(differing)}" if differing else ""
    return {
        "decision": NO_WINNER if differing else CONSENSUS,
        "winner": "",
        "scores": {agent: _share(values, common) for agent, values in said.items()},
        "summary": f"{len(said)} items agree in {len(fields) - len(differing)} of {len(fields)} fields{differ}",
        "merged": {name: values if name in differing else values[0] for name, values in distinct.items()},
    }


def declared_only(outputs: dict[str, Any], contract: Mapping[str, Any]) -> dict[str, Any]:
    """Return the outputs that a contract declares; all of them where it declares none."""
    declared = contract.get("outputs")
    if not isinstance(declared, Mapping) or not declared:
        return outputs
    return {name: value for name, value in outputs.items() if name in declared}


def _ballot(statement: Statement) -> str:
    votes = _VOTE.findall(statement.text)
    return " ".join((votes[-1] if votes else statement.text).split())


def _distinct(values: list[Any]) -> list[Any]:
    """Return the values without repetitions, in order; 1 and true are different."""
    return list({msgspec.json.encode(value, order="sorted"): value for value in values}.values())


def _share(values: Mapping[str, Any], common: Mapping[str, Any]) -> float:
    agreeing = sum(1 for name, value in values.items() if value == common[name])
    return round(agreeing / len(values), 4) if values else 0.0
