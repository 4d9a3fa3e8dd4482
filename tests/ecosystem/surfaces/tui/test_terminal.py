"""The screen in a real terminal: tmux types, and the picture is what a person would see."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.ecosystem.surfaces.tui.conftest import BROKEN, INCIDENT, SLOW, TOOL

LOUD = """
apiVersion: kernel/v0
meta: {name: loud}
tools: [loud]
steps:
  - {id: small, type: tool, tool: loud, action: run, inputs: {script: "echo small; sleep 1"}}
  - {id: large, type: tool, tool: loud, action: run, inputs: {script: "yes 'a line of some output' | head -c 30000000"}}
  - {id: over, type: end, outcome: {category: resolved, code: over}}
"""

LOUD_TOOL = """
apiVersion: tool/v0
meta: {name: loud, binary: sh}
contract: {effects: [], writes: [], inputs: {script: {type: string}}}
actions: {run: {argv: [sh, -c, "{{ .script }}"]}}
"""

pytestmark = pytest.mark.needs("tmux")


class Terminal:
    """A tmux session of its own server."""

    def __init__(self, folder: Path, *arguments: str, size: tuple[int, int] = (100, 30), **variables: Any) -> None:
        self._socket = str(folder / "tmux")
        program = os.path.join(os.path.dirname(sys.executable), "gert-tui")
        command = [program, "--state-dir", str(folder / "state"), "--as", "kim", *arguments]
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("GERT_", "TMUX"))}
        environ = {**kept, "XDG_CONFIG_HOME": str(folder), **variables}
        shell = " ".join(f"'{word}'" for word in command) + "; echo ended: $?; sleep 600"
        self._run("-f", "/dev/null", "new-session", "-d", "-x", str(size[0]), "-y", str(size[1]), shell, env=environ)

    def _run(self, *words: str, env: dict[str, str] | None = None) -> str:
        done = subprocess.run(
            ["tmux", "-S", self._socket, *words], capture_output=True, text=True, env=env, check=True, timeout=60
        )
        return done.stdout

    def press(self, *keys: str) -> None:
        """Press keys, each once the one before has changed the picture: two at once would go to one widget."""
        for key in keys:
            before, end = self.colours(), time.monotonic() + 10
            self._run("send-keys", key)
            while self.colours() == before and time.monotonic() < end:
                time.sleep(0.02)

    def resize(self, width: int, height: int) -> None:
        self._run("resize-window", "-x", str(width), "-y", str(height))

    def picture(self) -> str:
        return self._run("capture-pane", "-p")

    def colours(self) -> str:
        """The picture with the escapes that draw it."""
        return self._run("capture-pane", "-p", "-e")

    @property
    def pid(self) -> int:
        """The process of the screen."""
        shell = self._run("list-panes", "-F", "#{pane_pid}").strip()
        children = Path(f"/proc/{shell}/task/{shell}/children").read_text().split()
        return int(children[0])

    def until(self, wanted: str) -> str:
        end = time.monotonic() + 120
        while time.monotonic() < end:
            shown = self.picture()
            if wanted in shown:
                return shown
            time.sleep(0.05)
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
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout


def begin(terminal: Terminal) -> None:
    """Fill in the form of the incident, and start it."""
    terminal.until("host (string, required)")
    terminal.press("web-1")
    terminal.until("web-1")
    terminal.press("Tab", "Tab", "Tab", "Tab", "Tab", "Tab", "Enter")
    terminal.until("⚠ change approval")


# A shell that exports the size that its terminal once had must not decide how large the screen is.
@pytest.mark.parametrize(
    ("size", "exported"),
    [
        pytest.param((60, 20), {}, id="made smaller"),
        pytest.param((60, 20), {"COLUMNS": "80", "LINES": "24"}, id="made smaller than an exported size"),
        pytest.param((40, 12), {"COLUMNS": "300", "LINES": "80"}, id="tiny with a huge exported size"),
    ],
)
def test_an_incident_with_an_approval_given_by_a_command_meanwhile(
    project: Path, tmp_path: Path, terminals: list[Terminal], size: tuple[int, int], exported: dict[str, Any]
) -> None:
    terminal = Terminal(tmp_path, "incident.yaml", size=(100, 30), **exported)
    terminals.append(terminal)
    begin(terminal)
    terminal.until("looking at web-1")
    terminal.until("[/red]")
    terminal.resize(*size)
    ticket = gert(tmp_path, "approvals", "list", "--json").partition('"ticket_id": "')[2].partition('"')[0]
    gert(tmp_path, "approve", ticket, "--as", "ann")
    terminal.until("⚠ confirm")
    terminal.press("Enter")
    terminal.until("see that web-1 is back [bold]")
    terminal.until("▐ ▌ requests come in")
    terminal.press("Space")
    terminal.until("▐X▌ requests come in")
    terminal.press("Tab", "all well")
    terminal.until("all well")
    terminal.press("Tab", "Tab", "Tab", "Tab", "Enter")
    terminal.until("✓ completed")
    terminal.resize(100, 30)
    terminal.until("outcome resolved: back")
    terminal.press("q")
    terminal.until("3 approvals")
    terminal.press("q")
    terminal.until("ended: 0")
    parting = terminal.until("next: gert run show")
    assert "✓ confirm" in parting


def test_an_approval_is_given_on_the_screen(project: Path, tmp_path: Path, terminals: list[Terminal]) -> None:
    terminal = Terminal(tmp_path, "incident.yaml")
    terminals.append(terminal)
    begin(terminal)
    terminal.press("a")
    terminal.until("$ sh -c 'echo changed'")
    # Back has the focus; the field for the step id of a critical step is before it.
    terminal.until("critical: type the step id `change`")
    terminal.press("BTab")
    terminal.press("change")
    terminal.until("\n change")
    terminal.press("Tab", "Tab", "Tab", "Enter")
    terminal.until("✓ change")
    terminal.until("⚠ confirm")
    terminal.press("q")
    terminal.until("Stop the run in order")
    terminal.press("Down", "Down", "Enter")
    terminal.until("3 approvals")
    terminal.press("q")
    terminal.until("ended: 0")


@pytest.mark.parametrize("how", ["the terminal is closed", "the screen is killed"])
def test_losing_the_screen_leaves_the_run_going(
    project: Path, tmp_path: Path, terminals: list[Terminal], how: str
) -> None:
    terminal = Terminal(tmp_path, "slow.yaml")
    terminals.append(terminal)
    terminal.until("Start")
    terminal.press("Tab", "Enter")
    terminal.until("→ wait")
    if how == "the terminal is closed":
        terminal.close()
    else:
        os.kill(terminal.pid, signal.SIGKILL)
    listed = gert(tmp_path, "run", "list", "--json")
    assert '"status": "running"' in listed
    run_id = listed.partition('"run_id": "')[2].partition('"')[0]
    gert(tmp_path, "run", "cancel", run_id, "--reason", "test")
    end = time.monotonic() + 60
    while '"status": "cancelled"' not in gert(tmp_path, "run", "list", "--json"):
        assert time.monotonic() < end


def test_without_colour_every_state_has_an_icon_and_a_word(
    project: Path, tmp_path: Path, terminals: list[Terminal]
) -> None:
    terminal = Terminal(tmp_path, "broken.yaml", NO_COLOR="1")
    terminals.append(terminal)
    terminal.until("Start")
    terminal.press("Tab", "Enter")
    terminal.until("✗ failed")
    terminal.until("✗ bad")
    colours = re.findall("\x1b\\[[0-9;]*[34]8;2;(\\d+);(\\d+);(\\d+)", terminal.colours())
    assert all(red == green == blue for red, green, blue in colours)


def test_a_large_output_neither_stops_the_screen_nor_grows_it(
    project: Path, tmp_path: Path, terminals: list[Terminal]
) -> None:
    (project / "loud.yaml").write_text(LOUD)
    (project / "tools" / "loud.tool.yaml").write_text(LOUD_TOOL)
    terminal = Terminal(tmp_path, "loud.yaml")
    terminals.append(terminal)
    terminal.until("Start")
    terminal.press("Tab", "Enter")
    terminal.until("✓ small")
    before = _resident(terminal.pid)
    terminal.until("✓ completed")
    terminal.press("?")
    terminal.until("gert logs RUN --follow")
    assert _resident(terminal.pid) - before < 80 * 1024


def _resident(pid: int) -> int:
    """KiB of memory that a process has."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0])


@pytest.mark.parametrize("environ", [{"TERM": "dumb"}, {"ACCESSIBLE": "1"}])
def test_without_a_terminal_it_names_the_commands_that_print_lines(environ: dict[str, str]) -> None:
    program = os.path.join(os.path.dirname(sys.executable), "gert-tui")
    done = subprocess.run([program], capture_output=True, text=True, env={**os.environ, **environ}, check=False)
    assert done.returncode == 2
    assert "gert logs --follow" in done.stderr
