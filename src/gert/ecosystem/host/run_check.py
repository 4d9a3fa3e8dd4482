"""Checking the record of a run, wherever it is kept and whatever kind of run it is."""

from typing import Literal

import msgspec

from gert.ecosystem.host.archive import Archive
from gert.ecosystem.host.run_entry import Entry
from gert.ecosystem.host.run_list import Runs
from gert.ecosystem.host.traces import open_trace, verify_trace
from gert.ecosystem.stores.verifying import read_run
from gert.errors import Busy, IntegrityError, TraceError, Unavailable
from gert.kernel.agent.ledger import Head
from gert.kernel.agent.verifying import check_run
from gert.kernel.events.chain import ChainReport
from gert.kernel.events.seal import Check, check_seal
from gert.kernel.foundation.signature import Keys


class Demands(msgspec.Struct, frozen=True):
    """Who has to have signed: anybody, the key of an id, or nobody in particular."""

    keys: Keys
    key_id: str | None = None
    require_signature: bool = False


class Verified(msgspec.Struct, frozen=True):
    """What checking a run found."""

    run_id: str
    kind: Literal["runbook", "agent"]
    events: int
    checks: tuple[Check, ...]
    signed_by: str | None

    @property
    def valid(self) -> bool:
        """No check failed; signatures may not have been asked for."""
        return all(check.passed is not False for check in self.checks)

    @property
    def proven(self) -> bool:
        """Every check was made and passed, the signatures among them."""
        return all(check.passed for check in self.checks)

    @property
    def reasons(self) -> list[str]:
        """Why it is not valid."""
        return [check.reason for check in self.checks if check.passed is False]


def check_run_of(runs: Runs, run_id: str, demands: Demands) -> Verified:
    """Check a run that was found: one whose ends cannot be read is there, and not what was written."""
    try:
        entry = runs.entry(run_id)
    except (Busy, Unavailable):
        raise
    except (TraceError, IntegrityError) as problem:
        return Verified(run_id, "runbook", 0, (Check(1, "chain", False, problem.message),), None)
    return check_record(entry, runs.archive, demands)


def check_record(entry: Entry, archive: Archive | None, demands: Demands) -> Verified:
    """Check a run: its chain, the end a ledger keeps of it, and its seal."""
    if archive is None:
        return _in_file(entry, demands)
    try:
        report, head = archive.ask(lambda ledger: read_run(ledger, entry.run_id))
    except (Busy, Unavailable):
        raise
    except TraceError as problem:
        # What cannot be read is not what was written.
        return Verified(entry.run_id, entry.kind, 0, (Check(1, "chain", False, problem.message),), None)
    return _agent(entry, report, head, demands) if entry.kind == "agent" else _runbook(entry, report, head, demands)


def _in_file(entry: Entry, demands: Demands) -> Verified:
    trace = open_trace(entry.trace, None, entry.run_id)
    report, seal = verify_trace(trace, demands.keys, key_id=demands.key_id, require_signature=demands.require_signature)
    return Verified(entry.run_id, "runbook", report.events, seal.checks, seal.signed_by)


def _agent(entry: Entry, report: ChainReport, head: Head | None, demands: Demands) -> Verified:
    """An agent run goes on: its end is sealed by the ledger, event for event."""
    found = check_run(
        report,
        head,
        demands.keys,
        run_id=entry.run_id,
        require_seal=demands.require_signature,
        key_id=demands.key_id,
    )
    return Verified(entry.run_id, "agent", found.events, found.checks, found.signed_by)


def _runbook(entry: Entry, report: ChainReport, head: Head | None, demands: Demands) -> Verified:
    """A runbook run has its own seal, and the ledger keeps where it ends beside it."""
    kept = check_run(report, head, run_id=entry.run_id)
    seal = check_seal(
        report,
        demands.keys,
        require_signature=demands.require_signature,
        key_id=demands.key_id,
        run_id=entry.run_id,
    )
    end = [_named(check) for check in kept.checks if check.name in ("count", "head")]
    checks = [seal.checks[0], *end, *seal.checks[1:]]
    numbered = tuple(Check(number, each.name, each.passed, each.reason) for number, each in enumerate(checks, start=1))
    return Verified(entry.run_id, "runbook", report.events, numbered, seal.signed_by)


def _named(check: Check) -> Check:
    return Check(check.number, f"kept_{check.name}", check.passed, check.reason)
