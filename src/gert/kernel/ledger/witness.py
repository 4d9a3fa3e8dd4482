"""A witness: copies of sealed heads outside the ledger, which show that a ledger was rolled back.

A seal proves that a head was written by a holder of the key, not that it is the last one. A witness has every sealed
head; one that the ledger no longer has was rolled back, or its run was removed.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, Protocol

import msgspec

from gert.kernel.foundation.canonical import sha256_hex
from gert.kernel.ledger.record import Head


class Witness(Protocol):
    """Has sealed heads outside the ledger; a ledger adds every head it has sealed.

    problem: why it does not have all of them
    """

    problem: str | None

    async def add(self, head: Head) -> None:
        """Add a head; TraceError where that fails and the witness is required."""

    async def flush(self) -> None:
        """Make everything that was added durable; TraceError where that fails and the witness is required."""


class WitnessedHead(msgspec.Struct, frozen=True):
    """A sealed head as a witness keeps it, on one line of JSON.

    ledger: the name of its ledger; a witness may serve several
    """

    run_id: str
    count: int
    answers: int
    hash: str
    seal: str
    ledger: str = ""


class Witnessed(NamedTuple):
    """What a witness has.

    unreadable: lines that cannot be read; a process may have died while it wrote one
    is_there: None where there is no witness to ask, and False where there has to be one
    problem: why there is none
    """

    heads: Sequence[WitnessedHead] = ()
    unreadable: int = 0
    is_there: bool | None = True
    problem: str | None = None


NOT_WITNESSED: Final = Witnessed(is_there=None)
"""Of a ledger without a witness."""


_DECODER = msgspec.json.Decoder(WitnessedHead)


def encode_witnessed(head: Head, ledger: str) -> bytes:
    """The line of a sealed head, with its line break."""
    line = WitnessedHead(head.run_id, head.count, head.answers, head.hash, head.seal or "", ledger)
    return msgspec.json.encode(line) + b"\n"


def decode_witnessed(data: bytes) -> Witnessed:
    """The heads of a witness; a last line without its line break is being written, and does not count."""
    heads: list[WitnessedHead] = []
    unreadable = 0
    for line in data.split(b"\n")[:-1]:
        try:
            heads.append(_DECODER.decode(line))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            unreadable += bool(line)
    return Witnessed(heads, unreadable)


def missing_head(head: Head | None, heads: Sequence[WitnessedHead], lines: Mapping[int, bytes]) -> str | None:
    """Why a ledger no longer has a head of a run that a witness has; None where it has them all.

    lines: the events of the run by number, at least those that the heads name
    """
    # The newest first: it shows how much is missing.
    for each in reversed(heads):
        if head is None:
            return f"the witness has {each.count} events of the run, and the ledger has no such run"
        # (1) The run is at least as long as the witnessed head.
        if (head.count, head.answers) < (each.count, each.answers):
            found = f"the witness has {each.count} events and {each.answers} answers"
            return f"the run was rolled back: {found}, the ledger has {head.count} and {head.answers}"
        # (2) It contains the event of the witnessed head.
        line = lines.get(each.count)
        if line is None or sha256_hex(line) != each.hash:
            return f"event {each.count} is not the event that was witnessed"
        # (3) If nothing was appended since, the heads are equal.
        if (head.count, head.answers) == (each.count, each.answers) and head.seal != each.seal:
            return f"the head after event {each.count} is not the head that was witnessed"
    return None
