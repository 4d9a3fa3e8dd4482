"""Scopes that the steps of a runbook declare, and how a path after `.scope` resolves."""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, Final

from gert.kernel.foundation.names import did_you_mean, suggestion
from gert.kernel.foundation.text import shorten
from gert.kernel.runbook.documents.steps import RepeatStep
from gert.kernel.runbook.program import Program, walk
from gert.kernel.runbook.validate.domain.names.names import Binding, Names
from gert.kernel.runbook.validate.domain.names.shapes import ANYTHING, Unresolved
from gert.kernel.template import Template
from gert.kernel.template.tree import Output, Text

ANY_SEGMENT: Final = "*"
ARCHIVE: Final = "repeat"
MAX_SEGMENTS: Final = 50

# How many scopes below a path are checked; beyond that one of them is assumed to be filled.
MAX_BELOW: Final = 50


def scope_key(scope: Template) -> tuple[str, ...]:
    """Return the segments of a scope as written; a templated one may be anything, even with a separator in it."""
    return tuple(part for part in _segments(scope) if part)


def is_path(scope: Template) -> bool:
    """Return whether a scope is a valid path for every rendering of its templates: no empty segment, not too many."""
    if not scope.is_text and any(not isinstance(each, Text | Output) for each in scope.statements):
        return True  # its separators depend on the template
    segments = _segments(scope)
    return all(segments) and len(segments) <= MAX_SEGMENTS


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
    """One segment of a scope path; `key` is set if a scope ends here."""

    __slots__ = ("children", "fields", "is_open", "key")

    def __init__(self) -> None:
        self.children: dict[str, _Node] = {}
        self.key: tuple[str, ...] | None = None
        self.fields: set[str] = set()
        self.is_open = False

    def below(self) -> Iterator["_Node"]:
        """Yield every scope at or below this node."""
        pending = [self]
        while pending:
            node = pending.pop()
            if node.key is not None:
                yield node
            pending.extend(node.children.values())


class Scopes:
    """Every scope of a runbook; `Names` tracks which of them are filled at a point."""

    def __init__(self, program: Program) -> None:
        self._root = _Node()
        for step in program.steps:
            if step.scope is not None and program.contract_of(step) is not None:
                node = self._declare(scope_key(step.scope))
                node.fields.update(program.outputs_of(step))
                # A loop stores its results under keys that are not known yet.
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
        """Record that a step stores its outputs in a scope."""
        name = "/".join(key)
        filled.bind(name, ANYTHING, certain=certain)
        for field in fields:
            filled.bind(f"{name}.{field}", ANYTHING, certain=certain)

    def follow(self, path: Sequence[Any], filled: Names) -> Binding | Unresolved | None:
        """Resolve a path after `.scope`: its binding, or why there is none; None if it is unknown."""
        if not all(isinstance(segment, str) for segment in path):
            return None
        if path[:1] == (ARCHIVE,) and len(path) > 2 and not path[2].isdecimal():
            return Unresolved(
                f"iterations are numbered, found `{shorten(path[2])}`", f"use `.scope.{ARCHIVE}.{path[1]}.0`"
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
        below = list(islice((scope for node in nodes for scope in node.below()), MAX_BELOW))
        bound = [filled.get("/".join(scope.key or ())) for scope in below]
        if len(below) == MAX_BELOW:
            return [Binding(ANYTHING)]
        return [binding for binding in bound if binding is not None]

    def _dead(self, path: Sequence[str], unfilled: _Node | None, lacking: _Node | None) -> Unresolved:
        if unfilled is not None:
            return Unresolved(f"the scope `{'/'.join(unfilled.key or ())}` is not filled on any path to here")
        said = shorten("/".join(path))
        if lacking is not None:
            missing = path[len(lacking.key or ())]
            hint = suggestion(missing, lacking.fields)
            return Unresolved(f"the scope `{'/'.join(lacking.key or ())}` has no `{shorten(missing)}`", hint)
        known = ["/".join(node.key or ()) for node in islice(self._root.below(), MAX_BELOW)]
        guess = did_you_mean("/".join(path), known) or did_you_mean("/".join(path[:-1]), known)
        return Unresolved(f"no step has the scope `{said}`", f"did you mean `.scope.{guess}`?" if guess else None)
