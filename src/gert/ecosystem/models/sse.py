"""Server-sent events, read from chunks of bytes however they are cut."""

from codecs import BOM_UTF8
from collections.abc import Iterator

import msgspec


class Event(msgspec.Struct, frozen=True):
    """One event: its name (`message` where it has none) and its data.

    The data are bytes: whoever reads them as text refuses what is none, and no letter is made up in its place.
    """

    name: str
    data: bytes


class EventReader:
    """Turns chunks into events; what stands after the last empty line is no event yet and is dropped.

    Holds at most what it was fed: whoever reads the connection bounds that.
    """

    def __init__(self) -> None:
        self._begun = bytearray()  # a line that is not over yet
        self._after_return = False
        self._first_line = True
        self._name = ""
        self._data: list[bytes] = []

    def feed(self, chunk: bytes) -> Iterator[Event]:
        """Give the events that are complete with this chunk."""
        for line in self._lines(chunk):
            event = self._take(line)
            if event is not None:
                yield event

    def _lines(self, chunk: bytes) -> Iterator[bytes]:
        # A line ends with CR, LF, or both; a chunk may begin with the second half of one end.
        if self._after_return and chunk:
            chunk = chunk.removeprefix(b"\n")
            self._after_return = False
        if not chunk:
            return
        self._after_return = chunk.endswith(b"\r")
        *ended, rest = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        for piece in ended:
            self._begun += piece
            line = bytes(self._begun)
            self._begun.clear()
            yield line.removeprefix(BOM_UTF8) if self._first_line else line
            self._first_line = False
        self._begun += rest

    def _take(self, line: bytes) -> Event | None:
        if not line:
            event = Event(self._name or "message", b"\n".join(self._data)) if self._data else None
            self._name, self._data = "", []
            return event
        field, _, value = line.partition(b":")  # a comment begins with a colon, so it is a field without a name
        value = value.removeprefix(b" ")
        if field == b"data":
            self._data.append(value)
        elif field == b"event":
            self._name = value.decode("utf-8", "replace")
        return None
