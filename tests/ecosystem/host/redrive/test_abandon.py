"""Ending a run nobody goes on with: who says so, why, and what keeps it from ending."""

import asyncio
from pathlib import Path

import pytest
from tests.kernel.events.traces import trace
from tests.stored_runs import load_run, store_run

from gert.ecosystem.host.redrive.abandon import LONGEST_REASON, AbandonOptions, _reason, abandon
from gert.errors import UsageError
from gert.kernel.events.envelope import decode


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
    assert _reason(options(reason=reason)) == worded


def test_who_says_so_is_one_line_too() -> None:
    assert _reason(options(actor="kim\n(by pat)")) == "abandoned: no use (by kim (by pat))"
    assert len(_reason(options(actor="x" * 10**6))) < 2 * LONGEST_REASON


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


def test_a_run_that_does_not_say_how_it_was_started_is_refused(tmp_path: Path) -> None:
    """The trace of another program, or of an earlier version of gert."""
    lines = trace()
    (tmp_path / "runs").mkdir()
    store_run(tmp_path / "runs" / "ledger.db", lines[:3])
    with pytest.raises(UsageError, match="does not say how it was started"):
        asyncio.run(abandon(options(decode(lines[0]).run_id), {"GERT_STATE_DIR": str(tmp_path)}))
    assert load_run(tmp_path / "runs" / "ledger.db", decode(lines[0]).run_id)[0] == lines[:3]


def test_the_folder_of_a_mirror_is_no_run(tmp_path: Path) -> None:
    (tmp_path / "runs" / "r").mkdir(parents=True)
    with pytest.raises(UsageError, match="there is no ledger"):
        asyncio.run(abandon(options(), {"GERT_STATE_DIR": str(tmp_path)}))
