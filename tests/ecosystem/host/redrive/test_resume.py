"""Going on with a run: nothing is written before it may go on, and nothing comes where it never came."""

import asyncio
import json
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.ecosystem.surfaces.cli.workbench import Project, Recorded, environment, note, of_type, snapshot
from tests.kernel.events.traces import Chain
from tests.stored_runs import load_run, replace_run

from gert.ecosystem.host.redrive.resume import ResumeOptions, ledger_for, resume
from gert.ecosystem.host.run.driver.signals import Relay
from gert.ecosystem.host.run.execute import execute
from gert.ecosystem.host.run.options import Executed, RunOptions
from gert.errors import GertError, InDoubt, IntegrityError, UsageError
from gert.kernel.events.chain import read_chain
from gert.kernel.events.envelope import decode, encode

LONG_AGO = "2020-01-01T00:00:00.000000Z"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    found = Project(tmp_path / "project")
    found.note_tool("single", contract={"idempotent": False})
    return found


def run(
    project: Project, *steps: Mapping[str, Any], after: Sequence[Mapping[str, Any]] = (), **options: Any
) -> Recorded:
    """Run to the end."""
    file = str(project.runbook(*steps, tools=["note", "single"], after=after))
    asyncio.run(execute(RunOptions(file=file, **options), environ=environment()))
    return project.run()


def cut(recorded: Recorded, step: str, answers: int) -> None:
    """Leave what a process would that was killed when a step had just begun, and some answers were there."""
    lines, known, _ = load_run(recorded.ledger, recorded.id)
    ends = [at for at, line in enumerate(lines, 1) if _is_start(json.loads(line), step)]
    put_back(recorded, lines[: ends[-1]], known[:answers])


def put_back(recorded: Recorded, lines: Sequence[bytes], answers: Sequence[bytes]) -> None:
    replace_run(recorded.ledger, lines, answers)
    recorded.trace.write_bytes(b"".join(line + b"\n" for line in lines))


def _is_start(event: dict[str, Any], step: str) -> bool:
    return bool(event["type"] == "step_start" and event["data"]["step_id"] == step)


def go_on(recorded: Recorded, relay: Relay | None = None, **options: Any) -> Executed:
    chosen = ResumeOptions(run_id=recorded.folder.name, state_dir=str(recorded.folder.parent.parent), **options)

    async def live() -> Executed:
        if relay is not None:
            asyncio.get_running_loop().call_soon(_press, relay)
        return await resume(chosen, environ=environment(), relay=relay)

    return asyncio.run(live())


def _press(relay: Relay) -> None:
    """Press as soon as somebody listens, and only once."""
    if relay.press is None:
        asyncio.get_running_loop().call_soon(_press, relay)
    else:
        relay.press(signal.SIGINT)


def refused(recorded: Recorded, kind: type[GertError], says: str, relay: Relay | None = None, **options: Any) -> None:
    before = (recorded.record(), snapshot(recorded.folder))
    with pytest.raises(kind) as refusal:
        go_on(recorded, relay, **options)
    assert says in refusal.value.message
    assert (recorded.record(), snapshot(recorded.folder)) == before


def is_whole(recorded: Recorded) -> bool:
    report = read_chain(recorded.trace.read_bytes().splitlines())
    return report.intact and report.complete


# --- nothing is written before the run may go on


def lanes() -> dict[str, Any]:
    left = [note("l1", scope="a"), note("l2", tool="single", scope="b")]
    right = [note("r", tool="single", scope="c")]
    return {"id": "p", "type": "parallel", "branches": [{"steps": left}, {"steps": right}]}


def half_answered(project: Project) -> Recorded:
    """One lane has its answer, but not yet what follows from it; of the other nobody knows."""
    recorded = run(project, lanes())
    (first,) = [line for line in load_run(recorded.ledger, recorded.id)[1] if b'"noted l1' in line]
    cut(recorded, "r", 0)
    put_back(recorded, load_run(recorded.ledger, recorded.id)[0], [first])
    project.effects.write_text("l1\nr\n")
    return recorded


def test_a_lane_in_doubt_keeps_what_another_would_say_from_being_written(project: Project) -> None:
    """Written, it would announce a call that nobody has put, which would then be in doubt as well."""
    recorded = half_answered(project)
    refused(recorded, InDoubt, "outcome of `p/1/r` is unknown")
    refused(recorded, InDoubt, "outcome of `p/1/r` is unknown")
    assert go_on(recorded, reconcile={"r": "success"}).status == "completed"
    assert project.noted() == ["l1", "r", "l2"]
    assert is_whole(recorded)


def test_who_goes_on_is_said_before_what_follows_from_old_answers(project: Project) -> None:
    recorded = half_answered(project)
    before = len(recorded.events())
    go_on(recorded, reconcile={"*": "success"})
    assert recorded.events()[before]["type"] == "run_resumed"


def test_a_run_whose_answers_lead_to_its_end_is_ended_and_says_by_whom(project: Project) -> None:
    recorded = run(project, note("a"), note("b"))
    cut(recorded, "b", 2)
    assert go_on(recorded, actor="lou").status == "completed"
    assert project.noted() == ["a", "b"]
    (said,) = of_type(recorded.events(), "run_resumed")
    assert (said["data"]["actor"], said["data"]["answered"]) == ("lou", 2)
    assert is_whole(recorded)


def test_a_run_whose_answers_lead_to_its_end_waits_for_no_ticket(project: Project) -> None:
    recorded = run(project, note("a"), note("b"))
    cut(recorded, "b", 2)
    refused(recorded, UsageError, "does not wait for the ticket `t`", ticket="t")
    refused(recorded, UsageError, "`b` is no call without a result", reconcile={"b": "success"})


# --- a cancellation does not come before the record is used up

ROUNDS = 300
"""So many that the driver looks up in between."""


def long(project: Project, tool: str) -> Recorded:
    asserts = {"id": "x", "type": "assert", "assert": [{"type": "equals", "value": "1", "expected": "1"}]}
    loop = {"id": "r", "type": "repeat", "repeat": {"max": ROUNDS}, "steps": [asserts]}
    recorded = run(project, note("a"), loop, note("b", tool=tool), note("c"))
    assert len(recorded.events()) > 1000
    cut(recorded, "b", 1)
    project.effects.write_text("a\nb\n")
    return recorded


def test_ctrl_c_while_the_record_is_read_stops_the_run_where_it_stands(project: Project) -> None:
    recorded = long(project, "note")
    before = recorded.trace.read_bytes()
    executed = go_on(recorded, Relay())
    assert (executed.status, executed.interrupted) == ("cancelled", True)
    assert recorded.trace.read_bytes().startswith(before)
    assert project.noted() == ["a", "b"], "something began after Ctrl-C"
    assert is_whole(recorded)


def test_ctrl_c_settles_no_doubt(project: Project) -> None:
    refused(long(project, "single"), InDoubt, "outcome of `b` is unknown", Relay())


def overdue(recorded: Recorded) -> None:
    """Make the run one that began long ago: its first event says when, and everything after it follows from that."""
    lines, answers, _ = load_run(recorded.ledger, recorded.id)
    chain, moved = Chain(), []
    for number, line in enumerate(lines):
        event = decode(line)
        at = event.timestamp if number else LONG_AGO
        moved.append(encode(msgspec.structs.replace(event, timestamp=at, prev_hash=chain.head)))
        chain.append(moved[-1])
    put_back(recorded, moved, answers)


def test_a_run_whose_time_is_over_starts_nothing_but_what_stands_in_finally(project: Project) -> None:
    recorded = run(project, note("a"), note("b"), after=[note("y"), note("z")], timeout=60.0)
    cut(recorded, "b", 1)
    project.effects.unlink()
    overdue(recorded)
    executed = go_on(recorded)
    assert (executed.status, executed.interrupted) == ("cancelled", False)
    assert project.noted() == ["y", "z"]
    assert is_whole(recorded)


def test_what_stands_in_finally_goes_on_when_the_time_is_over(project: Project) -> None:
    recorded = run(project, note("a"), after=[note("y"), note("z")], timeout=60.0)
    cut(recorded, "z", 2)
    project.effects.write_text("a\ny\n")
    overdue(recorded)
    assert go_on(recorded).status == "completed"
    assert project.noted() == ["a", "y", "z"]
    assert is_whole(recorded)


def test_time_that_is_over_settles_no_doubt(project: Project) -> None:
    recorded = run(project, note("a"), note("b", tool="single"), timeout=60.0)
    cut(recorded, "b", 1)
    overdue(recorded)
    refused(recorded, InDoubt, "outcome of `b` is unknown")


def test_time_that_is_over_does_not_matter_where_the_answers_lead_to_the_end(project: Project) -> None:
    recorded = run(project, note("a"), timeout=60.0)
    cut(recorded, "a", 1)
    overdue(recorded)
    assert go_on(recorded).status == "completed"


# --- whose state it is


@pytest.mark.parametrize("run_id", ["..", "a/b", "", "x" * 3000, "a\n", "a\x00"])
@pytest.mark.parametrize("db", [None, "runs.db"])
def test_an_id_that_is_no_name_is_refused_before_anything_is_looked_for(run_id: str, db: str | None) -> None:
    with pytest.raises(UsageError, match="is not a run id"):
        ledger_for(ResumeOptions(run_id=run_id, state_dir="/nonexistent", db=db), {})


@pytest.mark.parametrize(
    ("change", "says"),
    [
        pytest.param({"tools/note.tool.yaml": " "}, ["the tool `note`"], id="a tool"),
        pytest.param(
            {"book.yaml": "\n", "tools/note.tool.yaml": " ", "tools/single.tool.yaml": " "},
            ["the runbook `", "the tool `note`", "the tool `single`"],
            id="everything",
        ),
    ],
)
def test_every_change_that_is_accepted_is_recorded(project: Project, change: dict[str, str], says: list[str]) -> None:
    recorded = run(project, note("a"), note("b"))
    cut(recorded, "b", 1)
    for name, more in change.items():
        (project.root / name).write_text((project.root / name).read_text() + more)
    refused(recorded, IntegrityError, f"{says[0]}")
    assert go_on(recorded, allow_changed=True).status == "completed"
    (said,) = of_type(recorded.events(), "run_resumed")
    accepted = said["data"]["accepted_changes"]
    assert len(accepted) == len(says)
    assert all(found.startswith(start) for found, start in zip(accepted, says, strict=True)), accepted
