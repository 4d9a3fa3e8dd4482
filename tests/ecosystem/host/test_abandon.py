"""Ending a run nobody goes on with: who says so, why, and what keeps it from ending."""

import asyncio
from pathlib import Path

import pytest

from gert.ecosystem.host.abandon import LONGEST_REASON, AbandonOptions, _worded, abandon
from gert.errors import GertError, IntegrityError, UsageError


def options(run_id: str = "r", reason: str = "no use", **more: str) -> AbandonOptions:
    return AbandonOptions(run_id=run_id, reason=reason, actor=more.pop("actor", "kim"), **more)


@pytest.mark.parametrize(
    ("reason", "worded"),
    [
        pytest.param("no use", "abandoned: no use (by kim)", id="as it was said"),
        pytest.param(" the pod\n is gone ", "abandoned: the pod is gone (by kim)", id="on one line"),
        pytest.param("x" * 5000, f"abandoned: {'x' * LONGEST_REASON} (by kim)", id="not too long"),
    ],
)
def test_the_reason_is_recorded(reason: str, worded: str) -> None:
    assert _worded(options(reason=reason)) == worded


def test_who_says_so_is_one_line_too() -> None:
    assert _worded(options(actor="kim\n(by pat)")) == "abandoned: no use (by kim (by pat))"
    assert len(_worded(options(actor="x" * 10**6))) < 2 * LONGEST_REASON


@pytest.mark.parametrize(
    "asked",
    [
        pytest.param(options(reason=""), id="no reason"),
        pytest.param(options(reason=" \n"), id="an empty reason"),
        pytest.param(options(reason="\udc80"), id="a reason that is no text"),
        pytest.param(options(actor="\udc80"), id="a name that is no text"),
        pytest.param(options("../r"), id="a path in place of an id"),
        pytest.param(options("none"), id="no such run"),
    ],
)
def test_what_was_asked_wrongly_ends_nothing(asked: AbandonOptions, tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        asyncio.run(abandon(asked, {"GERT_STATE_DIR": str(tmp_path)}))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("state", [b"", b"{}", b'{"version":2}', b"rubbish"])
def test_a_state_that_is_none_is_refused(state: bytes, tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "r"
    folder.mkdir(parents=True)
    (folder / "state.json").write_bytes(state)
    with pytest.raises(IntegrityError):
        asyncio.run(abandon(options(), {"GERT_STATE_DIR": str(tmp_path)}))
    assert [path.name for path in folder.iterdir()] == ["state.json"]


def test_a_folder_without_state_is_refused(tmp_path: Path) -> None:
    (tmp_path / "runs" / "r").mkdir(parents=True)
    with pytest.raises(GertError):
        asyncio.run(abandon(options(), {"GERT_STATE_DIR": str(tmp_path)}))
