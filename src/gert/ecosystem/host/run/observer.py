"""What watches a run: it gets each event once the event is recorded, and answers nothing."""

from typing import Protocol

from gert.kernel.events.envelope import Envelope
from gert.kernel.events.payload import Payload


class Observer(Protocol):
    """Something that shows a run while it runs; nothing it does changes the run."""

    def said(self, event: Envelope, payload: Payload) -> None:
        """An event is durable; events come in the order of the trace."""

    def repeated(self, event: Envelope, payload: Payload) -> None:
        """An event of a run that is resumed was on record before; a retried resume repeats them."""

    def printed(self, path: str, stream: str, text: str) -> None:
        """A running tool printed something: redacted, in pieces of any size, and otherwise as it came."""

    def pause(self) -> None:
        """A question is about to be asked at the terminal: get out of the way."""

    def unpause(self) -> None:
        """The question has been answered; what happened in the meantime may be shown now."""

    def close(self) -> None:
        """Nothing more will happen; the terminal is left as it was found. May be called twice."""


class SilentObserver(Observer):
    """An observer that only takes events: it shows nothing."""

    def repeated(self, event: Envelope, payload: Payload) -> None:
        """What happened before is not of interest."""

    def printed(self, path: str, stream: str, text: str) -> None:
        """Output is read from the record."""

    def pause(self) -> None:
        """There is no view."""

    def unpause(self) -> None:
        """There is no view."""

    def close(self) -> None:
        """There is no view."""
