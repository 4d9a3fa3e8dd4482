"""The one reader of standard input in a run, and the one place where questions are put to the person at the terminal.

A second reader would swallow what the first one's next question waits for. Nothing is read before a question is put: a
cancelled question loses no line, and a line that was typed for it is distinct from an answer to the next.
"""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext, suppress
from shutil import get_terminal_size
from typing import Any, Final

from gert.errors import InputError
from gert.kernel.foundation.columns import rows
from gert.kernel.foundation.text import printable

try:
    import termios
except ImportError:  # a system without terminals of this kind: nothing can be hidden or dropped
    termios = None  # type: ignore[assignment]

MAX_LINE: Final = 64 * 1024
_CHUNK: Final = 16 * 1024
_QUESTION: Final = 3
"""Rows that a question may take."""
_NARROWEST: Final = 6
_STYLES: Final = {
    "bold": "\x1b[1m",
    "red": "\x1b[31m",
    "green": "\x1b[32m",
    "yellow": "\x1b[33m",
    "cyan": "\x1b[36m",
}


class Console:
    """Asks for lines, one dialogue at a time."""

    def __init__(
        self,
        descriptor: int | None,
        write: Callable[[str], object],
        *,
        seen: bool = False,
        on_turn_begin: Callable[[], object] | None = None,
        on_turn_end: Callable[[], object] | None = None,
    ) -> None:
        """Read from a descriptor (None where standard input is closed) and show questions through `write`.

        seen: what is written is shown on a terminal
        on_turn_begin, on_turn_end: called around a dialogue, so that a live view can make room for it
        """
        is_open, self.is_terminal = _state_of(descriptor)
        self._reader = _Reader(descriptor if is_open else None)
        self._write = write
        self.interactive = self.is_terminal and seen
        self._begin, self._end = on_turn_begin, on_turn_end
        self._lock = asyncio.Lock()
        self._holder: asyncio.Task[Any] | None = None
        self._buffer = bytearray()
        self._is_over = False
        self._flaw: str | None = None

    @classmethod
    def standard(
        cls, on_turn_begin: Callable[[], object] | None = None, on_turn_end: Callable[[], object] | None = None
    ) -> "Console":
        """The console of this process; questions go to standard error, so that results stay clean."""
        return cls(
            _descriptor_of(sys.stdin),
            _write_to_stderr,
            seen=sys.stderr is not None and not sys.stderr.closed and sys.stderr.isatty(),
            on_turn_begin=on_turn_begin,
            on_turn_end=on_turn_end,
        )

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Keep a dialogue together: no other question is put meanwhile. A turn within a turn is the same turn."""
        task = asyncio.current_task()
        if self._holder is not None and self._holder is task:
            yield
            return
        async with self._lock:
            self._holder = task
            try:
                if self._begin is not None:
                    self._begin()
                yield
            finally:
                self._holder = None
                if self._end is not None:
                    self._end()

    def say(self, text: str = "", style: str | None = None) -> None:
        """Show lines, on a terminal in rows and in a style; nothing in the text can act on a terminal."""
        begin = _STYLES.get(style or "", "") if self.interactive and _has_styles() else ""
        end = "\x1b[0m" if begin else ""
        shown = (row.rstrip() for line in text.split("\n") for row in self._wrapped(line))
        self._write("".join(f"{begin}{row}{end}\n" for row in shown))

    def warn(self, text: str) -> None:
        """Show a warning; within a dialogue of another step at once, so that nothing waits for that."""
        is_free = not self._lock.locked()
        if is_free and self._begin is not None:
            self._begin()
        self.say(f"warning: {text}", "yellow")
        if is_free and self._end is not None:
            self._end()

    async def line(self, prompt: str | None = None, *, hidden: bool = False, fresh: bool = False) -> str | None:
        """Ask for one line without its end; None where no more come.

        hidden: what is typed on a terminal is not shown
        fresh: what was typed on a terminal before the question was shown is no answer to it
        """
        async with self.turn():
            with self._silence() if hidden else nullcontext():
                if fresh:
                    self._drop_typed()
                if prompt is not None:
                    shown = "\n".join(self._wrapped(prompt))
                    self._write(shown if self.interactive else f"{shown}\n")
                try:
                    return await self._next()
                except asyncio.CancelledError:
                    if self.interactive and prompt is not None and not hidden:
                        self._write("\n")  # later output must not follow the question on its line
                    raise

    def _wrapped(self, line: str) -> list[str]:
        return rows(printable(line), _columns()) if self.interactive else [printable(line)]

    @property
    def width(self) -> int:
        """The columns of the terminal now; 0 where none shows what is said."""
        return _columns() if self.interactive else 0

    def fits(self, lines: Iterable[str]) -> bool:
        """Whether lines can be seen at once above a question; where no terminal shows them, nothing scrolls away."""
        if not self.interactive:
            return True
        return sum(len(self._wrapped(line)) for line in lines) + _QUESTION <= _size().lines

    async def _next(self) -> str | None:
        while True:
            if self._flaw is not None:
                raise InputError(self._flaw)
            end = self._buffer.find(b"\n")
            if (end if end >= 0 else len(self._buffer)) > MAX_LINE:
                # Nor is what follows read: a line without end would never be over.
                self._flaw = f"a line of standard input is longer than {MAX_LINE // 1024} KiB"
                continue
            if end >= 0:
                return self._cut(end + 1)
            if self._is_over:
                # A terminal can be read after its end of file, so the next question may still be answered.
                self._is_over = not self.is_terminal
                return self._cut(len(self._buffer)) if self._buffer else None
            chunk = await self._reader.chunk()
            self._is_over = not chunk
            self._buffer += chunk

    def _cut(self, end: int) -> str:
        data = bytes(self._buffer[:end])
        del self._buffer[:end]
        try:
            return data.decode("utf-8").removesuffix("\n").removesuffix("\r")
        except UnicodeDecodeError:
            raise InputError("a line of standard input is not UTF-8") from None

    def _drop_typed(self) -> None:
        if self.is_terminal:
            self._buffer.clear()
            self._reader.drop()

    @contextmanager
    def _silence(self) -> Iterator[None]:
        """Turn the echo of a terminal off, and back on in any case."""
        before = self._reader.attributes() if self.is_terminal else None
        if before is None:
            yield
            return
        silent = [*before]
        silent[3] &= ~termios.ECHO
        self._reader.set_attributes(silent)
        try:
            yield
        finally:
            self._reader.set_attributes(before)
            self._write("\n")  # the one that was typed was not shown


class _Reader:
    """Reads a descriptor, one chunk at a time and only when asked; waiting for it does not hold up the run."""

    def __init__(self, descriptor: int | None) -> None:
        self._descriptor = descriptor

    async def chunk(self) -> bytes:
        """The next bytes; none at the end. If the wait is cancelled, nothing has been read."""
        while self._descriptor is not None:
            try:
                await _readable(self._descriptor)
                return os.read(self._descriptor, _CHUNK)
            except BlockingIOError:
                continue  # another process made it so first
            except OSError:
                break  # closed, or a terminal that hung up: no more comes
        return b""

    def drop(self) -> None:
        """Forget what was typed and not read."""
        if self._descriptor is not None and termios is not None:
            try:
                termios.tcflush(self._descriptor, termios.TCIFLUSH)
            except termios.error:
                return  # hung up

    def attributes(self) -> list[Any] | None:
        """The settings of the terminal, where they can be changed."""
        if self._descriptor is None or termios is None:
            return None
        try:
            return termios.tcgetattr(self._descriptor)
        except termios.error:
            return None

    def set_attributes(self, attributes: list[Any]) -> None:
        """Change the settings of the terminal; one that hung up has none."""
        if self._descriptor is None:
            return
        try:
            termios.tcsetattr(self._descriptor, termios.TCSADRAIN, attributes)
        except termios.error:
            return


async def _readable(descriptor: int) -> None:
    """Wait until a read would not."""
    loop = asyncio.get_running_loop()
    arrived: asyncio.Future[None] = loop.create_future()
    try:
        loop.add_reader(descriptor, _set_done, arrived)
    except (PermissionError, NotImplementedError):
        # A file or device that never waits; or a system whose loop cannot watch, where the run waits with us.
        return
    try:
        await arrived
    finally:
        loop.remove_reader(descriptor)


def _columns() -> int:
    return max(_size().columns, _NARROWEST)


def _size() -> os.terminal_size:
    """The size of the terminal that questions are shown on."""
    with suppress(OSError, ValueError):
        if sys.stderr is not None and all(found := os.get_terminal_size(sys.stderr.fileno())):
            return found
    return get_terminal_size()


def _has_styles() -> bool:
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM", "dumb") != "dumb"


def _set_done(arrived: asyncio.Future[None]) -> None:
    if not arrived.done():
        arrived.set_result(None)


def _state_of(descriptor: int | None) -> tuple[bool, bool]:
    """Whether a descriptor is open, and a terminal; the number of a closed one will be another file's."""
    try:
        if descriptor is None:
            return False, False
        os.fstat(descriptor)
        return True, os.isatty(descriptor)
    except OSError:
        return False, False


def _descriptor_of(stream: Any) -> int | None:
    """The descriptor of a stream; none where there is no stream or it was closed."""
    try:
        return None if stream is None else int(stream.fileno())
    except (OSError, ValueError):
        return None


def _write_to_stderr(text: str) -> None:
    # A terminal that was closed takes no more output; the run continues.
    with suppress(OSError):
        if sys.stderr is not None and not sys.stderr.closed:
            sys.stderr.write(text)
            sys.stderr.flush()
