"""The first screen: runbooks of the project, recent runs and open tickets, like k9s."""

import asyncio
from collections.abc import Callable
from typing import Any, ClassVar, Final

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.widgets import ContentSwitcher, DataTable, Footer, Static

from gert.ecosystem.host.operations.catalogue import Listed
from gert.ecosystem.host.runs.listed_run import ListedRun
from gert.ecosystem.surfaces.tui.base import DeskScreen, start_work
from gert.ecosystem.surfaces.tui.desk import Desk
from gert.ecosystem.surfaces.tui.dialogs import Line, copy, problem_text
from gert.ecosystem.surfaces.tui.forms import Started, StartForm
from gert.ecosystem.surfaces.tui.keys import HOME, Key, bindings
from gert.ecosystem.surfaces.tui.text import RUN_MARKS, plain, seconds, status_words, utc_now
from gert.errors import GertError
from gert.kernel.foundation.text import one_line, printable
from gert.kernel.runbook.documents.runbook import Runbook

EVERY: Final = 1.0
NUMBERS: Final = {"runs": 1, "approvals": 3, "runbooks": 4}
"""The key of each list; 2 are the steps of a run."""
EMPTY: Final = {
    "runs": "no run is recorded here yet",
    "approvals": "no run waits for approval",
    "runbooks": "no runbook below this folder: `gert init` creates one",
}
HEADINGS: Final = {
    "runbooks": ("name", "inputs", "description"),
    "runs": ("run", "runbook", "status", "outcome", "started", "by"),
    "approvals": ("ticket", "step", "risk", "runbook", "asked by"),
}


class HomeScreen(DeskScreen):
    """Three lists: Enter opens, and never executes."""

    KEYS: ClassVar[tuple[Key, ...]] = HOME
    # The table opens what is selected by itself, by mouse too.
    BINDINGS: ClassVar[list[BindingType]] = bindings(key for key in HOME if key.word != "open")

    def __init__(self, desk: Desk, first: str = "runbooks") -> None:
        super().__init__(desk)
        self._list = first
        self._filter = ""
        self._rows: dict[str, dict[str, Any]] = {name: {} for name in NUMBERS}
        self._is_reading = False

    def compose(self) -> ComposeResult:
        """A title and the lists."""
        yield Static("", id="title", markup=False)
        with ContentSwitcher(initial=self._list):
            for name in NUMBERS:
                table: DataTable[Any] = DataTable(id=name, cursor_type="row", zebra_stripes=True)
                yield table
        yield Footer()

    async def on_mount(self) -> None:
        """Fill the lists, and keep them fresh."""
        for name in NUMBERS:
            self.query_one(f"#{name}", DataTable).add_columns(*(plain(each) for each in HEADINGS[name]))
        self.query_one(f"#{self._list}").focus()
        await self._tick()
        self.set_interval(EVERY, self._tick)

    # --- looking

    async def _tick(self) -> None:
        if self._is_reading or not self.is_current:
            return
        self._is_reading = True
        read: dict[str, Callable[[], list[Any]]] = {
            "runbooks": self.desk.runbooks,
            "runs": self.desk.runs,
            "approvals": self.desk.tickets,
        }
        try:
            found = await asyncio.to_thread(read[self._list])
        except GertError as problem:
            self._title(problem_text(problem))
            return
        finally:
            self._is_reading = False
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
            at = self._key_under_cursor
            table.clear()
            for key, (cells, _) in rows.items():
                table.add_row(*cells, key=key)
            # The cursor stays on its row when others come and go.
            table.move_cursor(row=list(rows).index(at) if at in rows else 0)
        else:
            columns = list(table.columns)
            for row, (key, (cells, _)) in enumerate(rows.items()):
                before = table.get_row_at(row)
                for column, cell, old in zip(columns, cells, before, strict=True):
                    if cell != old:
                        table.update_cell(key, column, cell, update_width=True)
        self._rows[self._list] = {key: each for key, (_, each) in rows.items()}
        self._title()

    def _title(self, problem: str = "") -> None:
        shown = plain("gert  ", "bold")
        for name, number in sorted(NUMBERS.items(), key=lambda each: each[1]):
            style = "reverse" if name == self._list else ""
            mark = "▸" if name == self._list else " "
            shown.append(f"{mark}{number} {name} ", style)
        shown.append(f"  {len(self._rows[self._list])} shown")
        if not self._rows[self._list] and not self._filter and not problem:
            shown.append(f"  {EMPTY[self._list]}", "dim")
        if self._filter:
            shown.append(f"  /{printable(self._filter)}", "yellow")
        if problem:
            shown.append(f"  {problem}", "bold red")
        self.query_one("#title", Static).update(shown, layout=False)

    # --- keys

    async def show(self, name: str) -> None:
        """Show one of the lists."""
        self._list, self._filter = name, ""
        self.query_one(ContentSwitcher).current = name
        self.query_one(f"#{name}").focus()
        await self._tick()

    def action_steps(self) -> None:
        """Show the steps of the run that was opened last."""
        self.gert.watch_last()

    def action_move(self, by: int) -> None:
        """Move in the list."""
        table = self.query_one(f"#{self._list}", DataTable)
        table.move_cursor(row=table.cursor_row + by)

    def action_open(self) -> None:
        """Open what is under the cursor."""
        self.query_one(f"#{self._list}", DataTable).action_select_cursor()

    @property
    def _key_under_cursor(self) -> str:
        keys, at = list(self._rows[self._list]), self.query_one(f"#{self._list}", DataTable).cursor_row
        return keys[at] if at < len(keys) else ""

    def action_copy(self) -> None:
        """Copy the id or file under the cursor."""
        copy(self.app, self._key_under_cursor)

    def action_filter(self) -> None:
        """Filter the list."""
        start_work(self, "line", self._ask_filter)

    async def _ask_filter(self) -> None:
        said = await self.app.push_screen_wait(Line("filter:", self._filter))
        if said is not None:
            self._filter = said
            await self._tick()

    def action_quit(self) -> None:
        """Quit; runs go on."""
        self.app.exit(0)

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """Enter: open what is under the cursor."""
        found = self._rows[self._list].get(str(event.row_key.value))
        if isinstance(found, Listed):
            start_work(self, "open", self.open_runbook, found)
        elif isinstance(found, ListedRun):
            self.gert.watch_run(found.place, found.run_id)
        elif found is not None:
            start_work(self, "open", self.respond, found)

    async def open_runbook(self, listed: Listed, problem: str = "", before: Started | None = None) -> None:
        """Show the form of a runbook, and start it when asked to; an error leads back to the form."""
        while True:
            form = StartForm(listed, problem, before, modes=self.desk.modes)
            started = await self.app.push_screen_wait(form)
            if started is None:
                return
            try:
                launched, place = await self.desk.start(
                    started.file,
                    started.values,
                    started.mode,  # type: ignore[arg-type]
                    started.scenario,
                )
            except GertError as refused:
                problem, before = problem_text(refused), started
                continue
            self.gert.watch_run(place, launched.run_id)
            return


def _runbook_row(listed: Listed) -> tuple[str, list[Any]]:
    model = listed.model
    inputs = ", ".join(model.meta.inputs) if isinstance(model, Runbook) else "not valid"
    about = model.meta.description or "" if isinstance(model, Runbook) else ""
    return listed.file, [plain(listed.name), plain(one_line(inputs, 40)), plain(one_line(about, 200))]


def _run_row(entry: ListedRun) -> tuple[str, list[Any]]:
    found = entry.head.runbook
    outcome = f"{found.outcome[0]}: {found.outcome[1]}" if found is not None and found.outcome is not None else ""
    failure = one_line(found.failure or "", 60) if found is not None and found.failure else ""
    ago = f"{seconds(utc_now() - entry.started)} ago" if entry.started is not None else ""
    mark, style = RUN_MARKS.get(entry.status, ("", ""))
    return entry.run_id, [
        plain(entry.run_id),
        plain(found.runbook if found is not None else "agent run"),
        plain(f"{mark} {status_words(entry.status)}{', live' if entry.is_driven else ''}", style),
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
