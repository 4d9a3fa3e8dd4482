"""Every type of event, by name: the table that readers and writers share."""

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from gert.kernel.events import runbook
from gert.kernel.events.payload import Payload, UnknownEvent, from_data


def _by_type(kinds: Iterable[type[Payload]]) -> dict[str, type[Payload]]:
    table: dict[str, type[Payload]] = {}
    for kind in kinds:
        if table.setdefault(kind.type, kind) is not kind:
            raise TypeError(f"two classes are called {kind.type}")
    return table


_RUNBOOK: Mapping[str, type[Payload]] = _by_type(runbook.EVENTS)


@cache
def catalogue() -> Mapping[str, type[Payload]]:
    """Return all event types; those of agents and runners are built only when needed."""
    from gert.kernel.events import agent, runner

    return _by_type([*runbook.EVENTS, *agent.EVENTS, *runner.EVENTS])


def kind_of(type_name: str) -> type[Payload] | None:
    """Return the class of a type of event; None for one that this version does not know."""
    return _RUNBOOK.get(type_name) or catalogue().get(type_name)


def decode_payload(type_name: str, data: dict[str, Any]) -> Payload:
    """Decode an event's data; data that this version cannot read becomes an `UnknownEvent`."""
    kind = kind_of(type_name)
    return UnknownEvent(name=type_name, data=data) if kind is None else from_data(kind, data)
