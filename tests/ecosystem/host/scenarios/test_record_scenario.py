"""Recording folders: refused before a run where they cannot be used, written whole or not at all afterwards."""

import os
from pathlib import Path

import pytest

from gert.ecosystem.host.scenarios.record_scenario import X_RECORDED, recorded_from, recording_folder, write_folder
from gert.errors import UsageError

FILES = {"scenario.yaml": b"a", "test.yaml": b"b", "trace.jsonl": b"c"}


def below(folder: Path) -> list[str]:
    return sorted(str(each.relative_to(folder)) for each in folder.rglob("*"))


@pytest.mark.parametrize("value", ["1", "true", "TRUE", " yes ", "on"])
def test_recording_always(tmp_path: Path, value: str) -> None:
    folder = recording_folder(None, "deep/book.yaml", "run-1", {"GERT_AUTO_RECORD": value})
    assert folder == "deep/scenarios/book/run-1"


@pytest.mark.parametrize("environ", [{}, *({"GERT_AUTO_RECORD": each} for each in ("", "0", "no", "false", "2"))])
def test_recording_only_where_it_is_wanted(environ: dict[str, str]) -> None:
    assert recording_folder(None, "book.yaml", "run-1", environ) is None


def test_what_is_named_goes_before_what_is_always_done(tmp_path: Path) -> None:
    chosen = str(tmp_path / "x")
    assert recording_folder(chosen, "book.yaml", "run-1", {"GERT_AUTO_RECORD": "1"}) == chosen


def test_a_run_id_is_never_a_path() -> None:
    with pytest.raises(UsageError):
        recording_folder(None, "book.yaml", "../x", {"GERT_AUTO_RECORD": "1"})


@pytest.mark.parametrize("place", ["new", "new/", "empty", "a/b/c"])
def test_folders_that_can_be_used(tmp_path: Path, place: str) -> None:
    (tmp_path / "empty").mkdir()
    before = below(tmp_path)
    assert recording_folder(str(tmp_path / place), "book.yaml", "run-1", {}) is not None
    assert below(tmp_path) == before


@pytest.mark.parametrize("place", ["full", "file", "nowhere", "file/below", "file/far/below", "nowhere/below"])
def test_folders_that_cannot(tmp_path: Path, place: str) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full/.x").write_text("")
    (tmp_path / "file").write_text("")
    (tmp_path / "nowhere").symlink_to(tmp_path / "gone")
    with pytest.raises(UsageError):
        recording_folder(str(tmp_path / place), "book.yaml", "run-1", {})


def test_a_folder_is_written_whole_for_its_owner(tmp_path: Path) -> None:
    write_folder(str(tmp_path / "a/b/kept"), FILES)
    assert {each.name: each.read_bytes() for each in (tmp_path / "a/b/kept").iterdir()} == FILES
    assert (tmp_path / "a/b/kept").stat().st_mode & 0o077 == 0
    assert below(tmp_path / "a/b") == ["kept", *(f"kept/{name}" for name in FILES)]


@pytest.mark.parametrize("way", ["by its name", "by a link"])
def test_an_empty_folder_is_filled_and_stays_the_one_it_is(tmp_path: Path, way: str) -> None:
    """Somebody may stand in it, as with `--record .`."""
    (tmp_path / "kept").mkdir()
    (tmp_path / "link").symlink_to("kept")
    before = (tmp_path / "kept").stat().st_ino
    write_folder(str(tmp_path / ("kept" if way == "by its name" else "link")), FILES)
    assert (tmp_path / "kept").stat().st_ino == before
    assert {each.name: each.read_bytes() for each in (tmp_path / "kept").iterdir()} == FILES
    assert not any(each.stat().st_mode & 0o077 for each in (tmp_path / "kept").iterdir())
    assert (tmp_path / "link").is_symlink()


@pytest.mark.parametrize("at", range(3))
def test_a_failure_half_way_leaves_an_empty_folder_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    (tmp_path / "kept").mkdir()
    calls: list[int] = []

    def full(number: int) -> None:
        calls.append(number)
        if len(calls) > at:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UsageError):
        write_folder(str(tmp_path / "kept"), FILES)
    assert below(tmp_path) == ["kept"]


def test_of_two_who_fill_a_folder_at_once_one_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "kept").mkdir()
    listdir = os.listdir

    def slowly(path: str) -> list[str]:
        found = listdir(path)
        if not found:
            monkeypatch.setattr(os, "listdir", listdir)
            write_folder(path, FILES)
        return found

    monkeypatch.setattr(os, "listdir", slowly)
    with pytest.raises(UsageError, match="file exists"):
        write_folder(str(tmp_path / "kept"), dict.fromkeys(FILES, b"other"))
    assert {each.name: each.read_bytes() for each in (tmp_path / "kept").iterdir()} == FILES


def test_a_way_down_and_up_again_is_read_one_way(tmp_path: Path) -> None:
    """Before the run nothing is there, and afterwards only what was written."""
    chosen = recording_folder(str(tmp_path / "gone/../kept"), "book.yaml", "run-1", {})
    assert chosen == str(tmp_path / "kept")


@pytest.mark.parametrize("there", ["a file", "a folder with something in it"])
def test_what_came_meanwhile_is_not_overwritten(tmp_path: Path, there: str) -> None:
    place = tmp_path / "kept"
    if there == "a file":
        place.write_text("mine")
    else:
        place.mkdir()
        (place / "mine").write_text("mine")
    before = below(tmp_path)
    with pytest.raises(UsageError):
        write_folder(str(place), FILES)
    assert below(tmp_path) == before


@pytest.mark.parametrize("at", range(3))
def test_a_failure_half_way_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    calls: list[int] = []

    def full(number: int) -> None:
        calls.append(number)
        if len(calls) > at:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UsageError) as problem:
        write_folder(str(tmp_path / "kept"), FILES)
    assert "no space left" in problem.value.message
    assert below(tmp_path) == []


@pytest.mark.parametrize(
    ("extensions", "said"),
    [({}, {}), ({X_RECORDED: "yes"}, {}), ({X_RECORDED: None}, {}), ({X_RECORDED: {"run_id": "1"}}, {"run_id": "1"})],
)
def test_what_a_scenario_says_of_its_run(extensions: dict[str, object], said: dict[str, str]) -> None:
    assert recorded_from(extensions) == said
