"""The seal of a run: two signatures in `run_complete`, and the procedure that checks them.

The first signature is over the head of the chain, and so over every event before. The second is over the
line of `run_complete` itself, as stored, without the signature: status, outcome, time and run id cannot
change either. Both are over bytes, so an auditor needs no JSON library to check them.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from gert.errors import IntegrityError, TraceError
from gert.kernel.events.chain import RUN_COMPLETE, ChainReport, Completion
from gert.kernel.events.envelope import Envelope, encode
from gert.kernel.foundation.signature import HMAC_SHA256, Key, Keys, Signature, sign, verify

_SEAL_FIELDS = ("chain_hash", "signature", "signing_key_id", "signature_alg", "body_signature")
_BODY = re.compile(rb'(.*),"body_signature":"([0-9A-Za-z+/=]+)"\}\}\Z', re.DOTALL)
_NO_KEYS = Keys()


def seal(completion: Envelope, key: Key | None) -> Envelope:
    """Give a `run_complete` its seal; without a key, only the head of its chain."""
    if completion.type != RUN_COMPLETE:
        raise TraceError(f"only `{RUN_COMPLETE}` is sealed, found `{completion.type}`")
    taken = [name for name in _SEAL_FIELDS if name in completion.data]
    if taken:
        raise TraceError(f"the event is sealed already: it has `{taken[0]}`")
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
    """One numbered check: it passed, failed, or (`None`) was not made, and why."""

    number: int
    name: str
    passed: bool | None
    reason: str


@dataclass(frozen=True, slots=True)
class SealReport:
    """What checking a seal found."""

    checks: tuple[Check, ...]
    signed_by: str | None = None
    """The label of the key whose signatures hold."""

    @property
    def holds(self) -> bool:
        """No check failed; checks of signatures may not have been asked for."""
        return all(check.passed is not False for check in self.checks)

    @property
    def proven(self) -> bool:
        """Every check was made and passed, the signatures among them."""
        return all(check.passed for check in self.checks)

    @property
    def failures(self) -> tuple[Check, ...]:
        """The checks that failed."""
        return tuple(check for check in self.checks if check.passed is False)

    def require(self) -> None:
        """Raise the first failure, if there is one."""
        for check in self.failures:
            raise IntegrityError(check.reason)


def check_seal(
    report: ChainReport,
    keys: Keys = _NO_KEYS,
    *,
    require_signature: bool = True,
    key_id: str | None = None,
    run_id: str | None = None,
) -> SealReport:
    """Check a run's seal against the chain that was actually read.

    Whoever holds keys, or names one with `key_id`, demands a signature: otherwise taking it off would be
    enough to forge a trace. `run_id` demands the trace of that run.
    """
    demanded = require_signature or len(keys) > 0 or key_id is not None
    trial = _Trial(report, keys, demanded, key_id, run_id)
    checks = tuple(Check(number, name, *trial.run(check)) for number, (name, check) in enumerate(_PROCEDURE, start=1))
    proven = all(check.passed for check in checks)
    return SealReport(checks, trial.claimed_key if proven else None)


Verdict = tuple[bool | None, str]


class _Trial:
    """The evidence and the demands of one verification."""

    def __init__(self, report: ChainReport, keys: Keys, demanded: bool, key_id: str | None, run_id: str | None) -> None:
        self.report = report
        self.keys = keys
        self.demanded = demanded
        self.key_id = key_id
        self.run_id = run_id

    def run(self, check: "Callable[[_Trial], Verdict]") -> Verdict:
        try:
            return check(self)
        except IntegrityError as error:
            return False, error.message

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
        """Read a field of the seal; anything but text counts as absent."""
        value = self.completion.event.data.get(name) if self.completion else None
        return value if isinstance(value, str) and value else None

    def unsigned(self) -> Verdict | None:
        """Say what follows when there is nothing to verify, or nothing to verify with."""
        if self.completion is None:
            return None, "the run has no end that could be signed"
        if not self.is_signed:
            return (False, "the trace is not signed") if self.demanded else (None, "the trace is not signed")
        if not self.demanded:
            return None, "the trace is signed, and no key was given to check it"
        return None


def _check_chain(trial: _Trial) -> Verdict:
    """(1) The events follow from each other."""
    report = trial.report
    if report.events == 0:
        return False, "there are no events"
    if report.breaks:
        first = report.breaks[0]
        return False, f"the chain breaks at line {first.line}: {first.message}"
    if trial.run_id is not None and report.run_id != trial.run_id:
        return False, f"expected run `{trial.run_id}`, found `{report.run_id}`"
    return True, f"{report.events} events, no breaks"


def _check_complete(trial: _Trial) -> Verdict:
    """(2) The run ended: without its end, any number of events may be missing."""
    if trial.report.torn is not None:
        return False, f"the trace is incomplete: its last line was not written whole: {trial.report.torn}"
    if trial.completion is None:
        return False, f"the trace is incomplete: there is no `{RUN_COMPLETE}`"
    return True, f"`{RUN_COMPLETE}` at line {trial.completion.line}"


def _check_head(trial: _Trial) -> Verdict:
    """(3) The claimed head is the head we computed: a genuine old seal on a rewritten chain fails here."""
    if trial.completion is None:
        return None, "the run has no end that could claim a head"
    claimed = trial.claim("chain_hash")
    if claimed is None:
        return False, f"`{RUN_COMPLETE}` does not claim a `chain_hash`"
    if claimed != trial.completion.head or claimed != trial.completion.event.prev_hash:
        return False, "the claimed `chain_hash` is not the head of the chain that was read"
    return True, f"the head is {claimed}"


def _check_signature(trial: _Trial) -> Verdict:
    """(4) The signature is over the head we computed, never the one that is claimed, by a key we hold."""
    unsigned = trial.unsigned()
    if unsigned is not None or trial.completion is None:
        return unsigned or (None, "")
    verify(trial.keys, _signature(trial, trial.claim("signature")), trial.completion.head.encode())
    return True, f"signed by key `{trial.claimed_key}`"


def _check_body(trial: _Trial) -> Verdict:
    """(5) The second signature is over the stored line of `run_complete`, by the same key."""
    unsigned = trial.unsigned()
    if unsigned is not None or trial.completion is None:
        return unsigned or (None, "")
    match = _BODY.match(trial.completion.stored)
    if match is None:
        return False, f"`{RUN_COMPLETE}` does not end with a `body_signature`"
    verify(trial.keys, _signature(trial, match.group(2).decode()), match.group(1) + b"}}")
    return True, f"`{RUN_COMPLETE}` signed by key `{trial.claimed_key}`"


_PROCEDURE: tuple[tuple[str, Callable[[_Trial], Verdict]], ...] = (
    ("chain", _check_chain),
    ("complete", _check_complete),
    ("head", _check_head),
    ("signature", _check_signature),
    ("body", _check_body),
)


def _signature(trial: _Trial, value: str | None) -> Signature:
    if value is None:
        raise IntegrityError("the trace is not signed")
    if trial.key_id is not None and trial.claimed_key != trial.key_id:
        raise IntegrityError(f"expected a signature by key `{trial.key_id}`, found `{trial.claimed_key}`")
    # Traces from before there was a choice do not name the algorithm; the key decides anyway.
    return Signature(trial.claim("signature_alg") or HMAC_SHA256, trial.claimed_key, value)


def _with(event: Envelope, **fields: str) -> Envelope:
    """Add fields at the end of an event's data, in the order given."""
    return msgspec.structs.replace(event, data={**event.data, **fields})
