"""Tools for agents: files below one folder, git, logs and metrics. No path leads out."""

import asyncio
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from gert.agent import CodingHarnessTools, LocalToolRegistry, ObservabilityTools, ToolExecutionContext
from gert.errors import UsageError

CONTEXT = ToolExecutionContext("r", "acme", "0123456789abcdef", None, "1", "1")


def call(tools: LocalToolRegistry, tool: str, /, **given: Any) -> Any:
    """What a tool returns; its error if it fails."""
    result = asyncio.run(tools.call(tool, json.dumps(given), context=CONTEXT))
    return json.loads(result.result_json) if result.outcome == "success" else str(result.error_message)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    inside = tmp_path / "inside"
    (inside / ".git").mkdir(parents=True)
    (inside / "a.txt").write_text("one\ntwo\nthree\n")
    (tmp_path / "secret").write_text("s3cret")
    (inside / "link").symlink_to(tmp_path / "secret")
    (inside / "out").symlink_to(tmp_path)
    os.mkfifo(inside / "pipe")
    return inside


PATHS = {
    "above": "../secret",
    "above by way of below": "x/../../secret",
    "absolute": "/etc/passwd",
    "a link to a file": "link",
    "through a link to a folder": "out/secret",
    "git's own": ".git/config",
    "git's own in capitals": ".GIT/config",
    "git's own with a dot": ".git./config",
    "a backslash": "..\\secret",
    "an empty name": "",
    "a NUL": "a\0b",
    "a folder": ".",
    "a pipe": "pipe",
    "too long": "x/" * 600,
}


@pytest.mark.parametrize("path", PATHS.values(), ids=PATHS.keys())
def test_no_path_leads_out(path: str, folder: Path) -> None:
    coding, looking = CodingHarnessTools(sandbox_root=str(folder)), ObservabilityTools(root=str(folder))
    before = sorted(each.name for each in folder.parent.rglob("*"))
    for tools, name, more in (
        (coding.registry(), "read_file", {"path": path}),
        (coding.registry(), "apply_patch", {"path": path, "content": "evil"}),
        (looking.registry(), "query_logs", {"file": path}),
        (looking.registry(), "query_metrics", {"file": path}),
    ):
        found = call(tools, name, **more)
        assert isinstance(found, str)
        assert "s3cret" not in found
    assert (folder.parent / "secret").read_text() == "s3cret"
    assert [each for each in sorted(each.name for each in folder.parent.rglob("*")) if each != "x"] == before


def test_a_file_is_written_whole_and_read(folder: Path) -> None:
    tools = CodingHarnessTools(sandbox_root=str(folder)).registry()
    (folder / "a.txt").chmod(0o755)
    assert call(tools, "apply_patch", path="new/b.txt", content="Ünï") == {"path": "new/b.txt", "bytes": 5}
    assert call(tools, "read_file", path="new/b.txt") == {"path": "new/b.txt", "text": "Ünï"}
    call(tools, "apply_patch", path="a.txt", content="changed")
    assert (folder / "a.txt").stat().st_mode & 0o777 == 0o755
    assert [each.name for each in (folder / "new").iterdir()] == ["b.txt"]


@pytest.mark.parametrize(
    ("written", "outcome"),
    [pytest.param("x", "success", id="it happened"), pytest.param("y", "transient_error", id="not")],
)
def test_whether_a_file_was_written_can_be_told(written: str, outcome: str, folder: Path) -> None:
    tools = CodingHarnessTools(sandbox_root=str(folder)).registry()
    (folder / "b.txt").write_text(written)
    given = json.dumps({"path": "b.txt", "content": "x"})
    found = asyncio.run(tools.reconcile("apply_patch", given, context=CONTEXT))
    assert found is not None
    assert found.outcome == outcome


@pytest.mark.needs("git")
def test_git_shows_changes_and_makes_worktrees_and_starts_nothing_else(tmp_path: Path) -> None:
    def git(*words: str) -> None:
        subprocess.run(["git", "-C", str(tmp_path), *words], check=True, capture_output=True)

    git("init", "-q")
    (tmp_path / "a.txt").write_text("one\n")
    git("add", "a.txt")
    git("-c", "user.name=x", "-c", "user.email=x@y", "commit", "-qm", "first")
    started = tmp_path / "started"
    hook = tmp_path / ".git" / "hooks" / "post-checkout"
    hook.write_text(f"#!/bin/sh\ntouch {started}\n")
    hook.chmod(0o755)
    git("config", "diff.external", f"touch {started}; true")
    tools = CodingHarnessTools(sandbox_root=str(tmp_path)).registry()
    call(tools, "apply_patch", path="a.txt", content="two\n")
    assert "-one\n+two" in call(tools, "git_diff")["diff"]
    assert call(tools, "git_diff", path="other.txt") == {"diff": ""}
    [place] = call(tools, "create_worktree").values()
    assert place == ".worktrees/wt-0123456789ab"
    assert (tmp_path / place / "a.txt").read_text() == "one\n"
    assert "is not a name" in call(tools, "create_worktree", name="../x")
    assert "failed with" in call(tools, "create_worktree"), "it is there already"
    for given, outcome in (({}, "success"), ({"name": "no"}, "transient_error")):
        found = asyncio.run(tools.reconcile("create_worktree", json.dumps({"name": None, **given}), context=CONTEXT))
        assert found is not None
        assert found.outcome == outcome
    assert not started.exists()


def test_the_end_of_a_log_and_metrics_are_read(folder: Path) -> None:
    tools = ObservabilityTools(root=str(folder)).registry()
    (folder / "log").write_bytes(b"".join(b"line %d\n" % n for n in range(100_000)) + b"\xff\x1b[31m end\n")
    assert call(tools, "query_logs", file="log", limit=2)["lines"] == ["line 99999", "\ufffd\x1b[31m end"]
    assert len(call(tools, "query_logs", file="log")["lines"]) == 200
    assert "expected `limit` from 1" in call(tools, "query_logs", file="log", limit=0)
    (folder / "m.json").write_text('{"cpu": 0.5}')
    (folder / "m.prom").write_text('# HELP x\nup{job="a b"} 1\nbad NaN\nname only\n\n')
    assert call(tools, "query_metrics", file="m.json")["metrics"] == {"cpu": 0.5}
    assert call(tools, "query_metrics", file="m.prom")["metrics"] == {'up{job="a b"}': 1.0, "bad": "NaN"}


def test_a_bundle_needs_a_folder(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no folder"):
        CodingHarnessTools(sandbox_root=str(tmp_path / "none"))
