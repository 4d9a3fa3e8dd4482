"""Fold a streamed answer into a whole one, and pass its text on as it arrives."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any, Final, Protocol

from gert.ecosystem.models.errors import too_large
from gert.ecosystem.models.sse import Event, EventReader
from gert.ecosystem.models.text_stream import TokenStream
from gert.errors import ModelTransientError

_FIELDS: Final = (b":", b"data:", b"event:", b"id:", b"retry:")


class Fold(Protocol):
    """Folds the events of a streamed answer into the body of a whole one."""

    done: bool

    def add(self, event: Event) -> str:
        """Add an event and return its text for display; raises `ModelError` if it reports one."""

    def is_complete(self) -> bool:
        """Whether the events so far are a complete answer, if the stream ends without an end event."""

    def answer(self) -> dict[str, Any]:
        """Return the whole answer."""


async def fold_stream(
    chunks: AsyncGenerator[bytes, None], fold: Fold, stream: TokenStream, patience: float, most: int
) -> dict[str, Any] | bytes:
    """Fold a streamed answer; a body that is not a stream of events is returned unchanged.

    patience: how long to wait for further events, such as the usage, once the answer is complete
    most: the largest event, in bytes
    """
    reader, before = EventReader(), bytearray()
    begun, waiting = False, 0
    stream.restart()
    while (chunk := await _next(chunks, patience if fold.is_complete() else None)) is not None:
        waiting += len(chunk)
        if not begun:
            before += chunk
        for event in reader.feed(chunk):
            begun, waiting = True, 0
            text = fold.add(event)
            if text:
                await stream.send(text)
            if fold.done:
                await stream.flush()
                return fold.answer()
        if waiting > most:
            raise too_large(most)
    if fold.is_complete():
        await stream.flush()
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
