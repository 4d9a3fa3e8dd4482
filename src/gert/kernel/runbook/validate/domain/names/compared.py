"""The words that a template compares a name with."""

from collections.abc import Iterator
from typing import Final

import msgspec

from gert.kernel.template import Template
from gert.kernel.template.tree import Call, Literal, Path, Pipe, Range, Variable, With

_COMPARES: Final = frozenset({"eq", "ne"})


def compared_words(template: Template) -> Iterator[tuple[tuple[str, ...], Literal]]:
    """Yield each name that `eq` or `ne` compares with a literal text; not where dot is another value."""
    waiting: list[object] = list(template.statements)
    while waiting:
        node = waiting.pop()
        if isinstance(node, Call) and node.name in _COMPARES:
            yield from _words(node.arguments)
        elif isinstance(node, Pipe) and len(node.calls) == 1 and node.calls[0].name in _COMPARES:
            yield from _words((*node.calls[0].arguments, node.first))
        if isinstance(node, tuple):
            waiting += node
        elif isinstance(node, msgspec.Struct) and not isinstance(node, Range | With):
            waiting += (getattr(node, name) for name in node.__struct_fields__)


def _words(compared: tuple[object, ...]) -> Iterator[tuple[tuple[str, ...], Literal]]:
    for one in compared:
        if isinstance(one, Path) or (isinstance(one, Variable) and not one.name):
            yield from (
                (one.segments, each) for each in compared if isinstance(each, Literal) and isinstance(each.value, str)
            )
