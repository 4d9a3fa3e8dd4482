"""What a process prints on one stream: decoded, without secrets, shown while it comes, and bounded."""

import codecs
from collections.abc import Callable
from typing import Final

from gert.kernel.foundation.redaction import RedactingStream, Redactor
from gert.kernel.foundation.secret_refs import defused

_DECODER: Final = codecs.getincrementaldecoder("utf-8")
_MAX_SHOWN_LINE: Final = 8192
"""From this length on a line is shown before it is complete."""


class Capture:
    """Keeps the beginning of a stream, up to a limit in bytes, and drops the rest.

    `keeps_raw`: the bytes are kept too, for a reader that masks secrets in a parsed document.
    """

    __slots__ = (
        "_left", "_line", "_pieces", "_raw", "_reading", "_redactor", "_show", "fed", "is_truncated", "limit",
    )  # fmt: skip

    def __init__(
        self, redactor: Redactor, limit: int, show: Callable[[str], None] | None = None, *, keeps_raw: bool = False
    ) -> None:
        self._redactor = redactor
        # Most processes print on one stream at most: what reads them is made when there is something to read.
        self._reading: tuple[codecs.IncrementalDecoder, RedactingStream] | None = None
        self.limit = self._left = limit
        self._pieces: list[str] = []
        self._raw: list[bytes] | None = [] if keeps_raw else None
        self._show = show
        self._line = ""
        self.fed = 0
        """Bytes that came, kept or not."""
        self.is_truncated = False

    @property
    def masked(self) -> int:
        """How many secrets were masked."""
        return self._reading[1].count if self._reading is not None else 0

    @property
    def kept(self) -> str:
        """The text that was kept, without secrets."""
        if len(self._pieces) > 1:
            self._pieces = ["".join(self._pieces)]
        return self._pieces[0] if self._pieces else ""

    @property
    def text(self) -> str:
        """The text that was kept, and a last line that says so where it is not all."""
        return f"{self.kept}{self._marker}" if self.is_truncated else self.kept

    @property
    def raw(self) -> str:
        """The text with its secrets; it must not leave the reader that masks them."""
        return b"".join(self._raw or ()).decode("utf-8", "replace")

    def feed(self, data: bytes) -> None:
        """Take what came."""
        self.fed += len(data)
        if self.is_truncated:
            return
        kept = data if len(data) <= self._left else data[: self._left]
        self._left -= len(kept)
        if self._raw is not None:
            self._raw.append(kept)
        if self._reading is None:
            self._reading = _DECODER("replace"), self._redactor.stream()
        decoder, stream = self._reading
        self._keep(stream.feed(decoder.decode(kept)))
        if len(kept) < len(data):
            # What the redactor still holds back may be the first half of a secret, so it is dropped as well.
            self.is_truncated = True
            if self._raw is not None:
                self._raw.clear()
            self._tell(self._marker)

    def close(self) -> None:
        """Nothing more will come."""
        if self._reading is not None and not self.is_truncated:
            decoder, stream = self._reading
            self._keep(stream.feed(decoder.decode(b"", final=True)) + stream.close())
        if self._show is not None and self._line:
            self._show(self._line)
            self._line = ""

    @property
    def _marker(self) -> str:
        return f"\n[output was longer than {size_text(self.limit)}; the rest was dropped]\n"

    def _keep(self, text: str) -> None:
        # No tool can print a reference to a secret.
        text = defused(text)
        if text:
            self._pieces.append(text)
            self._tell(text)

    def _tell(self, text: str) -> None:
        """Show whole lines, and long ones in parts."""
        if self._show is None:
            return
        self._line += text
        end = self._line.rfind("\n") + 1 or (len(self._line) if len(self._line) >= _MAX_SHOWN_LINE else 0)
        ready, self._line = self._line[:end], self._line[end:]
        for at in range(0, end, _MAX_SHOWN_LINE):
            self._show(ready[at : at + _MAX_SHOWN_LINE])


def size_text(size: int) -> str:
    """A number of bytes for people."""
    return f"{size >> 20} MiB" if size >= 1 << 20 and size % (1 << 20) == 0 else f"{size} bytes"
