"""Dialogs: a question with the harmless button focused, a line, a page of text, an approval."""

import os
import shlex
from collections.abc import Iterable
from typing import Any, ClassVar, Final

from rich.text import Text
from textual.app import App, ComposeResult, SuspendNotSupported
from textual.binding import Binding, BindingType
from textual.containers import Container, Horizontal, Vertical, VerticalScroll
from textual.widgets import Button, Input, Label, Log, Static

from gert.ecosystem.host.approvals.respond import TicketView, Verdict, summary
from gert.ecosystem.host.config.machine.pager import show_in_pager
from gert.ecosystem.surfaces.tui.dialog import ESCAPE, Dialog
from gert.ecosystem.surfaces.tui.feed import LONGEST_LINE
from gert.ecosystem.surfaces.tui.keys import PAGE, bindings
from gert.ecosystem.surfaces.tui.text import diff_text, plain
from gert.errors import GertError
from gert.kernel.foundation.secret_refs import masked
from gert.kernel.foundation.text import printable

CRITICAL: Final = "critical"
MOST_LINES: Final = 100_000
MOST_COPIED: Final = 100_000


class Confirm(Dialog[str]):
    """A question with several answers; the first, harmless one has the focus."""

    BINDINGS: ClassVar[list[BindingType]] = [
        ESCAPE,
        Binding("up,left", "app.focus_previous", show=False),
        Binding("down,right", "app.focus_next", show=False),
    ]

    def __init__(self, question: str, choices: dict[str, str]) -> None:
        super().__init__(classes="dialog")
        self._question = question
        self._choices = choices

    def compose(self) -> ComposeResult:
        """The question and its buttons."""
        with Vertical(classes="box"):
            yield Label(plain(self._question), markup=False)
            with Horizontal(classes="buttons"):
                for key, words in self._choices.items():
                    yield Button(words, compact=True, id=f"choice-{key}")

    def on_mount(self) -> None:
        """Focus the harmless answer."""
        self.set_focus(self.query(Button).first())

    def on_button_pressed(self, event: Button.Pressed) -> None:
        """Answer."""
        self.dismiss((event.button.id or "").removeprefix("choice-"))


class Line(Dialog[str]):
    """One line at the foot of the screen: a search, a filter, a command."""

    AUTO_FOCUS = "Input"

    BINDINGS: ClassVar[list[BindingType]] = [ESCAPE]

    def __init__(self, about: str, text: str = "") -> None:
        super().__init__(classes="line")
        self._about = about
        self._text = text

    def compose(self) -> ComposeResult:
        """What is asked, and a field."""
        with Horizontal(classes="box"):
            yield Label(plain(f"{self._about} "), markup=False)
            yield Input(compact=True, value=self._text, select_on_focus=False)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Answer."""
        self.dismiss(event.value.strip())


class Page(Dialog[None]):
    """A page of lines: variables, a contract, events, output; saved or opened in a pager."""

    BINDINGS: ClassVar[list[BindingType]] = bindings(PAGE)

    def __init__(self, title: str, lines: Iterable[str]) -> None:
        super().__init__(classes="page")
        self._title = title
        self._lines = list(lines)

    def compose(self) -> ComposeResult:
        """The title and the lines."""
        with Vertical(classes="box"):
            yield Label(plain(f"{self._title}   (esc back · o pager · s save · y copy)", "bold"), markup=False)
            yield Log(max_lines=MOST_LINES, id="page-log")

    def on_mount(self) -> None:
        """Show the lines from the top."""
        log = self.query_one(Log)
        log.write_lines([line[:LONGEST_LINE] for line in self._lines] or ["(nothing)"], scroll_end=False)
        log.focus()

    def action_copy(self) -> None:
        """Copy the page to the clipboard, up to a size that terminals take."""
        copy(self.app, "\n".join(self._lines))

    def action_save(self) -> None:
        """Save the page in the working folder."""
        save(self.app, self._title, self._lines)

    def action_pager(self) -> None:
        """Open the page in $PAGER."""
        show_in_pager_of(self.app, self._lines)


def copy(app: App[Any], text: str) -> None:
    """Copy by OSC 52, up to a size that terminals take."""
    app.copy_to_clipboard(text[:MOST_COPIED])
    app.notify("copied" if len(text) <= MOST_COPIED else f"copied the first {MOST_COPIED:,} characters", markup=False)


def save(app: App[Any], title: str, lines: Iterable[str]) -> None:
    """Save lines in a new file of the working folder."""
    name = "".join(each if each.isalnum() or each in "-._" else "-" for each in title).strip("-.")[:80] or "output"
    for path in (os.path.abspath(f"{name}{number}.txt") for number in ("", *(f"-{each}" for each in range(2, 100)))):
        try:
            with open(path, "x", encoding="utf-8") as file:
                file.writelines(f"{line}\n" for line in lines)
        except FileExistsError:
            continue
        except OSError as problem:
            app.notify(printable(f"not saved: {problem.strerror}"), severity="error", markup=False)
            return
        app.notify(printable(f"saved in {path}"), markup=False)
        return
    app.notify(printable(f"not saved: there are too many files `{name}`"), severity="error", markup=False)


def show_in_pager_of(app: App[Any], lines: Iterable[str]) -> None:
    """Open lines in $PAGER, and come back."""
    try:
        with app.suspend():
            is_shown = show_in_pager("\n".join(lines) + "\n", os.environ)
    except SuspendNotSupported:
        is_shown = False
    if not is_shown:
        app.notify("no pager can be opened here: set PAGER", severity="error", markup=False)
    app.refresh()


class Respond(Dialog[Verdict]):
    """A ticket: exactly what will run, and the answer to it."""

    BINDINGS: ClassVar[list[BindingType]] = [ESCAPE]

    def __init__(self, view: TicketView, actor: str, key: str | None, *, read_only: bool = False) -> None:
        super().__init__(classes="page")
        self._view = view
        self._actor = actor
        self._key = key
        self._read_only = read_only

    @property
    def is_critical(self) -> bool:
        """Whether the step id has to be typed."""
        return self._view.ticket.request.risk_level == CRITICAL

    def compose(self) -> ComposeResult:
        """The command first, then everything else, then the answer."""
        request = self._view.ticket.request
        with Vertical(classes="box"):
            with VerticalScroll(id="request", can_focus=True):
                yield Static(self._command(), markup=False, id="command")
                if request.preview is not None:
                    yield Static(diff_text(masked(request.preview).splitlines()[:200]), id="preview")
                yield Static(plain("\n".join(summary(request)).strip("\n")), markup=False)
                yield Static(self._answers(), markup=False)
            if not self._read_only:
                with Container(classes="fields pairs"):
                    yield from _field("as", Input(compact=True, value=self._actor, id="approver"))
                    yield from _field("reason", Input(compact=True, id="reason"))
                    key = Input(compact=True, value=self._key or "", placeholder="variable or file", id="key")
                    yield from _field("key", key)
                if self.is_critical:
                    about = f"critical: type the step id `{printable(request.step_id)}`"
                    yield Input(compact=True, placeholder=about, id="typed")
                with Horizontal(classes="buttons"):
                    yield Button("Back", compact=True, id="back")
                    yield Button("Reject", compact=True, id="reject", variant="error")
                    yield Button("Approve", compact=True, id="approve", variant="success")
            yield Label("", id="problem", markup=False)

    def _command(self) -> Text:
        request = self._view.ticket.request
        call = request.command or {}
        command = shlex.join([call.get("program", ""), *call.get("arguments", ())]) if "program" in call else ""
        shown = plain(f"⚠ {request.risk_level} risk · {request.place}\n", "bold yellow")
        shown.append(f"$ {printable(command)}" if command else printable(request.target or request.step_type), "bold")
        return shown

    def _answers(self) -> Text:
        shown = Text("\nno one has answered yet" if not self._view.responses else "\nanswers:\n")
        for each in self._view.responses:
            word = "approved" if each.response.approved else "rejected"
            state = "counted" if each.counts else each.objection or "received"
            why = f" ({each.response.reason})" if each.response.reason else ""
            shown.append(printable(f"{each.response.approver} {word}{why}: {state}") + "\n")
        return shown

    def on_mount(self) -> None:
        """Focus the harmless button."""
        # At once: a key that is pressed as soon as the dialog is seen goes there.
        self.set_focus(self.query_one("#request" if self._read_only else "#back"))

    def on_button_pressed(self, event: Button.Pressed) -> None:
        """Answer, or say what is missing."""
        if event.button.id == "back":
            self.dismiss(None)
            return
        approved = event.button.id == "approve"
        request = self._view.ticket.request
        if approved and self.is_critical and self.query_one("#typed", Input).value.strip() != request.step_id:
            self.query_one("#problem", Label).update(plain("type the step id to approve a critical step", "bold red"))
            self.query_one("#typed").focus()
            return
        self.dismiss(
            Verdict(
                ticket=self._view.id,
                approved=approved,
                approver=self.query_one("#approver", Input).value.strip() or None,
                reason=self.query_one("#reason", Input).value.strip() or None,
                key=self.query_one("#key", Input).value.strip() or None,
            )
        )


def _field(name: str, field: Input) -> ComposeResult:
    with Horizontal(classes="pair"):
        yield Label(name)
        yield field


def problem_text(problem: GertError) -> str:
    """An error on one line, with its hint."""
    return printable(f"{problem.message}{f' ({problem.hint})' if problem.hint else ''}")
