"""A terminal with somebody at it: `gert exec` on a pty, typed to once it has asked."""

import fcntl
import os
import pty
import select
import subprocess
import termios
import time
from pathlib import Path
from typing import Any, Self

from tests.ecosystem.surfaces.cli.workbench import GERT, PATIENCE, Project, environment

END_OF_FILE = "\x04"
INTERRUPT = "\x03"


class Terminal:
    """`gert exec` of a project's `book.yaml`, or another command, at a terminal of its own."""

    def __init__(
        self,
        project: Project,
        *words: str | Path,
        environ: dict[str, str] | None = None,
        command: tuple[str | Path, ...] | None = None,
    ) -> None:
        self._master, slave = pty.openpty()
        self.screen = ""
        self._seen = 0
        self.process = subprocess.Popen(
            [*GERT, *map(str, command or ("exec", project.root / "book.yaml")), *map(str, words)],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            cwd=project.root,
            env=environment({"TERM": "dumb", **(environ or {})}),
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509 - no threads are running here
        )
        os.close(slave)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: Any) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._master)

    def expect(self, text: str) -> None:
        """Wait until something is shown, after what was waited for before."""
        end = time.monotonic() + PATIENCE
        while (at := self.screen.find(text, self._seen)) < 0:
            goes_on = time.monotonic() < end and self._read()
            assert goes_on, f"expected {text!r}, found:\n{self.screen[self._seen :]}"
        self._seen = at + len(text)

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def answer(self, question: str, text: str) -> None:
        """Type a line once a question is shown."""
        self.expect(question)
        self.type(f"{text}\n")

    def ended(self, code: int) -> None:
        """Read until it ends, and check its exit code."""
        end = time.monotonic() + PATIENCE
        while self._read():
            assert time.monotonic() < end, f"it does not end:\n{self.screen}"
        found = self.process.wait(PATIENCE)
        assert found == code, f"exit {found}, expected {code}:\n{self.screen}"

    def is_echoing(self) -> bool:
        return bool(termios.tcgetattr(self._master)[3] & termios.ECHO)

    def _read(self) -> bool:
        """Read more; false once nobody is left to write."""
        ready, _, _ = select.select([self._master], [], [], 0.05)
        if not ready:
            return self.process.poll() is None
        try:
            data = os.read(self._master, 65536)
        except OSError:
            return False
        self.screen += data.decode(errors="replace")
        return bool(data)
