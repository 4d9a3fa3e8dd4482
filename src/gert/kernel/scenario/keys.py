"""The keys by which a scenario or an evidence file may name one execution of a step, most specific first."""

from gert.errors import GertError
from gert.kernel.engine.requests import CallTool, Request
from gert.kernel.events.path import split


def keys_of(path: str, step_id: str) -> list[str]:
    """Return the path, the iteration as people write it, the iteration as in events, and the step."""
    if "[" not in path:
        # The common case: no enclosing loop, and ids need no escaping.
        return [path, step_id] if path != step_id else [step_id]
    try:
        last = split(path)[-1]
    except GertError:
        return [path, step_id]
    # The id of an iteration is escaped as paths are; people write the key as it is.
    iteration = [] if last.item is None else [f"{last.name}[{last.item}]"]
    return list(dict.fromkeys([path, *iteration, step_id, last.name]))


def keys_for(ask: Request[object]) -> list[str]:
    """Return the keys for the answer to a request; a tool's answer may also be under its name."""
    keys = keys_of(ask.path, ask.step_id)
    return [*keys, f"{ask.tool}:{ask.action}", ask.tool] if isinstance(ask, CallTool) else keys
