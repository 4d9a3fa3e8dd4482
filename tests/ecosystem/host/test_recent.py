"""What was executed in the last hour: counted over runs, folders and databases, and never guessed."""

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from gert.ecosystem.stores.sqlite import SqliteStore

from gert.ecosystem.host.documents import Workspace
from gert.ecosystem.host.recent import count_recent
from gert.ecosystem.host.state import RunState, encode_state
from gert.kernel.engine.frame import Recent
from gert.kernel.events.chain import Chain
from gert.kernel.events.envelope import Envelope, encode, format_timestamp
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


def keep(state: Path, lines: list[bytes], run_id: str = "r", end: bytes = b"\n", changed: float = 0.0) -> Path:
    folder = state / "runs" / run_id
    folder.mkdir(parents=True)
    trace = folder / "trace.jsonl"
    trace.write_bytes(b"\n".join(lines) + end)
    moment = (NOON - timedelta(minutes=changed)).timestamp()
    os.utime(trace, (moment, moment))
    return trace


def counted(program: Program, state: Path, db: Path | None = None) -> Recent:
    policies: list[Policy] = [policy_of(program.runbook.meta.governance)]
    found = count_recent(program, policies, str(state), None if db is None else str(db), NOON)
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
        pytest.param(said(starts(5, contract_summary={})), 0, id="a loop as a whole executes nothing"),
        pytest.param(said(completes(5)), 0, id="an end is no execution"),
        pytest.param(said(), 0, id="nothing"),
        pytest.param(
            said(starts(30), completes(30), FORKED, starts(10)), 1, id="what a rerun only took the answers of"
        ),
        pytest.param(said(starts(30), completes(29), starts(21, "two"), FORKED), 1, id="the step a rerun begins with"),
    ],
)
@pytest.mark.parametrize("place", ["folder", "database"])
def test_what_counts(lines: list[bytes], count: int, place: str, program: Program, tmp_path: Path) -> None:
    db = None
    if place == "folder":
        keep(tmp_path, lines)
    else:
        db = tmp_path / "runs.db"
        with SqliteStore(db) as store:
            store.append("r", 1, lines)
    assert counted(program, tmp_path, db) == Recent({TARGET: count} if count else {})


def test_folder_and_database_count_together(program: Program, tmp_path: Path) -> None:
    keep(tmp_path, said(starts(5)))
    keep(tmp_path, said(starts(5), starts(4), run_id="r2"), "r2")
    with SqliteStore(tmp_path / "runs.db") as store:
        store.append("r3", 1, said(starts(5), run_id="r3"))
    assert counted(program, tmp_path, tmp_path / "runs.db") == Recent({TARGET: 4})


def test_steps_that_people_do_are_counted_by_their_type(program: Program, tmp_path: Path) -> None:
    manual = {"step_id": "look", "type": "manual", "contract_summary": {"risk": "low"}}
    keep(tmp_path, said(("step_start", 5.0, manual)))
    assert counted(program, tmp_path) == Recent({"manual": 1})


def test_without_a_limit_nothing_is_read(program: Program, tmp_path: Path) -> None:
    keep(tmp_path, [b"rubbish", b"rubbish"])
    assert count_recent(program, [Policy(name="free")], str(tmp_path), None, NOON) is None


def test_a_trace_that_has_not_changed_for_long_is_not_read(program: Program, tmp_path: Path) -> None:
    keep(tmp_path, [b"rubbish", b"rubbish"], changed=70)
    assert counted(program, tmp_path) == Recent()


def test_a_line_that_is_being_written_is_none(program: Program, tmp_path: Path) -> None:
    keep(tmp_path, [*said(starts(5)), b'{"seq":3,"run_id":"r","type":"step_st'], end=b"")
    assert counted(program, tmp_path) == Recent({TARGET: 1})


def test_a_trace_that_is_kept_elsewhere_is_found(program: Program, tmp_path: Path) -> None:
    trace = tmp_path / "elsewhere.jsonl"
    trace.write_bytes(b"\n".join(said(starts(5), starts(4))) + b"\n")
    _state_of_one_elsewhere(tmp_path, trace)
    assert counted(program, tmp_path) == Recent({TARGET: 2})


@pytest.mark.parametrize(
    ("problem", "why"),
    [
        pytest.param("a line that is no event", "cannot be read", id="a line that is no event"),
        pytest.param("a trace that is gone", "there is no file", id="a trace that is gone"),
        pytest.param("a state that was changed", "was changed", id="a state that was changed"),
        pytest.param("a database of somebody else", "not a database", id="a database of somebody else"),
    ],
)
def test_what_cannot_be_read_cannot_be_counted(problem: str, why: str, program: Program, tmp_path: Path) -> None:
    db = None
    if problem == "a line that is no event":
        lines = said(starts(5), starts(4))
        keep(tmp_path, [lines[0], lines[1][:-2], lines[2]])
    elif problem == "a database of somebody else":
        db = tmp_path / "other.db"
        db.write_bytes(b"rubbish" * 1000)
    else:
        state = _state_of_one_elsewhere(tmp_path, tmp_path / "gone.jsonl")
        if problem == "a state that was changed":
            state.write_bytes(state.read_bytes().replace(b"gone", b"here"))
    found = counted(program, tmp_path, db)
    assert found.flaw is not None
    assert why in found.flaw


def test_foreign_folders_are_nobodys_runs(program: Program, tmp_path: Path) -> None:
    (tmp_path / "runs" / "empty").mkdir(parents=True)
    (tmp_path / "runs" / "a file").touch()
    (tmp_path / "runs" / "file").touch()
    assert counted(program, tmp_path) == Recent()
    assert counted(program, tmp_path / "nowhere", tmp_path / "none.db") == Recent()


def _state_of_one_elsewhere(state: Path, trace: Path) -> Path:
    folder = state / "runs" / "r"
    folder.mkdir(parents=True)
    (folder / "answers.jsonl").touch()
    moment = NOON.timestamp()
    os.utime(folder / "answers.jsonl", (moment, moment))
    kept = RunState(
        run_id="r", runbook="b", file="b.yaml", runbook_hash="h", mode="real", actor="a", host="h",
        gert_version="g", working="/", started=format_timestamp(NOON), trace=str(trace),
    )  # fmt: skip
    (folder / "state.json").write_bytes(encode_state(kept))
    return folder / "state.json"


def test_the_count_is_part_of_the_state_of_a_run() -> None:
    kept = msgspec.json.decode(msgspec.json.encode(Recent({TARGET: 3})), type=Recent)
    assert kept == Recent({TARGET: 3})
