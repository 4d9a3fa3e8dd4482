"""Editing keys of a YAML document in place: comments and order are kept.

A document that cannot be edited in place is rewritten, and the result says so: one in flow style, or one whose anchors
connect a changed key to another. Either way the result is read back and must hold exactly the wanted values.
"""

import os
import stat
import tempfile
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from gert.ecosystem.host.config.files import read_document
from gert.ecosystem.host.scenarios.entries import changed_entries, ended_like, line_break, note_of, same
from gert.errors import DocumentError, UsageError
from gert.kernel.foundation.text import os_reason
from gert.kernel.runbook.reader import read
from gert.kernel.runbook.tree import Map, Tree
from gert.kernel.runbook.writer import to_yaml

_NEW_MODE: Final = 0o666


class Edited(msgspec.Struct, frozen=True):
    """An edited document; `rewritten` if comments and layout were lost."""

    text: str
    rewritten: bool = False


def edited(source: str, changes: Mapping[str, Any]) -> Edited:
    """Set top-level keys of a document; None removes a key, and a new key is added at the end."""
    tree = _tree(source)
    changes = {key: value for key, value in changes.items() if not _is_already(tree.root, key, value)}
    wanted = {key: changes.get(key, value) for key, value in tree.root.items()} | changes
    wanted = {key: value for key, value in wanted.items() if key not in changes or value is not None}
    if not changes:
        return Edited(source)
    for text in _attempts(tree, changes):
        if _holds(text, wanted):
            return Edited(text)
    text = ended_like(source, to_yaml(wanted))
    if not _holds(text, wanted):
        raise DocumentError("the document cannot be edited without changing other keys", hint="edit it by hand")
    return Edited(text, rewritten=True)


def edit_file(path: str, changes: Mapping[str, Any]) -> bool:
    """Edit a file atomically; return whether comments and layout were kept."""
    source = read_text(path)
    try:
        after = edited(source, changes)
    except DocumentError as problem:
        raise DocumentError(f"{path}: {problem.message}", hint=problem.hint) from None
    if after.text != source:
        write_atomically(path, after.text)
    return not after.rewritten


def read_text(path: str) -> str:
    """The text of a document."""
    try:
        return read_document(path).decode()
    except UnicodeDecodeError:
        raise DocumentError(f"`{path}` is not UTF-8 text") from None


def write_atomically(path: str, text: str) -> None:
    """Replace a file atomically; keep its permissions, and a link to it."""
    target = os.path.realpath(path)
    temporary: str | None = None
    try:
        mode = _mode(target)
        descriptor, temporary = tempfile.mkstemp(dir=os.path.dirname(target), prefix=".writing-")
        with os.fdopen(descriptor, "wb") as file:
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, mode)
        os.replace(temporary, target)
        temporary = None
    except OSError as problem:
        raise UsageError(f"`{path}` cannot be written: {os_reason(problem)}") from None
    finally:
        if temporary is not None:
            os.unlink(temporary)


def _mode(target: str) -> int:
    """The permissions of a file, or the default ones."""
    try:
        found = os.stat(target).st_mode
    except FileNotFoundError:
        mask = os.umask(0)
        os.umask(mask)
        return _NEW_MODE & ~mask
    if not stat.S_ISREG(found):
        raise UsageError(f"`{target}` is not a regular file")
    return stat.S_IMODE(found)


def _tree(source: str) -> Tree:
    reading = read(source.encode())
    if reading.findings:
        finding = reading.findings[0]
        raise DocumentError(f"line {finding.line}: {finding.message}", hint=finding.hint)
    if not isinstance(reading.tree.root, Map):
        raise DocumentError("expected a map of keys")
    return reading.tree


def _is_already(root: Map, key: str, value: Any) -> bool:
    if key not in root:
        return value is None
    return value is not None and same(root[key], value)


def _holds(text: str, wanted: Mapping[str, Any]) -> bool:
    """Whether a text parses to exactly these values."""
    reading = read(text.encode())
    root = reading.tree.root
    if reading.findings or not isinstance(root, Map):
        return False
    return root == wanted and to_yaml(root) == to_yaml(wanted)


def _attempts(tree: Tree, changes: Mapping[str, Any]) -> Iterator[str]:
    """Candidate edits in place, the most conservative first; the caller checks each by reading it back."""
    blocks = _blocks(tree)
    if blocks is None:
        return
    inner = {key: changed_entries(tree, key, blocks[key], changes[key]) for key in changes if key in blocks}
    yield _replaced(tree, blocks, changes, inner, keeps_notes=True)
    yield _replaced(tree, blocks, changes, {}, keeps_notes=True)
    yield _replaced(tree, blocks, changes, {}, keeps_notes=False)


def _blocks(tree: Tree) -> dict[str, tuple[int, int]] | None:
    """The range of each key's lines; None if keys share lines."""
    root: Map = tree.root
    text, starts = tree.text, tree.line_starts()
    begins = sorted((index, key) for key, (index, _) in root.at.items())
    if text.startswith("{", root.start) or any(tree.line_column(index)[1] != 1 for index, _ in begins):
        return None
    blocks: dict[str, tuple[int, int]] = {}
    for (begin, key), (after, _) in zip(begins, [*begins[1:], (len(text), "")], strict=True):
        line = tree.line_column(after)[0] - 1 if after < len(text) else len(starts)
        # Empty lines and comments before the next key belong to that key.
        while starts[line - 1] > begin and _is_between(tree.source_line(line)):
            line -= 1
        blocks[key] = (begin, starts[line] if line < len(starts) else len(text))
    return blocks


def _is_between(line: str) -> bool:
    return not line.strip() or line.startswith(("#", "..."))


def _replaced(
    tree: Tree,
    blocks: Mapping[str, tuple[int, int]],
    changes: Mapping[str, Any],
    inner: Mapping[str, str | None],
    *,
    keeps_notes: bool,
) -> str:
    """Replace the lines of each changed key; `inner` holds the lines of keys of which only some entries change."""
    text = tree.text
    parts: list[str] = []
    done = 0
    for key, (begin, end) in blocks.items():
        if key in changes:
            note = note_of(text[begin:end], tree.root[key]) if keeps_notes else ""
            parts.append(text[done:begin])
            parts.append(inner.get(key) or _render(key, changes[key], text, note))
            done = end
    rest = text[done:]
    added = "".join(_render(key, value, text) for key, value in changes.items() if key not in blocks)
    if not added:
        return "".join((*parts, rest))
    # Three dots may end a document; nothing may follow them.
    before, dots, after = _split_end(rest)
    whole = "".join((*parts, before))
    gap = "" if whole.endswith(("\n", "\r")) or not whole else line_break(text)
    return whole + gap + added + dots + after


def _split_end(text: str) -> tuple[str, str, str]:
    at = 0 if text.startswith("...") else text.find("\n...") + 1
    return (text[:at], "...", text[at + 3 :]) if text.startswith("...", at) else (text, "", "")


def _render(key: str, value: Any, like: str, note: str = "") -> str:
    if value is None:
        return ""
    first, line_break, rest = to_yaml({key: value}).partition("\n")
    return ended_like(like, first + note + line_break + rest)
