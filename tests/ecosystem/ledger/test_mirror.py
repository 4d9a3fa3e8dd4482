"""The mirror of a run: byte for byte the lines of the ledger, completed, and never in the way of the run."""

import os
from pathlib import Path

import pytest
from tests.kernel.events.traces import trace

from gert.ecosystem.ledger.jsonl.mirror import ASIDE, Mirror
from gert.errors import UsageError

LINES = trace()
WHOLE = b"".join(line + b"\n" for line in LINES)


def completed(path: Path, known: int) -> Mirror:
    """The mirror after a resume that appends the lines after the known ones."""
    mirror = Mirror.complete(str(path), LINES[:known])
    mirror.write(LINES[known:])
    mirror.close()
    return mirror


def test_lines_are_there_as_soon_as_they_are_written(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    mirror = Mirror.begin(str(path))
    mirror.write(LINES[:2])
    assert path.read_bytes() == b"".join(line + b"\n" for line in LINES[:2])
    mirror.write(LINES[2:])
    mirror.close()
    mirror.close()
    assert (path.read_bytes(), mirror.problem) == (WHOLE, None)
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "found",
    [
        pytest.param(WHOLE[: len(LINES[0]) + 1], id="lines are missing"),
        pytest.param(b"".join(line + b"\n" for line in LINES[:3]), id="all lines that are known"),
        pytest.param(WHOLE[: len(LINES[0]) + 9], id="half a line"),
        pytest.param(b"", id="nothing"),
    ],
)
def test_what_the_beginning_of_a_record_lacks_is_added(found: bytes, tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_bytes(found)
    mirror = completed(path, 3)
    assert (path.read_bytes(), mirror.problem) == (WHOLE, None)
    assert os.listdir(tmp_path) == ["trace.jsonl"]


@pytest.mark.parametrize(
    "found",
    [
        pytest.param(WHOLE.replace(b"alice", b"mallory"), id="a line was changed"),
        pytest.param(WHOLE, id="lines that the ledger does not have"),
        pytest.param(b"notes\n", id="something else"),
    ],
)
def test_what_is_not_the_beginning_of_a_record_is_set_aside_and_written_again(found: bytes, tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_bytes(found)
    mirror = completed(path, 3)
    assert path.read_bytes() == WHOLE
    assert (tmp_path / f"trace.jsonl{ASIDE}").read_bytes() == found
    assert "was not a copy of the ledger; it was moved to" in str(mirror.problem)


def test_a_full_disk_is_a_problem_of_the_mirror_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "trace.jsonl"
    mirror = Mirror.begin(str(path))
    mirror.write(LINES[:1])

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", full)
        mirror.write(LINES[1:2])
    # A later line without those before it would be no beginning of the record.
    mirror.write(LINES[2:])
    mirror.close()
    assert path.read_bytes() == LINES[0] + b"\n"
    assert mirror.problem == f"`{path}` is not complete: no space left on device"


@pytest.mark.parametrize(
    ("found", "says"),
    [(WHOLE, "already holds run `run-2026-02-28-001`"), (b"notes\n", "is not empty")],
    ids=["a trace", "something else"],
)
def test_a_new_run_takes_no_file_that_holds_something(found: bytes, says: str, tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_bytes(found)
    with pytest.raises(UsageError, match=says):
        Mirror.begin(str(path))
    assert path.read_bytes() == found


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "victim").write_bytes(b"")
    (tmp_path / "trace.jsonl").symlink_to(tmp_path / "victim")
    with pytest.raises(UsageError, match="is a symbolic link"):
        Mirror.begin(str(tmp_path / "trace.jsonl"))
    completed(tmp_path / "trace.jsonl", 3)
    assert (tmp_path / "victim").read_bytes() == b""
