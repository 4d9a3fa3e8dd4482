"""The plain view of a run: lines for pipes, logs and simple terminals."""

from collections.abc import Callable, Iterable

import click

from gert.ecosystem.surfaces.cli.live.backlog import Backlog
from gert.ecosystem.surfaces.cli.render.views.event_lines import Line, LineRenderer
from gert.kernel.events.envelope import Envelope
from gert.kernel.events.payload import Payload


class PlainView:
    """Writes one line per event that matters.

    write: receives one line, without a line break
    verbose: also show the output of tools
    """

    def __init__(self, write: Callable[[str], None], *, verbose: bool = False, colour: bool = False) -> None:
        self._write = write
        self._colour = colour
        self._record = LineRenderer(verbose=verbose)
        self._backlog = Backlog()
        self._questions = 0

    def said(self, event: Envelope, payload: Payload) -> None:
        """Show an event."""
        self._show(self._record.said(event, payload))

    def repeated(self, event: Envelope, payload: Payload) -> None:
        """What happened before the run was resumed was shown then."""

    def printed(self, path: str, stream: str, text: str) -> None:
        """Show the output of a tool, line by line."""
        self._show(self._record.printed(path, stream, text))

    def pause(self) -> None:
        """Hold lines back while a prompt is open: another lane must not write into the answer."""
        self._questions += 1

    def unpause(self) -> None:
        """Show the held lines once the last prompt is answered."""
        self._questions = max(self._questions - 1, 0)
        if not self._questions:
            self._show(self._backlog.take())

    def close(self) -> None:
        """Show the remaining lines."""
        self._questions = 0
        self._show(self._backlog.take())
        self._show(self._record.rest())

    def _show(self, lines: Iterable[Line]) -> None:
        for line in lines:
            if self._questions:
                self._backlog.add(line)
            else:
                self._write(plain_text(line, colour=self._colour))


def plain_text(line: Line, *, colour: bool) -> str:
    """Write a line as text."""
    if not colour:
        return "".join(span.text for span in line)
    return "".join(click.style(span.text, fg=span.colour) if span.colour else span.text for span in line)
