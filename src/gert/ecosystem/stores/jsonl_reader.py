"""Reads a ledger in a folder of files: what is new in them since the last look, and no more."""

import os
import time
from collections.abc import Hashable, Sequence
from itertools import accumulate
from typing import Final, NamedTuple

from msgspec import structs

from gert.ecosystem.stores.core import Page
from gert.ecosystem.stores.index import Index, Settled
from gert.ecosystem.stores.index_reader import IndexReader
from gert.ecosystem.stores.rereading import reread
from gert.ecosystem.stores.run_file import HEAD, HEAD_VERSION, LINES, End, file_name, no_end, read_end
from gert.errors import TraceError
from gert.kernel.agent.ledger import SchemaInfo

_TICK_NS: Final = 100_000_000
"""Files that are exchanged within one tick of a coarse clock may look alike; a tick is shorter than this."""


class Known:
    """What was read of a run so far.

    data: the bytes of the file that says where it ends
    ends: where each of its lines ends
    flaw: why nothing may be added to it any more
    """

    __slots__ = ("data", "end", "ends", "flaw")

    def __init__(self, run_id: str) -> None:
        self.data = b""
        self.end = no_end(run_id)
        self.ends: list[int] = []
        self.flaw: TraceError | None = None


class JsonlReader(IndexReader):
    """A folder as two threads know it: one that writes, and one that reads."""

    def __init__(self, folder: str) -> None:
        super().__init__(Index(lambda: self.refresh(None)))
        self.folder = folder
        self._known: dict[str, Known] = {}
        # How the files looked that were read, by their names: one that looks the same says the same.
        self._seen: dict[str, _Look] = {}

    def path(self, run_id: str, suffix: str) -> str:
        """A file of a run."""
        return os.path.join(self.folder, file_name(run_id) + suffix)

    # --- what is known

    def refresh(self, run_id: str | None) -> None:
        """Take note of what was written since."""
        if run_id is not None:
            self.known(run_id)
            return
        now = time.time_ns()
        with os.scandir(self.folder) as entries:
            for entry in entries:
                if entry.name.endswith(HEAD) and not entry.name.startswith("."):
                    self._look_at(entry, now)

    def _look_at(self, entry: "os.DirEntry[str]", now: int) -> None:
        """Read the end of a run unless it was read already."""
        look = _look_of(entry)
        if look is None or self._seen.get(entry.name) == look:
            return
        found = read_end(entry.path)
        if found is not None and file_name(found[1].run_id) + HEAD == entry.name:
            self._take_note(*found)
        # The look was taken before the file was read: where that is another one by now, it is read again.
        if now - look.changed > _TICK_NS:
            self._seen[entry.name] = look

    def known(self, run_id: str) -> Known:
        """A run as it is now; nothing of it is kept where it has not begun."""
        found = read_end(self.path(run_id, HEAD)) if run_id else None
        if found is None:
            return self._known.get(run_id) or Known(run_id)
        data, end = found
        if end.run_id != run_id:
            raise TraceError(f"`{self.path(run_id, HEAD)}` belongs to run `{end.run_id}`")
        return self._take_note(data, end)

    def _take_note(self, data: bytes, end: End) -> Known:
        known = self._known.get(end.run_id)
        if known is None:
            known = self._known[end.run_id] = Known(end.run_id)
        if known.data != data:
            self._follow(known, end)
            known.data = data
        return known

    def take(self, before: int, said: Settled, end: End) -> None:
        """Take note of what was just written here, unless it was read from the files already."""
        known = self._known.setdefault(end.run_id, Known(end.run_id))
        if known.end.count == before and known.flaw is None:
            sizes = (len(row.line) + 1 for row in said.batch.rows)
            known.ends += list(accumulate(sizes, initial=known.end.size))[1:]
            self.index.take(said)
            known.end = end

    def _follow(self, known: Known, end: End) -> None:
        """Read the lines from the last known end to the new one."""
        try:
            lines = self._new_lines(known, end)
            for said in reread(self.index.run(end.run_id).head, lines):
                self.index.take(said)
            if self.index.run(end.run_id).head.hash != end.hash:
                raise TraceError(f"the head of run `{end.run_id}` is not the hash of its last line")
        except TraceError as flaw:
            known.flaw = flaw
        known.end = end
        run = self.index.run(end.run_id)
        snapshot = run.head.snapshot
        self.index.put_head(structs.replace(end.head, snapshot=snapshot))
        self.index.put_lease(end.run_id, end.lease)

    def _new_lines(self, known: Known, end: End) -> list[bytes]:
        begins = known.ends[-1] if known.ends else 0
        data = self._read(end.run_id, begins, end.size)
        lines = data.split(b"\n")[:-1]
        known.ends += list(accumulate((len(line) + 1 for line in lines), initial=begins))[1:]
        if len(known.ends) != end.count or begins + len(data) != end.size:
            raise _is_cut(self.path(end.run_id, LINES), end, len(known.ends))
        return lines

    # --- lines

    def page(self, run_id: str, since: int, limit: int, most_bytes: int | None) -> Page:
        """Lines after a number."""
        since = max(since, 0)
        with self.lock:
            ends = self.known(run_id).ends
            begins = ends[min(since, len(ends)) - 1] if since and ends else 0
            chosen = ends[since : since + max(limit, 0)]
        if most_bytes is not None:
            chosen = [end for end in chosen if end - begins <= most_bytes] or chosen[:1]
        lines = self._read(run_id, begins, chosen[-1]).split(b"\n")[:-1] if chosen else []
        return Page(since + len(lines), lines)

    def lines_at(self, run_id: str, seqs: Sequence[int]) -> dict[int, bytes]:
        """Lines by their numbers."""
        with self.lock:
            ends = self.known(run_id).ends
            places = {seq: (ends[seq - 2] if seq > 1 else 0, ends[seq - 1]) for seq in seqs if 1 <= seq <= len(ends)}
        found = {seq: self._read(run_id, *place) for seq, place in places.items()}
        return {seq: line.removesuffix(b"\n") for seq, line in found.items() if line.endswith(b"\n")}

    def _read(self, run_id: str, begins: int, ends: int) -> bytes:
        path = self.path(run_id, LINES)
        try:
            with open(path, "rb") as file:
                file.seek(begins)
                return file.read(ends - begins)
        except FileNotFoundError:
            return b""
        except OSError as problem:
            raise TraceError(f"`{path}` cannot be read: {(problem.strerror or str(problem)).lower()}") from problem

    # --- the rest

    def look(self, run_ids: Sequence[str]) -> Hashable:
        """Which files say where these runs end: each is exchanged for another one with every append."""
        return tuple(self._file_of(run_id) for run_id in run_ids)

    def _file_of(self, run_id: str) -> tuple[int, int] | None:
        try:
            found = os.stat(self.path(run_id, HEAD))
        except OSError:
            return None
        return found.st_ino, found.st_mtime_ns

    def schema_info(self) -> SchemaInfo:
        """What the files say of themselves."""
        return SchemaInfo("jsonl", str(HEAD_VERSION))


class _Look(NamedTuple):
    """How a file looks from outside."""

    changed: int
    size: int
    number: int


def _look_of(entry: "os.DirEntry[str]") -> _Look | None:
    """How a file looks; none where it has gone."""
    try:
        found = entry.stat()
    except OSError:
        return None
    return _Look(found.st_mtime_ns, found.st_size, found.st_ino)


def _is_cut(path: str, end: End, found: int) -> TraceError:
    return TraceError(
        f"`{path}` does not end where it should: expected {end.count} events, found {found}",
        hint="nothing is added to it; `gert run verify-ledger` says more",
    )
