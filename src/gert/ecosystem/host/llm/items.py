"""What several agents said, as reducers and judges receive it: a map by agent, or by round and agent."""

from collections.abc import Mapping
from typing import Any

import msgspec

from gert.errors import InputError


class Statement(msgspec.Struct, frozen=True):
    """What one agent said in one round; `value` is the value of its step, or of one of its outputs."""

    agent: str
    round: str
    value: Any

    @property
    def text(self) -> str:
        """The value as text."""
        return self.value if isinstance(self.value, str) else msgspec.json.encode(self.value).decode()


def statements_of(items: Any, field: str | None = None) -> list[Statement]:
    """Return the answers in order; an answer is the agent's only output, `response`, or the named field."""
    if not isinstance(items, Mapping) or not items:
        raise InputError("expected `items` to be a map of what each agent said, found nothing to judge")
    rounds = items if _is_by_round(items) else {"": items}
    return [
        Statement(str(agent), str(name), _value(said, field))
        for name, agents in rounds.items()
        for agent, said in agents.items()
    ]


def latest(statements: list[Statement]) -> dict[str, Statement]:
    """Return the last statement of each agent."""
    return {each.agent: each for each in statements}


def _is_by_round(items: Mapping[Any, Any]) -> bool:
    """Whether the map is by round and then by agent: what an agent said holds values, a round holds agents."""
    return all(
        isinstance(agents, Mapping) and agents and all(isinstance(said, Mapping) for said in agents.values())
        for agents in items.values()
    )


def _value(said: Any, field: str | None) -> Any:
    if not isinstance(said, Mapping):
        return said
    if field is not None:
        if field not in said:
            raise InputError(f"an item has no field `{field}`", hint=f"it has {', '.join(map(str, said)) or 'nothing'}")
        return said[field]
    if "response" in said:
        return said["response"]
    return next(iter(said.values())) if len(said) == 1 else said
