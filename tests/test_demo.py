"""`make demo` does what it says, leaves nothing behind, and does not call a failure a success."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gert.ecosystem.surfaces.cli.main import main

ROOT = Path(__file__).resolve().parents[1]
RUNBOOK = "examples/runbooks/demo-service-restart.yaml"


class Stage:
    """A copy of what the demo needs, the programs it finds, and the folder it works in."""

    def __init__(self, root: Path) -> None:
        self.root = root / "checkout"
        self.temporary = root / "tmp"
        self.bin = root / "bin"
        self.temporary.mkdir()
        self.bin.mkdir()
        shutil.copytree(ROOT / "examples", self.root / "examples")
        shutil.copytree(ROOT / "scripts", self.root / "scripts")
        # A symbolic link would lose the packages beside the interpreter.
        self.program("python3", f'exec "{sys.executable}" "$@"')
        self.program("gert", f'exec "{sys.executable}" -m gert "$@"')

    def program(self, name: str, text: str) -> None:
        (self.bin / name).write_text(f"#!/bin/sh\n{text}\n")
        (self.bin / name).chmod(0o755)

    def change(self, file: str, old: str, new: str) -> None:
        text = (self.root / file).read_text(encoding="utf-8")
        assert old in text
        (self.root / file).write_text(text.replace(old, new), encoding="utf-8")

    def begin(self, script: str = "scripts/demo", **environ: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            ["sh", script, str(self.bin)],
            cwd=self.root,
            env={**os.environ, "TMPDIR": str(self.temporary), **environ},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def run(self, script: str = "scripts/demo", **environ: str) -> tuple[int, str]:
        with self.begin(script, **environ) as demo:
            printed, _ = demo.communicate(timeout=120)
        return demo.returncode, printed

    def files(self) -> list[str]:
        return sorted(str(file.relative_to(self.root)) for file in self.root.rglob("*") if file.suffix != ".pyc")


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def test_it_works_and_leaves_nothing_behind(stage: Stage) -> None:
    before = stage.files()
    # What somebody has set for runs of their own disturbs nothing.
    code, printed = stage.run(GERT_TRACE_SIGNING_KEY_ID="prod-2026", GERT_STATE_DIR=str(stage.root / "state"))
    assert (code, printed[-4000:] if code else "") == (0, "")
    for expected in (
        "reachable: escalated: restart_did_not_help\n",
        "back to look_again (jump 1 of 5)",
        "after 2 attempts",
        "oncall@example.com approved",
        "resolved: service_restarted",
        "✓ Signature valid",
        "✗ Chain broken: the chain breaks at line",
        "restarted by the holder of [REDACTED]",
    ):
        assert expected in printed
    assert stage.files() == before
    assert list(stage.temporary.iterdir()) == []


@pytest.mark.parametrize(
    ("file", "old", "new", "complaint"),
    [
        pytest.param(RUNBOOK, "tools: [http]", "tools: [htpp]", "an example is not valid", id="an invalid example"),
        pytest.param(
            RUNBOOK,
            "code: service_restarted",
            "code: fine",
            "does not find the outcome",
            id="an unexpected outcome",
        ),
        pytest.param("scripts/demo", "y pager 4711' y", "n pager 4711' y", "", id="not approved"),
        pytest.param("scripts/demo", "' y y y '", "' y n y '", "", id="not confirmed", marks=pytest.mark.soak),
        pytest.param(
            "scripts/demo_service.py",
            "self._looks == 2",
            "True",
            "was not repaired",
            id="it stays down",
            marks=pytest.mark.soak,
        ),
        pytest.param(
            "scripts/demo_service.py", "ThreadingHTTPServer((", "exit((", "did not start", id="there is no service"
        ),
    ],
)
def test_what_goes_wrong_is_not_called_a_success(stage: Stage, file: str, old: str, new: str, complaint: str) -> None:
    stage.change(file, old, new)
    code, printed = stage.run()
    assert code != 0
    assert complaint in printed
    assert list(stage.temporary.iterdir()) == []


def test_a_verification_that_lets_everything_pass_is_found_out(stage: Stage) -> None:
    stage.program("gert", f'[ "$1 $2" = "trace verify" ] && exit 0\nexec "{sys.executable}" -m gert "$@"')
    code, printed = stage.run()
    assert code == 1
    assert "a changed trace passed" in printed


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "a kill"])
def test_one_that_is_stopped_cleans_up(stage: Stage, number: signal.Signals) -> None:
    with stage.begin() as demo:
        port = next(_ports(stage, demo))
        os.killpg(demo.pid, number)
        demo.communicate(timeout=60)
    assert demo.returncode == 128 + number
    assert list(stage.temporary.iterdir()) == []
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", port)) != 0


def _ports(stage: Stage, demo: subprocess.Popen[str]) -> Iterator[int]:
    """The port of the service, once it is up."""
    while demo.poll() is None:
        for file in stage.temporary.glob("*/port"):
            yield int(file.read_text())
        time.sleep(0.02)


def test_its_runbook_is_valid_to_the_last_warning(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", "--strict", str(ROOT / RUNBOOK), str(ROOT / "examples/tools/http.tool.yaml")]) == 0
    assert capsys.readouterr().out.endswith("2 files: 0 errors, 0 warnings\n")


def test_the_demo_of_a_runner_works_offline_and_leaves_nothing_behind(stage: Stage) -> None:
    before = stage.files()
    code, printed = stage.run(
        "scripts/demo-runner", GERT_PLAN_SIGNING_KEY="x", GERT_STATE_DIR=str(stage.root / "state")
    )
    assert (code, printed[-4000:] if code else "") == (0, "")
    for expected in (
        "secret:        kv://slack/dev/bot_token (chat:write)",
        "post: bob approved",
        "resolved: announced",
        "recorded with exit code 0  1 request",
        "was executed before (spent/plan)",
        "with Bearer [REDACTED]",
    ):
        assert expected in printed, expected
    assert "xoxb-" not in printed
    assert stage.files() == before
    assert list(stage.temporary.iterdir()) == []
