"""The application: its screens and styles. A crash of it never harms a run, and prints no variables."""

from typing import Any, ClassVar

from textual.app import App

from gert.ecosystem.host.runs.place import Place
from gert.ecosystem.surfaces.tui.desk import Desk
from gert.ecosystem.surfaces.tui.home import HomeScreen
from gert.ecosystem.surfaces.tui.run_screen import RunScreen


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
    .dialog .box { width: 70%; max-width: 80; height: auto; border: round $primary; padding: 1; background: $surface; }
    .page .box { width: 100%; height: 100%; background: $surface; padding: 0 1; }
    .page #page-log { height: 1fr; }
    .buttons { height: auto; }
    .dialog .buttons { layout: vertical; }
    .buttons Button { margin-right: 2; }
    .box Input { background: $boost; }
    .box Input:focus { background: $primary-muted; }
    .fields { height: auto; }
    .fields Input, .fields Select { width: 1fr; }
    #request, #fields { height: 1fr; }
    #command { background: $panel; padding: 0 1; }
    #problem { height: auto; }
    """

    def __init__(self, desk: Desk, run: tuple[Place, str] | None = None, file: str | None = None) -> None:
        super().__init__()
        self.desk = desk
        self._run = run
        self._file = file
        self.parting: list[str] = []
        """What is printed on the normal screen afterwards."""

    def on_mount(self) -> None:
        """Open the run that was named, or the lists."""
        if self._run is not None:
            self.push_screen(RunScreen(self.desk, *self._run))
            return
        home = HomeScreen(self.desk)
        self.push_screen(home)
        if self._file is not None:
            self.call_after_refresh(self._open_file, home, self._file)

    def _open_file(self, home: HomeScreen, file: str) -> None:
        found = next((each for each in self.desk.runbooks() if each.file == file), None)
        if found is not None:
            home.run_worker(home.open_runbook(found), exclusive=True, group="open")

    def watch_run(self, place: Place, run_id: str) -> None:
        """Show a run."""
        self.push_screen(RunScreen(self.desk, place, run_id))

    def leave_run(self, summary: list[str]) -> None:
        """Leave the screen of a run: back to the lists, or out where it was opened alone."""
        self.parting = summary
        if len(self.screen_stack) > 2:
            self.pop_screen()
        else:
            self.exit(0)

    def _handle_exception(self, error: Exception) -> None:
        """End with one line: Textual's own report would print local variables, and those may hold secrets."""
        self.parting = [f"the screen ended: {type(error).__name__}: {error}", "runs go on: `gert run list` shows them"]
        self._return_code = 4
        self._exit = True
        self._close_messages_no_wait()

    def panic(self, *renderables: Any) -> None:
        """Say nothing more on the screen."""
