"""Choose a file by keyboard, for an attachment."""

import os
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.widgets import DirectoryTree, Label

from gert.ecosystem.surfaces.tui.dialog import ESCAPE, Dialog
from gert.ecosystem.surfaces.tui.text import plain


class _Files(DirectoryTree):
    """A tree of files whose names are shown, and never interpreted."""

    def process_label(self, label: str | Text) -> Text:
        """A name on one line, printable."""
        return plain(str(label).replace("\n", "?"))


class FilePicker(Dialog[str]):
    """The files below a folder: Enter opens a folder or chooses a file, backspace goes up."""

    AUTO_FOCUS = "#files"

    BINDINGS: ClassVar[list[BindingType]] = [ESCAPE, Binding("backspace", "up", "Up")]

    def __init__(self, folder: str) -> None:
        super().__init__(classes="page")
        self._folder = folder

    def compose(self) -> ComposeResult:
        """The folder, and what is in it."""
        with Vertical(classes="box"):
            yield Label(self._title(), id="folder", markup=False)
            yield _Files(self._folder, id="files")

    def _title(self) -> Text:
        return plain(f"{self._folder}   (enter choose · backspace up · esc back)", "bold")

    def on_directory_tree_file_selected(self, event: DirectoryTree.FileSelected) -> None:
        """A file is chosen."""
        self.dismiss(os.fspath(event.path))

    def action_up(self) -> None:
        """Go to the folder around."""
        self._folder = os.path.dirname(self._folder)
        self.query_one(_Files).path = self._folder
        self.query_one("#folder", Label).update(self._title())
