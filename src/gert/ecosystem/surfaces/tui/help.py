"""The keys of each screen, and the command that does the same."""

from typing import Final

_RUN: Final = (
    (
        "enter",
        "advance what waits: manual step, next call (--step), interrupted run",
        "gert run evidence|advance, gert resume",
    ),
    ("a", "open the approval the run waits for", "gert approvals show, gert approve, gert reject"),
    ("v", "inputs and outputs", "gert run show, gert trace show"),
    ("c", "contract and deciding rule of the step", "gert explain RUNBOOK STEP"),
    ("t", "events", "gert trace show"),
    ("l", "full output of the step (s save, o pager, y copy)", "gert logs RUN STEP"),
    ("e", "explain the runbook", "gert explain RUNBOOK"),
    ("r", "rerun from here", "gert rerun RUN --from STEP"),
    ("/ g n", "search a step, next match", ""),
    ("f G end", "follow the output", "gert logs RUN --follow"),
    ("y", "copy the run id", ""),
    ("q", "leave; asks whether the run goes on or stops", "gert run cancel RUN"),
    ("j k arrows", "move", ""),
    ("esc", "back", ""),
)
_HOME: Final = (
    ("1 2 3", "runbooks, runs, approvals", "gert run list, gert approvals list"),
    ("enter", "open; never executes", "gert run show, gert approvals show"),
    ("/", "filter the list", ""),
    (":", "command: runbooks, runs, approvals, run ID, quit", ""),
    ("d", "in the form of a runbook: dry-run instead of real", "gert exec --mode dry-run"),
    ("q", "quit", ""),
)


def run_help(run_id: str) -> list[str]:
    """The keys of the run screen."""
    return [*_table(_RUN), "", f"RUN is {run_id}"]


def home_help() -> list[str]:
    """The keys of the first screen."""
    return _table(_HOME)


def _table(rows: tuple[tuple[str, str, str], ...]) -> list[str]:
    return [line for key, what, command in rows for line in _row(key, what, command)]


def _row(key: str, what: str, command: str) -> list[str]:
    return [f"{key:<11} {what}", *([f"{'':<11}   {command}"] if command else [])]
