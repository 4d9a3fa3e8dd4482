"""The documents of a folder: runbooks and tools by name, read again only where a file has changed."""

import os
from collections.abc import Iterator
from threading import Lock
from typing import Any, Final

import msgspec

from gert.ecosystem.host.config.files import SCENARIOS, read_document, yaml_files
from gert.errors import GertError
from gert.kernel.runbook.document import load
from gert.kernel.runbook.documents.runbook import Runbook
from gert.kernel.runbook.documents.tool import Tool

_HEAD: Final = 4096
_MARKS: Final = {b"kernel/v0": "runbook", b"tool/v0": "tool"}


class Listed(msgspec.Struct, frozen=True):
    """A document as it is listed."""

    kind: str
    name: str
    file: str
    model: Any = None


class Catalogue:
    """The runbooks and tools below one folder."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._known: dict[str, tuple[tuple[int, int], Listed | None]] = {}
        self._lock = Lock()  # operations look in threads

    def runbooks(self) -> list[Listed]:
        """The runbooks, by path."""
        return [each for each in self._scan() if each.kind == "runbook"]

    def tools(self, folder: str | None = None) -> list[Listed]:
        """The tools, by path; only those below `folder` where one is given."""
        within = "" if folder is None else folder.rstrip(os.sep) + os.sep
        return [each for each in self._scan() if each.kind == "tool" and each.file.startswith(within)]

    def runbooks_by_name(self) -> dict[str, list[str]]:
        """The files of runbooks, by the name that each gives itself."""
        found: dict[str, list[str]] = {}
        for each in self.runbooks():
            found.setdefault(each.name, []).append(each.file)
        return found

    def fingerprint(self) -> frozenset[tuple[str, int, int]]:
        """What changes when a document is added, removed or changed."""
        with self._lock:
            list(self._look())
            return frozenset((file, *stamp) for file, (stamp, listed) in self._known.items() if listed is not None)

    def _scan(self) -> list[Listed]:
        with self._lock:
            return list(self._look())

    def _look(self) -> Iterator[Listed]:
        seen = set()
        for file in yaml_files(self._root):
            if f"{os.sep}{SCENARIOS}{os.sep}" in file:
                continue
            # The folder is real, and links to folders are not entered: only the file itself can be a link.
            real = os.path.realpath(file) if os.path.islink(file) else file
            if real in seen or not real.startswith(self._root.rstrip(os.sep) + os.sep):
                continue
            seen.add(real)
            listed = self._listed(real)
            if listed is not None:
                yield listed
        for gone in self._known.keys() - seen:
            del self._known[gone]

    def _listed(self, file: str) -> Listed | None:
        try:
            status = os.stat(file)
            stamp = (status.st_mtime_ns, status.st_size)
            known = self._known.get(file)
            if known is None or known[0] != stamp:
                known = self._known[file] = (stamp, _read(file))
            return known[1]
        except OSError:
            return None


def _read(file: str) -> Listed | None:
    """A runbook or a tool; None for any other file, and for one that cannot be read."""
    try:
        source = read_document(file)
    except GertError:
        return None
    head = source[:_HEAD]
    kind = next((kind for mark, kind in _MARKS.items() if mark in head), None)
    if kind is None:
        return None
    model = load(source, kind=kind, file_name=file).model
    name = model.meta.name if isinstance(model, Runbook | Tool) else os.path.basename(file).partition(".")[0]
    return Listed(kind, name, file, model)
