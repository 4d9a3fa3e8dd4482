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
from gert.ecosystem.stores.jsonl_mark import read_mark
from gert.ecosystem.stores.rereading import reread
from gert.ecosystem.stores.run_file import HEAD, HEAD_VERSION, LINES, End, file_name, no_end, read_end
from gert.ecosystem.stores.run_lines import is_cut, last_end, new_lines, read_places, unreadable
from gert.errors import TraceError
from gert.kernel.agent.ledger import SchemaInfo

LOCK: Final = "ledger.lock"

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

    def require_sound(self) -> None:
        """Say why nothing may be added; each time anew, as an error keeps everything it went through."""
        if self.flaw is not None:
            raise TraceError(self.flaw.message, hint=self.flaw.hint)


class JsonlReader(IndexReader):
    """A folder as two threads know it: one that writes, and one that reads."""

    def __init__(self, folder: str) -> None:
        super().__init__(Index(self.look_around))
        self.folder = folder
        self.lock_path = os.path.join(folder, LOCK)
        self._known: dict[str, Known] = {}
        # The mark of the folder when all runs were looked at.
        self._mark: bytes | None = None
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
        # Read before the files are: whoever changes one of them meanwhile leaves another mark.
        mark = read_mark(self.lock_path)
        if mark is not None and mark == self._mark:
            return
        now = time.time_ns()
        try:
            with os.scandir(self.folder) as entries:
                for entry in entries:
                    if entry.name.endswith(HEAD) and not entry.name.startswith("."):
                        self._look_at(entry, now)
        except OSError as problem:
            raise unreadable(self.folder, problem) from problem
        self._mark = mark or self._mark

    def keep_up(self, before: bytes | None, after: bytes) -> None:
        """Take note of a mark that was left here: nobody else has written since the one before."""
        if before is not None and self._mark == before:
            self._mark = after

    def look_around(self) -> None:
        """Take note of all that was written; a call may stand in what cannot be read of a run, and nobody can say."""
        self.refresh(None)
        for known in self._known.values():
            known.require_sound()

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
        if known.flaw is None:
            try:
                known.flaw = self._reread(known, end)
            except OSError as problem:
                raise unreadable(self.path(end.run_id, LINES), problem) from problem
        known.end = end
        snapshot = self.index.run(end.run_id).head.snapshot
        self.index.put_head(structs.replace(end.head, snapshot=snapshot))
        self.index.put_lease(end.run_id, end.lease)

    def _reread(self, known: Known, end: End) -> TraceError | None:
        """Take note of what new lines say; why they are not what was written, if they are not."""
        flaw: TraceError | None = None
        lines = new_lines(self.path(end.run_id, LINES), known.ends, end.size)
        try:
            for said in reread(self.index.run(end.run_id).head, lines):
                self.index.take(said)
            if self.index.run(end.run_id).head.hash != end.hash:
                raise TraceError(f"the head of run `{end.run_id}` is not the hash of its last line")
        except TraceError as found:
            flaw = found.with_traceback(None)
        # Those behind a flaw are counted, and shown to whoever wants to know.
        count = len(known.ends) + sum(1 for _ in lines)
        if count != end.count or last_end(known.ends) != end.size:
            return is_cut(self.path(end.run_id, LINES), f"{end.count} events", count)
        return flaw

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
        data = read_places(self.path(run_id, LINES), [(begins, chosen[-1])])[0] if chosen else b""
        lines = data.split(b"\n")[:-1]
        return Page(since + len(lines), lines)

    def lines_at(self, run_id: str, seqs: Sequence[int]) -> dict[int, bytes]:
        """Lines by their numbers."""
        with self.lock:
            ends = self.known(run_id).ends
            places = {seq: (ends[seq - 2] if seq > 1 else 0, ends[seq - 1]) for seq in seqs if 1 <= seq <= len(ends)}
        found = read_places(self.path(run_id, LINES), list(places.values())) if places else []
        return {seq: line[:-1] for seq, line in zip(places, found, strict=True) if line.endswith(b"\n")}

    # --- the rest

    def look(self, run_ids: Sequence[str]) -> Hashable:
        """Which files say where these runs end: each is exchanged for another one with every append."""
        now = time.time_ns()
        return tuple(self._file_of(run_id, now) for run_id in run_ids)

    def _file_of(self, run_id: str, now: int) -> tuple[int, int, bool] | None:
        try:
            found = os.stat(self.path(run_id, HEAD))
        except OSError:
            return None
        # One that is new may have been exchanged since for one that looks the same: it is looked at once more.
        return found.st_ino, found.st_mtime_ns, now - found.st_mtime_ns > _TICK_NS

    def close(self) -> None:
        """No file is open between two looks."""

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
