"""What was executed in the last hour: counted over the runs of a ledger, and never guessed."""

import asyncio
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.stored_runs import store_run

from gert.ecosystem.host.config.workspace import Workspace
from gert.ecosystem.host.run.rate_limit import count_recent
from gert.kernel.events.chain import Chain
from gert.kernel.events.envelope import Envelope, encode, format_timestamp
from gert.kernel.events.runbook import Recent
from gert.kernel.governance.rules import Policy
from gert.kernel.runbook.program import Program, policy_of

NOON = datetime(2026, 2, 28, 12, tzinfo=UTC)
TARGET = "note:go"
START = {"runbook": "b", "runbook_hash": "h", "actor": "a", "host": "h", "gert_version": "g"}
BOOK: dict[str, Any] = {
    "apiVersion": "kernel/v0",
    "meta": {"name": "b", "governance": {"rules": [{"default": "allow", "limits": {"max_per_hour": 5}}]}},
    "tools": ["note"],
    "steps": [
        {"id": "one", "type": "tool", "tool": "note"},
        {"id": "look", "type": "manual", "instructions": "look"},
        {"type": "end", "outcome": {"category": "resolved", "code": "done"}},
    ],
}
TOOL = {
    "apiVersion": "tool/v0",
    "meta": {"name": "note"},
    "contract": {"effects": ["files"], "writes": []},
    "actions": {"go": {"argv": ["true"]}},
}


@pytest.fixture
def program(tmp_path: Path) -> Program:
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "note.tool.yaml").write_text(json.dumps(TOOL))
    (tmp_path / "b.yaml").write_text(json.dumps(BOOK))
    found = Workspace(str(tmp_path)).program(str(tmp_path / "b.yaml")).program
    assert found is not None
    return found


def said(*events: tuple[str, float, dict[str, Any]], run_id: str = "r", mode: str = "real") -> list[bytes]:
    """The lines of a run: events by type, minutes before noon, and data."""
    chain, lines = Chain(), []
    for kind, minutes, data in (("run_start", 90.0, {**START, "mode": mode}), *events):
        line = encode(
            Envelope(
                seq=chain.next_seq,
                run_id=run_id,
                type=kind,
                timestamp=format_timestamp(NOON - timedelta(minutes=minutes)),
                path=data.get("step_id"),
                prev_hash=chain.head,
                data=data,
            )
        )
        chain.append(line)
        lines.append(line)
    return lines


def starts(minutes: float, step: str = "one", **data: Any) -> tuple[str, float, dict[str, Any]]:
    summary = {"contract_summary": {"risk": "low"}}
    return "step_start", minutes, {"step_id": step, "type": "tool", "tool": "note", "action": "go", **summary, **data}


def completes(minutes: float, step: str = "one") -> tuple[str, float, dict[str, Any]]:
    return "step_complete", minutes, {"step_id": step, "status": "success", "duration": "0s"}


FORKED = ("run_forked", 20.0, {"source_run_id": "x", "from_step": "y", "source_chain_hash": "z", "answered": 1})


def counted(program: Program, ledger: Path) -> Recent:
    policies: list[Policy] = [policy_of(program.runbook.meta.governance)]
    found = asyncio.run(count_recent(program, policies, str(ledger), {}, NOON))
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("lines", "count"),
    [
        pytest.param(said(starts(59), starts(1)), 2, id="twice in the hour"),
        pytest.param(said(starts(61), starts(59)), 1, id="what is older does not count"),
        pytest.param(said(starts(60)), 1, id="an hour ago to the microsecond still counts"),
        pytest.param(said(starts(-3)), 1, id="a clock that is ahead is no way around it"),
        pytest.param(said(starts(5), mode="dry-run"), 0, id="a dry run executes nothing"),
        pytest.param(said(starts(5, action="stop")), 0, id="another action"),
        pytest.param(said(starts(5, tool="tools/note.tool.yaml")), 1, id="the same tool, written as a file"),
        pytest.param(
            said(starts(5, tool=None, action=None, contract_summary={})), 0, id="a loop as a whole executes nothing"
        ),
        pytest.param(said(completes(5)), 0, id="an end is no execution"),
        pytest.param(said(), 0, id="nothing"),
        pytest.param(
            said(starts(30), completes(30), FORKED, starts(10)), 1, id="what a rerun only took the answers of"
        ),
        pytest.param(said(starts(30), completes(29), starts(21, "two"), FORKED), 1, id="the step a rerun begins with"),
    ],
)
def test_what_counts(lines: list[bytes], count: int, program: Program, tmp_path: Path) -> None:
    store_run(tmp_path / "runs.db", lines)
    assert counted(program, tmp_path / "runs.db") == Recent({TARGET: count} if count else {})


def test_all_runs_count(program: Program, tmp_path: Path) -> None:
    store_run(tmp_path / "runs.db", said(starts(5)))
    store_run(tmp_path / "runs.db", said(starts(5), starts(4), run_id="r2"))
    assert counted(program, tmp_path / "runs.db") == Recent({TARGET: 3})


def test_steps_that_people_do_are_counted_by_their_type(program: Program, tmp_path: Path) -> None:
    manual = {"step_id": "look", "type": "manual", "contract_summary": {"risk": "low"}}
    store_run(tmp_path / "runs.db", said(("step_start", 5.0, manual)))
    assert counted(program, tmp_path / "runs.db") == Recent({"manual": 1})


def test_without_a_limit_nothing_is_read(program: Program, tmp_path: Path) -> None:
    (tmp_path / "runs.db").write_bytes(b"rubbish" * 1000)
    found = asyncio.run(count_recent(program, [Policy(name="free")], str(tmp_path / "runs.db"), {}, NOON))
    assert found is None


def test_a_ledger_that_cannot_be_read_cannot_be_counted(program: Program, tmp_path: Path) -> None:
    (tmp_path / "other.db").write_bytes(b"rubbish" * 1000)
    assert "is not a database" in str(counted(program, tmp_path / "other.db").flaw)


def test_a_ledger_that_is_not_there_has_no_runs(program: Program, tmp_path: Path) -> None:
    assert counted(program, tmp_path / "none.db") == Recent()
    assert not (tmp_path / "none.db").exists()


def test_the_count_is_part_of_the_state_of_a_run() -> None:
    kept = msgspec.json.decode(msgspec.json.encode(Recent({TARGET: 3})), type=Recent)
    assert kept == Recent({TARGET: 3})
