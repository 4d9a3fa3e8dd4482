"""Editing entries of a map or list in a document, line by line: unchanged entries keep their comments.

This module only moves lines; the caller reads the result back and checks it.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from gert.kernel.runbook.reader import read
from gert.kernel.runbook.tree import Map, Seq, Tree
from gert.kernel.runbook.writer import to_yaml

CharRange = tuple[int, int]
_KEY: Final = re.compile(r" *")
_DASH: Final = re.compile(r" *- +")


def changed_entries(tree: Tree, key: str, block: CharRange, value: Any) -> str | None:
    """The lines of a key with its entries changed; None if entries share lines."""
    node = tree.root[key]
    spans = _spans(tree, node, block)
    if spans is None:
        return None
    if isinstance(node, Map) and isinstance(value, Mapping):
        kept = _kept_of_map(tree, node, spans, value)
        new = [_entry(name, each) for name, each in value.items() if name not in node]
    elif isinstance(node, Seq) and isinstance(value, list):
        kept, rest = _kept_of_list(tree, node, spans, value)
        new = [_item(each) for each in rest]
    else:
        return None
    text, column = tree.text, _indent(text_of_line(tree, spans[0][0]))
    added = (ended_like(text, _indented(each, column)) for each in new)
    return "".join(_joined(text, block, spans, kept, added))


def _joined(
    text: str, block: CharRange, spans: list[CharRange], kept: list[str | None], added: Iterator[str]
) -> Iterator[str]:
    """Join the lines; text before and between entries is kept even if an entry is removed."""
    done = block[0]
    for (begin, end), entry in zip(spans, kept, strict=True):
        yield text[done:begin]
        yield entry or ""
        done = end
    for entry in added:
        if not text[:done].endswith(("\n", "\r")):
            yield line_break(text)
        yield entry
    yield text[done : block[1]]


def _spans(tree: Tree, node: Any, block: CharRange) -> list[CharRange] | None:
    """The range of each entry's lines, without comments and empty lines before the next one."""
    if isinstance(node, Map):
        places, head = [node.at[name][0] for name in node if name in node.at], _KEY
    elif isinstance(node, Seq):
        places, head = list(node.at), _DASH
    else:
        return None
    starts = tree.line_starts()
    lines = [tree.line_column(place)[0] for place in places]
    inside = all(block[0] < place < block[1] for place in places)
    # Not in flow style, not on the line of the key, and one entry per line.
    if not lines or len(lines) != len(node) or not inside or lines[0] == tree.line_column(block[0])[0]:
        return None
    heads = [tree.text[starts[line - 1] : place] for line, place in zip(lines, places, strict=True)]
    columns = {_indent(each) for each in heads}
    if sorted(set(lines)) != lines or len(columns) != 1 or not all(map(head.fullmatch, heads)):
        return None
    column = columns.pop()
    after = tree.line_column(block[1])[0] if block[1] < len(tree.text) else len(starts) + 1
    ends = [_end(tree, line, stop, column) for line, stop in zip(lines, [*lines[1:], after], strict=True)]
    return [(starts[line - 1], end) for line, end in zip(lines, ends, strict=True)]


def _end(tree: Tree, line: int, stop: int, column: int) -> int:
    """The end of an entry's lines."""
    while stop - 1 > line and _is_between(tree.source_line(stop - 1), column):
        stop -= 1
    starts = tree.line_starts()
    return starts[stop - 1] if stop <= len(starts) else len(tree.text)


def _is_between(line: str, column: int) -> bool:
    """Whether a line is empty or a comment of the next entry; deeper comments may be part of a text."""
    return not line.strip() or (line.lstrip(" ").startswith("#") and _indent(line) <= column)


def _kept_of_map(tree: Tree, node: Map, spans: list[CharRange], value: Mapping[str, Any]) -> list[str | None]:
    kept: list[str | None] = []
    for name, (begin, end) in zip(node, spans, strict=True):
        lines = tree.text[begin:end]
        if name not in value:
            kept.append(None)
        elif same(node[name], value[name]):
            kept.append(lines)
        else:
            column = _indent(lines)
            note = note_of("".join(line[column:] for line in lines.splitlines(keepends=True)), node[name])
            kept.append(ended_like(tree.text, _indented(_entry(name, value[name], note), column)))
    return kept


def _kept_of_list(
    tree: Tree, node: Seq, spans: list[CharRange], value: list[Any]
) -> tuple[list[str | None], list[Any]]:
    """The unchanged items in their order, and the new items."""
    left = list(value)
    kept: list[str | None] = []
    for item, (begin, end) in zip(node, spans, strict=True):
        if left and same(item, left[0]):
            kept.append(tree.text[begin:end])
            del left[0]
        else:
            kept.append(None)
    return kept, left


def same(one: Any, other: Any) -> bool:
    """Whether two values have the same YAML: `1` differs from `true`, and the order counts."""
    return to_yaml({"": one}) == to_yaml({"": other})


def note_of(block: str, value: Any) -> str:
    """The comment on a key's line, with the space before it: removing it does not change the value."""
    line = block.splitlines()[0] if block else ""
    rest = block[len(line) :]
    at = line.find("#")
    while at > 0:
        before = line[:at].rstrip()
        if len(before) < at:
            reading = read((before + rest).encode())
            root = reading.tree.root
            if not reading.findings and isinstance(root, Map) and list(root.values()) == [value]:
                return line[len(before) :]
        at = line.find("#", at + 1)
    return ""


def _entry(name: str, value: Any, note: str = "") -> str:
    first, newline, rest = to_yaml({name: value}).partition("\n")
    return first + note + newline + rest


def _item(value: Any) -> str:
    lines = to_yaml({"": [value]}).splitlines(keepends=True)[1:]
    return "".join(line.removeprefix("  ") for line in lines)


def _indented(text: str, column: int) -> str:
    return "".join(" " * column + line if line.strip("\n") else line for line in text.splitlines(keepends=True))


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def text_of_line(tree: Tree, index: int) -> str:
    """The line that contains a character."""
    return tree.source_line(tree.line_column(index)[0])


def line_break(text: str) -> str:
    """The line ending of a text."""
    return "\r\n" if "\r\n" in text else "\n"


def ended_like(text: str, written: str) -> str:
    """`written` with the line endings of `text`."""
    return written.replace("\n", line_break(text))
