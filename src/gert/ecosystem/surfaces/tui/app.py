"""The application: its screens and styles. A crash of it never harms a run, and prints no variables."""

import asyncio
import os
import traceback
from collections.abc import Mapping
from typing import Any, ClassVar

from textual.app import App
from textual.css.query import NoMatches

from gert.ecosystem.host.runs.place import Place
from gert.ecosystem.surfaces.tui.base import start_work
from gert.ecosystem.surfaces.tui.desk import Desk
from gert.ecosystem.surfaces.tui.dialogs import problem_text
from gert.ecosystem.surfaces.tui.home import HomeScreen
from gert.ecosystem.surfaces.tui.run_screen import RunScreen
from gert.errors import GertError


class GertApp(App[int]):
    """gert on one screen."""

    TITLE = "gert"
    ENABLE_COMMAND_PALETTE = False
    CSS: ClassVar[str] = """
    #panes { height: 1fr; }
    #steps { width: 40%; min-width: 16; border-right: solid $primary; }
    #output { width: 1fr; }
    #status, #title { height: 1; background: $surface; }
    .hidden { display: none; }
    .dialog, .page { align: center middle; }
    .dialog .box { width: 70%; min-width: 38; max-width: 80; height: auto; max-height: 100%; overflow-y: auto;
        border: round $primary; padding: 0 1; background: $surface; }
    .dialog Label { width: 100%; margin-bottom: 1; }
    .line { align: left bottom; background: $background 0%; }
    .line .box { width: 100%; height: 1; background: $panel; }
    .line Input { width: 1fr; }
    .page .box { width: 100%; height: 100%; background: $surface; padding: 0 1; }
    .page #page-log, .page #files { height: 1fr; }
    .buttons { height: auto; }
    .dialog .buttons { layout: vertical; }
    .buttons Button { min-width: 8; margin-right: 2; }
    .box Input { background: $boost; }
    .box Input:focus { background: $primary-muted; }
    .fields { height: auto; }
    .fields Input, .fields Select { width: 1fr; }
    .pairs { layout: horizontal; }
    .-narrow .pairs { layout: vertical; }
    .pair { height: 1; width: 1fr; }
    .pair Label { margin-right: 1; color: $text-muted; }
    #request, #fields { height: 1fr; }
    #command { background: $panel; padding: 0 1; }
    #problem { height: auto; width: 100%; }
    .hint { color: $text-muted; }
    """

    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (72, "-wide")]  # noqa: RUF012 - as in Textual

    def __init__(
        self,
        desk: Desk,
        run: tuple[Place, str] | None = None,
        file: str | None = None,
        keymap: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__()
        self.desk = desk
        self.keymap = dict(keymap or {})
        self._run = run
        self._file = file
        self._last = run
        self._has_mouse = True
        self.exit_lines: list[str] = []
        """What is printed on the normal screen afterwards."""

    def on_mount(self) -> None:
        """Open the run that was named, or the lists."""
        self.set_keymap(self.keymap)
        home = HomeScreen(self.desk)
        self.push_screen(home)
        if self._run is not None:
            self.watch_run(*self._run)
        elif self._file is not None:
            self.call_after_refresh(self._open_file, home, self._file)

    def _open_file(self, home: HomeScreen, file: str) -> None:
        found = next((each for each in self.desk.runbooks() if each.file == file), None)
        if found is not None:
            start_work(home, "open", home.open_runbook, found)
        else:
            home.say(f"`{file}` is not a runbook", is_error=True)

    # --- from screen to screen

    def watch_run(self, place: Place, run_id: str) -> None:
        """Show a run, in place of one that is shown."""
        self._last = (place, run_id)
        screen = RunScreen(self.desk, place, run_id)
        if isinstance(self.screen, RunScreen):
            self.switch_screen(screen)
        else:
            self.push_screen(screen)

    def watch_last(self) -> None:
        """Show the run that was opened last."""
        if self._last is None:
            self.notify("no run was opened yet: choose one in the list of runs", markup=False)
        else:
            self.watch_run(*self._last)

    async def open_run(self, named: str) -> None:
        """Show the run of this id, of this prefix of it, or `last`."""
        try:
            found = await asyncio.to_thread(self.desk.find, named)
        except GertError as problem:
            self.notify(problem_text(problem), severity="error", markup=False)
            return
        self.watch_run(self.desk.place, found)

    def show_list(self, name: str) -> None:
        """Show a list; a run that is shown goes on without the screen."""
        if isinstance(self.screen, RunScreen):
            self.exit_lines = self.screen.summary()
            self.pop_screen()
        home = next(each for each in self.screen_stack if isinstance(each, HomeScreen))
        start_work(home, "show", home.show, name)

    def leave_run(self, screen: RunScreen) -> None:
        """Leave the screen of a run: back to the lists, or out where it was named on the command line."""
        self.exit_lines = screen.summary()
        if self._run == (screen.place, screen.run_id):
            self.exit(0)
        else:
            self.pop_screen()

    def release_mouse(self) -> bool:
        """Let the terminal have the mouse, or take it again; whether the terminal has it."""
        self._has_mouse = not self._has_mouse
        change = getattr(self._driver, "_enable_mouse_support" if self._has_mouse else "_disable_mouse_support", None)
        if change is not None:
            change()
        return not self._has_mouse

    # --- a crash

    def _handle_exception(self, error: Exception) -> None:
        """End with one line: Textual's own report would print local variables, and those may hold secrets.

        So may the message of an error that is not gert's own: the place of the error is enough to report it.
        """
        if isinstance(error, NoMatches) and (self._exit or not self.is_running):
            # The screen was left while a form was opening: its widgets look for parts that are gone already.
            return
        self.exit_lines = [f"the screen ended: {_where(error)}", "runs go on: `gert run list` shows them"]
        if self._exception is None:
            # Tests see it.
            self._exception = error
            self._exception_event.set()
        self._return_code = 4
        self._exit = True
        self._close_messages_no_wait()

    def panic(self, *renderables: Any) -> None:
        """Say nothing more on the screen."""


def _where(error: Exception) -> str:
    """What kind of error it is, and where in gert it was raised."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if f"{os.sep}gert{os.sep}" in frame.filename] or frames
    at = f" in {os.path.basename(own[-1].filename)}:{own[-1].lineno}" if own else ""
    return f"{type(error).__name__}{at}"
