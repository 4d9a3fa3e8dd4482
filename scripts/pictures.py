"""Make the pictures of the docs: terminals as SVG from tmux, pages as PNG from Chromium.

Everything runs in a temporary project, that of the cookbook page for systemd, with a stub for `systemctl`.
Look at each picture afterwards.
"""

import base64
import contextlib
import os
import re
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

ROOT = Path(__file__).resolve().parent.parent
IMAGES = ROOT / "docs" / "images"
WIDTH, HEIGHT = 118, 40
THEME = TerminalTheme(
    (24, 26, 31),
    (220, 223, 228),
    [
        (40, 44, 52),
        (224, 108, 117),
        (152, 195, 121),
        (229, 192, 123),
        (97, 175, 239),
        (198, 120, 221),
        (86, 182, 194),
        (220, 223, 228),
    ],
    [
        (120, 126, 138),
        (240, 128, 137),
        (172, 215, 141),
        (249, 212, 143),
        (117, 195, 255),
        (218, 140, 241),
        (106, 202, 214),
        (255, 255, 255),
    ],
)


class Terminal:
    """A terminal of its own, in which commands are typed."""

    def __init__(self, folder: Path, environment: dict[str, str], width: int = WIDTH, height: int = HEIGHT) -> None:
        self._socket = f"gert-pictures-{secrets.token_hex(4)}"
        self._width = width
        size = ["-x", str(width), "-y", str(height)]
        self._tmux("new-session", "-d", *size, "-c", str(folder), "env", "PS1=$ ", "bash", "--norc", env=environment)
        self._tmux("set-option", "-g", "status", "off")
        self.wait("$")

    def _tmux(self, *words: str, env: dict[str, str] | None = None) -> str:
        done = subprocess.run(
            ["tmux", "-L", self._socket, "-f", "/dev/null", *words], capture_output=True, text=True, check=True, env=env
        )
        return done.stdout

    def type(self, text: str, *, enter: bool = True) -> None:
        """Type a line, or keys."""
        self._tmux("send-keys", "-l", text)
        if enter:
            self._tmux("send-keys", "Enter")

    def press(self, key: str) -> None:
        """Press a key by its name."""
        self._tmux("send-keys", key)

    def wait(self, text: str) -> None:
        """Wait until the screen shows a text."""
        for _ in range(600):
            if text in self._tmux("capture-pane", "-p"):
                time.sleep(0.4)
                return
            time.sleep(0.1)
        raise SystemExit(f"error: the terminal does not show `{text}`:\n{self._tmux('capture-pane', '-p')}")

    def picture(self, name: str, title: str) -> None:
        """Write what the screen shows."""
        shown = self._tmux("capture-pane", "-e", "-p").rstrip("\n")
        console = Console(
            record=True, width=self._width, file=StringIO(), force_terminal=True, color_system="truecolor"
        )
        console.print(Text.from_ansi(shown), soft_wrap=False)
        # No font is loaded from elsewhere: the reader's own serves.
        svg = re.sub(
            r"@font-face \{.*?\}", "", console.export_svg(title=title, theme=THEME, unique_id=name), flags=re.DOTALL
        )
        svg = svg.replace("Fira Code, monospace", "ui-monospace, Menlo, Consolas, monospace")
        (IMAGES / f"{name}.svg").write_text(re.sub(r"[ \t]+$", "", svg, flags=re.MULTILINE), encoding="utf-8")
        print(f"✓ docs/images/{name}.svg")

    def close(self) -> None:
        """End the terminal and what runs in it."""
        with contextlib.suppress(subprocess.CalledProcessError):
            self._tmux("kill-server")


@contextlib.contextmanager
def project() -> Iterator[tuple[Path, dict[str, str]]]:
    """The project of docs/cookbook/systemd.md with a unit that is down, and an environment without your settings."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as above:
        folder = Path(above, "ops")
        page = (ROOT / "docs" / "cookbook" / "systemd.md").read_text(encoding="utf-8")
        files = dict(re.findall(r'^```yaml title="([^"]+)"\n(.*?)^```$', page, re.M | re.S))
        for name, text in {**files, "gert-project.yaml": "name: ops\n"}.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text, encoding="utf-8")
        (folder / "bin").mkdir()
        shutil.copy(ROOT / "tests" / "docs_stubs" / "systemctl", folder / "bin")
        key = base64.b64encode(secrets.token_bytes(32)).decode()
        yield (
            folder,
            {
                "HOME": above,
                "TERM": "xterm-256color",
                "COLORTERM": "truecolor",
                "LC_ALL": "C.UTF-8",
                "PATH": os.pathsep.join([str(folder / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]]),
                "GERT_TRACE_SIGNING_KEY": f"ed25519:{key}",
            },
        )


def browse(address: str, name: str, width: int = 1000, height: int = 900) -> None:
    """Write a picture of a page."""
    target = IMAGES / f"{name}.png"
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        raise SystemExit("error: `chromium` was not found on PATH")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        subprocess.run(
            [
                chromium,
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--hide-scrollbars",
                f"--user-data-dir={profile}",
                f"--window-size={width},{height}",
                f"--screenshot={target}",
                address,
            ],
            check=True,
            capture_output=True,
            timeout=120,
        )
    print(f"✓ {target.relative_to(ROOT)}")


EXEC = "gert exec runbooks/revive-unit.yaml --var unit=nginx --as oncall@example.com"


def live_view() -> None:
    """A run that waits for an approval; then a report of several runs."""
    with project() as (folder, environment):
        terminal = Terminal(folder, environment)
        try:
            terminal.type(f"clear; {EXEC}")
            terminal.wait("approve")
            terminal.picture("live-view", "gert exec")
            terminal.type("y pager 4711")
            terminal.wait("run completed")
            terminal.type(
                f"clear; for i in 1 2 3; do {EXEC} -q; done; rm restarted; echo n | {EXEC} -q; clear; echo ready"
            )
            terminal.wait("ready\n")
            terminal.type("clear; gert outcomes; gert trace verify last")
            terminal.wait("Chain integrity")
            terminal.picture("report", "gert outcomes, gert trace verify")
        finally:
            terminal.close()
        drawn = ["gert", "diagram", "runbooks/revive-unit.yaml", "--format", "svg"]
        svg = subprocess.run(drawn, cwd=folder, env=environment, check=True, capture_output=True).stdout
        (IMAGES / "diagram.svg").write_bytes(svg)
        print("✓ docs/images/diagram.svg")


def approval_page() -> None:
    """The page on which people answer a ticket."""
    with project() as (folder, environment):
        subprocess.run([*EXEC.split(), "--detach", "-q"], cwd=folder, env=environment, check=True, capture_output=True)
        served = subprocess.Popen(
            ["gert", "approvals", "serve", "--listen", "127.0.0.1:0"],
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            address = next(
                (found[0] for line in served.stdout or () if (found := re.search(r"http://\S+/t/\S+", line))), None
            )
            if address is None:
                raise SystemExit("error: `gert approvals serve` names no page")
            browse(address, "approval-page", height=584)
        finally:
            served.terminate()
            served.wait()


def screen() -> None:
    """The screen for an incident."""
    with project() as (folder, environment):
        terminal = Terminal(folder, environment, 110, 18)
        try:
            terminal.type(f"clear; {EXEC} --detach -q; clear; gert-tui --run last")
            terminal.wait("1 approval")
            time.sleep(2)
            terminal.picture("tui", "gert-tui")
        finally:
            terminal.close()


PICTURES = {"terminal": live_view, "page": approval_page, "screen": screen}


def main() -> int:
    """Make all pictures, or those that are named."""
    IMAGES.mkdir(exist_ok=True)
    for name in sys.argv[1:] or PICTURES:
        PICTURES[name]()
    return 0


if __name__ == "__main__":
    sys.exit(main())
