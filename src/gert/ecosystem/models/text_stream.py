"""Whoever is told an answer's text while it arrives."""

from inspect import isawaitable

from gert.kernel.agent.ports.model import OnToken
from gert.kernel.foundation.redaction import Redactor


class Unheard(Exception):
    """A listener raised; kept apart from what the connection raises, which may be of the same kind."""

    def __init__(self, problem: Exception) -> None:
        super().__init__()
        self.problem = problem


class Listener:
    """Tells a text, and remembers whether anything was told: that is never taken back, and never told twice."""

    def __init__(self, on_token: OnToken, secrets: Redactor) -> None:
        self._on_token = on_token
        self._secrets = secrets
        self.told = False
        self.begin()

    def begin(self) -> None:
        """Forget what was not told of an answer that broke off."""
        self._masking = self._secrets.stream()

    async def tell(self, text: str) -> None:
        """Tell what can be told with this piece; what may be the beginning of a secret waits for the next one.

        Raises `Unheard` where the listener raises.
        """
        await self._say(self._masking.feed(text))

    async def end(self) -> None:
        """Tell the rest."""
        await self._say(self._masking.close())

    async def _say(self, text: str) -> None:
        if not text:
            return
        self.told = True
        try:
            await told(self._on_token, text)
        except Exception as problem:
            raise Unheard(problem) from problem


async def told(on_token: OnToken, text: str) -> None:
    """Tell a piece, to one who waits as to one who does not."""
    waiting = on_token(text)
    if isawaitable(waiting):
        await waiting
