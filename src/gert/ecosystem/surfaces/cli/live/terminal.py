"""The live view of a run: running steps are redrawn at the bottom, finished ones scroll up and stay.

The lines that stay are those of the plain view. They are written as they happen, not when a whole block is
done, so only running steps are kept in memory, and the lines of a killed run stay on the screen.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from datetime import timedelta
from itertools import islice
from threading import Event, Lock, Thread
from time import monotonic
from typing import IO, Final

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from gert.ecosystem.surfaces.cli.live.backlog import Backlog
from gert.ecosystem.surfaces.cli.live.running_steps import TAIL, Node, RunningSteps
from gert.ecosystem.surfaces.cli.render.text import ASKED, BAD, DOUBTFUL, LIVELY, QUIET, QUOTED, clip, elapsed
from gert.ecosystem.surfaces.cli.render.views.event_lines import INDENT, Line, LineRenderer, StyledText
from gert.kernel.events.envelope import Envelope
from gert.kernel.events.payload import Payload

PERIOD: Final = 0.1
"""Seconds between two drawings; more often makes no visible difference."""

FULL: Final = 1000
"""With this many lines waiting, the run waits for the terminal."""

PATIENCE: Final = 2.0
"""Seconds to wait for a blocked terminal."""

LONGEST_SHOWN: Final = 48
"""Longer names would push the rest of the row off the screen."""

MOST_MEANWHILE: Final = 4
"""Running steps to list above a prompt, and lines to add while it is open: what is decided on must stay in sight."""

PROMPT_SHOWN: Final = 1.0
"""Seconds after which a prompt stands below what it is about."""

# Makes room below the cursor, inserts a row at the cursor, and returns to the same place of the prompt, one row down.
_INSERT: Final = ("\x1bD\x1bM\x1b7\r\x1b[L", "\x1b8\x1b[B")

SPINNER: Final = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"


class Screen(Console):
    """A console that does not end the run when its terminal is gone; rich would exit the process."""

    def __init__(self, stream: IO[str]) -> None:
        # rich itself reads NO_COLOR, and the size of the terminal each time it draws.
        super().__init__(file=stream, markup=False, emoji=False, highlight=False)

    def on_broken_pipe(self) -> None:
        """Raise, so that the view stops drawing."""
        raise BrokenPipeError


class LiveView:
    """Draws a run on a terminal from its own thread; its other methods only queue events and output.

    verbose: keep all output of tools, not only the last lines while they run
    """

    def __init__(
        self, console: Console, *, verbose: bool = False, clock: Callable[[], float] = monotonic, period: float = PERIOD
    ) -> None:
        self._console = console
        self._clock = clock
        self._period = period
        # `_lock` guards shared state, `_drawing` the terminal; a holder of the first never takes the second.
        self._lock = Lock()
        self._drawing = Lock()
        self._record = LineRenderer(starts=False, verbose=verbose)
        self._running = RunningSteps(clock)
        self._backlog = Backlog()
        self._questions = 0
        self._asked = 0.0
        self._inserted = 0
        self._live: Live | None = None
        self._ticker: Thread | None = None
        self._over = Event()

    def said(self, event: Envelope, payload: Payload) -> None:
        """Queue an event."""
        with self._lock:
            self._running.said(event, payload)
        self._keep(self._record.said(event, payload))

    def repeated(self, event: Envelope, payload: Payload) -> None:
        """What happened before the run was resumed was shown then."""

    def printed(self, path: str, stream: str, text: str) -> None:
        """Queue the output of a tool."""
        with self._lock:
            self._running.printed(path, stream, text)
        self._keep(self._record.printed(path, stream, text))

    def pause(self) -> None:
        """Show all queued lines and what else is running, then draw no tree while a prompt is open."""
        with self._drawing:
            self._questions += 1
            if self._questions == 1:
                self._leave()
                self._write_running()
                self._asked, self._inserted = self._clock(), 0

    def unpause(self) -> None:
        """Draw again once the last prompt is answered."""
        with self._drawing:
            self._questions = max(self._questions - 1, 0)

    def close(self) -> None:
        """Show the remaining lines and release the terminal, even after an error."""
        self._over.set()
        try:
            if self._ticker is not None:
                self._ticker.join(PATIENCE)
            self._keep(self._record.rest())
        finally:
            with self._drawing:
                self._questions = 0
                self._leave()

    # --- queueing

    def _keep(self, lines: Iterable[Line]) -> None:
        for line in lines:
            with self._lock:
                self._backlog.add(line)
            if len(self._backlog) >= FULL:
                self._draw()
        if self._ticker is None and not self._over.is_set():
            self._ticker = Thread(target=self._tick, name="gert-live-view", daemon=True)
            self._ticker.start()

    # --- drawing

    def _tick(self) -> None:
        while not self._over.wait(self._period):
            self._draw()

    def _draw(self) -> None:
        with self._drawing:
            if self._over.is_set():
                return
            try:
                if self._questions:
                    self._write_above_prompt()
                    return
                if self._live is None:
                    self._live = self._start()
                # Inside, the console buffers; the terminal gets lines and tree at once, without flicker.
                with self._console:
                    self._write_backlog()
                    self._live.refresh()
            except (OSError, ValueError):
                # The terminal is gone; the run continues.
                self._over.set()

    def _start(self) -> Live:
        live = Live(
            get_renderable=lambda: Group(*self.rows()),
            console=self._console,
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
            vertical_overflow="crop",
        )
        live.start()
        return live

    def _leave(self) -> None:
        """Remove the tree from the terminal and write the queued lines; the caller holds `_drawing`."""
        live, self._live = self._live, None
        try:
            try:
                if live is not None:
                    live.stop()
            finally:
                self._console.show_cursor(True)
            self._write_backlog()
        except (OSError, ValueError):
            self._over.set()

    def _write_backlog(self) -> None:
        with self._lock:
            lines = self._backlog.take()
        if lines:
            # The terminal wraps long lines itself, so that they can be copied whole.
            self._console.print(Text("\n").join(map(_text, lines)), soft_wrap=True)

    def _write_running(self) -> None:
        """Write which other lanes and items run while a person is asked."""
        with self._lock:
            leaves = [node for node in self._running.walk() if node.began is not None and not node.children]
            running = [node for node in leaves if not node.waits]
            shown = [self._row((StyledText(INDENT), *self._node_line(node)[1:])) for node in running[:MOST_MEANWHILE]]
        if not running:
            return
        more = f", {MOST_MEANWHILE} of {len(running):,}" if len(running) > MOST_MEANWHILE else ""
        with suppress(OSError, ValueError):
            self._console.print(Text("\n").join([Text(f"running meanwhile{more}:", QUIET), *shown]), soft_wrap=True)

    def _write_above_prompt(self) -> None:
        """Write what happens in other lanes above an open prompt, without touching what is typed there."""
        if self._clock() - self._asked < PROMPT_SHOWN:
            return
        while self._inserted < MOST_MEANWHILE:
            with self._lock:
                line = self._backlog.next()
            if line is None:
                return
            self._inserted += 1
            row, (before, after) = self._row(line), _INSERT
            with self._console.capture() as captured:
                self._console.print(row, end="")
            self._console.file.write(f"{before}{captured.get()}{after}")
            self._console.file.flush()

    def rows(self) -> list[Text]:
        """The rows at the bottom: never more rows than the terminal has, none wider than it is."""
        with self._lock:
            return list(self._rows())

    def _rows(self) -> Iterator[Text]:
        room = max(self._console.height - 2, 3)
        many = len(self._running)
        # With little room, output is dropped first.
        tail = min(max((room - 1 - many) // max(many, 1), 0), TAIL)
        shown = room - 2 if many > room - 1 else many
        nodes = self._running.walk()
        for node in islice(nodes, shown):
            yield self._row(self._node_line(node))
            if node.tail is not None:
                for line in node.tail.last(tail):
                    yield self._row((StyledText(f"{INDENT * (node.depth + 1)}{QUOTED}{line}", QUIET),))
        if shown < many:
            more = sum(node.began is not None for node in nodes)
            yield self._row((StyledText(f"{INDENT}… and {more:,} more running", QUIET),))
        yield self._row(self._summary())

    def _node_line(self, node: Node) -> Line:
        indent = StyledText(INDENT * node.depth)
        if node.began is None:
            return indent, StyledText(node.name, QUIET)
        icon = StyledText(ASKED, DOUBTFUL) if node.waits else StyledText(self._spin(), LIVELY)
        does = StyledText(f"  {node.does}" if node.does else "", QUIET)
        progress = StyledText(f"  {node.progress}" if node.progress else "", DOUBTFUL)
        # The time comes before text that may be long and cut off.
        name = clip(node.name, LONGEST_SHOWN)
        return indent, icon, StyledText(f" {name}  "), StyledText(self._since(node.began)), progress, does

    def _summary(self) -> Line:
        running = self._running
        if running.began is None:
            return (StyledText(""),)
        time = StyledText(f"  {self._since(running.began)}")
        ended = StyledText(f"  {running.ended:,} done", QUIET)
        failed = StyledText(f", {running.failed:,} failed" if running.failed else "", BAD)
        return (
            StyledText(self._spin(), LIVELY),
            StyledText(f" {clip(running.runbook, LONGEST_SHOWN)}"),
            time,
            ended,
            failed,
        )

    def _row(self, line: Line) -> Text:
        """A line that takes exactly one row."""
        text = _text(line)
        text.no_wrap = True
        # Room for the `^C` that the terminal echoes: if it went to another row, the wrong rows would be erased.
        text.truncate(max(self._console.width - len("^C^C"), 1), overflow="ellipsis")
        return text

    def _since(self, began: float) -> str:
        return elapsed(timedelta(seconds=self._clock() - began))

    def _spin(self) -> str:
        return SPINNER[int(self._clock() / PERIOD) % len(SPINNER)]


def _text(line: Line) -> Text:
    """Convert a line for rich; a `Text` is never parsed as markup."""
    text = Text()
    for span in line:
        text.append(span.text, span.colour)
    return text
