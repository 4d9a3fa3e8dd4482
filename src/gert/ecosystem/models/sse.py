"""Server-sent events, read from chunks of bytes however they are cut."""

from collections.abc import Iterator

import msgspec


class Event(msgspec.Struct, frozen=True):
    """One event: its name (`message` where it has none) and its data."""

    name: str
    data: str


class EventReader:
    """Turns chunks into events; what stands after the last empty line is no event yet and is dropped.

    Holds at most what it was fed: whoever reads the connection bounds that.
    """

    def __init__(self) -> None:
        # Pieces of a line that is not over yet; joined once, so that one long line stays linear.
        self._pieces: list[bytes] = []
        self._after_return = False
        self._first_line = True
        self._name = ""
        self._data: list[str] = []

    def feed(self, chunk: bytes) -> Iterator[Event]:
        """Give the events that are complete with this chunk."""
        for line in self._lines(chunk):
            event = self._take(line)
            if event is not None:
                yield event

    def _lines(self, chunk: bytes) -> Iterator[str]:
        # A line ends with CR, LF, or both; a chunk may begin with the second half of one end.
        if self._after_return and chunk:
            chunk = chunk.removeprefix(b"\n")
            self._after_return = False
        if not chunk:
            return
        self._after_return = chunk.endswith(b"\r")
        *ended, rest = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        for piece in ended:
            self._pieces.append(piece)
            line = b"".join(self._pieces).decode("utf-8", "replace")
            self._pieces.clear()
            yield line.removeprefix("\ufeff") if self._first_line else line
            self._first_line = False
        if rest:
            self._pieces.append(rest)

    def _take(self, line: str) -> Event | None:
        if not line:
            event = Event(self._name or "message", "\n".join(self._data)) if self._data else None
            self._name, self._data = "", []
            return event
        field, _, value = line.partition(":")  # a comment begins with a colon, so it is a field without a name
        value = value.removeprefix(" ")
        if field == "data":
            self._data.append(value)
        elif field == "event":
            self._name = value
        return None
