"""Verify the record of a run of any kind: in its ledger, and by the seal in its last event."""

import asyncio
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import msgspec

from gert.ecosystem.host.config.settings import settings_for, witness_place
from gert.ecosystem.host.config.witness import find_missing, is_url, place_of, read_witness
from gert.ecosystem.host.config.workspace import Workspace
from gert.ecosystem.host.runs.ledger_reader import LedgerReader
from gert.ecosystem.host.runs.listing import Runs
from gert.ecosystem.ledger.verify_run import read_run
from gert.errors import Busy, TraceError, Unavailable, UsageError
from gert.kernel.events.trace_seal import Check, CheckReport, check_seal
from gert.kernel.events.vocabulary import RunKind
from gert.kernel.foundation.signature import Keys
from gert.kernel.ledger.run_checks import Recomputed, check_run
from gert.kernel.ledger.witness import NOT_WITNESSED, Witnessed


class Demands(msgspec.Struct, frozen=True):
    """Which signature is required: any, one by a key id, or none."""

    keys: Keys
    key_id: str | None = None
    require_signature: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified(CheckReport):
    """The result of verifying a run.

    adopted: parts of the run that no key sealed while they were written, and that an operator adopted
    """

    run_id: str
    kind: RunKind = "runbook"
    adopted: tuple[str, ...] = ()


class LedgerReport(NamedTuple):
    """The result of verifying a ledger.

    elsewhere: how many runs its witness has of other ledgers, by ledger
    """

    runs: list[Verified]
    elsewhere: Mapping[str, int]


def check_ledger(
    runs: Runs, run_id: str | None, demands: Demands, witness: str | None, environ: Mapping[str, str]
) -> LedgerReport:
    """Verify a run, or all that the ledger or its witness has.

    witness: the file or URL to compare with; that of the settings of the working folder where none is named
    """
    witnessed = _witnessed(witness, environ)
    orphans = runs.reader.ask(lambda ledger: ledger.orphans()) if runs.place.is_there else {}
    if run_id in orphans:
        return LedgerReport([_removed(run_id, orphans[run_id])], {})
    if run_id is not None:
        return LedgerReport([_check_one(runs, _found(runs, run_id, witnessed), demands, witnessed)], {})
    stored: list[str] = []
    if runs.place.is_there:
        stored += (head.run_id for head in runs.reader.heads(on_unreadable=lambda run_id, _: stored.append(run_id)))
    known, here = set(stored), place_of(runs.place.ledger)
    others = {each.run_id: each.ledger for each in witnessed.heads if each.run_id not in known | orphans.keys()}
    gone = [run_id for run_id, ledger in others.items() if ledger in ("", here)]
    elsewhere = Counter(ledger for ledger in others.values() if ledger not in ("", here))
    found = [_check_one(runs, each, demands, witnessed) for each in (*stored, *gone)]
    return LedgerReport([*found, *(_removed(each, tables) for each, tables in orphans.items())], elsewhere)


def _removed(run_id: str, tables: Sequence[str]) -> Verified:
    reason = f"the run was removed, and its {', '.join(tables)} are still there"
    return Verified(run_id=run_id, checks=(Check(1, "head", False, reason),))


def _found(runs: Runs, run_id: str, witnessed: Witnessed) -> str:
    """Find the named run; one that only the witness has must be named by its whole id."""
    try:
        return runs.find(run_id)
    except UsageError:
        if not any(each.run_id == run_id for each in witnessed.heads):
            raise
        return run_id


def _witnessed(named: str | None, environ: Mapping[str, str]) -> Witnessed:
    working = os.getcwd()
    if named is not None:
        return asyncio.run(read_witness(witness_place(working, named), environ))
    settings = settings_for(Workspace(working), working, environ=environ)
    where = settings.witness
    if where is None:
        return NOT_WITNESSED
    if not is_url(where) and not os.path.exists(where):
        problem = f"there is no witness `{where}`"
        return Witnessed(is_there=False if settings.witness_required else None, problem=problem)
    return asyncio.run(read_witness(where, environ))


def _check_one(runs: Runs, run_id: str, demands: Demands, witnessed: Witnessed) -> Verified:
    heads = [each for each in witnessed.heads if each.run_id == run_id]
    try:
        missing = runs.reader.ask(lambda ledger: find_missing(ledger, run_id, witnessed)) if heads else None
        is_gone = bool(heads) and runs.reader.head(run_id) is None
    except (Busy, Unavailable):
        raise
    except TraceError as problem:
        missing, is_gone = problem.message, False
    if is_gone:
        return Verified(run_id=run_id, checks=(Check(1, "witness", False, missing or ""),))
    found = check_record(runs.reader, run_id, demands)
    if witnessed is NOT_WITNESSED:
        return found
    reason = missing or witnessed.problem or f"the ledger has all {len(heads)} heads that the witness has"
    if witnessed.unreadable:
        reason += f"; {witnessed.unreadable} line{'s' * (witnessed.unreadable > 1)} of the witness cannot be read"
    check = Check(len(found.checks) + 1, "witness", False if missing else witnessed.is_there, reason)
    return replace(found, checks=(*found.checks, check))


def check_record(reader: LedgerReader, run_id: str, demands: Demands) -> Verified:
    """Verify a run: chain, answers, head, derived rows and seal; of a run that ended also the seal in its trace."""
    found = Recomputed(run_id)
    try:
        stored = reader.ask(lambda ledger: read_run(ledger, found))
    except (Busy, Unavailable):
        raise
    except TraceError as problem:
        # A row that cannot be read was changed.
        return Verified(run_id=run_id, checks=(Check(1, "chain", False, problem.message),))
    report = check_run(found, stored, demands.keys, require_seal=demands.require_signature, key_id=demands.key_id)
    checks = [*report.checks, *_trace_checks(found, demands)]
    numbered = tuple(Check(number, each.name, each.passed, each.reason) for number, each in enumerate(checks, start=1))
    adopted = tuple(
        f"{each.events} events were not sealed when `{each.actor}` adopted them: {each.reason}"
        for each in found.adopted
    )
    return Verified(
        run_id=run_id,
        kind=found.head.kind,
        events=found.events,
        checks=numbered,
        signed_by=report.signed_by,
        adopted=adopted,
    )


def _trace_checks(found: Recomputed, demands: Demands) -> list[Check]:
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
