"""Whoever is told an answer's text while it arrives."""

from inspect import isawaitable

from gert.kernel.agent.ports.model import OnToken


class Unheard(Exception):
    """A listener raised; kept apart from what the connection raises, which may be of the same kind."""

    def __init__(self, problem: Exception) -> None:
        super().__init__()
        self.problem = problem


class Listener:
    """Tells a text, and remembers whether anything was told: that is never taken back, and never told twice."""

    def __init__(self, on_token: OnToken) -> None:
        self._on_token = on_token
        self.told = False

    async def tell(self, text: str) -> None:
        """Tell a piece; raises `Unheard` where the listener raises."""
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
