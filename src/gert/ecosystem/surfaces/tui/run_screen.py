"""One run: its steps on the left, output in the middle, status below. It reads the ledger and writes to the inbox."""

import asyncio
from typing import Any, ClassVar, Final

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.screen import Screen
from textual.widgets import Footer, Input, Log, Static, Tree
from textual.widgets.tree import TreeNode

from gert.ecosystem.host.runs.listing import Runs
from gert.ecosystem.host.runs.logs import Logs, merged
from gert.ecosystem.host.runs.place import Place
from gert.ecosystem.surfaces.tui.desk import Desk
from gert.ecosystem.surfaces.tui.dialogs import Confirm, Page, Respond, pairs, problem_text
from gert.ecosystem.surfaces.tui.feed import Look, RunFeed, output_lines
from gert.ecosystem.surfaces.tui.forms import EvidenceForm
from gert.ecosystem.surfaces.tui.help import run_help
from gert.ecosystem.surfaces.tui.steps import Node, StepTree
from gert.ecosystem.surfaces.tui.text import (
    RISKS,
    STYLES,
    event_lines,
    json_lines,
    plain,
    seconds,
    status_words,
    step_label,
    utc_now,
)
from gert.errors import GertError
from gert.kernel.events import runbook as says
from gert.kernel.events.envelope import Envelope
from gert.kernel.foundation.text import one_line, printable
from gert.kernel.runbook.documents.steps import ManualStep
from gert.kernel.runbook.program import Program

EVERY: Final = 0.1
"""Seconds between two looks at the ledger; keys are answered in between."""
MOST_SHOWN: Final = 10_000
MOST_EVENTS: Final = 20_000
MOST_LABELS: Final = 500
"""Labels that are drawn in one go."""


class RunScreen(Screen[None]):
    """Watches and controls a run."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "advance", "Advance", id="run.advance", priority=True),
        Binding("a", "approvals", "Approvals", id="run.approvals"),
        Binding("v", "variables", "Variables", id="run.variables"),
        Binding("c", "contract", "Contract", id="run.contract"),
        Binding("t", "trace", "Trace", id="run.trace"),
        Binding("l", "log", "Log", id="run.log"),
        Binding("e", "explain", "Explain", show=False, id="run.explain"),
        Binding("r", "rerun", "Rerun", show=False, id="run.rerun"),
        Binding("f,end,G", "follow", "Follow", show=False, id="run.follow"),
        Binding("slash", "search", "Search", id="run.search"),
        Binding("g", "search", "Go to", show=False, id="run.goto"),
        Binding("n", "next", "Next", show=False, id="run.next"),
        Binding("y", "copy", "Copy", show=False, id="run.copy"),
        Binding("j", "down", show=False),
        Binding("k", "up", show=False),
        Binding("question_mark,f1", "help", "Help", id="run.help"),
        Binding("q", "leave", "Leave", id="run.leave"),
    ]

    def __init__(self, desk: Desk, place: Place, run_id: str) -> None:
        super().__init__()
        self._desk = desk
        self._place = place
        self.run_id = run_id
        self._feed = RunFeed(place, run_id)
        self._program: Program | None = None
        self.steps = StepTree()
        self._shown: dict[str, TreeNode[str]] = {}
        self._dirty: dict[str, None] = {}
        self._events: list[Envelope] = []
        self._standing = "starting"
        self._tickets: tuple[Any, ...] = ()
        self._advanced: set[str] = set()
        self._told = 0
        self._found = ""
        self._is_looking = False
        self._was_over = False

    # --- the layout

    def compose(self) -> ComposeResult:
        """Steps, output, status, keys."""
        with Horizontal(id="panes"):
            steps: Tree[str] = Tree(plain("steps"), id="steps")
            steps.show_root = False
            steps.guide_depth = 2
            yield steps
            yield Log(max_lines=MOST_SHOWN, id="output")
        yield Input(compact=True, placeholder="search steps", id="search", classes="hidden")
        yield Static("", id="status", markup=False)
        yield Footer()

    async def on_mount(self) -> None:
        """Read the runbook, then look at the ledger again and again."""
        self._program = await asyncio.to_thread(self._feed.program)
        self.steps = StepTree(self._program)
        self._draw_steps()
        self.query_one("#steps").focus()
        self.set_interval(EVERY, self._tick)

    def on_unmount(self) -> None:
        """Let go of the ledger."""
        self._feed.close()

    # --- looking

    async def _tick(self) -> None:
        if self._is_looking:
            return
        self._is_looking = True
        try:
            look = await asyncio.to_thread(self._feed.look)
        except GertError as problem:
            self._show_status(problem_text(problem))
            return
        finally:
            self._is_looking = False
        if self.is_attached:
            self._take(look)

    def _take(self, look: Look) -> None:
        for event in look.events:
            self.steps.take(event)
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
        log = self.query_one("#output", Log)
        lines = [line for event in look.events for line in _said(event)]
        for step, line in output_lines(look.output):
            lines.append(f"  {one_line(step, 24)} │ {line}")
        if lines:
            log.write_lines(lines[-MOST_SHOWN:])

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
        # What runs has a duration that grows; those few are always redrawn.
        for node in self.steps.waiting[:MOST_LABELS]:
            self._dirty[node.path] = None
        for path in list(self._dirty)[:MOST_LABELS]:
            del self._dirty[path]
            shown, changed = self._shown.get(path), self.steps.nodes.get(path)
            if shown is not None and changed is not None:
                shown.set_label(step_label(changed, now))

    def _show_status(self, problem: str = "") -> None:
        node = self.selected or self.steps.nodes.get(self.steps.current)
        run, text = self.steps, Text(end="")
        standing = "waiting" if self.steps.waiting and self._standing == "running" else self._standing
        style = {"completed": STYLES["success"], "cut-off": STYLES["waiting"]}.get(standing, STYLES.get(standing, ""))
        text.append(f" {status_words(standing)} ", style)
        if problem:
            text.append(f"│ {problem} ", "bold red")
        elif run.outcome:
            text.append(f"│ outcome {printable(run.outcome)} ", "bold")
        elif run.failure:
            text.append(f"│ {one_line(run.failure, 100)} ", "red")
        if node is not None:
            text.append(f"│ {printable(node.name)} ")
            if node.risk:
                text.append(f"risk {node.risk} ", RISKS.get(node.risk, ""))
        if run.began is not None:
            end = run.ended or utc_now()
            text.append(f"│ {seconds(end - run.began)} ")
        text.append(f"│ {run.done} done")
        if run.failed:
            text.append(f", {run.failed} failed", "red")
        if self._waits_for:
            text.append(f" │ ⚠ {self._waits_for}", "bold yellow")
        self.query_one("#status", Static).update(text)

    @property
    def _waits_for(self) -> str:
        """What the run waits for, and the key for it."""
        if self._tickets:
            return f"{len(self._tickets)} approval(s): a"
        manual = next((node for node in self.steps.waiting if node.kind == "manual"), None)
        if manual is not None:
            return f"{manual.name}: enter"
        if self._standing == "cut-off":
            return "interrupted: enter resumes"
        held = self._held
        return f"{held.name}: enter begins it" if held is not None else ""

    @property
    def _held(self) -> Node | None:
        """The call that waits to be advanced, in a run that goes step by step."""
        if not self._desk.steps or self._standing != "running":
            return None
        running = (node for node in self.steps.nodes.values() if node.status == "running")
        calls = (node for node in running if node.kind in ("tool", "extension") and node.path not in self._advanced)
        return next(calls, None)

    @property
    def selected(self) -> Node | None:
        """The step under the cursor."""
        cursor = self.query_one("#steps", Tree).cursor_node
        return self.steps.nodes.get(cursor.data) if cursor is not None and cursor.data is not None else None

    def _select(self, node: Node) -> None:
        shown = self._shown.get(node.path)
        if shown is not None:
            self.query_one("#steps", Tree).move_cursor(shown)

    # --- keys

    async def action_advance(self) -> None:
        """Advance what waits for this key: a manual step, the next call, or an interrupted run."""
        if self.focused is self.query_one("#search"):
            await self.query_one("#search", Input).action_submit()
            return
        self.run_worker(self._advance(), exclusive=True, group="advance")

    async def _advance(self) -> None:
        if self._is_read_only():
            return
        manual = self.selected if self.selected is not None and self.selected.status == "waiting" else None
        manual = manual or next(iter(self.steps.waiting), None)
        held = self._held
        if manual is not None and manual.kind == "manual":
            await self._give(manual)
        elif self._tickets:
            await self._respond()
        elif held is not None:
            self._advanced.add(held.path)
            await self._try(self._desk.advance(self._place, self.run_id, held.path))
        elif self._standing == "cut-off":
            await self._try(self._desk.resume(self.run_id))

    async def _give(self, node: Node) -> None:
        start = node.start
        instructions = start.instructions or "" if start is not None else ""
        form = EvidenceForm(node.path, instructions, self._manual_step(node))
        said = await self.app.push_screen_wait(form)
        if said is not None:
            await self._try(self._desk.give(self._place, self.run_id, node.path, said.given, said.reject))

    def _manual_step(self, node: Node) -> ManualStep | None:
        if self._program is None or node.start is None:
            return None
        steps = (each for each in self._program.steps if isinstance(each, ManualStep))
        return next((each for each in steps if each.id == node.start.step_id), None)

    async def _respond(self) -> None:
        view = self._tickets[0]
        dialog = Respond(view, self._desk.actor or "", self._desk.key, read_only=self._desk.read_only)
        verdict = await self.app.push_screen_wait(dialog)
        if verdict is None:
            return
        given = await self._try(self._desk.respond(verdict))
        if given is not None and given.answered.objection is not None:
            self.notify(printable(given.answered.objection), severity="error", markup=False)

    async def _try(self, work: Any) -> Any:
        try:
            return await work
        except GertError as problem:
            self.notify(problem_text(problem), severity="error", timeout=10, markup=False)
            return None

    def _is_read_only(self) -> bool:
        if self._desk.read_only:
            self.notify("read-only: nothing is changed from this screen", markup=False)
        return self._desk.read_only

    def action_approvals(self) -> None:
        """Open the ticket that the run waits for."""
        if not self._tickets:
            self.notify("the run waits for no approval", markup=False)
            return
        self.run_worker(self._respond(), exclusive=True, group="advance")

    def action_variables(self) -> None:
        """Inputs and outputs as the record has them: redacted."""
        lines = [f"{name} = {one_line(str(value), 500)}  ({source})" for name, value, source in self.steps.inputs]
        for node in self.steps.walk():
            if node.complete is not None and node.complete.outputs:
                lines += [f"{node.path}:", *(f"  {line}" for line in json_lines(node.complete.outputs))]
        self.app.push_screen(Page("variables", lines))

    def action_contract(self) -> None:
        """The contract of the step under the cursor, and the rule that decided."""
        node = self.selected
        if node is None:
            return
        decision, start = node.decision, node.start
        rows = [
            ("step", node.path),
            ("type", node.kind),
            ("status", node.status),
            ("risk", node.risk),
            ("decision", decision.decision if decision is not None else ""),
            ("rule", decision.rule if decision is not None else ""),
        ]
        contract = start.contract_summary if start is not None else {}
        self.app.push_screen(Page(f"contract of {node.name}", [*pairs(rows), "", *json_lines(contract)]))

    def action_trace(self) -> None:
        """The events of the run."""
        self.app.push_screen(Page(f"trace of {self.run_id}", event_lines(self._events)))

    def action_log(self) -> None:
        """Everything that the step under the cursor printed."""
        node = self.selected
        if node is not None:
            self.run_worker(self._show_log(node), exclusive=True, group="log")

    async def _show_log(self, node: Node) -> None:
        lines = await asyncio.to_thread(self._log_of, node.path)
        self.app.push_screen(Page(f"log of {node.path}", lines))

    def _log_of(self, path: str) -> list[str]:
        with Runs(self._place) as runs:
            return [line for _, line in output_lines(merged(Logs(runs.reader, self.run_id, path).read()))]

    def action_explain(self) -> None:
        """What the policies decide about each step of this runbook."""
        self.run_worker(self._explain(), exclusive=True, group="explain")

    async def _explain(self) -> None:
        started = next((each.payload for each in self._events if isinstance(each.payload, says.RunStart)), None)
        if started is None or started.start is None:
            self.notify("the run does not say which runbook it ran", markup=False)
            return
        found = await self._try(asyncio.to_thread(self._desk.explain, started.start.file))
        if found is not None:
            lines = [
                f"{each.name:<24} {each.explanation.risk.word:<9} {each.explanation.decision.verdict.word:<17} "
                f"{each.explanation.decision.rule or 'no rule matches'}"
                for each in found.steps
            ]
            self.app.push_screen(Page("explain", map(printable, lines)))

    def action_rerun(self) -> None:
        """Show the command that starts a new run from the step under the cursor."""
        node = self.selected
        if node is not None:
            command = f"gert rerun {self.run_id} --from {node.name}"
            self.app.push_screen(Page("rerun from here", [command, "", "Run it in a shell: it asks what it needs."]))

    def action_follow(self) -> None:
        """Go to the end of the output."""
        self.query_one("#output", Log).scroll_end(animate=False)

    def action_copy(self) -> None:
        """Copy the id of the run."""
        self.app.copy_to_clipboard(self.run_id)
        self.notify("run id copied", markup=False)

    def action_down(self) -> None:
        """Move down."""
        self.query_one("#steps", Tree).action_cursor_down()

    def action_up(self) -> None:
        """Move up."""
        self.query_one("#steps", Tree).action_cursor_up()

    def action_search(self) -> None:
        """Search the steps by name."""
        search = self.query_one("#search", Input)
        search.remove_class("hidden")
        search.focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Go to the first step that has the words."""
        self._found = event.value.strip().casefold()
        event.input.add_class("hidden")
        self.query_one("#steps").focus()
        self.action_next()

    def action_next(self) -> None:
        """Go to the next step that has the words."""
        if not self._found:
            return
        nodes = list(self.steps.walk())
        at = next((index for index, node in enumerate(nodes) if node is self.selected), -1)
        ordered = nodes[at + 1 :] + nodes[: at + 1]
        found = next((node for node in ordered if self._found in node.path.casefold()), None)
        if found is None:
            self.notify(printable(f"no step has `{self._found}`"), markup=False)
        else:
            self._select(found)

    def key_escape(self) -> None:
        """Close the search."""
        self.query_one("#search").add_class("hidden")
        self.query_one("#steps").focus()

    def action_help(self) -> None:
        """Show the keys and the command for each."""
        self.app.push_screen(Page("keys", run_help(self.run_id)))

    def action_leave(self) -> None:
        """Leave; a run that is driven goes on unless it is stopped."""
        self.run_worker(self._leave(), exclusive=True, group="leave")

    async def _leave(self) -> None:
        if self._standing == "running" and not self._desk.read_only:
            choices = {"back": "Back", "leave": "Leave, the run goes on", "stop": "Stop the run"}
            answer = await self.app.push_screen_wait(Confirm("the run is still running", choices))
            if answer in (None, "back"):
                return
            if answer == "stop":
                await self._try(self._desk.cancel(self._place, self.run_id))
        self.app.leave_run(self.summary())  # type: ignore[attr-defined]

    def summary(self) -> list[str]:
        """What is printed on the normal screen afterwards: the steps, what failed, and the next command."""
        lines = [f"run {self.run_id}: {self._standing}"]
        for node in list(self.steps.walk())[:200]:
            if node.status not in ("pending", "part"):
                depth = node.path.count("/")
                lines.append(f"{'  ' * depth}{node.mark} {node.name} {node.duration}".rstrip())
        if self.steps.outcome:
            lines.append(f"outcome: {self.steps.outcome}")
        if self.steps.failure:
            lines.append(f"failed: {one_line(self.steps.failure, 300)}")
        lines.append(f"next: gert run show {self.run_id}{self._place.words}")
        return [printable(line) for line in lines]


def _said(event: Envelope) -> list[str]:
    """The line of an event in the output, if it has one."""
    said = event.payload
    where = printable(event.path or "")
    if isinstance(said, says.GovernanceDecision) and said.decision != "allow":
        return [f"▪ {where}: {said.decision} ({said.rule or 'no rule'})"]
    if isinstance(said, says.StepStart) and said.step_type in ("tool", "extension", "manual"):
        target = " ".join(filter(None, (said.tool, said.action, said.extension)))
        return [f"→ {where} {printable(target)}"]
    if isinstance(said, says.BranchEnter):
        return [f"▪ {where}: branch {printable(str(said.branch_label))}"]
    if isinstance(said, says.StepComplete) and said.failure is not None:
        return [f"✗ {where}: {one_line(said.failure.message, 500)}"]
    if isinstance(said, says.ApprovalResolved):
        return [f"▪ {where}: {'approved' if said.approved else 'not approved'}"]
    if isinstance(said, says.RunComplete):
        return [f"▪ the run is {said.status}"]
    return []
