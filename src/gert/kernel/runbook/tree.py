"""The tree of a YAML document: native values with their source text and position."""

import re
from bisect import bisect_right
from typing import Any, Final

import msgspec

from gert.kernel.runbook.finding import Finding, Path

# The line breaks of libyaml, so that its marks and our lines agree.
_LINE_BREAK: Final = re.compile("\r\n|[\n\r\x85\u2028\u2029]")


# How many occurrences of the same words are searched before using an earlier position.
_FURTHEST: Final = 100


class Map(dict[str, Any]):
    """A mapping; `at` has the position of each key and value, `texts` the source of non-string scalars."""

    __slots__ = ("at", "start", "texts")

    def __init__(self, start: int) -> None:
        self.start = start
        self.at: dict[str, tuple[int, int]] = {}
        self.texts: dict[str, str] = {}


class Seq(list[Any]):
    """A sequence; `at` has the position of each item, `texts` the source of non-string scalars."""

    __slots__ = ("at", "start", "texts")

    def __init__(self, start: int) -> None:
        self.start = start
        self.at: list[int] = []
        self.texts: dict[int, str] = {}


class Tree:
    """A document as read: its root value, its text, and the position of everything."""

    __slots__ = ("_lines", "root", "start", "text")

    def __init__(self, root: Any, text: str) -> None:
        self.root = root
        self.text = text
        self.start = 0
        self._lines: list[int] | None = None

    def line_starts(self) -> list[int]:
        """The character index at which each line begins."""
        if self._lines is None:
            self._lines = [0, *(match.end() for match in _LINE_BREAK.finditer(self.text))]
        return self._lines

    def line_column(self, index: int) -> tuple[int, int]:
        """Return the line and column of a character, counted from one."""
        starts = self.line_starts()
        line = bisect_right(starts, index)
        return line, index - starts[line - 1] + 1

    def source_line(self, line: int) -> str:
        """Return the text of a line, without its line break."""
        starts = self.line_starts()
        if not 1 <= line <= len(starts):
            return ""
        end = starts[line] if line < len(starts) else len(self.text)
        return self.text[starts[line - 1] : end].rstrip("\r\n\x85\u2028\u2029")

    def index_of(self, path: Path, *, on_key: bool = False) -> int:
        """Return the index at which the value (or its key) at `path` begins, or that of its nearest parent."""
        node, index = self.root, self.start
        for depth, segment in enumerate(path):
            if isinstance(node, Map) and segment in node.at:
                key_index, value_index = node.at[str(segment)]
                index = key_index if on_key and depth == len(path) - 1 else value_index
                node = node[str(segment)]
            elif isinstance(node, Seq) and isinstance(segment, int) and segment < len(node.at):
                index, node = node.at[segment], node[segment]
            else:
                break
        return index

    def place(self, finding: Finding) -> Finding:
        """Fill in the line and column of a finding from its path."""
        if finding.line:
            return finding
        index = self.index_of(finding.path, on_key=finding.on_key)
        if finding.offset is not None:
            index = self._index_inside(finding.path, finding.offset, index)
        line, column = self.line_column(index)
        return msgspec.structs.replace(finding, line=line, column=column)

    def _index_inside(self, path: Path, offset: int, start: int) -> int:
        """Return the index in the source of the character at `offset` of a scalar's value.

        Quoting and folding make the two texts differ, so search for the same words, counted from the start.
        """
        value = self.value_at(path)
        if not isinstance(value, str) or self.text.startswith("*", start):  # an alias replaces the whole text
            return start
        words = re.match(r"[^\s\"'\\]{1,40}", value[offset : offset + 40])
        if words is None:  # a quote or a space: point at the action that contains it
            offset = max(value.rfind("{{", 0, offset), 0)
            words = re.match(r"\S{1,40}", value[offset : offset + 40])
        if words is None:
            return start
        for verbatim in (start + offset, start + 1 + offset):  # unquoted, or quoted without escapes before
            if self.text.startswith(words[0], verbatim):
                return verbatim
        earlier = value.count(words[0], 0, offset)
        index = start - 1
        for _ in range(min(earlier, _FURTHEST) + 1):
            index = self.text.find(words[0], index + 1)
            if index < 0:
                return start
        return index

    def value_at(self, path: Path) -> Any:
        """Return the value at `path`, or None if there is none."""
        node = self.root
        for segment in path:
            if isinstance(node, Map) and segment in node:
                node = node[str(segment)]
            elif isinstance(node, Seq) and isinstance(segment, int) and segment < len(node):
                node = node[segment]
            else:
                return None
        return node
