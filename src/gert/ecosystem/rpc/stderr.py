"""What a long-lived process prints on standard error: redacted, shown while it arrives, and bounded."""

import codecs
from collections.abc import Callable
from typing import Final

from gert.ecosystem.process.capture import escaped
from gert.kernel.engine.exit_reason import reason_line
from gert.kernel.foundation.redaction import Redactor
from gert.kernel.foundation.secret_refs import without_marks
from gert.kernel.foundation.text import one_line

KEPT: Final = 256 * 1024
"""Characters that are kept: the last ones."""

_MAX_LINE: Final = 200
_MAX_SHOWN_LINE: Final = 8192


class StderrTail:
    """The last part of a stream; a position in it marks where a call began."""

    def __init__(self, redactor: Redactor, show: Callable[[str], None] | None = None) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("gert.mark_bytes")
        self._stream = redactor.stream()
        self._show = show
        self._text = ""
        self._unshown = ""
        self.fed = 0
        self.position = 0
        """Characters that arrived so far."""

    def feed(self, data: bytes) -> None:
        """Data arrived."""
        self.fed += len(data)
        self._add(self._stream.feed(self._decoder.decode(data)))

    def close(self) -> None:
        """Nothing more will arrive."""
        self._add(self._stream.feed(self._decoder.decode(b"", final=True)) + self._stream.close())
        self._decoder.reset()
        if self._show is not None and self._unshown:
            self._show(self._unshown)
            self._unshown = ""

    def since(self, position: int) -> str:
        """Return what arrived after a position, as far as it is kept."""
        new = self.position - position
        return "" if new <= 0 else self._text if new >= len(self._text) else self._text[-new:]

    @property
    def last_line(self) -> str:
        """The last line that says why: see `reason_line`."""
        return one_line(reason_line(self._text), _MAX_LINE)

    def _add(self, text: str) -> None:
        text = escaped(without_marks(text))
        self.position += len(text)
        self._text = (self._text + text)[-KEPT:]
        if self._show is not None and text:
            self._unshown = self._shown(self._unshown + text, self._show)

    def _shown(self, text: str, show: Callable[[str], None]) -> str:
        """Show whole lines, and long ones in parts; return the rest."""
        end = text.rfind("\n") + 1 or (len(text) if len(text) > _MAX_SHOWN_LINE else 0)
        for at in range(0, end, _MAX_SHOWN_LINE):
            show(text[at : min(at + _MAX_SHOWN_LINE, end)])
        return text[end:]
