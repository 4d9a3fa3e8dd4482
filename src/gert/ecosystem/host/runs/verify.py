"""Verifying the record of a run of any kind: in its ledger, and by the seal in its last event."""

import asyncio
from collections.abc import Sequence
from typing import Literal

import msgspec

from gert.ecosystem.host.runs.ledger_reader import Archive
from gert.ecosystem.host.runs.listing import Runs
from gert.ecosystem.host.runs.witness import find_missing, read_witness
from gert.ecosystem.ledger.verify_run import read_run
from gert.errors import Busy, TraceError, Unavailable
from gert.kernel.events.seal import Check, check_seal
from gert.kernel.foundation.signature import Keys
from gert.kernel.ledger.verify import Recomputed, Stored, check_run
from gert.kernel.ledger.witness import WitnessedHead, missing_head


class Demands(msgspec.Struct, frozen=True):
    """Which signature is demanded: any, that of a key id, or none."""

    keys: Keys
    key_id: str | None = None
    require_signature: bool = False


class Verified(msgspec.Struct, frozen=True):
    """What verifying a run found."""

    run_id: str
    kind: Literal["runbook", "agent"]
    events: int
    checks: tuple[Check, ...]
    signed_by: str | None
    adopted: tuple[str, ...] = ()
    """Parts of the run that no key sealed while they were written, and that an operator adopted."""

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
    """Verify a run; one that cannot be read is there, and not what was written."""
    return check_record(runs.archive, run_id, demands)


def check_ledger(runs: Runs, run_ids: Sequence[str], demands: Demands, witness: str | None = None) -> list[Verified]:
    """Verify these runs, or all; with a witness, also that the ledger has every head of them that the witness has."""
    heads = [] if witness is None else asyncio.run(read_witness(witness))
    if not run_ids:
        stored = [head.run_id for head in runs.archive.heads()] if runs.place.is_there else []
        run_ids = list(dict.fromkeys((*stored, *(each.run_id for each in heads))))
    return [_with_witness(runs, run_id, demands, heads, witness) for run_id in run_ids]


def _with_witness(
    runs: Runs, run_id: str, demands: Demands, heads: list[WitnessedHead], witness: str | None
) -> Verified:
    head = runs.archive.head(run_id) if runs.place.is_there else None
    if head is None and any(each.run_id == run_id for each in heads):
        gone = missing_head(None, [each for each in heads if each.run_id == run_id], {})
        return Verified(run_id, "runbook", 0, (Check(1, "witness", False, gone or ""),), None)
    found = check_run_of(runs, run_id, demands)
    if witness is None:
        return found
    missing = runs.archive.ask(lambda ledger: find_missing(ledger, run_id, heads))
    count = sum(each.run_id == run_id for each in heads)
    said = f"the ledger has all {count} heads that the witness has" if missing is None else missing
    check = Check(len(found.checks) + 1, "witness", missing is None, said)
    return msgspec.structs.replace(found, checks=(*found.checks, check))


def check_record(archive: Archive, run_id: str, demands: Demands) -> Verified:
    """Verify a run: chain, answers, head, derived rows and seal; of a run that ended also the seal in its trace."""
    found = Recomputed(run_id)
    try:
        stored = archive.ask(lambda ledger: read_run(ledger, found))
    except (Busy, Unavailable):
        raise
    except TraceError as problem:
        # What cannot be read is not what was written.
        return Verified(run_id, "runbook", 0, (Check(1, "chain", False, problem.message),), None)
    report = check_run(found, stored, demands.keys, require_seal=demands.require_signature, key_id=demands.key_id)
    kind: Literal["runbook", "agent"] = "runbook" if found.head.kind == "runbook" else "agent"
    checks = [*report.checks, *_trace_checks(found, stored, demands)]
    numbered = tuple(Check(number, each.name, each.passed, each.reason) for number, each in enumerate(checks, start=1))
    adopted = tuple(
        f"{each.events} events were not sealed when `{each.actor}` adopted them: {each.reason}"
        for each in found.adopted
    )
    return Verified(run_id, kind, found.events, numbered, report.signed_by, adopted)


def _trace_checks(found: Recomputed, stored: Stored, demands: Demands) -> list[Check]:
    """The seal in `run_complete`, where a runbook run has ended."""
    report = found.chain.report()
    if found.head.kind != "runbook" or report.completion is None:
        return []
    seal = check_seal(
        report,
        demands.keys,
        require_signature=demands.require_signature,
        key_id=demands.key_id,
        run_id=found.run_id,
    )
    return [Check(each.number, f"trace_{each.name}", each.passed, each.reason) for each in seal.checks[1:]]
