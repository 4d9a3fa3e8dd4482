"""What the screens have in common: the command bar, help, lists by number, the mouse, and no writing when read-only."""

from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast

from textual.dom import DOMNode
from textual.screen import Screen

from gert.ecosystem.surfaces.tui.desk import Desk
from gert.ecosystem.surfaces.tui.dialogs import Line, Page, Respond, problem_text
from gert.ecosystem.surfaces.tui.keys import Key, help_lines
from gert.errors import GertError
from gert.kernel.foundation.text import printable

if TYPE_CHECKING:
    from gert.ecosystem.surfaces.tui.app import GertApp

T = TypeVar("T")


def start_work(
    screen: DOMNode, group: str, work: Callable[..., Coroutine[Any, Any, None]], *arguments: Any, **options: Any
) -> None:
    """Work beside the keys, in place of what its group does; where the screen is left first, nothing is begun."""
    screen.run_worker(cast("Any", partial(work, *arguments, **options)), exclusive=True, group=group)


class DeskScreen(Screen[None]):
    """A screen of the desk."""

    KEYS: ClassVar[tuple[Key, ...]] = ()

    def __init__(self, desk: Desk) -> None:
        super().__init__()
        self.desk = desk

    @property
    def gert(self) -> "GertApp":
        """The application."""
        return cast("GertApp", self.app)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Writing keys vanish where nothing may be written."""
        return not (self.desk.read_only and any(key.action == action and key.writes for key in self.KEYS))

    def say(self, text: str, *, is_error: bool = False) -> None:
        """Show a text for a moment."""
        self.notify(
            printable(text), severity="error" if is_error else "information", timeout=8 if is_error else 4, markup=False
        )

    async def attempt(self, work: Awaitable[T]) -> T | None:
        """Await some work; what prevents it is shown."""
        try:
            return await work
        except GertError as problem:
            self.say(problem_text(problem), is_error=True)
            return None

    async def respond(self, view: Any) -> None:
        """Show a ticket, and send the answer to it."""
        dialog = Respond(view, self.desk.actor or "", self.desk.key, read_only=self.desk.read_only)
        verdict = await self.app.push_screen_wait(dialog)
        given = await self.attempt(self.desk.respond(verdict)) if verdict is not None else None
        if given is not None:
            objection = given.answered.objection
            self.say(objection or "received; the run decides", is_error=objection is not None)

    # --- keys

    def action_list(self, name: str) -> None:
        """Show one of the lists."""
        self.gert.show_list(name)

    def action_mouse(self) -> None:
        """Release the mouse, so that the terminal selects text; or take it again."""
        self.say("the mouse belongs to the terminal: m takes it again" if self.gert.release_mouse() else "mouse taken")

    def action_help(self) -> None:
        """Show the keys and the command for each."""
        lines = help_lines(self.KEYS, self.gert.keymap, read_only=self.desk.read_only)
        self.app.push_screen(Page("keys", lines))

    def action_command(self) -> None:
        """Open the command bar."""
        start_work(self, "line", self._ask_command)

    async def _ask_command(self) -> None:
        said = await self.app.push_screen_wait(Line(":"))
        if said:
            await self.command(said.lstrip(":").split())

    async def command(self, words: list[str]) -> None:
        """Perform a command: `run ID`, or the word of a key of this screen."""
        if len(words) == 2 and words[0] == "run":
            await self.gert.open_run(words[1])
            return
        named = {"approvals": "inbox", "q": "quit", "leave": "quit"}
        word = named.get(words[0], words[0]) if len(words) == 1 else ""
        key = next((key for key in self.KEYS if word in (key.word, named.get(key.word, ""))), None)
        if key is None or not self.check_action(key.action, ()):
            self.say(f"unknown command `{' '.join(words)}`: one of {', '.join(self._words)}", is_error=True)
        else:
            await self.run_action(key.action)

    @property
    def _words(self) -> list[str]:
        return [*(key.word for key in self.KEYS if self.check_action(key.action, ())), "run ID"]
