"""Choosing the view of a run: live on a capable terminal, plain lines elsewhere, none with --quiet."""

from collections.abc import Callable
from typing import TextIO

from gert.ecosystem.host.run.observer import Observer
from gert.ecosystem.surfaces.cli.live.plain import PlainView
from gert.ecosystem.surfaces.cli.render.output import has_colours, is_dumb


def make_view(*, stream: TextIO, verbose: bool, quiet: bool) -> Observer | None:
    """Choose the view for a stream, usually standard error."""
    if quiet:
        return None
    if not _is_terminal(stream):
        return PlainView(writer(stream), verbose=verbose)
    return _live(stream, verbose) or PlainView(writer(stream), verbose=verbose, colour=has_colours())


def writer(stream: TextIO) -> Callable[[str], None]:
    """Write lines to a stream until its reader is gone; a run does not fail because its output is not read."""
    gone = False

    def write(line: str) -> None:
        nonlocal gone
        if gone:
            return
        try:
            try:
                stream.write(f"{line}\n")
            except UnicodeEncodeError:
                stream.write(f"{line.encode('ascii', 'backslashreplace').decode()}\n")
            stream.flush()
        except (OSError, ValueError):
            gone = True

    return write


def _live(stream: TextIO, verbose: bool) -> Observer | None:
    encoding = str(getattr(stream, "encoding", None) or "").lower().replace("-", "").replace("_", "")
    if is_dumb() or not encoding.startswith("utf8"):
        return None
    try:
        from gert.ecosystem.surfaces.cli.live.terminal import LiveView, Screen
    except ImportError:
        return None
    return LiveView(Screen(stream), verbose=verbose)


def _is_terminal(stream: TextIO) -> bool:
    try:
        return stream.isatty()
    except ValueError:
        return False  # the stream is closed
