"""The seal of a run: two signatures in `run_complete`, and the procedure that checks them.

The first signature is over the head of the chain, and so over every event before. The second is over the
line of `run_complete` itself, as stored, without the signature: status, outcome, time and run id cannot
change either. Both are over bytes, so an auditor needs no JSON library to check them.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import TypeVar

import msgspec

from gert.errors import IntegrityError, TraceError
from gert.kernel.events.chain import RUN_COMPLETE, ChainReport, Completion
from gert.kernel.events.envelope import Envelope, encode
from gert.kernel.foundation.signature import HMAC_SHA256, Key, Keys, Signature, sign, verify

_SEAL_FIELDS = ("chain_hash", "signature", "signing_key_id", "signature_alg", "body_signature")
_BODY = re.compile(rb'(.*),"body_signature":"([0-9A-Za-z+/=]+)"\}\}\Z', re.DOTALL)
_NO_KEYS = Keys()


def seal(completion: Envelope, key: Key | None) -> Envelope:
    """Seal a `run_complete`; without a key, only add the head of its chain."""
    if completion.type != RUN_COMPLETE:
        raise TraceError(f"only `{RUN_COMPLETE}` is sealed, found `{completion.type}`")
    taken = [name for name in _SEAL_FIELDS if name in completion.data]
    if taken:
        raise TraceError(f"the event is already sealed: it has `{taken[0]}`")
    head = completion.prev_hash
    if key is None:
        return _with(completion, chain_hash=head)
    signature = sign(key, head.encode())
    headed = _with(
        completion,
        chain_hash=head,
        signature=signature.value,
        signing_key_id=key.id,
        signature_alg=key.alg,
    )
    return _with(headed, body_signature=sign(key, encode(headed)).value)


@dataclass(frozen=True, slots=True)
class Check:
    """One numbered check: whether it passed (`None` if it was not made), and why."""

    number: int
    name: str
    passed: bool | None
    reason: str


@dataclass(frozen=True, slots=True)
class CheckReport:
    """The result of a procedure of checks."""

    checks: tuple[Check, ...]
    signed_by: str | None = None
    """The id of our key that verifies the signatures; the record may name it differently."""
    events: int = 0
    """All events that were read, sealed or not."""

    @property
    def holds(self) -> bool:
        """Whether no check failed; signatures may not have been checked."""
        return all(check.passed is not False for check in self.checks)

    @property
    def proven(self) -> bool:
        """Whether every check was made and passed, including the signatures."""
        return all(check.passed for check in self.checks)

    @property
    def failures(self) -> tuple[Check, ...]:
        """The checks that failed."""
        return tuple(check for check in self.checks if check.passed is False)

    def require(self) -> None:
        """Raise the first failure, if there is one."""
        for check in self.failures:
            raise IntegrityError(check.reason)


Verdict = tuple[bool | None, str]
"""Whether a check passed (`None` if it was not made), and why."""

T = TypeVar("T")


def run_procedure(procedure: Sequence[tuple[str, Callable[[T], Verdict]]], inputs: T) -> tuple[Check, ...]:
    """Make the checks of a procedure in order; one that raises IntegrityError has failed."""
    made: list[Check] = []
    for number, (name, check) in enumerate(procedure, start=1):
        try:
            passed, reason = check(inputs)
        except IntegrityError as error:
            passed, reason = False, error.message
        made.append(Check(number, name, passed, reason))
    return tuple(made)


@dataclass(frozen=True, slots=True)
class SealReport(CheckReport):
    """The result of checking a seal."""

    after_seal: int = 0
    """Events after `run_complete`, which no signature covers."""

    @property
    def sealed(self) -> int:
        """How many events the signatures cover: all up to `run_complete`, or none."""
        return self.events - self.after_seal if self.proven else 0


def check_seal(
    report: ChainReport,
    keys: Keys = _NO_KEYS,
    *,
    require_signature: bool = True,
    key_id: str | None = None,
    run_id: str | None = None,
) -> SealReport:
    """Check a run's seal against the chain that was actually read.

    A caller that passes keys, or names one with `key_id`, requires a signature: otherwise removing it would be
    enough to forge a trace. `key_id` is satisfied only by the listed key of that id: the default key,
    which is used for ids that are not listed, would let the trace choose its name. `run_id` requires the
    trace of that run.
    """
    demanded = require_signature or len(keys) > 0 or key_id is not None
    checks = _SealChecks(report, keys, demanded, key_id, run_id)
    made = run_procedure(_PROCEDURE, checks)
    signed_by = checks.key().id if all(check.passed for check in made) else None
    return SealReport(made, signed_by, report.events, report.after_complete)


class _SealChecks:
    """The inputs and requirements of one verification."""

    def __init__(self, report: ChainReport, keys: Keys, demanded: bool, key_id: str | None, run_id: str | None) -> None:
        self.report = report
        self.keys = keys
        self.demanded = demanded
        self.key_id = key_id
        self.run_id = run_id

    @property
    def completion(self) -> Completion | None:
        return self.report.completion

    @property
    def claimed_key(self) -> str | None:
        return self.claim("signing_key_id")

    @property
    def is_signed(self) -> bool:
        data = self.completion.event.data if self.completion else {}
        return any(data.get(name) is not None for name in _SEAL_FIELDS[1:])

    def claim(self, name: str) -> str | None:
        """Return a field of the seal; anything but text counts as absent."""
        value = self.completion.event.data.get(name) if self.completion else None
        return value if isinstance(value, str) and value else None

    def key(self) -> Key:
        """Return the key that the trace names, if it is the required one."""
        if self.key_id is not None:
            expected = f"expected a signature by key `{self.key_id}`"
            if self.claimed_key is None:
                raise IntegrityError(f"{expected}, found one that names no key")
            if self.claimed_key != self.key_id:
                raise IntegrityError(f"{expected}, found `{self.claimed_key}`")
            if not self.keys.lists(self.key_id):
                raise IntegrityError(f"{expected}, and no key of that id is listed")
        return self.keys.find(self.claimed_key)

    def verify(self, value: str | None, message: bytes) -> str:
        """Return who signed the message, if the signature is valid; otherwise raise."""
        if value is None:
            raise IntegrityError("the trace is not signed")
        key = self.key()
        # Early traces do not name the algorithm; the key decides anyway.
        alg = self.claim("signature_alg") or HMAC_SHA256
        verify(self.keys, Signature(alg, self.claimed_key, value), message)
        if self.claimed_key in (key.id, None):
            return f"signed by key `{key.id}`"
        return f"signed by the default key, which the trace calls `{self.claimed_key}`"


def _of_signed_end(check: "Callable[[_SealChecks, Completion], Verdict]") -> "Callable[[_SealChecks], Verdict]":
    """Decorate a check to run only if there is a signed end and a key."""

    @wraps(check)
    def checked(checks: _SealChecks) -> Verdict:
        if checks.completion is None:
            return None, "the run has no end that could be signed"
        if not checks.is_signed:
            return False if checks.demanded else None, "the trace is not signed"
        if not checks.demanded:
            return None, "the trace is signed, and no key was given to check it"
        return check(checks, checks.completion)

    return checked


def _check_chain(checks: _SealChecks) -> Verdict:
    """(1) The events follow from each other."""
    report = checks.report
    if report.events == 0:
        return False, "there are no events"
    if report.breaks:
        first = report.breaks[0]
        return False, f"the chain breaks at line {first.line}: {first.message}"
    if checks.run_id is not None and report.run_id != checks.run_id:
        return False, f"expected run `{checks.run_id}`, found `{report.run_id}`"
    return True, f"{report.events} events, no breaks"


def _check_complete(checks: _SealChecks) -> Verdict:
    """(2) The run ended: without its end, any number of events may be missing."""
    if checks.report.torn is not None:
        return False, f"the trace is incomplete: its last line was not written whole: {checks.report.torn}"
    if checks.completion is None:
        return False, f"the trace is incomplete: there is no `{RUN_COMPLETE}`"
    after = checks.report.after_complete
    outside = f", and {after} after it outside the seal" if after else ""
    return True, f"`{RUN_COMPLETE}` at line {checks.completion.line}{outside}"


def _check_head(checks: _SealChecks) -> Verdict:
    """(3) The claimed head is the head we computed: a genuine old seal on a rewritten chain fails here."""
    if checks.completion is None:
        return None, "the run has no end that could claim a head"
    claimed = checks.claim("chain_hash")
    if claimed is None:
        return False, f"`{RUN_COMPLETE}` does not claim a `chain_hash`"
    if claimed != checks.completion.head or claimed != checks.completion.event.prev_hash:
        return False, "the claimed `chain_hash` is not the head of the chain that was read"
    return True, f"the head is {claimed}"


@_of_signed_end
def _check_signature(checks: _SealChecks, end: Completion) -> Verdict:
    """(4) The signature is over the head we computed, never the one that is claimed, by a key we hold."""
    return True, checks.verify(checks.claim("signature"), end.head.encode())


@_of_signed_end
def _check_body(checks: _SealChecks, end: Completion) -> Verdict:
    """(5) The second signature is over the stored line of `run_complete`, by the same key."""
    match = _BODY.match(end.stored)
    if match is None:
        return False, f"`{RUN_COMPLETE}` does not end with a `body_signature`"
    signed = checks.verify(match.group(2).decode(), match.group(1) + b"}}")
    return True, f"`{RUN_COMPLETE}` {signed}"


_PROCEDURE: tuple[tuple[str, Callable[[_SealChecks], Verdict]], ...] = (
    ("chain", _check_chain),
    ("complete", _check_complete),
    ("head", _check_head),
    ("signature", _check_signature),
    ("body", _check_body),
)


def _with(event: Envelope, **fields: str) -> Envelope:
    """Add fields at the end of an event's data, in the order given."""
    return msgspec.structs.replace(event, data={**event.data, **fields})
