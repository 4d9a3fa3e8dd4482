"""One run: its steps on the left, output in the middle, status below. It reads the ledger and writes to the inbox."""

import asyncio
from typing import Any, ClassVar, Final

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal
from textual.widgets import Footer, Static, Tree
from textual.widgets.tree import TreeNode

from gert.ecosystem.host.runs.listing import Runs
from gert.ecosystem.host.runs.logs import Logs, merged
from gert.ecosystem.host.runs.place import Place
from gert.ecosystem.surfaces.tui import pages
from gert.ecosystem.surfaces.tui.base import DeskScreen
from gert.ecosystem.surfaces.tui.desk import Desk
from gert.ecosystem.surfaces.tui.dialogs import Confirm, Line, Page, copy, problem_text, save, show_in_pager_of
from gert.ecosystem.surfaces.tui.feed import Look, RunFeed, output_lines
from gert.ecosystem.surfaces.tui.forms import EvidenceForm
from gert.ecosystem.surfaces.tui.keys import RUN, Key, bindings
from gert.ecosystem.surfaces.tui.output import OutputLog
from gert.ecosystem.surfaces.tui.steps import Node, StepTree
from gert.ecosystem.surfaces.tui.text import (
    RISKS,
    STANDINGS,
    event_lines,
    plain,
    seconds,
    status_words,
    step_label,
    utc_now,
)
from gert.errors import GertError
from gert.kernel.events import runbook as says
from gert.kernel.events.envelope import Envelope
from gert.kernel.foundation.secret_refs import masked
from gert.kernel.foundation.text import one_line, printable
from gert.kernel.runbook.documents.steps import ManualStep
from gert.kernel.runbook.program import Program

EVERY: Final = 0.1
"""Seconds between two looks at the ledger; keys are answered in between."""
MOST_EVENTS: Final = 20_000
MOST_LABELS: Final = 200
"""Labels that are drawn in one go."""
_BUSY: Final = 40
"""Events of a look after which the next look is put off."""
_BESIDE: Final = 16
"""Steps at once whose growing duration is drawn."""


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
        self._program: Program | None = None
        self.steps = StepTree()
        self._shown: dict[str, TreeNode[str]] = {}
        self._dirty: dict[str, None] = {}
        self._events: list[Envelope] = []
        self._start: says.RunStart | None = None
        self._standing = "starting"
        self._tickets: tuple[Any, ...] = ()
        self._advanced: set[str] = set()
        self._at: TreeNode[str] | None = None
        self._wanted = ""
        self._is_looking = False
        self._rest = 0
        self._was_over = False

    # --- the layout

    def compose(self) -> ComposeResult:
        """Steps, output, status, keys."""
        with Horizontal(id="panes"):
            steps: Tree[str] = Tree(plain("steps"), id="steps")
            steps.show_root = False
            steps.guide_depth = 2
            yield steps
            yield OutputLog(id="output")
        yield Static("", id="status", markup=False)
        yield Footer()

    async def on_mount(self) -> None:
        """Read the runbook, then look at the ledger again and again."""
        self._program = await asyncio.to_thread(self._feed.program)
        self.steps = StepTree(self._program)
        self._draw_steps()
        self.query_one("#steps").focus()
        self.set_interval(EVERY, self._tick)

    async def on_unmount(self) -> None:
        """Let go of the ledger."""
        await asyncio.to_thread(self._feed.close)

    # --- looking

    async def _tick(self) -> None:
        if self._is_looking or self._rest > 0:
            self._rest -= 1
            return
        self._is_looking = True
        try:
            look = await asyncio.to_thread(self._feed.look)
        except GertError as problem:
            if self.is_attached:
                self._show_status(problem_text(problem))
            return
        finally:
            self._is_looking = False
        if look is not None and self.is_attached:
            # A busy run needs the processor more than the screen does.
            self._rest = 3 if len(look.events) > _BUSY else 0
            self._take(look)

    def _take(self, look: Look) -> None:
        for event in look.events:
            self.steps.take(event)
            if isinstance(event.payload, says.RunStart):
                self._start = event.payload
        self._events += look.events
        del self._events[:-MOST_EVENTS]
        self._standing, self._tickets = look.entry.status, look.entry.tickets
        self._draw_steps()
        self._write(look)
        for note in look.notes:
            self.notify(printable(note), severity="warning", markup=False)
        self._show_status()
        if self._standing not in ("running", "waiting", "starting") and not look.is_behind and not self._was_over:
            self._was_over = True
            self._stay()

    def _write(self, look: Look) -> None:
        """Decisions and results beside the output that they belong to; one write a look."""
        lines = [line for event in look.events for line in pages.event_said(event)]
        lines += [f"  {one_line(step, 24)} │ {line}" for step, line in output_lines(look.output)]
        self.query_one("#output", OutputLog).add(lines)

    def _stay(self) -> None:
        """The run is over: stay at the step that failed."""
        failed = self.steps.first("failed", "error")
        if failed is not None:
            self._select(failed)

    # --- drawing

    def _draw_steps(self) -> None:
        """Add new steps and redraw changed ones, a bounded number at a time: keys must not wait."""
        tree = self.query_one("#steps", Tree)
        for node in self.steps.added:
            parent = self._shown.get(node.parent.path) if node.parent is not None and node.parent.path else None
            if parent is not None:
                parent.allow_expand = True
            around = parent or tree.root
            self._shown[node.path] = around.add(step_label(node), data=node.path, expand=True, allow_expand=False)
        self.steps.added.clear()
        now = utc_now()
        self._dirty.update(dict.fromkeys(self.steps.changed))
        self.steps.changed.clear()
        # What runs has a duration that grows.
        for path, _ in zip(self.steps.open, range(_BESIDE), strict=False):
            self._dirty[path] = None
        for path in list(self._dirty)[:MOST_LABELS]:
            del self._dirty[path]
            shown, changed = self._shown.get(path), self.steps.nodes.get(path)
            label = step_label(changed, now) if changed is not None else None
            if shown is not None and label is not None and label != shown.label:
                shown.set_label(label)
        current = self._shown.get(self.steps.current)
        if tree.cursor_node is None and current is not None and current is not self._at:
            # Until the cursor is moved, the steps follow the run.
            self._at = current
            self.call_after_refresh(tree.scroll_to_node, current, animate=False)

    def _show_status(self, problem: str = "") -> None:
        node = self.selected
        run, text = self.steps, Text(end="")
        standing = "waiting" if self.steps.waiting and self._standing == "running" else self._standing
        mark, style = STANDINGS.get(standing, ("", ""))
        text.append(f" {mark} {status_words(standing)} ", style)
        if self._waits_for:
            text.append(f"│ {self._waits_for} ", "bold yellow")
        if problem:
            text.append(f"│ {problem} ", "bold red")
        elif run.outcome:
            text.append(f"│ outcome {printable(run.outcome)} ", "bold")
        elif run.failure:
            text.append(f"│ {one_line(run.failure, 100)} ", "red")
        if node is not None:
            text.append(f"│ {printable(node.name)} ")
            if node.risk:
                text.append(f"risk {printable(node.risk)} ", RISKS.get(node.risk, ""))
        if run.began is not None:
            end = run.ended or utc_now()
            text.append(f"│ {seconds(end - run.began)} ")
        text.append(f"│ {run.done} done")
        if run.failed:
            text.append(f", {run.failed} failed", "red")
        if run.mode not in ("", "real"):
            text.append(f" │ {run.mode}", "bold")
        self.query_one("#status", Static).update(text, layout=False)

    @property
    def _waits_for(self) -> str:
        """What the run waits for, and the key for it."""
        if self._is_answered:
            return "answered: enter resumes"
        if self._tickets:
            return f"{len(self._tickets)} approval{'s' if len(self._tickets) > 1 else ''}: a"
        manual = next((node for node in self.steps.waiting if node.kind == "manual"), None)
        if manual is not None:
            return f"{manual.name}: enter"
        if self._standing == "cut-off":
            return "interrupted: enter resumes"
        held = self._held
        return f"{held.name}: enter begins it" if held is not None else ""

    @property
    def _is_answered(self) -> bool:
        """Whether no process drives the run, and every approval that it waits for has an answer."""
        return self._standing == "waiting" and all(each.responses for each in self._tickets)

    @property
    def _held(self) -> Node | None:
        """The call that waits to be advanced, in a run that goes step by step."""
        if not self.desk.steps or self._standing != "running":
            return None
        calls = (node for node in self.steps.open.values() if node.kind in ("tool", "extension"))
        return next((node for node in calls if node.status == "running" and node.path not in self._advanced), None)

    @property
    def selected(self) -> Node | None:
        """The step under the cursor; before the cursor is moved, the one that the run is at."""
        cursor = self.query_one("#steps", Tree).cursor_node
        path = cursor.data if cursor is not None and cursor.data is not None else self.steps.current
        return self.steps.nodes.get(path)

    def _select(self, node: Node) -> None:
        shown = self._shown.get(node.path)
        if shown is not None:
            self.query_one("#steps", Tree).move_cursor(shown)

    # --- keys that write

    def action_advance(self) -> None:
        """Advance what waits for this key: a manual step, the next call, or an interrupted run."""
        if self.focused is self.query_one("#steps"):
            self.run_worker(self._advance(), exclusive=True, group="advance")

    async def _advance(self) -> None:
        manual = self.selected if self.selected is not None and self.selected.status == "waiting" else None
        manual = manual or next(iter(self.steps.waiting), None)
        held = self._held
        if manual is not None and manual.kind == "manual" and self._standing == "running":
            await self._give(manual)
        elif self._tickets and not self._is_answered:
            await self.respond(self._ticket)
        elif held is not None:
            self._advanced.add(held.path)
            await self.attempt(self.desk.advance(self.place, self.run_id, held.path))
        elif self._standing == "cut-off" or self._is_answered:
            self._was_over = False
            await self.attempt(self.desk.resume(self.place, self.run_id))

    async def _give(self, node: Node) -> None:
        instructions = node.start.instructions or "" if node.start is not None else ""
        step = pages.step_of(node, self._program)
        form = EvidenceForm(node.path, instructions, step if isinstance(step, ManualStep) else None)
        said = await self.app.push_screen_wait(form)
        if said is not None:
            await self.attempt(self.desk.give(self.place, self.run_id, node.path, said.given, said.reject))

    @property
    def _ticket(self) -> Any:
        """The ticket of the step under the cursor, or the first."""
        path = self.selected.path if self.selected is not None else None
        return next((each for each in self._tickets if each.ticket.request.place == path), self._tickets[0])

    def action_approvals(self) -> None:
        """Open the ticket that the run waits for."""
        if not self._tickets:
            self.say("the run waits for no approval")
        else:
            self.run_worker(self.respond(self._ticket), exclusive=True, group="advance")

    def action_rerun(self) -> None:
        """Start a new run from the step under the cursor."""
        if self.selected is not None:
            self.run_worker(self._rerun(self.selected), exclusive=True, group="advance")

    async def _rerun(self, node: Node) -> None:
        question = (
            f"Start a new run from `{node.path}`?\n\n"
            f"Steps before it use their recorded answers; it and all after it run again, for real.\n"
            f"The same as: gert rerun {self.run_id} --from '{node.path}'{self.place.words}"
        )
        if await self.app.push_screen_wait(Confirm(question, {"back": "Back", "rerun": "Rerun"})) == "rerun":
            launched = await self.attempt(self.desk.rerun(self.place, self.run_id, node.path))
            if launched is not None:
                self.gert.watch_run(self.place, launched.run_id)

    def action_leave(self) -> None:
        """Leave; a run that is driven goes on unless it is stopped."""
        self.run_worker(self._leave(), exclusive=True, group="leave")

    async def _leave(self) -> None:
        if self._standing == "running" and not self.desk.read_only:
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
            self.say("no step with a preview waits for approval")
        else:
            lines = map(printable, masked(request.preview).splitlines())
            self.app.push_screen(Page(f"preview of {request.place}", lines))

    def action_variables(self) -> None:
        """The variables that the step under the cursor may see."""
        node = self.selected
        title = f"variables of {node.path}" if node is not None else "variables"
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
            self.run_worker(self._show_log(self.selected, is_saved=False), exclusive=True, group="log")

    def action_save(self) -> None:
        """Save what the step under the cursor printed."""
        if self.selected is not None:
            self.run_worker(self._show_log(self.selected, is_saved=True), exclusive=True, group="log")

    async def _show_log(self, node: Node, *, is_saved: bool) -> None:
        lines = await self.attempt(asyncio.to_thread(self._log_of, node.path))
        if lines is not None and is_saved:
            save(self.app, f"{self.run_id}-{node.path}", lines)
        elif lines is not None:
            self.app.push_screen(Page(f"log of {node.path}", lines))

    def _log_of(self, path: str) -> list[str]:
        with Runs(self.place) as runs:
            pieces = merged(Logs(runs.reader, self.run_id, path).read())
            return [line for _, line in output_lines(pieces, None, None)]

    def action_explain(self) -> None:
        """What the policies decide about each step of this runbook."""
        self.run_worker(self._explain(), exclusive=True, group="explain")

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
        self.query_one("#steps").focus()

    def action_move(self, by: int) -> None:
        """Move in the steps."""
        tree = self.query_one("#steps", Tree)
        tree.action_cursor_down() if by > 0 else tree.action_cursor_up()

    def action_search(self) -> None:
        """Search the steps by name."""
        self.run_worker(self._search("search steps:", exact=False), exclusive=True, group="line")

    def action_go(self) -> None:
        """Go to a step by its id or path."""
        self.run_worker(self._search("go to step:", exact=True), exclusive=True, group="line")

    async def _search(self, about: str, *, exact: bool) -> None:
        wanted = await self.app.push_screen_wait(Line(about))
        if not wanted:
            return
        named = (node for node in self.steps.walk() if wanted in (node.path, node.name))
        found = next(named, None) if exact else None
        self._wanted = wanted.casefold()
        self.query_one("#steps").focus()
        self._select(found) if found is not None else self.action_next(1)

    def action_next(self, by: int) -> None:
        """Go to the next or the previous step that has the words."""
        if not self._wanted:
            return
        nodes = list(self.steps.walk())
        at = next((index for index, node in enumerate(nodes) if node is self.selected), -1)
        ordered = nodes[at + 1 :] + nodes[: at + 1] if by > 0 else nodes[:at][::-1] + nodes[at:][::-1]
        found = next((node for node in ordered if self._wanted in f"{node.path} {node.title}".casefold()), None)
        self._select(found) if found is not None else self.say(f"no step has `{self._wanted}`")

    # --- afterwards

    def summary(self) -> list[str]:
        """What is printed on the normal screen afterwards."""
        return pages.last_words(self.run_id, self._standing, self.steps, self._next_command)

    @property
    def _next_command(self) -> str | None:
        if self.desk.is_rehearsal(self.place):
            return None
        failed = self.steps.first("failed", "error")
        rerun = f"gert rerun {self.run_id} --from '{failed.path}'" if failed is not None else ""
        command = {
            "running": f"gert logs {self.run_id} --follow",
            "waiting": "gert approvals list",
            "cut-off": f"gert resume {self.run_id}",
            "failed": rerun,
            "error": rerun,
        }.get(self._standing)
        return f"{command or f'gert run show {self.run_id}'}{self.place.words}"
