"""Whether a run in a ledger is the one that was written: its chain, where it ends, and the seal over its end.

A ledger keeps, beside the lines, how many there are and the hash of the last. Lines that were taken off the end
leave a chain that holds; they show against that head, and a head that was changed with them shows against its seal.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from gert.errors import IntegrityError
from gert.kernel.agent.ledger import Head, sealed_bytes
from gert.kernel.events.chain import ChainReport
from gert.kernel.events.seal import Check
from gert.kernel.foundation.signature import Key, Keys, Signature, sign, verify

_NO_KEYS: Final = Keys()


def seal_head(head: Head, key: Key) -> str:
    """The seal of a head as a ledger keeps it: `algorithm:signature:key`."""
    signature = sign(key, sealed_bytes(head))
    return f"{signature.alg}:{signature.value}:{key.id}"


def read_seal(text: str) -> Signature:
    """Read the seal of a head."""
    parts = text.split(":", 2)
    if len(parts) != 3:
        raise IntegrityError("the seal of the run cannot be read")
    alg, value, key_id = parts
    return Signature(alg, key_id or None, value)


@dataclass(frozen=True, slots=True)
class RunReport:
    """What checking a run found."""

    run_id: str
    checks: tuple[Check, ...]
    events: int
    signed_by: str | None = None
    """The key we hold whose seal holds over the end of the run."""

    @property
    def holds(self) -> bool:
        """No check failed; the seal may not have been asked for."""
        return all(check.passed is not False for check in self.checks)

    @property
    def proven(self) -> bool:
        """Every check was made and passed, the seal among them."""
        return all(check.passed for check in self.checks)

    @property
    def failures(self) -> tuple[Check, ...]:
        """The checks that failed."""
        return tuple(check for check in self.checks if check.passed is False)

    def require(self) -> None:
        """Raise the first failure, if there is one."""
        for check in self.failures:
            raise IntegrityError(check.reason)


def check_run(
    report: ChainReport,
    head: Head | None,
    keys: Keys = _NO_KEYS,
    *,
    run_id: str,
    require_seal: bool = False,
    key_id: str | None = None,
) -> RunReport:
    """Check the lines of a run, as they were read, against the end a ledger keeps of it.

    Whoever holds keys, or names one, demands a seal: otherwise taking it off would be enough to forge an end. A
    runbook run has its own seal in `run_complete`; that one is `check_seal`'s business.
    """
    trial = _Trial(report, head, keys, require_seal or len(keys) > 0 or key_id is not None, key_id, run_id)
    checks = tuple(Check(number, name, *trial.run(check)) for number, (name, check) in enumerate(_PROCEDURE, start=1))
    signed_by = keys.find(trial.seal.key_id).id if all(check.passed for check in checks) else None
    return RunReport(run_id, checks, report.events, signed_by)


Verdict = tuple[bool | None, str]


@dataclass(frozen=True, slots=True)
class _Trial:
    """The evidence and the demands of one verification."""

    report: ChainReport
    kept: Head | None
    keys: Keys
    demanded: bool
    key_id: str | None
    run_id: str

    def run(self, check: "Callable[[_Trial], Verdict]") -> Verdict:
        try:
            return check(self)
        except IntegrityError as error:
            return False, error.message

    @property
    def head(self) -> Head:
        if self.kept is None:
            raise IntegrityError("the ledger does not say where the run ends")
        return self.kept

    @property
    def seal(self) -> Signature:
        if self.head.seal is None:
            raise IntegrityError("the end of the run is not sealed")
        return read_seal(self.head.seal)


def _check_chain(trial: _Trial) -> Verdict:
    """(1) The events follow from each other."""
    report = trial.report
    if report.breaks:
        first = report.breaks[0]
        return False, f"the chain breaks at line {first.line}: {first.message}"
    if report.torn is not None:
        return False, f"the last line cannot be read: {report.torn}"
    if report.events == 0:
        return False, "there are no events"
    if report.run_id != trial.run_id:
        return False, f"expected run `{trial.run_id}`, found `{report.run_id}`"
    return True, f"{report.events} events, no breaks"


def _check_count(trial: _Trial) -> Verdict:
    """(2) There are as many events as were written: a chain whose end was taken off still holds."""
    expected, found = trial.head.count, trial.report.events
    if found < expected:
        return False, f"the end of the run is missing: expected {expected} events, found {found}"
    if found > expected:
        return False, f"there are events after the end of the run: expected {expected}, found {found}"
    return True, f"{expected} events were written"


def _check_head(trial: _Trial) -> Verdict:
    """(3) The kept head is the head we computed: an end that was exchanged for another fails here."""
    if trial.head.hash != trial.report.head:
        return False, "the head the ledger keeps is not the head of the chain that was read"
    return True, f"the head is {trial.report.head}"


def _check_seal(trial: _Trial) -> Verdict:
    """(4) The seal is over this run, with the count and the head we computed, not those that are kept, by our key."""
    if trial.head.seal is None:
        return False if trial.demanded else None, "the end of the run is not sealed"
    if not trial.demanded:
        return None, "the end of the run is sealed, and no key was given to check it"
    seal, report = trial.seal, trial.report
    if trial.key_id is not None and (seal.key_id != trial.key_id or not trial.keys.lists(trial.key_id)):
        return False, f"expected a seal by key `{trial.key_id}`, found one by `{seal.key_id}`"
    verify(trial.keys, seal, sealed_bytes(Head(trial.run_id, count=report.events, hash=report.head)))
    return True, f"sealed by key `{trial.keys.find(seal.key_id).id}`"


_PROCEDURE: Final[tuple[tuple[str, Callable[[_Trial], Verdict]], ...]] = (
    ("chain", _check_chain),
    ("count", _check_count),
    ("head", _check_head),
    ("seal", _check_seal),
)
