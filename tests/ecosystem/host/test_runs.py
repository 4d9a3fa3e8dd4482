"""Where runs are kept: ids that sort and are safe, a state directory in a known order, folders for one owner."""

import json
import os
import stat
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gert.ecosystem.host.runs import RunFolder, new_run_id, state_dir
from gert.errors import GertError, TraceError, UsageError
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
        folder.write_state(b'{"run_id": "run-1"}')
    finally:
        os.umask(before)
    assert mode_of(folder.path) == 0o700
    assert mode_of(tmp_path / "state" / "runs") == 0o700
    assert mode_of(Path(folder.path, "state.json")) == 0o600


def test_a_folder_is_where_it_is_said_to_be(tmp_path: Path) -> None:
    folder = RunFolder(str(tmp_path), "run-1")
    assert folder.path == str(tmp_path / "runs" / "run-1")
    assert folder.trace == str(tmp_path / "runs" / "run-1" / "trace.jsonl")
    assert folder.answers == str(tmp_path / "runs" / "run-1" / "answers.jsonl")


def test_a_folder_that_exists_belongs_to_another_run(tmp_path: Path) -> None:
    RunFolder(str(tmp_path), "run-1").create()
    with pytest.raises(TraceError, match=r"cannot be recorded in .*: file exists"):
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
    with pytest.raises(TraceError, match="cannot be recorded") as caught:
        RunFolder(str(state), "run-1").create()
    assert "--state-dir" in (caught.value.hint or "")


def test_a_folder_that_was_made_in_vain_is_taken_away(tmp_path: Path) -> None:
    folder = RunFolder(str(tmp_path), "run-1")
    folder.create()
    Path(folder.trace).write_text("")
    folder.discard()
    folder.discard()
    assert not os.path.exists(folder.path)


def test_taking_a_folder_away_spares_what_is_not_ours(tmp_path: Path) -> None:
    folder = RunFolder(str(tmp_path), "run-1")
    folder.create()
    os.mkdir(Path(folder.path, "kept"))
    folder.discard()
    assert os.path.isdir(Path(folder.path, "kept"))


# --- state


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    made = RunFolder(str(tmp_path), "run-1")
    made.create()
    return made


def state_of(folder: RunFolder) -> dict[str, Any]:
    read: dict[str, Any] = json.loads(Path(folder.path, "state.json").read_bytes())
    return read


def test_state_is_written_whole(folder: RunFolder) -> None:
    folder.write_state('{"inputs": {"größe": [1, null]}}'.encode())
    assert state_of(folder) == {"inputs": {"größe": [1, None]}}
    assert os.listdir(folder.path) == ["state.json"]


def test_state_replaces_what_was_there(folder: RunFolder) -> None:
    folder.write_state(b'{"a": "' + b"x" * 10_000 + b'"}')
    folder.write_state(b'{"a": "y"}')
    assert state_of(folder) == {"a": "y"}


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_write_that_fails_leaves_the_old_state_and_nothing_else(
    call: str, folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.write_state(b'{"a": "old"}')

    def fail(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, call, fail)
        with pytest.raises((OSError, GertError)):
            folder.write_state(b'{"a": "new"}')
    assert state_of(folder) == {"a": "old"}
    assert os.listdir(folder.path) == ["state.json"]


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_state_that_cannot_be_written_is_said_by_its_name(
    call: str, folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, call, fail)
    with pytest.raises(TraceError, match=r"state.json` cannot be written: no space left on device"):
        folder.write_state(b"{}")


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
    synced.clear()
    folder.write_state(b"{}")
    assert {os.stat(folder.path).st_ino, os.stat(folder.state).st_ino} == synced


def test_a_run_whose_state_cannot_be_kept_does_not_begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from gert.ecosystem.host.execute import run_file

    (tmp_path / "a.yaml").write_text(
        "apiVersion: kernel/v0\nmeta: {name: a}\nsteps: [{id: e, type: end, outcome: {category: resolved, code: ok}}]\n"
    )

    def fail(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(TraceError, match=r"state.json` cannot be written"):
        run_file(str(tmp_path / "a.yaml"), state_dir=str(tmp_path / "state"))
    assert os.listdir(tmp_path / "state" / "runs") == []


def test_a_link_in_the_place_of_the_state_is_replaced_and_not_followed(folder: RunFolder, tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("mine")
    Path(folder.path, "state.json").symlink_to(tmp_path / "victim")
    folder.write_state(b'{"a": 1}')
    assert (tmp_path / "victim").read_text() == "mine"
    assert not Path(folder.path, "state.json").is_symlink()
