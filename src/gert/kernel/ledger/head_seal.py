"""The seal of a head: one signature per append over everything the head says.

With a signing key, history cannot be rewritten between two processes: the first append of a process checks the seal
of the head it finds, and every later one compares the head with the one it wrote itself.
"""

from typing import Final

import msgspec

from gert.errors import IntegrityError
from gert.kernel.events.runbook import RunAdopted
from gert.kernel.foundation.canonical import sha256_hex
from gert.kernel.foundation.signature import Key, Keys, Signature, sign, verify
from gert.kernel.ledger.record import Head

_ENCODER: Final = msgspec.json.Encoder()
_NO_KEYS: Final = Keys()
ADOPT_HINT: Final = "`--adopt-unsealed REASON` continues it; for an agent run call `store.adopt_unsealed_run`"


def encode_snapshot(head: Head) -> bytes | None:
    """The folded snapshot as a ledger stores it."""
    return None if head.snapshot is None else _ENCODER.encode(head.snapshot)


def sealed_bytes(head: Head) -> bytes:
    """What is signed: the run, its kind and tenant, its events and answers, and what they fold to."""
    snapshot = sha256_hex(encode_snapshot(head) or b"")
    return b"gert-ledger-head-v2\n" + _ENCODER.encode(
        (
            head.run_id, head.kind, head.tenant, head.count, head.hash, head.answers, head.answers_hash, snapshot,
            head.started_at, head.updated_at,
        )
    )  # fmt: skip


def seal_head(head: Head, key: Key) -> str:
    """The seal of a head as a ledger stores it: `algorithm:signature:key`."""
    signature = sign(key, sealed_bytes(head))
    return f"{signature.alg}:{signature.value}:{key.id}"


def read_seal(text: str) -> Signature:
    """Read the seal of a head."""
    parts = text.split(":", 2)
    if len(parts) != 3:
        raise IntegrityError("the seal of the run cannot be read")
    alg, value, key_id = parts
    return Signature(alg, key_id or None, value)


def adoption(head: Head, actor: str, reason: str) -> RunAdopted:
    """The record of an adoption: who continues an unsealed run, why, and from which head on it is sealed."""
    return RunAdopted(actor=actor, reason=reason, events=head.count, chain_hash=head.hash)


class Sealer:
    """Seals the heads a process writes, and checks those it finds.

    key: signs every append; without one, runs are not sealed
    keys: all keys that verify, retired ones included
    """

    def __init__(self, key: Key | None = None, keys: Keys = _NO_KEYS) -> None:
        self._key = key
        self._keys = Keys([key]) if key is not None and not len(keys) else keys
        self._own: dict[str, Head] = {}

    def check(self, head: Head, last_line: bytes | None, *, adopt: bool = False) -> None:
        """Refuse to append after a head that this key did not seal: IntegrityError.

        last_line: the last event, whose hash the head must have; read only where the head is not our own
        adopt: accept a run that is not sealed
        """
        if not head.count or self.knows(head):
            return
        # (1) The head is the end of the events that are there.
        if last_line is None or sha256_hex(last_line) != head.hash:
            raise IntegrityError(
                f"the head of run `{head.run_id}` does not match its last event",
                hint="nothing is appended; `gert run verify-ledger` says more",
            )
        # (2) A sealed run is continued only by a process that can seal it again.
        if head.seal is not None and self._key is None:
            raise IntegrityError(
                f"run `{head.run_id}` is sealed, and no signing key is configured",
                hint="set GERT_TRACE_SIGNING_KEY to the key the run is sealed with",
            )
        if self._key is None:
            return
        if head.seal is None:
            if adopt:
                return
            raise IntegrityError(
                f"run `{head.run_id}` is not sealed, and a signing key is configured",
                hint=ADOPT_HINT,
            )
        # (3) The seal is over this very head, by a key we hold.
        verify(self._keys, read_seal(head.seal), sealed_bytes(head))

    def seal(self, head: Head) -> Head:
        """The head with its seal, if there is a key."""
        return head if self._key is None else msgspec.structs.replace(head, seal=seal_head(head, self._key))

    def wrote(self, head: Head) -> None:
        """Remember a head as this process left it."""
        if len(self._own) > _MOST_KNOWN:
            self._own.clear()
        self._own[head.run_id] = head

    def left(self, run_id: str) -> Head | None:
        """The head of a run as this process left it, if it wrote it lately."""
        return self._own.get(run_id)

    def knows(self, head: Head) -> bool:
        """Whether this process wrote the head, with everything it says."""
        own = self._own.get(head.run_id)
        return own is head or own == head


_MOST_KNOWN: Final = 1000
