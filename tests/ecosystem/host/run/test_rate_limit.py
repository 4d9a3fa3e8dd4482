"""What was executed in the last hour: counted over the runs of a ledger, and never guessed."""

import asyncio
import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gert.ecosystem.host.config.workspace import Workspace
from gert.ecosystem.host.run.record.rate_limit import count_recent
from gert.ecosystem.ledger.sqlite.ledger import SqliteLedger
from gert.kernel.events.runbook import Recent
from gert.kernel.governance.rules import Policy
from gert.kernel.ledger.record import Batch, Claim
from gert.kernel.runbook.program import Program, policy_of

NOON = datetime(2026, 2, 28, 12, tzinfo=UTC)
TARGET = "note:go"
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


async def _write(db: Path, claims: Sequence[tuple[float, str]], run_id: str) -> None:
    for number, (minutes, key) in enumerate(claims):
        moment = NOON - timedelta(minutes=minutes)
        async with SqliteLedger(db, clock=lambda at=moment: at) as ledger:  # type: ignore[misc]
            claim = Claim(key, f"{key}-{number}")
            await ledger.append(run_id, lambda head, _: Batch(head, (), claims=(claim,)))  # noqa: B023


def claimed(db: Path, *claims: tuple[float, str], run_id: str = "r") -> None:
    """Count executions, each with its minutes before noon."""
    asyncio.run(_write(db, claims, run_id))


def counted(program: Program, ledger: Path) -> Recent:
    policies: list[Policy] = [policy_of(program.runbook.meta.governance)]
    found = asyncio.run(count_recent(program, policies, str(ledger), {}, NOON))
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("claims", "count"),
    [
        pytest.param([(59, TARGET), (1, TARGET)], 2, id="twice in the hour"),
        pytest.param([(61, TARGET), (59, TARGET)], 1, id="what is older does not count"),
        pytest.param([(60, TARGET)], 1, id="an hour ago to the microsecond still counts"),
        pytest.param([(-3, TARGET)], 1, id="a clock that is ahead is no way around it"),
        pytest.param([(5, "note:stop")], 0, id="another action"),
        pytest.param([], 0, id="nothing"),
    ],
)
def test_what_counts(claims: list[tuple[float, str]], count: int, program: Program, tmp_path: Path) -> None:
    claimed(tmp_path / "runs.db", *claims)
    assert counted(program, tmp_path / "runs.db") == Recent({TARGET: count} if count else {})


def test_all_runs_count(program: Program, tmp_path: Path) -> None:
    claimed(tmp_path / "runs.db", (5, TARGET))
    claimed(tmp_path / "runs.db", (5, TARGET), (4, TARGET), run_id="r2")
    assert counted(program, tmp_path / "runs.db") == Recent({TARGET: 3})


def test_steps_that_people_do_are_counted_by_their_type(program: Program, tmp_path: Path) -> None:
    claimed(tmp_path / "runs.db", (5, "manual"))
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
