"""Dialogs: a question with the harmless button focused, a page of text, help, an approval."""

import os
import shlex
from collections.abc import Iterable
from typing import Any, ClassVar, Final

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Button, Input, Label, Log, Static

from gert.ecosystem.host.approvals.respond import TicketView, Verdict, summary
from gert.ecosystem.surfaces.tui.text import diff_text, plain
from gert.errors import GertError
from gert.kernel.foundation.secret_refs import masked
from gert.kernel.foundation.text import printable

CRITICAL: Final = "critical"


class Confirm(ModalScreen[str | None]):
    """A question with several answers; the first, harmless one has the focus."""

    AUTO_FOCUS = ""  # the screen says itself what has the focus

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "back", "Back")]

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
        self.query(Button).first().focus()

    def on_button_pressed(self, event: Button.Pressed) -> None:
        """Answer."""
        self.dismiss((event.button.id or "").removeprefix("choice-"))

    def action_back(self) -> None:
        """Close without an answer."""
        self.dismiss(None)


class Page(ModalScreen[None]):
    """A page of lines: variables, a contract, events, output; saved or opened in a pager."""

    AUTO_FOCUS = ""  # the screen says itself what has the focus

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "back", "Back"),
        Binding("o", "pager", "Pager"),
        Binding("s", "save", "Save"),
        Binding("y", "copy", "Copy"),
    ]

    def __init__(self, title: str, lines: Iterable[str]) -> None:
        super().__init__(classes="page")
        self._title = title
        self._lines = list(lines)

    def compose(self) -> ComposeResult:
        """The title and the lines."""
        with Vertical(classes="box"):
            yield Label(plain(f"{self._title}   (esc back · o pager · s save · y copy)", "bold"), markup=False)
            yield Log(max_lines=100_000, id="page-log")

    def on_mount(self) -> None:
        """Show the lines from the top."""
        log = self.query_one(Log)
        log.write_lines(self._lines or ["(nothing)"])
        log.scroll_home(animate=False)
        log.focus()

    def action_back(self) -> None:
        """Close the page."""
        self.dismiss(None)

    def action_copy(self) -> None:
        """Copy the page to the clipboard, up to a size that terminals take."""
        self.app.copy_to_clipboard("\n".join(self._lines)[:100_000])
        self.notify("copied", markup=False)

    def action_save(self) -> None:
        """Save the page in the working folder."""
        name = "".join(each if each.isalnum() or each in "-._" else "-" for each in self._title).strip("-")[:80]
        path = os.path.abspath(f"{name or 'output'}.txt")
        try:
            with open(path, "x", encoding="utf-8") as file:
                file.write("\n".join(self._lines) + "\n")
        except OSError as problem:
            self.notify(printable(f"not saved: {problem.strerror}"), severity="error", markup=False)
            return
        self.notify(printable(f"saved in {path}"), markup=False)

    def action_pager(self) -> None:
        """Open the page in $PAGER."""
        from gert.ecosystem.host.config.machine.pager import show_in_pager

        with self.app.suspend():
            show_in_pager("\n".join(self._lines) + "\n", os.environ)
        self.app.refresh()


class Respond(ModalScreen[Verdict | None]):
    """A ticket: exactly what will run, and the answer to it."""

    AUTO_FOCUS = ""  # the screen says itself what has the focus

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "back", "Back")]

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
                with Horizontal(classes="fields"):
                    yield Input(compact=True, value=self._actor, placeholder="approver", id="approver")
                    yield Input(compact=True, placeholder="reason", id="reason")
                    yield Input(
                        compact=True, value=self._key or "", placeholder="key to sign with (variable or file)", id="key"
                    )
                if self.is_critical:
                    yield Input(
                        compact=True,
                        placeholder=f"critical: type the step id `{printable(request.step_id)}`",
                        id="typed",
                    )
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
        shown = Text("\n")
        for each in self._view.responses:
            word = "approved" if each.response.approved else "rejected"
            state = "counted" if each.counts else each.objection or "received"
            shown.append(printable(f"{each.response.approver} {word}: {state}\n"))
        return shown

    def on_mount(self) -> None:
        """Focus the harmless button."""
        if self._read_only:
            self.query_one("#request").focus()
        else:
            self.query_one("#back").focus()

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

    def action_back(self) -> None:
        """Close without an answer."""
        self.dismiss(None)


def problem_text(problem: GertError) -> str:
    """An error on one line, with its hint."""
    return printable(f"{problem.message}{f' ({problem.hint})' if problem.hint else ''}")


def pairs(rows: Iterable[tuple[str, Any]]) -> list[str]:
    """Rows of a name and a value, aligned."""
    listed = [(name, printable(str(value))) for name, value in rows if value not in (None, "")]
    width = max((len(name) for name, _ in listed), default=0) + 2
    return [f"{name + ':':<{width}}{value}" for name, value in listed]
