"""Scopes: every namespace the steps of a runbook declare, and what a path behind `.scope` leads to."""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, Final

from gert.kernel.foundation.names import did_you_mean
from gert.kernel.runbook.documents.steps import RepeatStep
from gert.kernel.runbook.program import Program, walk
from gert.kernel.runbook.reader import shorten
from gert.kernel.runbook.validate.domain.names import Binding, Names
from gert.kernel.runbook.validate.domain.shapes import ANYTHING, Dead
from gert.kernel.template import Template
from gert.kernel.template.tree import Output, Text

ANY_SEGMENT: Final = "*"
ARCHIVE: Final = "repeat"
DEEPEST: Final = 50

# How many scopes below a path are looked at; beyond that one of them is taken to be filled.
MOST_BELOW: Final = 50


def scope_key(scope: Template) -> tuple[str, ...]:
    """The segments of a scope as written; a templated one may be anything, even where it contains a separator."""
    return tuple(part for part in _segments(scope) if part)


def is_path(scope: Template) -> bool:
    """Whether no segment of a scope is empty, whatever its templates give; too many are none, either."""
    if not scope.is_text and any(not isinstance(each, Text | Output) for each in scope.statements):
        return True  # which of its separators are there, nobody knows
    segments = _segments(scope)
    return all(segments) and len(segments) <= DEEPEST


def _segments(scope: Template) -> tuple[str, ...]:
    marked = scope.source.replace("{{", "\x01").replace("}}", "\x02")
    parts, current, inside = [], "", 0
    for character in marked:
        inside += {"\x01": 1, "\x02": -1}.get(character, 0)
        if character in "/." and inside <= 0:
            parts.append(current)
            current = ""
        else:
            current += character
    parts.append(current)
    return tuple(ANY_SEGMENT if "\x01" in part else part for part in parts)


class _Node:
    """One segment of a scope path; `key` is set where a scope ends here."""

    __slots__ = ("children", "fields", "is_open", "key")

    def __init__(self) -> None:
        self.children: dict[str, _Node] = {}
        self.key: tuple[str, ...] | None = None
        self.fields: set[str] = set()
        self.is_open = False

    def below(self) -> Iterator["_Node"]:
        """Every scope at or below this node."""
        pending = [self]
        while pending:
            node = pending.pop()
            if node.key is not None:
                yield node
            pending.extend(node.children.values())


class Scopes:
    """Every scope of a runbook; which of them are filled at a point is a matter of `Names`."""

    def __init__(self, program: Program) -> None:
        self._root = _Node()
        for step in program.steps:
            if step.scope is not None and program.contract_of(step) is not None:
                node = self._declare(scope_key(step.scope))
                node.fields.update(program.outputs_of(step))
                # A loop keeps its results under keys nobody knows yet.
                node.is_open = node.is_open or step.for_each is not None
            if isinstance(step, RepeatStep):
                self._declare((ARCHIVE, step.id))
                archived = self._declare((ARCHIVE, step.id, ANY_SEGMENT)).fields
                for inner in walk(step.body):
                    archived.update(program.outputs_of(inner), (inner.id,) if inner.id else ())

    def _declare(self, key: tuple[str, ...]) -> _Node:
        node = self._root
        for segment in key:
            node = node.children.setdefault(segment, _Node())
        node.key = key
        return node

    @staticmethod
    def fill(filled: Names, key: tuple[str, ...], fields: Sequence[str], *, certain: bool) -> None:
        """Note that a step has put its outputs into a scope."""
        name = "/".join(key)
        filled.bind(name, ANYTHING, certain=certain)
        for field in fields:
            filled.bind(f"{name}.{field}", ANYTHING, certain=certain)

    def follow(self, path: Sequence[Any], filled: Names) -> Binding | Dead | None:
        """Where a path behind `.scope` leads: what is bound there, or why nothing is; None when it cannot be told."""
        if not all(isinstance(segment, str) for segment in path):
            return None
        if path[:1] == (ARCHIVE,) and len(path) > 2 and not path[2].isdecimal():
            return Dead(
                f"iterations are numbered: `{shorten(path[2])}` is none", f"write `.scope.{ARCHIVE}.{path[1]}.0`"
            )
        found: list[Binding] = []
        unfilled: _Node | None = None
        lacking: _Node | None = None
        nodes = [self._root]
        for depth in range(len(path) + 1):
            rest = path[depth:]
            for node in nodes:
                if node.key is None:
                    continue
                name = "/".join(node.key)
                if rest and not node.is_open and rest[0] not in node.fields:
                    lacking = node
                    continue
                binding = filled.get(f"{name}.{rest[0]}" if rest and not node.is_open else name)
                if binding is not None:
                    found.append(binding)
                else:
                    unfilled = node
            if not rest:
                found += self._filled_below(nodes, filled)
                unfilled = unfilled or next((below for node in nodes for below in node.below()), None)
                break
            nodes = [node.children[s] for node in nodes for s in (rest[0], ANY_SEGMENT) if s in node.children]
        if found:
            return next((binding for binding in found if binding.certain), found[0])
        return self._dead(path, unfilled, lacking)

    @staticmethod
    def _filled_below(nodes: list[_Node], filled: Names) -> list[Binding]:
        below = list(islice((scope for node in nodes for scope in node.below()), MOST_BELOW))
        bound = [filled.get("/".join(scope.key or ())) for scope in below]
        if len(below) == MOST_BELOW:
            return [Binding(ANYTHING)]
        return [binding for binding in bound if binding is not None]

    def _dead(self, path: Sequence[str], unfilled: _Node | None, lacking: _Node | None) -> Dead:
        if unfilled is not None:
            return Dead(f"the scope `{'/'.join(unfilled.key or ())}` is not filled on any path to here")
        said = shorten("/".join(path))
        if lacking is not None:
            missing = path[len(lacking.key or ())]
            guess = did_you_mean(missing, lacking.fields)
            hint = f"did you mean `{guess}`?" if guess else None
            return Dead(f"the scope `{'/'.join(lacking.key or ())}` has no `{shorten(missing)}`", hint)
        known = ["/".join(node.key or ()) for node in islice(self._root.below(), MOST_BELOW)]
        guess = did_you_mean("/".join(path), known) or did_you_mean("/".join(path[:-1]), known)
        return Dead(f"no step has the scope `{said}`", f"did you mean `.scope.{guess}`?" if guess else None)
