"""Scopes: the namespaces steps have declared so far, and what a path into them leads to."""

from collections.abc import Iterable, Sequence
from typing import Any

from gert.kernel.foundation.names import did_you_mean
from gert.kernel.runbook.reader import shorten
from gert.kernel.runbook.validate.domain.shapes import Dead
from gert.kernel.template import Template


class _Node:
    """One segment of a scope path. A wildcard child stands for a templated segment."""

    __slots__ = ("children", "names", "open", "wildcard")

    def __init__(self) -> None:
        self.children: dict[str, _Node] = {}
        self.wildcard: _Node | None = None
        self.names: set[str] = set()
        self.open = False

    def child(self, segment: str) -> "_Node":
        """The child for a segment as an author wrote it."""
        if "{{" in segment:
            self.wildcard = self.wildcard or _Node()
            return self.wildcard
        return self.children.setdefault(segment, _Node())


class Scopes:
    """Every scope declared so far, as a tree."""

    def __init__(self) -> None:
        self._root = _Node()

    def declare(self, scope: Template, outputs: Iterable[str], *, is_open: bool) -> None:
        """A step keeps its outputs in a scope; `is_open` when under keys nobody knows yet."""
        node = self._root
        for segment in _segments(scope):
            node = node.child(segment)
        node.names.update(outputs)
        node.open = node.open or is_open

    def declare_repeat(self, step_id: str) -> None:
        """A repeated block archives its iterations under `repeat.<id>.<n>`."""
        self._root.child("repeat").child(step_id).open = True

    def follow(self, path: Sequence[Any]) -> Dead | None:
        """Follow what stands behind `.scope`; the reason where it leads nowhere."""
        node, said = self._root, ".scope"
        for segment in path:
            if not isinstance(segment, str):
                return None
            after = node.children.get(segment) or node.wildcard
            if after is None:
                if node.open or segment in node.names:
                    return None
                known = [*node.children, *node.names]
                guess = did_you_mean(segment, known)
                hint = f"did you mean `{said}.{guess}`?" if guess else None
                if node is self._root:
                    return Dead(f"no step on the way here has the scope `{shorten(segment)}`", hint)
                return Dead(f"the scope `{said.removeprefix('.scope.')}` has no `{shorten(segment)}`", hint)
            node, said = after, f"{said}.{segment}"
        return None


def _segments(scope: Template) -> tuple[str, ...]:
    """The segments of a scope; a templated one stays a template, even where it contains a separator."""
    parts: list[str] = []
    depth = 0
    current = ""
    for character in scope.source.replace("{{", "\x01").replace("}}", "\x02"):
        depth += {"\x01": 1, "\x02": -1}.get(character, 0)
        if character in "/." and depth <= 0:
            parts.append(current)
            current = ""
        else:
            current += character
    parts.append(current)
    return tuple(part.replace("\x01", "{{").replace("\x02", "}}") for part in parts if part)
