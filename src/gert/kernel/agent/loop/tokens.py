"""An estimate of the tokens of a conversation, without a tokenizer."""

from collections.abc import Iterator
from typing import Final

from gert.kernel.agent.steps.messages import ChatMessage
from gert.kernel.foundation.arguments import checked

ASCII_PER_TOKEN: Final = 4
PER_MESSAGE: Final = 4
"""Tokens that the role and the ends of a message cost."""


@checked
def estimate_tokens(messages: tuple[ChatMessage, ...], model: str) -> int:
    """Estimate the tokens that a conversation costs with a model; the same text always gives the same number.

    Four ASCII characters count as one token, and every other character as one: tokenizers differ by model, and this
    number decides only when a conversation is compacted, so it errs on the side of too many.
    """
    return sum(PER_MESSAGE + sum(map(_tokens, _texts(message))) for message in messages)


def _texts(message: ChatMessage) -> Iterator[str]:
    yield message.content
    yield message.name or ""
    for call in message.tool_calls or ():
        yield call.function.name
        yield call.function.arguments


def _tokens(text: str) -> int:
    if text.isascii():
        return -(-len(text) // ASCII_PER_TOKEN)
    ascii_only = len(text.encode("ascii", "ignore"))
    return -(-ascii_only // ASCII_PER_TOKEN) + len(text) - ascii_only
