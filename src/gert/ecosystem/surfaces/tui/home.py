"""The first screen: runbooks of the project, recent runs and open tickets, like k9s."""

import asyncio
from collections.abc import Callable
from typing import Any, ClassVar, Final

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.widgets import ContentSwitcher, DataTable, Footer, Input, Static

from gert.ecosystem.host.operations.catalogue import Listed
from gert.ecosystem.host.runs.entry import Entry
from gert.ecosystem.surfaces.tui.desk import Desk
from gert.ecosystem.surfaces.tui.dialogs import Page, Respond, problem_text
from gert.ecosystem.surfaces.tui.forms import Started, StartForm
from gert.ecosystem.surfaces.tui.help import home_help
from gert.ecosystem.surfaces.tui.text import STYLES, plain, seconds, utc_now
from gert.errors import GertError
from gert.kernel.foundation.text import one_line, printable
from gert.kernel.runbook.documents.runbook import Runbook

EVERY: Final = 1.0
LISTS: Final = ("runbooks", "runs", "approvals")
HEADINGS: Final = {
    "runbooks": ("name", "inputs", "description"),
    "runs": ("run", "runbook", "status", "outcome", "started", "by"),
    "approvals": ("ticket", "step", "risk", "runbook", "asked by"),
}


class HomeScreen(Screen[None]):
    """Three lists: Enter opens, and never executes."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("1", "show('runbooks')", "Runbooks", id="home.runbooks"),
        Binding("2", "show('runs')", "Runs", id="home.runs"),
        Binding("3,a", "show('approvals')", "Approvals", id="home.approvals"),
        Binding("slash", "filter", "Filter", id="home.filter"),
        Binding("colon", "command", "Command", id="home.command"),
        Binding("j", "move(1)", show=False),
        Binding("k", "move(-1)", show=False),
        Binding("question_mark,f1", "help", "Help", id="home.help"),
        Binding("q", "quit", "Quit", id="home.quit"),
    ]

    def __init__(self, desk: Desk, first: str = "runbooks") -> None:
        super().__init__()
        self._desk = desk
        self._list = first
        self._filter = ""
        self._rows: dict[str, dict[str, Any]] = {name: {} for name in LISTS}
        self._is_looking = False

    def compose(self) -> ComposeResult:
        """A title, the lists, a bar for filter and command."""
        yield Static("", id="title", markup=False)
        with ContentSwitcher(initial=self._list):
            for name in LISTS:
                table: DataTable[Any] = DataTable(id=name, cursor_type="row", zebra_stripes=True)
                yield table
        yield Input(compact=True, id="bar", classes="hidden")
        yield Footer()

    async def on_mount(self) -> None:
        """Fill the lists, and keep them fresh."""
        for name in LISTS:
            self.query_one(f"#{name}", DataTable).add_columns(*(plain(each) for each in HEADINGS[name]))
        self.query_one(f"#{self._list}").focus()
        await self._tick()
        self.set_interval(EVERY, self._tick)

    # --- looking

    async def _tick(self) -> None:
        if self._is_looking or not self.is_current:
            return
        self._is_looking = True
        read: dict[str, Callable[[], list[Any]]] = {
            "runbooks": self._desk.runbooks,
            "runs": self._desk.runs,
            "approvals": self._desk.tickets,
        }
        try:
            found = await asyncio.to_thread(read[self._list])
        except GertError as problem:
            self._title(problem_text(problem))
            return
        finally:
            self._is_looking = False
        if self.is_attached:
            self._fill(found)

    def _fill(self, found: list[Any]) -> None:
        rows = {key: (cells, each) for each in found for key, cells in [_ROWS[self._list](each)]}
        wanted = self._filter.casefold()
        if wanted:
            rows = {key: row for key, row in rows.items() if wanted in " ".join(map(str, row[0])).casefold()}
        table = self.query_one(f"#{self._list}", DataTable)
        known = self._rows[self._list]
        if list(rows) != list(known) or table.row_count != len(rows):
            at = table.cursor_row
            table.clear()
            for key, (cells, _) in rows.items():
                table.add_row(*cells, key=key)
            table.move_cursor(row=min(at, max(0, len(rows) - 1)))
        else:
            columns = list(table.columns)
            for key, (cells, _) in rows.items():
                for column, cell in zip(columns, cells, strict=True):
                    table.update_cell(key, column, cell)
        self._rows[self._list] = {key: each for key, (_, each) in rows.items()}
        self._title()

    def _title(self, problem: str = "") -> None:
        shown = plain("gert  ", "bold")
        for number, name in enumerate(LISTS, 1):
            style = "reverse" if name == self._list else ""
            shown.append(f" {number} {name} ", style)
        shown.append(f"  {len(self._rows[self._list])} shown")
        if self._filter:
            shown.append(f"  /{printable(self._filter)}", "yellow")
        if problem:
            shown.append(f"  {problem}", "bold red")
        self.query_one("#title", Static).update(shown)

    # --- keys

    async def action_show(self, name: str) -> None:
        """Show one of the lists."""
        self._list, self._filter = name, ""
        self.query_one(ContentSwitcher).current = name
        self.query_one(f"#{name}").focus()
        await self._tick()

    def action_move(self, by: int) -> None:
        """Move in the list."""
        table = self.query_one(f"#{self._list}", DataTable)
        table.move_cursor(row=table.cursor_row + by)

    def action_filter(self) -> None:
        """Filter the list."""
        self._open_bar("filter: ", self._filter)

    def action_command(self) -> None:
        """Open the command bar."""
        self._open_bar("command: runbooks, runs, approvals, run ID, quit", ":")

    def _open_bar(self, about: str, text: str) -> None:
        bar = self.query_one("#bar", Input)
        bar.placeholder, bar.value = about, text
        bar.remove_class("hidden")
        bar.focus()

    async def on_input_submitted(self, event: Input.Submitted) -> None:
        """Apply the filter, or run the command."""
        self._close_bar()
        if event.value.startswith(":"):
            await self._command(event.value[1:].split())
        else:
            self._filter = event.value.strip()
            await self._tick()

    async def _command(self, words: list[str]) -> None:
        if not words:
            return
        if words[0] in LISTS:
            await self.action_show(words[0])
        elif words[0] in ("q", "quit"):
            self.app.exit(0)
        elif words[0] == "run" and len(words) == 2:
            await self._open_run(words[1])
        else:
            self.notify(printable(f"unknown command `{' '.join(words)}`"), severity="error", markup=False)

    async def _open_run(self, run_id: str) -> None:
        try:
            found = await asyncio.to_thread(self._desk.find, run_id)
        except GertError as problem:
            self.notify(problem_text(problem), severity="error", markup=False)
            return
        self.app.watch_run(self._desk.place, found)  # type: ignore[attr-defined]

    def _close_bar(self) -> None:
        self.query_one("#bar").add_class("hidden")
        self.query_one(f"#{self._list}").focus()

    def key_escape(self) -> None:
        """Close the bar."""
        self._close_bar()

    def action_help(self) -> None:
        """Show the keys and the command for each."""
        self.app.push_screen(Page("keys", home_help()))

    def action_quit(self) -> None:
        """Quit; runs go on."""
        self.app.exit(0)

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """Enter: open what is under the cursor."""
        found = self._rows[self._list].get(str(event.row_key.value))
        if isinstance(found, Listed):
            self.run_worker(self.open_runbook(found), exclusive=True, group="open")
        elif isinstance(found, Entry):
            self.app.watch_run(found.place, found.run_id)  # type: ignore[attr-defined]
        elif found is not None:
            self.run_worker(self._respond(found), exclusive=True, group="open")

    async def open_runbook(self, listed: Listed, problem: str = "", before: Started | None = None) -> None:
        """Show the form of a runbook, and start it when asked to; an error leads back to the form."""
        while True:
            started = await self.app.push_screen_wait(StartForm(listed, problem, before))
            if started is None:
                return
            if self._desk.read_only and started.mode == "real":
                problem, before = "read-only: no real run is started from this screen", started
                continue
            try:
                launched, place = await self._desk.start(
                    started.file,
                    started.values,
                    started.mode,  # type: ignore[arg-type]
                    started.scenario,
                )
            except GertError as refused:
                problem, before = problem_text(refused), started
                continue
            self.app.watch_run(place, launched.run_id)  # type: ignore[attr-defined]
            return

    async def _respond(self, view: Any) -> None:
        dialog = Respond(view, self._desk.actor or "", self._desk.key, read_only=self._desk.read_only)
        verdict = await self.app.push_screen_wait(dialog)
        if verdict is None:
            return
        try:
            given = await self._desk.respond(verdict)
        except GertError as problem:
            self.notify(problem_text(problem), severity="error", markup=False)
            return
        said = given.answered.objection or "received; the run decides"
        self.notify(printable(said), severity="error" if given.answered.objection else "information", markup=False)


def _runbook_row(listed: Listed) -> tuple[str, list[Any]]:
    model = listed.model
    inputs = ", ".join(model.meta.inputs) if isinstance(model, Runbook) else "not valid"
    about = model.meta.description or "" if isinstance(model, Runbook) else ""
    return listed.file, [plain(listed.name), plain(one_line(inputs, 40)), plain(one_line(about, 200))]


def _run_row(entry: Entry) -> tuple[str, list[Any]]:
    found = entry.head.runbook
    outcome = f"{found.outcome[0]}: {found.outcome[1]}" if found is not None and found.outcome is not None else ""
    failure = one_line(found.failure or "", 60) if found is not None and found.failure else ""
    ago = f"{seconds(utc_now() - entry.started)} ago" if entry.started is not None else ""
    style = {"completed": STYLES["success"], "cut-off": STYLES["waiting"]}.get(entry.status)
    return entry.run_id, [
        plain(entry.run_id),
        plain(found.runbook if found is not None else "agent run"),
        plain(entry.status, style if style is not None else STYLES.get(entry.status, "")),
        plain(outcome or failure),
        plain(ago),
        plain(found.actor if found is not None else entry.tenant or ""),
    ]


def _ticket_row(view: Any) -> tuple[str, list[Any]]:
    request = view.ticket.request
    cells = (view.id, request.place, request.risk_level, request.runbook, request.requested_by or "")
    return view.id, [plain(each) for each in cells]


_ROWS: Final[dict[str, Callable[[Any], tuple[str, list[Any]]]]] = {
    "runbooks": _runbook_row,
    "runs": _run_row,
    "approvals": _ticket_row,
}
