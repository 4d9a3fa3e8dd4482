"""Where tools are looked up, and the name by which steps use them (DECISIONS 10)."""

from collections.abc import Iterator
from typing import Final, Literal, TypeAlias

Base: TypeAlias = Literal["runbook", "project", "working"]

TOOL_SUFFIX: Final = ".tool.yaml"


def is_path(entry: str) -> bool:
    """Whether an entry of `tools` is a path rather than a name."""
    return "/" in entry or "\\" in entry


def name_of(entry: str) -> str:
    """Return the name that steps use: the entry itself, or a path's file name without its suffix."""
    if not is_path(entry):
        return entry
    file = entry.replace("\\", "/").rsplit("/", 1)[-1]
    return file.removesuffix(".yml").removesuffix(".yaml").removesuffix(".tool")


def places(entry: str) -> Iterator[tuple[Base, str]]:
    """Yield where to look for a tool, in order: a base folder and a path below it. The first that exists wins."""
    below = entry.replace("\\", "/") if is_path(entry) else f"tools/{entry}{TOOL_SUFFIX}"
    yield "runbook", below
    yield "project", below
    yield "working", below
