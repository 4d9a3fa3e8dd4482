"""`gert/agent.pyi`: the names of the lazy page `gert.agent`, as type checkers read them."""

from collections.abc import Iterator

import gert.agent


def page() -> str:
    """Return the stub."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield '"""The public API of the agent kernel; generated from `agent.py` by `make docs`."""'
    yield ""
    for module, names in sorted(gert.agent._PLACES.items()):
        for name in sorted(names):
            yield f"from {module} import {name} as {name}"
    yield ""
    yield "_PLACES: dict[str, tuple[str, ...]]"
    yield "__all__: list[str]"
