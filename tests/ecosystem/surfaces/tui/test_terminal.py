"""The screen in a real terminal: tmux types, and the picture is what a person would see."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.ecosystem.surfaces.tui.conftest import BROKEN, INCIDENT, SLOW, TOOL

pytestmark = pytest.mark.needs("tmux")


class Terminal:
    """A tmux session of its own server."""

    def __init__(self, folder: Path, *arguments: str, size: tuple[int, int] = (100, 30)) -> None:
        self._socket = str(folder / "tmux")
        program = os.path.join(os.path.dirname(sys.executable), "gert-tui")
        command = [program, "--state-dir", str(folder / "state"), "--as", "kim", *arguments]
        environ = {name: value for name, value in os.environ.items() if not name.startswith(("GERT_", "TMUX"))}
        shell = " ".join(f"'{word}'" for word in command) + "; echo ended: $?; sleep 600"
        self._run("-f", "/dev/null", "new-session", "-d", "-x", str(size[0]), "-y", str(size[1]), shell, env=environ)

    def _run(self, *words: str, env: dict[str, str] | None = None) -> str:
        done = subprocess.run(
            ["tmux", "-S", self._socket, *words], capture_output=True, text=True, env=env, check=True, timeout=30
        )
        return done.stdout

    def press(self, *keys: str) -> None:
        """Press keys one after the other, as fast as a person can."""
        for key in keys:
            self._run("send-keys", key)
            time.sleep(0.1)

    def resize(self, width: int, height: int) -> None:
        self._run("resize-window", "-x", str(width), "-y", str(height))

    def picture(self) -> str:
        return self._run("capture-pane", "-p")

    def until(self, wanted: str) -> str:
        end = time.monotonic() + 60
        while time.monotonic() < end:
            shown = self.picture()
            if wanted in shown:
                return shown
            time.sleep(0.1)
        raise AssertionError(f"`{wanted}` did not appear:\n{self.picture()}")

    def close(self) -> None:
        subprocess.run(["tmux", "-S", self._socket, "kill-server"], capture_output=True, check=False)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "project"
    (root / "tools").mkdir(parents=True)
    (root / "tools" / "sh.tool.yaml").write_text(TOOL)
    for name, text in (("incident", INCIDENT), ("broken", BROKEN), ("slow", SLOW)):
        (root / f"{name}.yaml").write_text(text)
    monkeypatch.chdir(root)
    return root


@pytest.fixture
def terminals(tmp_path: Path) -> Iterator[list[Terminal]]:
    opened: list[Terminal] = []
    yield opened
    for each in opened:
        each.close()


def gert(folder: Path, *words: str) -> str:
    command = [sys.executable, "-m", "gert", *words, "--state-dir", str(folder / "state")]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


def test_an_incident_with_an_approval_given_by_a_command_meanwhile(
    project: Path, tmp_path: Path, terminals: list[Terminal]
) -> None:
    terminal = Terminal(tmp_path, "incident.yaml")
    terminals.append(terminal)
    terminal.until("host (string, required)")
    terminal.press("web-1", "Tab", "Tab", "Tab", "Tab", "Tab", "Tab", "Enter")
    shown = terminal.until("⚠ change approval")
    assert "looking at web-1" in shown
    assert "[/red]" in shown
    terminal.resize(60, 20)
    ticket = gert(tmp_path, "approvals", "list", "--json").partition('"ticket_id": "')[2].partition('"')[0]
    gert(tmp_path, "approve", ticket, "--as", "ann")
    terminal.until("⚠ confirm")
    terminal.press("Enter")
    assert "▐ ▌ requests come in" in terminal.until("see that web-1 is back [bold]")
    time.sleep(1)  # a person reads before they type
    terminal.press("Space")
    terminal.until("▐X▌ requests come in")
    terminal.press("Tab", "all well", "Tab", "Tab", "Tab", "Tab", "Enter")
    terminal.until("outcome resolved: back")
    terminal.press("q")
    terminal.until("3 approvals")
    terminal.press("q")
    parting = terminal.until("ended: 0")
    assert "✓ confirm" in parting
    assert "next: gert run show" in parting


def test_losing_the_terminal_leaves_the_run_going(project: Path, tmp_path: Path, terminals: list[Terminal]) -> None:
    terminal = Terminal(tmp_path, "slow.yaml")
    terminals.append(terminal)
    terminal.until("Start")
    terminal.press("Tab", "Enter")
    terminal.until("→ wait")
    terminal.close()
    listed = gert(tmp_path, "run", "list", "--json")
    assert '"status": "running"' in listed
    run_id = listed.partition('"run_id": "')[2].partition('"')[0]
    gert(tmp_path, "run", "cancel", run_id, "--reason", "test")
    assert '"status": "cancelled"' in gert(tmp_path, "run", "list", "--json")


@pytest.mark.parametrize("environ", [{"TERM": "dumb"}, {"ACCESSIBLE": "1"}])
def test_without_a_terminal_it_names_the_commands_that_print_lines(environ: dict[str, str]) -> None:
    program = os.path.join(os.path.dirname(sys.executable), "gert-tui")
    done = subprocess.run([program], capture_output=True, text=True, env={**os.environ, **environ}, check=False)
    assert done.returncode == 2
    assert "gert logs --follow" in done.stderr
