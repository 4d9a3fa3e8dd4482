"""What a process prints on one stream: decoded, without secrets, shown while it comes, and bounded.

Bytes that are not UTF-8 are U+FFFD where values are extracted, and `\\xNN` where output is shown or logged. Between
decoding and these two, a bad byte is a lone surrogate: U+DC80 and up for the first of a sequence, U+DB80 and up for the
others, so that one sequence is one U+FFFD, as elsewhere in Python.
"""

import codecs
import re
from collections.abc import Callable
from typing import Final

from gert.kernel.foundation.redaction import RedactingStream, Redactor
from gert.kernel.foundation.secret_refs import without_marks

_HIGH: Final = 0xDB00
_LOW: Final = 0xDC00
_BAD: Final = re.compile("[\ud800-\udfff]")
_BAD_SEQUENCE: Final = re.compile("[\udc80-\udcff][\udb80-\udbff]*")


def _mark(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeDecodeError):
        raise error
    first, *others = error.object[error.start : error.end]
    return chr(_LOW + first) + "".join(chr(_HIGH + byte) for byte in others), error.end


codecs.register_error("gert.mark_bytes", _mark)
_DECODER: Final = codecs.getincrementaldecoder("utf-8")
KEPT_IN_LOG: Final = 1024 * 1024
"""Bytes of each stream that a stored answer holds: the first and the last half."""

_MAX_SHOWN_LINE: Final = 8192
"""From this length on a line is shown before it is complete."""


class Capture:
    """Keeps the beginning of a stream, up to a limit in bytes, for extraction; and its first and last part for the log.

    `keeps_raw`: the bytes are kept too, for a reader that masks secrets in a parsed document.
    """

    def __init__(
        self, redactor: Redactor, limit: int, show: Callable[[str], None] | None = None, *, keeps_raw: bool = False
    ) -> None:
        self._redactor = redactor
        # Most processes print on one stream at most: what reads them is made when there is something to read.
        self._reading: tuple[codecs.IncrementalDecoder, RedactingStream] | None = None
        self.limit = self._left = limit
        self._pieces: list[str] = []
        # Of what comes after the limit, the last part, and how many bytes it was.
        self._rest = ""
        self._rest_bytes = 0
        self._raw: list[bytes] | None = [] if keeps_raw else None
        self._show = show
        self._line = ""
        self._masked = 0
        self.fed = 0
        """Bytes that came, kept or not."""
        self.is_truncated = False

    @property
    def masked(self) -> int:
        """How many secrets were masked."""
        return self._masked + (self._reading[1].count if self._reading is not None else 0)

    @property
    def kept(self) -> str:
        """The text that was kept, without secrets."""
        return _BAD_SEQUENCE.sub("\ufffd", self._joined())

    @property
    def logged(self) -> str:
        """The first and the last part of all that came, without secrets, and between them how much was left out."""
        text = escaped(self._joined()).encode("utf-8", "replace")
        rest = escaped(self._rest).encode("utf-8", "replace")
        half = KEPT_IN_LOG // 2
        left_out = len(text) + max(self._rest_bytes, len(rest)) - KEPT_IN_LOG
        if left_out <= 0:
            return (text + rest).decode()
        last = (text[-half:] + rest)[-half:]
        first, end = (part.decode("utf-8", "ignore") for part in (text[:half], last))
        return f"{first}\n[{left_out} bytes were left out]\n{end}"

    def _joined(self) -> str:
        if len(self._pieces) > 1:
            self._pieces = ["".join(self._pieces)]
        return self._pieces[0] if self._pieces else ""

    @property
    def text(self) -> str:
        """The kept text, with a last line that says so if it was truncated."""
        return f"{self.kept}{self._marker}" if self.is_truncated else self.kept

    @property
    def raw(self) -> str:
        """The text with its secrets; it must not leave the reader that masks them."""
        return b"".join(self._raw or ()).decode("utf-8", "replace")

    def feed(self, data: bytes) -> None:
        """Take what came."""
        self.fed += len(data)
        if self.is_truncated:
            self._keep_rest(data)
            return
        kept = data if len(data) <= self._left else data[: self._left]
        self._left -= len(kept)
        if self._raw is not None:
            self._raw.append(kept)
        if self._reading is None:
            self._reading = _DECODER("gert.mark_bytes"), self._redactor.stream()
        decoder, stream = self._reading
        self._keep(stream.feed(decoder.decode(kept)))
        if len(kept) < len(data):
            # What the redactor still holds back may be the first half of a secret, so it belongs to the rest.
            self.is_truncated = True
            if self._raw is not None:
                self._raw.clear()
            self._tell(self._marker)
            self._keep_rest(data[len(kept) :])

    def close(self) -> None:
        """Nothing more will come."""
        if self._reading is not None:
            decoder, stream = self._reading
            text = stream.feed(decoder.decode(b"", final=True)) + stream.close()
            if self.is_truncated:
                self._add_rest(text)
            else:
                self._keep(text)
            self._masked += stream.count
            self._reading = decoder, self._redactor.stream()
        if self._show is not None and self._line:
            self._show(self._line)
            self._line = ""

    @property
    def _marker(self) -> str:
        return f"\n[output was longer than {size_text(self.limit)}; the rest was dropped]\n"

    def _keep(self, text: str) -> None:
        # No tool can print a reference to a secret.
        text = without_marks(text)
        if text:
            self._pieces.append(text)
            self._tell(text)

    def _keep_rest(self, data: bytes) -> None:
        if self._reading is not None:
            decoder, stream = self._reading
            self._add_rest(stream.feed(decoder.decode(data)))

    def _add_rest(self, text: str) -> None:
        text = without_marks(text)
        self._rest_bytes += len(text) if text.isascii() else len(escaped(text).encode("utf-8", "replace"))
        self._rest = (self._rest + text)[-KEPT_IN_LOG // 2 :]

    def _tell(self, text: str) -> None:
        """Show whole lines, and long ones in parts."""
        if self._show is None:
            return
        self._line += escaped(text)
        end = self._line.rfind("\n") + 1 or (len(self._line) if len(self._line) >= _MAX_SHOWN_LINE else 0)
        ready, self._line = self._line[:end], self._line[end:]
        for at in range(0, end, _MAX_SHOWN_LINE):
            self._show(ready[at : at + _MAX_SHOWN_LINE])


def marked(text: str) -> str:
    """A text that holds bytes as surrogates, as a stream has it before it is redacted."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "gert.mark_bytes")


def escaped(text: str) -> str:
    """A text in which bytes that were not UTF-8 are shown as `\\xNN`."""
    return text if text.isascii() else _BAD.sub(lambda found: f"\\x{ord(found[0]) & 0xFF:02x}", text)


def size_text(size: int) -> str:
    """A number of bytes for people."""
    return f"{size >> 20} MiB" if size >= 1 << 20 and size % (1 << 20) == 0 else f"{size} bytes"
