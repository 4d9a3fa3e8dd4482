"""A witness of sealed heads, kept outside the ledger: what shows that a ledger was put back to an earlier moment.

A seal proves that a head was written by a holder of the key, not that it is the last one. A witness has every sealed
head; one that the ledger no longer has was rolled back, or its run was removed.
"""

from collections.abc import Mapping, Sequence

import msgspec

from gert.kernel.foundation.canonical import sha256_hex
from gert.kernel.ledger.record import Head


class WitnessedHead(msgspec.Struct, frozen=True):
    """A sealed head as a witness keeps it, on one line of JSON."""

    run_id: str
    count: int
    answers: int
    hash: str
    seal: str


_DECODER = msgspec.json.Decoder(WitnessedHead)


def encode_witnessed(head: Head) -> bytes:
    """The line of a sealed head, with its line break."""
    line = WitnessedHead(head.run_id, head.count, head.answers, head.hash, head.seal or "")
    return msgspec.json.encode(line) + b"\n"


def decode_witnessed(data: bytes) -> list[WitnessedHead]:
    """The heads of a witness; a last line that was not written whole is left out. ValueError where one is no head."""
    try:
        return [_DECODER.decode(line) for line in data.split(b"\n")[:-1]]
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(str(error)) from None


def missing_head(head: Head | None, heads: Sequence[WitnessedHead], lines: Mapping[int, bytes]) -> str | None:
    """Why a ledger no longer has a head of a run that a witness has; None where it has them all.

    lines: the events of the run by number, at least those that the heads name
    """
    # The newest first: it tells how much is missing.
    for each in reversed(heads):
        if head is None:
            return f"the witness has {each.count} events of the run, and the ledger has no such run"
        # (1) The run goes at least as far as it did.
        if (head.count, head.answers) < (each.count, each.answers):
            found = f"the witness has {each.count} events and {each.answers} answers"
            return f"the run was rolled back: {found}, the ledger has {head.count} and {head.answers}"
        # (2) It goes through the head that was witnessed.
        line = lines.get(each.count)
        if line is None or sha256_hex(line) != each.hash:
            return f"event {each.count} is not the event that was witnessed"
        # (3) Where it has not gone on since, it is the very head.
        if (head.count, head.answers) == (each.count, each.answers) and head.seal != each.seal:
            return f"the head after event {each.count} is not the head that was witnessed"
    return None
