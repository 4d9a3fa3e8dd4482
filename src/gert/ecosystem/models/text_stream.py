"""Pass an answer's text to the caller's `on_token` as it arrives, without secrets."""

from inspect import isawaitable

from gert.kernel.agent.ports.model import OnToken
from gert.kernel.foundation.redaction import Redactor


class ListenerFailed(Exception):
    """`on_token` raised; distinguishes its exception from one of the connection."""

    def __init__(self, problem: Exception) -> None:
        super().__init__()
        self.problem = problem


class TokenStream:
    """Sends text to `on_token`, and remembers whether it sent any: an answer is never started twice."""

    def __init__(self, on_token: OnToken, secrets: Redactor) -> None:
        self._on_token = on_token
        self._secrets = secrets
        self.started = False
        self.restart()

    def restart(self) -> None:
        """Drop the unsent text of an answer that broke off."""
        self._masking = self._secrets.stream()

    async def send(self, text: str) -> None:
        """Send a piece; text that may be the beginning of a secret waits for the next piece.

        Raises `ListenerFailed` if `on_token` raises.
        """
        await self._send(self._masking.feed(text))

    async def flush(self) -> None:
        """Send the rest."""
        await self._send(self._masking.close())

    async def _send(self, text: str) -> None:
        if not text:
            return
        self.started = True
        try:
            await send_token(self._on_token, text)
        except Exception as problem:
            raise ListenerFailed(problem) from problem


async def send_token(on_token: OnToken, text: str) -> None:
    """Call `on_token`, which may be plain or async."""
    waiting = on_token(text)
    if isawaitable(waiting):
        await waiting


async def send_words(on_token: OnToken, text: str) -> None:
    """Send a text word by word."""
    for position, word in enumerate(text.split(" ") if text else ()):
        await send_token(on_token, word if position == 0 else f" {word}")
