"""A run in two files: its lines, exactly as a trace has them, and a small one that says where they end.

The small file is what makes an append happen: lines beyond the end it names were never finished. It is exchanged
whole, so that whoever reads sees the old end or the new one.
"""

import os
import re
from contextlib import suppress
from datetime import datetime
from typing import Annotated, Final

import msgspec

from gert.ecosystem.stores.append_file import sync_data, write_all
from gert.ecosystem.stores.folders import sync_folder_of
from gert.errors import TraceError
from gert.kernel.agent.ledger import Head, Lease
from gert.kernel.events.chain import GENESIS
from gert.kernel.foundation.canonical import sha256_hex
from gert.kernel.foundation.names import is_safe_name

HEAD_VERSION: Final = 1
LINES: Final = ".jsonl"
HEAD: Final = ".head"

_MOST_OF_NAME: Final = 120
_KEPT_OF_NAME: Final = 50
_MAX_HEAD_BYTES: Final = 64 * 1024
# One name for all: only one process writes, and what one left that died is used by the next.
_NEW: Final = ".head-new"
_NEW_FLAGS: Final = (
    os.O_WRONLY
    | os.O_CREAT
    | os.O_TRUNC
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_BINARY", 0)
)
# Capital letters among them: to many file systems they are the same as small ones.
_UNSAFE: Final = re.compile(r"[^a-z0-9_-]")


_Count = Annotated[int, msgspec.Meta(ge=0)]


class End(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where a run ends, and who has it.

    size: how many bytes its lines have
    """

    version: int
    run_id: str
    count: _Count = 0
    size: _Count = 0
    hash: str = GENESIS
    tenant: str | None = None
    started_at: str = ""
    updated_at: str = ""
    seal: str | None = None
    worker_id: str | None = None
    token: _Count = 0
    expires_at: Annotated[datetime, msgspec.Meta(tz=True)] | None = None

    @property
    def head(self) -> Head:
        """The end of the run, without what its events come to."""
        return Head(self.run_id, self.tenant, self.count, self.hash, None, self.started_at, self.updated_at, self.seal)

    @property
    def lease(self) -> Lease | None:
        """The lease as it was last given; none where nobody ever had one."""
        if not self.token or self.expires_at is None:
            return None
        return Lease(self.run_id, self.worker_id, self.token, self.expires_at)


_END: Final = msgspec.json.Decoder(End)


def file_name(run_id: str) -> str:
    """A name for the files of a run that is safe on every system, and no other run's."""
    name = _UNSAFE.sub(lambda found: f"%{ord(found[0]):02x}", run_id)
    if not is_safe_name(name.replace("%", "_")):
        name = f"%{ord(name[0]):02x}{name[1:]}" if name and name[0] != "%" else name
    if len(name) <= _MOST_OF_NAME:
        return name
    # `~` stands in no name that was not shortened.
    return f"{name[:_KEPT_OF_NAME]}~{sha256_hex(run_id.encode())}"


def no_end(run_id: str) -> End:
    """Of a run that has not begun."""
    return End(HEAD_VERSION, run_id)


def read_end(path: str) -> tuple[bytes, End] | None:
    """Where a run ends, and the bytes that say so; none where it has not begun."""
    try:
        with open(path, "rb") as file:
            data = file.read(_MAX_HEAD_BYTES)
    except FileNotFoundError:
        return None
    except OSError as problem:
        raise TraceError(f"`{path}` cannot be read: {_why(problem)}") from problem
    return data, decode_end(path, data)


def decode_end(path: str, data: bytes) -> End:
    """Read what a file says about the end of a run."""
    try:
        end = _END.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise TraceError(f"`{path}` does not say where a run ends") from None
    if end.version > HEAD_VERSION:
        raise TraceError(
            f"`{path}` was made by a newer gert: expected version {HEAD_VERSION}, found {end.version}",
            hint="update gert",
        )
    return end


def write_end(path: str, end: End, *, sync: bool) -> None:
    """Say where a run ends, while nobody else writes to the folder; durable when this returns."""
    new = os.path.join(os.path.dirname(path), _NEW)
    try:
        _write(new, msgspec.json.encode(end) + b"\n", sync=sync)
        os.replace(new, path)
    except OSError as problem:
        with suppress(OSError):
            os.unlink(new)
        raise TraceError(f"`{path}` cannot be written: {_why(problem)}", hint="nothing of the batch was kept") from None
    try:
        if sync:
            sync_folder_of(path)
    except OSError as problem:
        # Whoever reads sees it already: it cannot be taken back.
        raise TraceError(f"`{path}` was written, and may be lost with the power: {_why(problem)}") from None


def _write(path: str, data: bytes, *, sync: bool) -> None:
    descriptor = os.open(path, _NEW_FLAGS, 0o600)
    try:
        write_all(descriptor, data)
        if sync:
            sync_data(descriptor)
    finally:
        os.close(descriptor)


def _why(problem: OSError) -> str:
    return (problem.strerror or str(problem)).lower()
