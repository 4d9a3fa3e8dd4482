"""The line of status: what the run does, what it waits for and the key for that. Without a screen."""

from collections.abc import Collection
from typing import Any, Final

import msgspec
from rich.text import Text

from gert.ecosystem.surfaces.tui.steps import Node, StepTree
from gert.ecosystem.surfaces.tui.text import RISKS, RUN_MARKS, seconds, status_words, utc_now
from gert.kernel.foundation.text import one_line, printable

CONDITIONAL: Final = ("advance", "approvals", "preview", "rerun")
"""Actions of the screen that not every run allows at every time."""
NOT_ENDED: Final = ("starting", "running", "waiting", "cut-off")


class RunState(msgspec.Struct, frozen=True):
    """How a run is: its recorded status, its steps and the tickets that it waits for.

    by_step: its calls wait to be advanced, except those in `advanced`
    is_trial: it is a run of `gert tool try`, whose runbook is no file that a rerun could read
    """

    status: str
    steps: StepTree
    tickets: tuple[Any, ...] = ()
    by_step: bool = False
    advanced: Collection[str] = ()
    is_trial: bool = False

    @property
    def is_answered(self) -> bool:
        """Whether no process drives the run, and every approval that it waits for has an answer that may count."""
        return self.status == "waiting" and all(
            any(each.objection is None for each in view.responses) for view in self.tickets
        )

    @property
    def held(self) -> Node | None:
        """The call that waits to be advanced, in a run that goes step by step."""
        if not self.by_step or self.status != "running":
            return None
        calls = (node for node in self.steps.open.values() if node.kind in ("tool", "extension"))
        return next((node for node in calls if node.status == "running" and node.path not in self.advanced), None)

    @property
    def waits_for(self) -> str:
        """What the run waits for, and the key for it."""
        if self.is_answered:
            return "answered: enter resumes"
        if self.tickets:
            return f"{len(self.tickets)} approval{'s' if len(self.tickets) > 1 else ''}: a"
        manual = next((node for node in self.steps.waiting if node.kind == "manual"), None)
        if manual is not None and self.status == "running":
            return f"{manual.name}: enter"
        if self.status == "cut-off":
            return "interrupted: enter resumes"
        held = self.held
        return f"{held.name}: enter begins it" if held is not None else ""

    @property
    def possible(self) -> frozenset[str]:
        """Those of the `CONDITIONAL` actions that have something to act on now."""
        found = {
            "advance": bool(self.waits_for),
            "approvals": bool(self.tickets),
            "preview": any(view.ticket.request.preview is not None for view in self.tickets),
            "rerun": self.status not in NOT_ENDED and not self.is_trial,
        }
        return frozenset(name for name in CONDITIONAL if found[name])


def status_text(state: RunState, selected: Node | None, problem: str = "") -> Text:
    """The status of the run, what it waits for, its outcome or failure, the step under the cursor, time and counts.

    problem: why the ledger cannot be read
    """
    steps, text = state.steps, Text(end="")
    status = "waiting" if steps.waiting and state.status == "running" else state.status
    mark, style = RUN_MARKS.get(status, ("", ""))
    text.append(f" {mark} {status_words(status)} ", style)
    if state.waits_for:
        text.append(f"│ {state.waits_for} ", "bold yellow")
    if problem:
        text.append(f"│ {problem} ", "bold red")
    elif steps.outcome:
        text.append(f"│ outcome {printable(steps.outcome)} ", "bold")
    elif steps.failure:
        text.append(f"│ {one_line(steps.failure, 100)} ", "red")
    if selected is not None:
        text.append(f"│ {printable(selected.name)} ")
        if selected.risk:
            text.append(f"risk {printable(selected.risk)} ", RISKS.get(selected.risk, ""))
    if steps.began is not None:
        text.append(f"│ {seconds((steps.ended or utc_now()) - steps.began)} ")
    text.append(f"│ {steps.done} done")
    if steps.failed:
        text.append(f", {steps.failed} failed", "red")
    if steps.mode not in ("", "real"):
        text.append(f" │ {steps.mode}", "bold")
    return text
