"""Forms: the inputs of a runbook before it starts, and the evidence of a manual step."""

import os
from collections.abc import Iterable
from typing import Any, ClassVar

import msgspec
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.screen import Screen
from textual.widgets import Button, Checkbox, Input, Label, Select, Static

from gert.ecosystem.host.operations.catalogue import Listed
from gert.ecosystem.host.run.options import MODES
from gert.ecosystem.host.run.world.evidence import attachment
from gert.ecosystem.surfaces.tui.base import start_work
from gert.ecosystem.surfaces.tui.dialog import ESCAPE, Dialog
from gert.ecosystem.surfaces.tui.keys import FORM, bindings
from gert.ecosystem.surfaces.tui.picker import FilePicker
from gert.ecosystem.surfaces.tui.text import plain
from gert.errors import InputError
from gert.kernel.foundation.text import one_line, printable
from gert.kernel.governance.parameter import Parameter
from gert.kernel.runbook.documents.runbook import Runbook
from gert.kernel.runbook.documents.steps import ManualStep


class Tick(Checkbox):
    """A box whose mark is there only if it is checked: Textual's own differs by colour alone."""

    def __init__(self, label: Any, value: bool = False, *, id: str) -> None:  # noqa: A002 - as in Textual
        self.BUTTON_INNER = "X" if value else " "
        super().__init__(label, value, compact=True, id=id)

    def watch_value(self) -> None:
        """Show the mark, or none."""
        self.BUTTON_INNER = "X" if self.value else " "
        super().watch_value()


class Started(msgspec.Struct, frozen=True):
    """How a person wants to start a runbook."""

    file: str
    values: dict[str, str]
    mode: str
    scenario: str | None = None


class StartForm(Dialog[Started]):
    """The inputs of a runbook, and how to run it; nothing runs before `Start`."""

    BINDINGS: ClassVar[list[BindingType]] = bindings(FORM)

    def __init__(
        self, listed: Listed, problem: str = "", before: Started | None = None, *, modes: tuple[str, ...] = MODES
    ) -> None:
        super().__init__(classes="page")
        self._modes = modes
        self._listed = listed
        self._problem = problem
        self._before = before
        model = listed.model
        self._inputs = dict(model.meta.inputs) if isinstance(model, Runbook) else {}

    def compose(self) -> ComposeResult:
        """One field an input."""
        about = getattr(getattr(self._listed.model, "meta", None), "description", None) or ""
        with Vertical(classes="box"):
            yield Label(plain(f"{self._listed.name}  {about}", "bold"), markup=False)
            with VerticalScroll(id="fields"):
                for name, block in self._inputs.items():
                    parameter = block.parameter()
                    yield Label(plain(_about(name, parameter, block.from_)), markup=False)
                    yield self._field(name, parameter, block.from_)
            with Horizontal(classes="fields"):
                mode = self._before.mode if self._before is not None else self._modes[0]
                modes = [(each, each) for each in self._modes]
                yield Select(modes, compact=True, value=mode, allow_blank=False, id="mode")
                yield Input(compact=True, placeholder="scenario (for replay)", id="scenario")
            with Horizontal(classes="buttons"):
                yield Button("Back", compact=True, id="back")
                yield Button("Start", compact=True, id="start", variant="primary")
                yield Label("tab next · f2 dry-run", classes="hint")
            yield Label(plain(self._problem, "bold red"), id="problem", markup=False)

    def _field(self, name: str, parameter: Parameter, source: str | None) -> Any:
        before = (self._before.values if self._before is not None else {}).get(name)
        default = "" if parameter.secret or not parameter.has_default else _text(parameter.default)
        if not default.isprintable():
            # A field would pass on what controls a terminal, and lose line breaks; left empty, the default counts.
            default = ""
        if parameter.enum is not None:
            options = [(plain(one_line(str(each), 200)), str(each)) for each in parameter.enum]
            chosen = before or (default if default in {value for _, value in options} else Select.NULL)
            return Select(options, compact=True, value=chosen, id=f"input-{name}")
        if parameter.type == "bool":
            return Tick("yes", value=(before or default).lower() == "true", id=f"input-{name}")
        hint = "required" if parameter.must_be_given else "default" if parameter.has_default else "optional"
        hint = printable(f"from {source}") if source is not None else hint
        return Input(
            compact=True, value=before or default, placeholder=hint, password=parameter.secret, id=f"input-{name}"
        )

    def on_mount(self) -> None:
        """Focus the first field, or the button where there is none."""
        focus_first(self)

    def action_dry_run(self) -> None:
        """Switch between a real run and a dry run."""
        mode = self.query_one("#mode", Select)
        mode.value = self._modes[0] if mode.value == "dry-run" else "dry-run"

    def on_button_pressed(self, event: Button.Pressed) -> None:
        """Start, or close."""
        if event.button.id == "back":
            self.dismiss(None)
            return
        scenario = self.query_one("#scenario", Input).value.strip() or None
        mode = str(self.query_one("#mode", Select).value)
        self.dismiss(Started(self._listed.file, self._values(), mode, scenario))

    def _values(self) -> dict[str, str]:
        """What was given; a field that is empty, or still has its default, is left to the runbook."""
        found: dict[str, str] = {}
        for name, block in self._inputs.items():
            widget = self.query_one(f"#input-{name}")
            parameter = block.parameter()
            default = _text(parameter.default) if parameter.has_default else ""
            if isinstance(widget, Checkbox):
                text = "true" if widget.value else "false"
                default = default.lower() or "false"
            elif isinstance(widget, Select):
                text = "" if widget.value is Select.NULL else str(widget.value)
            else:
                text = widget.value if isinstance(widget, Input) else ""
            if text and (text != default or parameter.type == "bool"):
                found[name] = text
        return found


def _about(name: str, parameter: Parameter, source: str | None) -> str:
    """What an input takes, in one line."""
    words: list[str] = [parameter.type]
    if parameter.must_be_given and source is None:
        words.append("required")
    if parameter.pattern is not None:
        words.append(f"pattern {parameter.pattern}")
    for word in ("min", "max"):
        value = getattr(parameter, word)
        if value is not None:
            words.append(f"{word} {value:g}")
    if parameter.secret:
        words.append("secret")
    if source is not None:
        words.append(f"from {source}")
    return f"{name} ({', '.join(words)})" + (f": {parameter.description}" if parameter.description else "")


def _text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


class SecretForm(Dialog[dict[str, str]]):
    """The secret inputs of a recorded run: the record does not have them."""

    BINDINGS: ClassVar[list[BindingType]] = [ESCAPE]

    def __init__(self, names: Iterable[str], problem: str) -> None:
        super().__init__(classes="page")
        self._names = sorted(names)
        self._problem = problem

    def compose(self) -> ComposeResult:
        """One masked field a secret."""
        with Vertical(classes="box"):
            yield Label(plain("secret inputs are not recorded: type them again", "bold"), markup=False)
            with VerticalScroll(id="fields"):
                for name in self._names:
                    yield Label(plain(f"{name} (secret)"), markup=False)
                    hint = "empty: from its source or default"
                    yield Input(compact=True, placeholder=hint, password=True, id=f"input-{name}")
            with Horizontal(classes="buttons"):
                yield Button("Back", compact=True, id="back")
                yield Button("Continue", compact=True, id="continue", variant="primary")
            yield Label(plain(self._problem, "bold red"), id="problem", markup=False)

    def on_mount(self) -> None:
        """Focus the first field."""
        focus_first(self)

    def on_button_pressed(self, event: Button.Pressed) -> None:
        """Go on with what was typed, or close."""
        values = {name: self.query_one(f"#input-{name}", Input).value for name in self._names}
        given = {name: value for name, value in values.items() if value}
        self.dismiss(None if event.button.id == "back" else given)


class Evidence(msgspec.Struct, frozen=True):
    """What a person says of a manual step: the evidence, or why not."""

    given: dict[str, Any] | None = None
    reject: str | None = None


class EvidenceForm(Dialog[Evidence]):
    """What is to be done, and the evidence that it was."""

    BINDINGS: ClassVar[list[BindingType]] = [ESCAPE, Binding("f3", "pick", "Choose a file")]

    def __init__(self, path: str, instructions: str, step: ManualStep | None) -> None:
        super().__init__(classes="page")
        self._path = path
        self._instructions = instructions
        self._pieces = step.required_evidence if step is not None else ()

    def compose(self) -> ComposeResult:
        """The instructions, then one field a piece of evidence."""
        with Vertical(classes="box"):
            yield Label(plain(f"⚠ {self._path}", "bold yellow"), markup=False)
            with VerticalScroll(id="fields"):
                yield Static(plain(self._instructions), markup=False)
                for index, piece in enumerate(self._pieces):
                    about = f"{piece.name} ({piece.kind})" + (f": {piece.description}" if piece.description else "")
                    yield Label(plain(about), markup=False)
                    if piece.kind == "checklist":
                        for place, item in enumerate(piece.items):
                            yield Tick(plain(item), id=f"item-{index}-{place}")
                    else:
                        hint = "path of a file; f3 chooses one" if piece.kind == "attachment" else "text"
                        yield Input(compact=True, placeholder=hint, id=f"piece-{index}")
                        yield Label("", id=f"hash-{index}", markup=False)
            yield Input(compact=True, placeholder="reason, to reject the step", id="why")
            with Horizontal(classes="buttons"):
                yield Button("Back", compact=True, id="back")
                yield Button("Reject", compact=True, id="reject", variant="error")
                yield Button("Done", compact=True, id="done", variant="success")
                if any(piece.kind == "attachment" for piece in self._pieces):
                    yield Label("f3 file", classes="hint")
            yield Label("", id="problem", markup=False)

    def on_mount(self) -> None:
        """Focus the first field."""
        focus_first(self)

    async def on_input_submitted(self, event: Input.Submitted) -> None:
        """Show size and hash of a file that was named."""
        index = self._attachment(event.input)
        if index is not None:
            await self._show_hash(index)

    def _attachment(self, field: Any) -> int | None:
        """The number of the attachment that a field is for."""
        number = (getattr(field, "id", None) or "").removeprefix("piece-")
        return int(number) if number.isdigit() and self._pieces[int(number)].kind == "attachment" else None

    async def _show_hash(self, index: int) -> None:
        path = os.path.expanduser(self.query_one(f"#piece-{index}", Input).value.strip())
        try:
            found = await attachment(path)
            shown = plain(f"{found['size']:,} bytes, {found['sha256']}", "green")
        except InputError as problem:
            shown = plain(problem.message, "bold red")
        self.query_one(f"#hash-{index}", Label).update(shown)

    def action_pick(self) -> None:
        """Choose the file of the attachment in focus, or of the first."""
        index = self._attachment(self.focused)
        if index is None:
            index = next((at for at, piece in enumerate(self._pieces) if piece.kind == "attachment"), None)
        if index is None:
            self._say("this step asks for no file")
        else:
            start_work(self, "pick", self._pick, index)

    async def _pick(self, index: int) -> None:
        field = self.query_one(f"#piece-{index}", Input)
        named = os.path.abspath(os.path.expanduser(field.value.strip() or "."))
        folder = named if os.path.isdir(named) else os.path.dirname(named)
        chosen = await self.app.push_screen_wait(FilePicker(folder if os.path.isdir(folder) else os.getcwd()))
        if chosen is not None:
            field.value = chosen
            field.focus()
            await self._show_hash(index)

    def on_button_pressed(self, event: Button.Pressed) -> None:
        """Give, reject or close."""
        if event.button.id == "back":
            self.dismiss(None)
        elif event.button.id == "reject":
            why = self.query_one("#why", Input).value.strip()
            self._say("a rejection needs a reason") if not why else self.dismiss(Evidence(reject=why))
        else:
            self._give()

    def _give(self) -> None:
        given: dict[str, Any] = {}
        for index, piece in enumerate(self._pieces):
            if piece.kind == "checklist":
                marked = [item for place, item in enumerate(piece.items) if self._box(index, place).value]
                if len(marked) < len(piece.items):
                    self._say(f"not every item of `{piece.name}` is checked")
                    return
                given[piece.name] = marked
            else:
                text = self.query_one(f"#piece-{index}", Input).value.strip()
                if not text:
                    self._say(f"`{piece.name}` is empty")
                    return
                given[piece.name] = os.path.abspath(os.path.expanduser(text)) if piece.kind == "attachment" else text
        self.dismiss(Evidence(given=given))

    def _box(self, index: int, place: int) -> Checkbox:
        return self.query_one(f"#item-{index}-{place}", Checkbox)

    def _say(self, text: str) -> None:
        self.query_one("#problem", Label).update(plain(text, "bold red"))


def focus_first(form: Screen[Any]) -> None:
    """Focus the first field, or where not everything fits the pane, which arrows scroll: what is asked stays in sight.

    Without a field the harmless button has the focus.
    """
    pane = form.query_one("#fields", VerticalScroll)
    fields = pane.query("Input, Select, Checkbox")
    # At once: a key that is pressed as soon as the form is seen goes there.
    form.set_focus(fields.first() if fields else form.query_one("#back"), scroll_visible=False)

    def when_laid_out() -> None:
        pane.can_focus = pane.max_scroll_y > 0
        if pane.can_focus and fields and not form.can_view_entire(fields.first()):
            pane.focus(scroll_visible=False)

    pane.can_focus = False
    form.call_after_refresh(when_laid_out)
