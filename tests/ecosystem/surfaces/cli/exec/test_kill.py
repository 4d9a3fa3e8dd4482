"""A run whose process is killed, at every point of its record and at any time: nothing is lost but the last answer."""

import random
import signal
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest
from tests.ecosystem.surfaces.cli.killing import (
    WORDS,
    Killed,
    KilledInDatabase,
    bare,
    check_announced,
    check_record,
    check_redrive,
    done_words,
    is_over,
    kill_at,
    redrive,
    thirty,
)
from tests.ecosystem.surfaces.cli.workbench import Project, finish, until
from tests.soak import sampled

SHARES = 4
"""In how many parts the points are killed, so that parts can run side by side."""
shares = pytest.mark.parametrize(
    "share", sampled({f"share {n + 1} of {SHARES}": n for n in range(SHARES)}, [f"share 1 of {SHARES}"])
)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return thirty(tmp_path_factory.mktemp("kills"))


@pytest.fixture(scope="module")
def whole(project: Project) -> Killed:
    """A run that nobody kills."""
    (run,) = kill_at(project, [("none", 0)])
    assert run.status == 0
    return run


def kill_and_check(project: Project, points: Iterator[tuple[str, int]]) -> int:
    """Kill at each point, and check what is left; says how many really were killed."""
    kills = 0
    for killed in kill_at(project, points):
        assert killed.status in (-signal.SIGKILL, 0), killed.at
        kills += killed.status == -signal.SIGKILL
        check_record(killed)
        check_redrive(killed)
    return kills


def test_a_run_that_is_not_killed_does_everything_once_and_is_complete(whole: Killed) -> None:
    check_record(whole)
    assert sorted(whole.words()) == sorted(WORDS)
    assert is_over(whole.events())


def test_a_complete_log_gives_the_same_events_and_asks_nothing(whole: Killed) -> None:
    logged = whole.logged()
    assert sorted(done_words(logged)) == sorted(WORDS)
    _, events = redrive(whole, logged)
    assert [bare(event) for event in events] == [bare(event) for event in whole.events()]
    assert sorted(whole.words()) == sorted(WORDS)


@shares
@pytest.mark.parametrize(
    "what",
    [
        pytest.param("before", id="before it is written"),
        pytest.param("midway", id="before it is committed"),
        pytest.param("after", id="after it is committed"),
    ],
)
def test_killed_around_each_append(project: Project, whole: Killed, what: str, share: int) -> None:
    points = range(share, len(whole.logged()) + 1, SHARES)
    assert kill_and_check(project, ((what, n) for n in points)) == len(points)


# --- from outside


def start(project: Project, at: Path, *options: str) -> "subprocess.Popen[bytes]":
    """Start the plain command."""
    at.mkdir()
    return project.start(
        *("--var", f"folder={at}", "--as", "kim", "--evidence", str(project.root / "evidence.yaml"), *options),
        stdin=project.root / "stdin",
    )


def signal_after(process: "subprocess.Popen[bytes]", at: Path, words: int, moment: float, number: int) -> int:
    """Send a signal once some side effects are there, and a moment later."""
    effects = at / "effects"
    until(lambda: process.poll() is not None or (effects.exists() and effects.read_bytes().count(b"\n") > words))
    with suppress(subprocess.TimeoutExpired):
        process.wait(moment)
    process.send_signal(number)
    return finish(process).code


def kill_outside(project: Project, at: Path, seed: int, *options: str) -> int:
    """Start the plain command, and kill it at any time."""
    chance = random.Random(seed)
    words, moment = chance.randrange(len(WORDS)), chance.random() * 0.004
    return signal_after(start(project, at, *options), at, words, moment, signal.SIGKILL)


@pytest.mark.parametrize("seed", sampled(range(8), range(3)))
def test_killed_from_outside_at_any_time(tmp_path: Path, project: Project, seed: int) -> None:
    at = tmp_path / "at"
    code = kill_outside(project, at, seed, "--state-dir", str(at))
    killed = Killed(project, at, code)
    assert code in (-signal.SIGKILL, 0)
    check_record(killed)
    check_redrive(killed)


@pytest.mark.parametrize("seed", sampled(range(100, 104), [100]))
def test_killed_from_outside_with_a_database(tmp_path: Path, project: Project, seed: int) -> None:
    at = tmp_path / "at"
    code = kill_outside(project, at, seed, "--db", str(at / "runs.db"))
    killed = KilledInDatabase(project, at, code)
    check_announced(killed)
    verified = project.gert("trace", "verify", "--db", killed.ledger)
    assert verified.code == (0 if is_over(killed.events()) else 1), verified
    with closing(sqlite3.connect(f"file:{killed.ledger}?mode=ro", uri=True)) as found:
        assert found.execute("pragma integrity_check").fetchone() == ("ok",)
    check_redrive(killed)


@pytest.mark.parametrize("words", sampled([0, 4, 7, 8, 9, 12, 17, 21, 25], [0, 8, 17]))
def test_a_run_that_was_interrupted_is_told_again_in_the_same_words(
    tmp_path: Path, project: Project, words: int
) -> None:
    """A cancellation stands in the log where it happened, between the answers of whichever lanes were open."""
    at = tmp_path / "at"
    code = signal_after(start(project, at, "--state-dir", str(at)), at, words, 0.001, signal.SIGINT)
    assert code in (130, 0, -signal.SIGINT)  # the last where it came when all was over
    killed = Killed(project, at, code)
    check_record(killed)
    done = killed.words()
    assert "s30" in done, "what stands in finally did not run"
    result, events = redrive(killed, killed.logged())
    assert [bare(event) for event in events] == [bare(event) for event in killed.events()]
    # A signal may come when the run is over and the command is not: then the record says completed.
    assert result.status == killed.events()[-1]["data"]["status"]
    assert code == 130 or result.status == "completed"
    assert killed.words() == done, "something ran again"


def test_the_command_says_that_a_killed_trace_is_incomplete(project: Project, tmp_path: Path) -> None:
    (killed,) = kill_at(thirty(tmp_path), [("after", 9)])
    verified = project.gert("trace", "verify", killed.run.trace)
    assert verified.code == 1
    assert f"{len(killed.run.events())} events" in verified.out + verified.err
