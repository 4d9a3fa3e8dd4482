"""A screen above another one: it ends with an answer, or is closed without one."""

from typing import Final, TypeVar

from textual.binding import Binding
from textual.screen import ModalScreen

T = TypeVar("T")

ESCAPE: Final = Binding("escape", "back", "Back")


class Dialog(ModalScreen[T | None]):
    """Ends with None where it is closed."""

    AUTO_FOCUS = ""  # the screen says itself what has the focus

    def action_back(self) -> None:
        """Close without an answer."""
        self.dismiss(None)
