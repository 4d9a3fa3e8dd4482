"""One run: its steps on the left, output in the middle, status below. It reads the ledger and writes to the inbox."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, ClassVar, Final

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal
from textual.widgets import Footer, Static

from gert.ecosystem.host.background.launch import Launched
from gert.ecosystem.host.runs.listing import Runs
from gert.ecosystem.host.runs.logs import Logs, merged
from gert.ecosystem.host.runs.place import Place
from gert.ecosystem.surfaces.tui import pages
from gert.ecosystem.surfaces.tui.base import DeskScreen, start_work
from gert.ecosystem.surfaces.tui.desk import Desk
from gert.ecosystem.surfaces.tui.dialogs import Confirm, Line, Page, copy, problem_text, save, show_in_pager_of
from gert.ecosystem.surfaces.tui.feed import RunFeed, Update, output_lines
from gert.ecosystem.surfaces.tui.forms import EvidenceForm, SecretForm
from gert.ecosystem.surfaces.tui.keys import RUN, Key, bindings
from gert.ecosystem.surfaces.tui.output import OutputLog
from gert.ecosystem.surfaces.tui.status_line import CONDITIONAL, RunState, status_text
from gert.ecosystem.surfaces.tui.step_pane import StepPane
from gert.ecosystem.surfaces.tui.steps import Node, StepTree
from gert.ecosystem.surfaces.tui.text import event_lines
from gert.errors import GertError, InputError
from gert.kernel.events import runbook as says
from gert.kernel.events.envelope import Envelope
from gert.kernel.events.payload import Payload
from gert.kernel.foundation.secret_refs import masked
from gert.kernel.foundation.text import PRINTED_NOTHING, one_line, path_text, printable
from gert.kernel.runbook.documents.steps import ManualStep
from gert.kernel.runbook.program import Program

EVERY: Final = 0.1
"""Seconds between two reads of the ledger; keys are answered in between."""
MOST_EVENTS: Final = 20_000
_SHARE: Final = 10
"""A busy run needs the processor more than the screen does: the screen uses at most one part in so many of it."""
_MOST_REST: Final = 10
"""Reads that are left out at most."""
_OPEN: Final = ("starting", "running", "waiting")


class RunScreen(DeskScreen):
    """Watches and controls a run."""

    KEYS: ClassVar[tuple[Key, ...]] = RUN
    # The tree has an Enter of its own.
    BINDINGS: ClassVar[list[BindingType]] = bindings(RUN, "run.advance")

    def __init__(self, desk: Desk, place: Place, run_id: str) -> None:
        super().__init__(desk)
        self.place = place
        self.run_id = run_id
        self._feed = RunFeed(place, run_id)
        self.pane = StepPane()
        self._program: Program | None = None
        self._events: list[Envelope] = []
        self._start: says.RunStart | None = None
        self.status = "starting"
        self._tickets: tuple[Any, ...] = ()
        self._objections: set[tuple[str, int]] = set()
        self._advanced: set[str] = set()
        self._is_reading = False
        self._rest = 0
        self._spent = time.process_time()
        self._was_over = False
        self._is_trial = False
        self._possible: frozenset[str] = frozenset()

    @property
    def steps(self) -> StepTree:
        """The steps of the run."""
        return self.pane.steps

    @property
    def selected(self) -> Node | None:
        """The step under the cursor, or the one that the run is at."""
        return self.pane.selected

    @property
    def state(self) -> RunState:
        """How the run is."""
        return RunState(self.status, self.steps, self._tickets, self.desk.steps, self._advanced, self._is_trial)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Keys vanish where the run leaves nothing to do for them."""
        is_possible = action not in CONDITIONAL or action in self._possible
        return is_possible and super().check_action(action, parameters)

    # --- the layout

    def compose(self) -> ComposeResult:
        """Steps, output, status, keys."""
        with Horizontal(id="panes"):
            yield self.pane
            yield OutputLog(id="output")
        yield Static("", id="status", markup=False)
        yield Footer()

    async def on_mount(self) -> None:
        """Read the runbook, then the ledger again and again."""
        self.pane.focus()
        self._program = await asyncio.to_thread(self._feed.program)
        if self.is_attached:
            self.pane.plan(self._program)
            self.set_interval(EVERY, self._tick)

    async def on_unmount(self) -> None:
        """Let go of the ledger."""
        await asyncio.to_thread(self._feed.close)

    # --- reading

    async def _tick(self) -> None:
        if self._is_reading or self._rest > 0:
            self._rest -= 1
            return
        self._is_reading = True
        try:
            update = await asyncio.to_thread(self._feed.read)
        except GertError as problem:
            if self.is_attached:
                self._show_status(problem_text(problem))
            return
        finally:
            self._is_reading = False
        if update is not None and self.is_attached:
            # What was spent since the last read includes drawing what it found.
            spent, self._spent = self._spent, time.process_time()
            self._rest = min(_MOST_REST, int((self._spent - spent) * _SHARE / EVERY)) if update.events else 0
            self._apply(update)

    def _apply(self, update: Update) -> None:
        said = [event.payload for event in update.events]  # each is decoded once
        for event, payload in zip(update.events, said, strict=True):
            self.steps.fold(event, payload)
            if isinstance(payload, says.RunStart):
                self._start = payload
        self._events += update.events
        del self._events[:-MOST_EVENTS]
        self.status, self._tickets = update.entry.status, update.entry.tickets
        self._is_trial = update.entry.is_trial
        self.pane.draw()
        self._write(update, said)
        for note in update.notes:
            self.notify(printable(note), severity="warning", markup=False)
        self._show_objections()
        self._show_status()
        if (possible := self.state.possible) != self._possible:
            self._possible = possible
            self.refresh_bindings()
        if self.status not in _OPEN and not update.is_behind and not self._was_over:
            self._was_over = True
            self._select_failed()

    def _write(self, update: Update, said: list[Payload]) -> None:
        """Decisions and results, and output before the result of its step; one write an update."""
        lines: list[str] = []
        output: dict[str, list[str]] = {}
        for step, line in output_lines(update.output):
            output.setdefault(step, []).append(f"  {one_line(step, 24)} │ {line}")
        for event, payload in zip(update.events, said, strict=True):
            if isinstance(payload, says.StepComplete):
                lines += output.pop(event.path or "", ())
            lines += pages.event_summary(event, payload)
        lines += [line for rest in output.values() for line in rest]
        self.query_one("#output", OutputLog).add(lines)

    def _show_objections(self) -> None:
        """Say once of each answer why it does not count."""
        for view in self._tickets:
            for number, each in enumerate(view.responses):
                if each.objection and (view.id, number) not in self._objections:
                    self._objections.add((view.id, number))
                    self.say(f"the answer of {each.response.approver} does not count: {each.objection}", is_error=True)

    def _select_failed(self) -> None:
        """The run is over: stay at the step that failed."""
        failed = self.steps.first("failed", "error")
        if failed is not None:
            self.pane.select(failed)

    def _show_status(self, problem: str = "") -> None:
        # Without a new layout, which would take most of the time between two keys.
        self.query_one("#status", Static).update(status_text(self.state, self.selected, problem), layout=False)

    # --- keys that write

    def action_advance(self) -> None:
        """Advance what waits for this key: a manual step, the next call, or an interrupted run."""
        if self.focused is self.pane:
            start_work(self, "advance", self._advance)

    async def _advance(self) -> None:
        state = self.state
        held = state.held
        manual = self.selected if self.selected is not None and self.selected.status == "waiting" else None
        manual = manual or next(iter(self.steps.waiting), None)
        if manual is not None and manual.kind == "manual" and self.status == "running":
            await self._give_evidence(manual)
        elif self._tickets and not state.is_answered:
            await self.respond(self._ticket)
        elif held is not None:
            self._advanced.add(held.path)
            await self.attempt(self.desk.advance(self.place, self.run_id, held.path))
        elif self.status == "cut-off" or state.is_answered:
            self._was_over = False
            await self._redrive(lambda secrets: self.desk.resume(self.place, self.run_id, secrets))

    async def _redrive(self, start: Callable[[Mapping[str, str]], Awaitable[Launched]]) -> Launched | None:
        """Resume or rerun; secret inputs that cannot be resolved again are asked for, masked."""
        recorded = self._start.start if self._start is not None else None
        names = recorded.secret_inputs if recorded is not None else ()
        secrets: dict[str, str] | None = {}
        while secrets is not None:
            try:
                return await start(secrets)
            except InputError as problem:
                if not names:
                    self.say(problem_text(problem), is_error=True)
                    return None
                secrets = await self.app.push_screen_wait(SecretForm(names, problem_text(problem)))
            except GertError as problem:
                self.say(problem_text(problem), is_error=True)
                return None
        return None

    async def _give_evidence(self, node: Node) -> None:
        instructions = node.start.instructions or "" if node.start is not None else ""
        step = pages.step_of(node, self._program)
        form = EvidenceForm(node.path, instructions, step if isinstance(step, ManualStep) else None)
        said = await self.app.push_screen_wait(form)
        if said is not None:
            await self.attempt(self.desk.give_evidence(self.place, self.run_id, node.path, said.given, said.reject))

    @property
    def _ticket(self) -> Any:
        """The ticket of the step under the cursor, or the first."""
        path = self.selected.path if self.selected is not None else None
        return next((each for each in self._tickets if each.ticket.request.path == path), self._tickets[0])

    def action_approvals(self) -> None:
        """Open the ticket that the run waits for."""
        if self._tickets:
            start_work(self, "advance", self.respond, self._ticket)

    def action_rerun(self) -> None:
        """Start a new run from the step under the cursor."""
        if self.selected is not None:
            start_work(self, "advance", self._rerun, self.selected)

    async def _rerun(self, node: Node) -> None:
        question = (
            f"Start a new run from `{path_text(node.path)}`?\n\n"
            f"Steps before it use their recorded answers; it and all after it run again, for real.\n"
            f"The same as: gert rerun {self.run_id} --from '{node.path}'{self.place.words}"
        )
        if await self.app.push_screen_wait(Confirm(question, {"back": "Back", "rerun": "Rerun"})) == "rerun":
            launched = await self._redrive(lambda secrets: self.desk.rerun(self.place, self.run_id, node.path, secrets))
            if launched is not None:
                self.gert.watch_run(self.place, launched.run_id)

    def action_leave(self) -> None:
        """Leave; a run that is driven goes on unless it is stopped."""
        start_work(self, "leave", self._leave)

    async def _leave(self) -> None:
        if self.status in ("starting", "running") and not self.desk.read_only:
            choices = {"back": "Back", "leave": "Leave, the run goes on", "stop": "Stop the run in order"}
            answer = await self.app.push_screen_wait(Confirm("the run is still running", choices))
            if answer in (None, "back"):
                return
            if answer == "stop":
                await self.attempt(self.desk.cancel(self.place, self.run_id))
        self.gert.leave_run(self)

    # --- keys that show

    def action_preview(self) -> None:
        """The preview of the step that waits for approval."""
        request = self._ticket.ticket.request if self._tickets else None
        if request is None or request.preview is None:
            self.say("the step that waits for approval has no preview")
        else:
            lines = map(printable, (masked(request.preview) or PRINTED_NOTHING).splitlines())
            self.app.push_screen(Page(f"preview of {request.place}", lines))

    def action_variables(self) -> None:
        """The variables that the step under the cursor may see."""
        node = self.selected
        title = f"variables of {path_text(node.path)}" if node is not None else "variables"
        self.app.push_screen(Page(title, pages.variables(self.steps, node, self._program)))

    def action_contract(self) -> None:
        """The contract of the step under the cursor, and the rule that decided."""
        if self.selected is not None:
            self.app.push_screen(Page(f"contract of {self.selected.name}", pages.contract(self.selected)))

    def action_trace(self) -> None:
        """The events of the run."""
        self.app.push_screen(Page(f"trace of {self.run_id}", event_lines(self._events)))

    def action_log(self) -> None:
        """Everything that the step under the cursor printed."""
        if self.selected is not None:
            start_work(self, "log", self._show_log, self.selected, is_saved=False)

    def action_save(self) -> None:
        """Save what the step under the cursor printed."""
        if self.selected is not None:
            start_work(self, "log", self._show_log, self.selected, is_saved=True)

    async def _show_log(self, node: Node, *, is_saved: bool) -> None:
        lines = await self.attempt(asyncio.to_thread(self._log_of, node.path))
        if lines is not None and is_saved:
            save(self.app, f"{self.run_id}-{node.path}", lines)
        elif lines is not None:
            self.app.push_screen(Page(f"log of {path_text(node.path)}", lines))

    def _log_of(self, path: str) -> list[str]:
        with Runs(self.place) as runs:
            pieces = merged(Logs(runs.reader, self.run_id, path).read())
            return [line for _, line in output_lines(pieces, None, None)]

    def action_explain(self) -> None:
        """What the policies decide about each step of this runbook."""
        start_work(self, "explain", self._explain)

    async def _explain(self) -> None:
        if self._start is None or self._start.start is None:
            self.say("the run does not say which runbook it ran")
            return
        found = await self.attempt(asyncio.to_thread(self.desk.explain, self._start.start.file))
        if found is not None:
            self.app.push_screen(Page("explain", pages.explained(found)))

    def action_follow(self) -> None:
        """Go to the end of the output."""
        self.query_one("#output", OutputLog).scroll_end(animate=False)

    def action_wrap(self) -> None:
        """Wrap long lines, or not."""
        self.say("lines are wrapped" if self.query_one("#output", OutputLog).toggle_wrap() else "lines are not wrapped")

    def action_pager(self) -> None:
        """Open the output in $PAGER."""
        show_in_pager_of(self.app, self.query_one("#output", OutputLog).kept)

    def action_copy(self) -> None:
        """Copy the selected text, or the id of the run."""
        copy(self.app, self.get_selected_text() or self.run_id)

    # --- moving

    def action_steps(self) -> None:
        """Go to the steps."""
        self.pane.focus()

    def action_move(self, by: int) -> None:
        """Move in the steps."""
        self.pane.action_cursor_down() if by > 0 else self.pane.action_cursor_up()

    def action_search(self) -> None:
        """Search the steps by name."""
        start_work(self, "line", self._ask_step, "search steps:", self.pane.search)

    def action_go(self) -> None:
        """Go to a step by its id or path."""
        start_work(self, "line", self._ask_step, "go to step:", self.pane.go)

    async def _ask_step(self, about: str, find: Callable[[str], bool]) -> None:
        wanted = await self.app.push_screen_wait(Line(about))
        if wanted:
            self.pane.focus()
            self._require_found(find(wanted))

    def action_next(self, by: int) -> None:
        """Go to the next or the previous step that has the words."""
        self._require_found(self.pane.search(by=by))

    def _require_found(self, is_found: bool) -> None:
        if not is_found:
            self.say(f"no step has `{self.pane.wanted}`")

    # --- afterwards

    def summary(self) -> list[str]:
        """What is printed on the normal screen afterwards."""
        return pages.exit_summary(self.run_id, self.status, self.steps, self._next_command)

    @property
    def _next_command(self) -> str | None:
        if self.desk.is_temporary(self.place):
            return None
        failed = self.steps.first("failed", "error") if not self._is_trial else None
        rerun = f"gert rerun {self.run_id} --from '{failed.path}'" if failed is not None else ""
        command = {
            "running": f"gert logs {self.run_id} --follow",
            "waiting": "gert approvals list",
            "cut-off": f"gert resume {self.run_id}",
            "failed": rerun,
            "error": rerun,
        }.get(self.status)
        return f"{command or f'gert run show {self.run_id}'}{self.place.words}"
