"""Where runs are kept: ids that sort and are safe, a state directory in a known order, folders for one owner."""

import os
import stat
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gert.ecosystem.host.config.state_dir import RunFolder, new_run_id, state_dir
from gert.errors import TraceError, UsageError
from gert.kernel.foundation.names import is_safe_name

NOON = datetime(2026, 2, 28, 12, 0, 0, 123_000, tzinfo=UTC)
MOMENTS = st.datetimes(datetime(2000, 1, 1), datetime(2200, 1, 1)).map(lambda moment: moment.replace(tzinfo=UTC))


def mode_of(path: str | Path) -> int:
    return stat.S_IMODE(os.stat(path).st_mode)


# --- ids


@settings(deadline=None)
@given(MOMENTS, st.timedeltas(timedelta(milliseconds=1), timedelta(days=5000)))
def test_ids_sort_by_time(moment: datetime, later: timedelta) -> None:
    assert new_run_id(moment) < new_run_id(moment + later)


@settings(deadline=None)
@given(MOMENTS)
def test_an_id_is_a_safe_file_name_everywhere(moment: datetime) -> None:
    run_id = new_run_id(moment)
    assert is_safe_name(run_id)
    assert not set(run_id) & set('<>:"/\\|?* .')
    # Systems that do not tell upper from lower case must not take two ids for one.
    assert run_id == run_id.lower()
    RunFolder("state", run_id)


def test_ids_of_one_moment_differ() -> None:
    assert len({new_run_id(NOON) for _ in range(500)}) == 500


def test_an_id_tells_its_time() -> None:
    assert new_run_id(NOON).startswith("20260228-120000-123-")


# --- the state directory


@pytest.mark.parametrize(
    ("chosen", "root", "environ", "expected"),
    [
        pytest.param("/c", "/p", {"GERT_STATE_DIR": "/e", "XDG_STATE_HOME": "/x"}, "/c", id="what is chosen"),
        pytest.param(None, "/p", {"GERT_STATE_DIR": "/e", "XDG_STATE_HOME": "/x"}, "/e", id="then the environment"),
        pytest.param(None, "/p", {"XDG_STATE_HOME": "/x"}, "/p", id="then the project"),
        pytest.param(None, None, {"XDG_STATE_HOME": "/x"}, "/x/gert", id="then the user's own"),
        pytest.param("", "/p", {"GERT_STATE_DIR": ""}, "/p", id="what is empty says nothing"),
        pytest.param(None, None, {"GERT_STATE_DIR": "", "XDG_STATE_HOME": "/x"}, "/x/gert", id="nor here"),
    ],
)
def test_the_state_directory(chosen: str | None, root: str | None, environ: dict[str, str], expected: str) -> None:
    assert state_dir(chosen, root, environ) == expected


@pytest.mark.parametrize("environ", [{}, {"XDG_STATE_HOME": ""}], ids=["unset", "empty"])
def test_without_anything_it_is_in_the_home_folder(environ: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/alice")
    assert state_dir(None, None, environ) == "/home/alice/.local/state/gert"


def test_on_windows_it_is_where_programs_keep_such_things(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    assert state_dir(None, None, {"LOCALAPPDATA": "/l", "XDG_STATE_HOME": "/x"}) == os.path.join("/l", "gert")


@pytest.mark.parametrize("environ", [{}, {"GERT_STATE_DIR": "here"}])
def test_a_relative_one_is_seen_from_where_we_are(
    environ: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert state_dir(None if environ else "here", None, environ) == str(tmp_path / "here")


# --- folders


@pytest.mark.parametrize(
    "name",
    [
        *("..", ".", "", "../x", "a/b", "/etc", "a\\b", ".hidden", "x.", "con", "NUL.txt", "a b", "a\x00b", "ü"),
        *("a" * 129, "-rf", "a\n", "c:x", "~", "*", "%2e%2e"),
    ],
    ids=repr,
)
def test_a_name_that_is_no_run_id_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not a run id"):
        RunFolder(str(tmp_path), name)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077])
def test_a_folder_is_for_its_owner_alone(mask: int, tmp_path: Path) -> None:
    before = os.umask(mask)
    try:
        folder = RunFolder(str(tmp_path / "state"), "run-1")
        folder.create()
    finally:
        os.umask(before)
    assert mode_of(folder.path) == 0o700
    assert mode_of(tmp_path / "state" / "runs") == 0o700


def test_a_folder_is_where_it_is_said_to_be(tmp_path: Path) -> None:
    folder = RunFolder(str(tmp_path), "run-1")
    assert folder.path == str(tmp_path / "runs" / "run-1")
    assert folder.trace == str(tmp_path / "runs" / "run-1" / "trace.jsonl")


def test_a_folder_that_exists_belongs_to_another_run(tmp_path: Path) -> None:
    RunFolder(str(tmp_path), "run-1").create()
    with pytest.raises(TraceError, match=r"cannot record the run in .*: file exists"):
        RunFolder(str(tmp_path), "run-1").create()


def test_a_link_in_its_place_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "run-1").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(TraceError):
        RunFolder(str(tmp_path), "run-1").create()


@pytest.mark.parametrize("obstacle", ["", "runs"], ids=["the state directory", "the folder of runs"])
def test_a_file_in_the_place_of(obstacle: str, tmp_path: Path) -> None:
    state = tmp_path / "state"
    place = state / obstacle
    place.parent.mkdir(exist_ok=True)
    place.write_text("")
    with pytest.raises(TraceError, match="cannot record the run") as caught:
        RunFolder(str(state), "run-1").create()
    assert "--state-dir" in (caught.value.hint or "")


def test_the_names_of_a_run_are_made_durable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fsync, synced = os.fsync, set()

    def noted(descriptor: int) -> None:
        synced.add(os.fstat(descriptor).st_ino)
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    folder = RunFolder(str(tmp_path / "new" / "state"), "run-1")
    folder.create()
    folders = [tmp_path, tmp_path / "new", tmp_path / "new" / "state", tmp_path / "new" / "state" / "runs"]
    assert {each.stat().st_ino for each in folders} <= synced
