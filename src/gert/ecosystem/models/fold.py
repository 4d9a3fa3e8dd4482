"""A streamed answer put together, while its text is told to whoever listens."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any, Final, Protocol

from gert.ecosystem.models.errors import too_large
from gert.ecosystem.models.sse import Event, EventReader
from gert.ecosystem.models.text_stream import Listener
from gert.errors import ModelTransientError

_FIELDS: Final = (b":", b"data:", b"event:", b"id:", b"retry:")


class Fold(Protocol):
    """Puts a streamed answer together, so that it reads like one that came whole."""

    done: bool

    def take(self, event: Event) -> str:
        """Take an event and give the text in it that may be shown; raises `ModelError` where it tells of one."""
        ...

    def is_whole(self) -> bool:
        """Whether what was taken is an answer, where the stream ends without saying that it does."""
        ...

    def answer(self) -> dict[str, Any]:
        """The whole answer."""
        ...


async def folded(
    chunks: AsyncGenerator[bytes, None], fold: Fold, listener: Listener, patience: float, most: int
) -> dict[str, Any] | bytes:
    """Put an answer together; what is no stream of events, whatever it calls itself, is given as it came.

    patience: how long an answer that is whole is waited on for more, such as what it used
    most: the largest event, in bytes
    """
    reader, before = EventReader(), bytearray()
    begun, waiting = False, 0
    listener.begin()
    while (chunk := await _next(chunks, patience if fold.is_whole() else None)) is not None:
        waiting += len(chunk)
        if not begun:
            before += chunk
        for event in reader.feed(chunk):
            begun, waiting = True, 0
            text = fold.take(event)
            if text:
                await listener.tell(text)
            if fold.done:
                await listener.end()
                return fold.answer()
        if waiting > most:
            raise too_large(most)
    if fold.is_whole():
        await listener.end()
        return fold.answer()
    if not begun and before.strip() and not before.lstrip().startswith(_FIELDS):
        return bytes(before)
    raise ModelTransientError("the model's answer ended before it was complete", category="connection")


async def _next(chunks: AsyncGenerator[bytes, None], patience: float | None) -> bytes | None:
    try:
        async with asyncio.timeout(patience):
            return await anext(chunks, None)
    except TimeoutError:
        return None
