"""Attempts to change the record of a run behind gert's back, and to drive one run twice."""

import json
import signal
import sqlite3
import subprocess
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest
from tests.attacks.attack import Attack, table
from tests.ecosystem.surfaces.cli.workbench import GERT, Project, Recorded, environment, finish, note, until

from gert.kernel.foundation.canonical import sha256_hex
from gert.kernel.ledger.record import hash_answer

IN_CHAIN = "answers are in the chain (DECISIONS 61)"
DERIVED = "what a ledger derives from events is computed again and compared"
SEALED = "with a signing key, history cannot be rewritten between two processes"
ONE_DRIVER = "a run is driven by one process at a time"

KEY = {"GERT_TRACE_SIGNING_KEY": "a-key-of-some-length-4711"}
DIES = 'if [ ! -e "$2.died" ]; then : > "$2.died"; kill -9 $PPID; fi'
Change = Callable[[Recorded], object]


def killed(project: Project, **environ: str) -> Recorded:
    """A run with two answers whose process was killed in its third step."""
    project.note_tool("dies", after=DIES)
    project.runbook(note("one"), note("two"), note("three", tool="dies"), note("four"), tools=["note", "dies"])
    project.exec(**environ).ended(-signal.SIGKILL)
    return project.run()


def changed(change: Change, **environ: str) -> Callable[[Project], str]:
    """Change the record of a killed run: verification says so, and neither resume, abandon nor rerun believes it."""

    def attempt(project: Project) -> str:
        run = killed(project, **environ)
        change(run)
        before, noted = project.kept(), project.noted()
        said = project.gert("run", "verify", run.id, **environ).ended(1)
        for words in (
            ["resume", "--run", run.id],
            ["rerun", "--run", run.id, "--from", "three"],
            ["run", "abandon", run.id, "--reason", "x"],
        ):
            ran = project.gert(*words, **environ)
            assert ran.code == 1, ran
            assert "Traceback" not in ran.err
        assert (project.kept(), project.noted()) == (before, noted)
        return said.out + said.err + ran.err

    return attempt


def sql(statement: str, *values: Any) -> Change:
    return lambda run: run.change(statement, *values)


def edit_answer(run: Recorded) -> None:
    answer = {**run.answers()[0]}
    answer["answer"]["outputs"] = {"said": "evil"}
    run.change("UPDATE answers SET line = ?2 WHERE run_id = ?1 AND n = 1", json.dumps(answer).encode())


def match_head(run: Recorded) -> None:
    """Let the head say what the answers are now."""
    lines = [line for (line,) in run.rows("SELECT line FROM answers WHERE run_id = ?1 ORDER BY n")]
    total = "0" * 64
    for line in lines:
        total = hash_answer(total, line)
    run.change("UPDATE runs SET answers = ?2, answers_hash = ?3 WHERE run_id = ?1", len(lines), total)


def both(*changes: Change) -> Change:
    def change(run: Recorded) -> None:
        for each in changes:
            each(run)

    return change


def rechain(run: Recorded) -> None:
    """Say that another actor started the run, and make every hash hold again."""
    lines, previous = run.lines(), ""
    for seq, line in enumerate(lines, start=1):
        new = line.replace(b'"actor":"', b'"actor":"not-', 1) if seq == 1 else line
        if seq > 1:
            event = json.loads(line)
            new = line.replace(event["prev_hash"].encode(), previous.encode(), 1)
        previous = sha256_hex(new)
        run.change("UPDATE events SET line = ?2 WHERE run_id = ?1 AND seq = ?3", new, seq)
    ((snapshot,),) = run.rows("SELECT snapshot FROM runs WHERE run_id = ?1")
    folded = snapshot.replace(b'"actor":"', b'"actor":"not-', 1)
    run.change("UPDATE runs SET hash = ?2, snapshot = ?3 WHERE run_id = ?1", previous, folded)


ADD = "INSERT INTO answers SELECT run_id, 3, line FROM answers WHERE run_id = ?1 AND n = 2"
REMOVE_LAST = "DELETE FROM answers WHERE run_id = ?1 AND n = 2"
ENDED = """UPDATE runs SET snapshot = replace(CAST(snapshot AS TEXT), '"last_type"', '"ended":"completed","last_type"')
    WHERE run_id = ?1"""


# --- two drivers


def held(project: Project) -> "subprocess.Popen[bytes]":
    """A run in the middle of a step, which ends only once `go` is there; called again, the step ends at once."""
    up, go = project.root / "up", project.root / "go"
    project.script("hold", f"test -e {up} && exit 0; : > {up}; while [ ! -e {go} ]; do sleep 0.02; done")
    project.runbook({"id": "hold", "type": "tool", "tool": "hold"}, note("last"), tools=["hold", "note"])
    process = project.start()
    until(up.exists)
    return process


def second_driver(project: Project) -> str:
    process = held(project)
    try:
        said = project.gert("resume", "--run", project.run().id, "--allow-running")
        abandoned = project.gert("run", "abandon", project.run().id, "--reason", "x").ended(2)
        assert project.noted() == []
    finally:
        (project.root / "go").touch()
        finish(process).ended(0)
    assert project.noted() == ["last"]
    assert "is running" in abandoned.err
    assert said.code not in (0, 3)
    project.verifies()
    return said.err


def expired(run: Recorded) -> None:
    """Let the time of a lease pass."""
    run.change("UPDATE runs SET lease_expires = '2001-01-01T00:00:00.000000Z' WHERE run_id = ?1")


def taken_over(project: Project) -> str:
    """A frozen driver wakes up when another process has brought its run to the end."""
    process = held(project)
    process.send_signal(signal.SIGSTOP)
    expired(project.run())
    words = ["resume", "--run", project.run().id, "--allow-running", "--quiet"]
    other = subprocess.run(
        [*GERT, *words], cwd=project.root, env=environment(), capture_output=True, check=False, timeout=60
    )
    assert other.returncode == 0, other
    lines = project.run().lines()
    (project.root / "go").touch()
    process.send_signal(signal.SIGCONT)
    ran = finish(process)
    assert ran.code not in (0, 3), ran
    assert (project.noted(), project.run().lines()) == (["last"], lines)
    project.verifies()
    return ran.err


def not_taken_over(project: Project) -> str:
    """A driver that was frozen for longer than its lease goes on where no process took its run."""
    process = held(project)
    process.send_signal(signal.SIGSTOP)
    expired(project.run())
    (project.root / "go").touch()
    process.send_signal(signal.SIGCONT)
    finish(process).ended(0)
    assert project.noted() == ["last"]
    project.verifies()
    return project.gert("run", "status", project.run().id).ended(0).out


def copied(project: Project) -> str:
    """The lease in a copy of the ledger runs out, since the driver renews that of the original."""
    process = held(project)
    try:
        run, copy = project.run(), project.root / "copy.db"
        with closing(sqlite3.connect(run.ledger)) as source, closing(sqlite3.connect(copy)) as target:
            source.backup(target)
            target.execute("UPDATE runs SET lease_expires = '2001-01-01T00:00:00.000000Z'")
            target.commit()
        said = project.gert("resume", "--run", run.id, "--db", copy, "--allow-running")
        assert said.code not in (0, 3), said
        assert project.noted() == []
    finally:
        (project.root / "go").touch()
        finish(process).ended(0)
    assert project.noted() == ["last"]
    return said.err


def exchanged(project: Project) -> str:
    """The ledger is renamed, and a copy put in its place: the driver stops, and one resume goes on."""
    process = held(project)
    run = project.run()
    away = run.ledger.with_name("away.db")
    with closing(sqlite3.connect(run.ledger)) as source, closing(sqlite3.connect(away)) as target:
        source.backup(target)
    away.replace(run.ledger)
    (project.root / "go").touch()
    ran = finish(process)
    assert ran.code not in (0, 3), ran
    assert project.noted() == []
    project.gert("resume", "--run", run.id).ended(0)
    assert project.noted() == ["last"]
    return ran.err


def resumed_at_once(project: Project) -> str:
    """Eight processes resume one killed run: one drives it."""
    run = killed(project)
    processes = [
        subprocess.Popen(
            [*GERT, "resume", "--run", run.id, "--quiet"],
            cwd=project.root,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for _ in range(8)
    ]
    ended = [finish(process) for process in processes]
    assert [each.code for each in ended].count(0) == 1, ended
    assert project.noted() == ["one", "two", "three", "three", "four"]
    project.verifies()
    return "".join(each.err for each in ended)


NAMED = "names answers that are not the stored ones"
ATTACKS = [
    Attack("an answer is edited", IN_CHAIN, changed(edit_answer), NAMED),
    Attack("an answer is edited, and the head to match", IN_CHAIN, changed(both(edit_answer, match_head)), NAMED),
    Attack("an answer is added", IN_CHAIN, changed(sql(ADD)), "not those of the head"),
    Attack("an answer is removed", IN_CHAIN, changed(sql(REMOVE_LAST)), NAMED),
    Attack("an answer is removed, and the head to match", IN_CHAIN, changed(both(sql(REMOVE_LAST), match_head)), NAMED),
    Attack(
        "an answer is added to a sealed run, and the head to match",
        SEALED,
        changed(both(sql(ADD), match_head), **KEY),
        "signature",
    ),
    Attack("the snapshot says that the run has ended", DERIVED, changed(sql(ENDED)), "the stored snapshot is not what"),
    Attack(
        "the status says that the run has ended",
        DERIVED,
        changed(sql("UPDATE runs SET status = 'completed' WHERE run_id = ?1")),
        "the stored status is `completed`",
    ),
    Attack(
        "an open call is said to have failed",
        DERIVED,
        changed(sql("UPDATE calls SET outcome = 'failed' WHERE run_id = ?1 AND outcome = 'open'")),
        "the stored calls are not those",
    ),
    Attack(
        "calls are removed, so that a limit does not count them",
        DERIVED,
        changed(sql("DELETE FROM calls WHERE run_id = ?1")),
        "the stored calls are not those",
    ),
    Attack(
        "the time of a call is moved, so that a limit does not count it",
        DERIVED,
        changed(sql("UPDATE calls SET timestamp = '1999' || substr(timestamp, 5) WHERE run_id = ?1")),
        "the stored calls are not those",
    ),
    Attack(
        "the type of an event is changed in its column",
        DERIVED,
        changed(sql("UPDATE events SET type = 'step_skipped' WHERE run_id = ?1 AND seq = 3")),
        "the columns of event 3",
    ),
    Attack("a sealed record is chained again", SEALED, changed(rechain, **KEY), "signature"),
    Attack(
        "a sealed record is chained again, and its seal taken off",
        SEALED,
        changed(both(rechain, sql("UPDATE runs SET seal = NULL WHERE run_id = ?1")), **KEY),
        "is not sealed",
    ),
    Attack("a second process resumes a run that is driven", ONE_DRIVER, second_driver, "driven by another process"),
    Attack("a frozen driver goes on when its run was taken over", ONE_DRIVER, taken_over, "has taken over run"),
    Attack("a copy of the ledger is driven beside the original", ONE_DRIVER, copied, "driven by another process"),
    Attack("the ledger is exchanged for a copy while it is driven", ONE_DRIVER, exchanged, "removed or exchanged"),
    Attack("eight processes resume one run", ONE_DRIVER, resumed_at_once, "run `"),
    Attack("a lease that ran out stops a driver that was only frozen", ONE_DRIVER, not_taken_over, "completed"),
]


@pytest.mark.parametrize("attack", table(ATTACKS))
def test_attack_fails(attack: Attack, project: Project) -> None:
    attack.fails(project)
