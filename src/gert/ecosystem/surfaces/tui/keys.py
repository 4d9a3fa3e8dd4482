"""The keys of each screen: what each does, the command of the same effect, and the keys that a user sets instead."""

import os
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from textual.binding import Binding, BindingType

from gert.ecosystem.host.config.files import read_map
from gert.errors import UsageError
from gert.kernel.foundation.names import suggestion

CONFIG: Final = "tui.yaml"
"""The file in the user's folder of configuration."""
_SHOWN: Final = {"question_mark": "?", "slash": "/", "colon": ":", "escape": "esc"}


class Key(NamedTuple):
    """One action of a screen.

    id: the name that a keymap uses for it
    writes: it starts, answers or stops something; gone with --readonly
    """

    id: str
    keys: str
    action: str
    label: str
    what: str
    command: str = ""
    writes: bool = False
    show: bool = True

    @property
    def word(self) -> str:
        """Its word in the command bar."""
        return self.id.rpartition(".")[2]


def _lists(screen: str) -> tuple[Key, ...]:
    return (
        Key(f"{screen}.runs", "1", "list('runs')", "Runs", "recent runs", "gert run list", show=False),
        Key(f"{screen}.steps", "2", "steps", "Steps", "steps of the run", "gert run show RUN", show=False),
        Key(f"{screen}.inbox", "3", "list('approvals')", "Inbox", "open approvals", "gert approvals list", show=False),
        Key(f"{screen}.runbooks", "4", "list('runbooks')", "Runbooks", "runbooks of the folder", "gert validate",
            show=False),
    )  # fmt: skip


def _around(screen: str) -> tuple[Key, ...]:
    return (
        Key(
            f"{screen}.command", "colon,ctrl+p", "command", "Command", "command bar: the words of this page", show=False
        ),
        Key(f"{screen}.mouse", "m", "mouse", "Mouse", "release the mouse, or take it again", show=False),
        Key(f"{screen}.help", "question_mark,f1", "help", "Help", "this page", "gert --help"),
    )


RUN: Final = (
    Key("run.advance", "enter", "advance", "Advance",
        "advance what waits: manual step, next call (--step), interrupted run",
        "gert run evidence, gert run advance, gert resume", writes=True),
    Key("run.approvals", "a,A,X", "approvals", "Approve", "approve or reject what the run waits for",
        "gert approvals show, gert approve, gert reject"),
    Key("run.preview", "p", "preview", "Preview", "preview of the step that waits for approval",
        "gert approvals show TICKET", show=False),
    Key("run.variables", "v", "variables", "Vars", "variables that the step may see, secrets masked",
        "gert run show RUN --json, gert trace show RUN"),
    Key("run.contract", "c", "contract", "Rule", "contract and deciding rule of the step",
        "gert explain RUNBOOK STEP"),
    Key("run.trace", "t", "trace", "Trace", "events of the run", "gert trace show RUN"),
    Key("run.log", "l", "log", "Log", "full output of the step", "gert logs RUN STEP"),
    Key("run.explain", "e", "explain", "Explain", "risk and decision of each step", "gert explain RUNBOOK", show=False),
    Key("run.rerun", "r", "rerun", "Rerun", "start a new run from the step; asks first",
        "gert rerun RUN --from STEP", writes=True),
    Key("run.search", "slash", "search", "Search", "search the steps", show=False),
    Key("run.next", "n", "next(1)", "Next", "next step that matches", show=False),
    Key("run.previous", "N", "next(-1)", "Previous", "previous step that matches", show=False),
    Key("run.go", "g", "go", "Go to", "go to a step by its id or path", show=False),
    Key("run.follow", "f,end,G", "follow", "Follow", "follow the output", "gert logs RUN --follow", show=False),
    Key("run.wrap", "w", "wrap", "Wrap", "wrap long lines of the output", show=False),
    Key("run.pager", "o", "pager", "Pager", "open the output in $PAGER", "gert logs RUN | less", show=False),
    Key("run.save", "s", "save", "Save", "save the output of the step", "gert logs RUN STEP > FILE", show=False),
    Key("run.copy", "y", "copy", "Copy", "copy the selected text, or the id of the run", show=False),
    Key("run.down", "j", "move(1)", "Down", "next step; arrows too", show=False),
    Key("run.up", "k", "move(-1)", "Up", "previous step; arrows too", show=False),
    *_lists("run"),
    *_around("run"),
    Key("run.leave", "q", "leave", "Leave", "leave; asks whether the run goes on or stops", "gert run cancel RUN"),
)  # fmt: skip
HOME: Final = (
    Key("home.open", "enter", "open", "Open", "open what is under the cursor; never executes",
        "gert run show RUN, gert approvals show TICKET"),
    *(key._replace(show=True) for key in _lists("home") if key.word != "steps"),
    Key("home.steps", "2", "steps", "Steps", "steps of the run that was opened last", "gert run show last", show=False),
    Key("home.filter", "slash", "filter", "Filter", "show only rows that have these words",
        "gert run list --status STATUS"),
    Key("home.down", "j", "move(1)", "Down", "next row; arrows too", show=False),
    Key("home.up", "k", "move(-1)", "Up", "previous row; arrows too", show=False),
    Key("home.copy", "y", "copy", "Copy", "copy the id or file under the cursor", show=False),
    *_around("home"),
    Key("home.quit", "q", "quit", "Quit", "quit; runs go on"),
)  # fmt: skip
FORM: Final = (
    Key("form.back", "escape", "back", "Back", "close the form; nothing is started or answered"),
    Key("form.dry_run", "f2,d", "dry_run", "Dry-run", "dry-run instead of real, before the start",
        "gert exec --mode dry-run"),
)  # fmt: skip
PAGE: Final = (
    Key("page.back", "escape,q", "back", "Back", "close the page"),
    Key("page.pager", "o", "pager", "Pager", "open the page in $PAGER"),
    Key("page.save", "s", "save", "Save", "save the page in a file"),
    Key("page.copy", "y", "copy", "Copy", "copy the page"),
)
ALL: Final = {key.id: key for rows in (RUN, HOME, FORM, PAGE) for key in rows}
_PLAIN: Final = (
    ("tab", "next field or button; shift+tab goes back", ""),
    ("space", "check a box, open a list", ""),
    ("enter", "press the button; in a path, show the hash of the file", ""),
    ("f3", "choose a file, in a field of an attachment", "gert run evidence RUN STEP FILE"),
    ("start", "in the form of a runbook: start a run", "gert exec RUNBOOK --input NAME=VALUE --mode MODE"),
)


def bindings(rows: Iterable[Key], *priority: str) -> list[BindingType]:
    """The keys of a screen, as Textual takes them.

    priority: ids of keys that widgets have, too
    """
    return [
        Binding(key.keys, key.action, key.label, show=key.show, id=key.id, priority=key.id in priority) for key in rows
    ]


def help_lines(rows: tuple[Key, ...], keymap: Mapping[str, str], *, read_only: bool) -> list[str]:
    """A page of keys: each with what it does and the command that does the same."""
    lines: list[str] = []
    for key in (*rows, *(key for key in (*FORM, *PAGE) if rows in (RUN, HOME))):
        if not (key.writes and read_only):
            lines += _line(_names(keymap.get(key.id, key.keys)), key.what, key.command)
    lines += ["", "in forms and dialogs:"]
    for keys, what, command in _PLAIN:
        lines += _line(keys, what, command)
    return [*lines, "", "RUN is the id of a run, a prefix of it or `last`. Keys are settings: docs/tui.md says how."]


def _line(keys: str, what: str, command: str) -> list[str]:
    return [f"{keys:<9} {what}", *([f"{'':<9}   {command}"] if command else [])]


def _names(keys: str) -> str:
    return " ".join(_SHOWN.get(each.strip(), each.strip()) for each in keys.split(","))


def read_keymap(environ: Mapping[str, str]) -> dict[str, str]:
    """The keys that the user sets, by the id of the action: `keys:` in `tui.yaml`; UsageError where one is wrong."""
    folder = environ.get("XDG_CONFIG_HOME") or os.path.join(environ.get("HOME") or os.path.expanduser("~"), ".config")
    path = os.path.join(folder, "gert", CONFIG)
    if not os.path.exists(path):
        return {}
    document = read_map(path, "settings of the screen")
    found = document.get("keys") or {}
    unknown = next((name for name in document if name != "keys"), None)
    if unknown is not None or not isinstance(found, Mapping):
        raise UsageError(f"`{path}`: expected only a map `keys`", hint="write `keys: {run.rerun: R}`")
    keymap: dict[str, str] = {}
    for name, keys in found.items():
        if name not in ALL:
            raise UsageError(f"`{path}`: there is no action `{name}`", hint=suggestion(name, ALL))
        # A digit is a key, too.
        keymap[name] = str(keys)
    _require_distinct(path, keymap)
    return keymap


def _require_distinct(path: str, keymap: Mapping[str, str]) -> None:
    """Refuse a key that would do two things on one screen."""
    for rows in (RUN, HOME, FORM, PAGE):
        taken: dict[str, str] = {}
        for key in rows:
            for each in keymap.get(key.id, key.keys).split(","):
                name = each.strip()
                other = taken.setdefault(name, key.id)
                if not name or other != key.id:
                    raise UsageError(f"`{path}`: the key `{name}` is set for both `{other}` and `{key.id}`")
