"""A model that answers from a script, and reports requests that the script does not expect."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeAlias

from pydantic import ValidationError

from gert.ecosystem.host.agent.testing.clock import FakeClock
from gert.ecosystem.host.agent.testing.replies import Answer, Expectation, Reply, as_reply
from gert.ecosystem.models.text_stream import send_words
from gert.kernel.agent.ports.model import ModelRequest, ModelResult, OnToken, OutputT
from gert.kernel.agent.steps.outputs import blank_output, output_json_of
from gert.kernel.foundation.arguments import checks_arguments
from gert.kernel.foundation.text import one_line

Script: TypeAlias = Iterable[Answer] | Callable[[ModelRequest[Any]], Answer | Awaitable[Answer]]


class ScriptMismatch(AssertionError):
    """A request that the script does not expect, or an expected request that did not arrive."""


@checks_arguments
class ScriptedModel:
    """A model port that returns the answers of a list, one after the other, or those of a function.

    requests: every request, in order

    An unexpected request raises `ScriptMismatch`, and `assert_used_up` raises it again: code under test that catches
    every error cannot hide it.
    """

    def __init__(self, script: Script = (), *, clock: FakeClock | None = None) -> None:
        self.requests: list[ModelRequest[Any]] = []
        self._answering = script if callable(script) else None
        self._left: list[Reply] = [] if callable(script) else [as_reply(answer) for answer in script]
        self._clock = clock
        self._complaints: list[ScriptMismatch] = []
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []

    @property
    def calls(self) -> int:
        """Return the number of requests."""
        return len(self.requests)

    @property
    def left(self) -> int:
        """Return how many answers of the script are left."""
        return len(self._left)

    def then(self, *answers: Answer) -> "ScriptedModel":
        """Add answers at the end of the script."""
        self._left.extend(as_reply(answer) for answer in answers)
        return self

    def assert_used_up(self) -> None:
        """Fail unless the requests were exactly those that the script expects."""
        if self._complaints:
            raise self._complaints[0]
        if self._left:
            raise ScriptMismatch(f"{len(self._left)} answers of the script were not requested")

    async def asked(self, count: int = 1) -> ModelRequest[Any]:
        """Wait for the request of this number, and return it."""
        if self.calls < count:
            arrived = asyncio.get_running_loop().create_future()
            self._waiting.append((count, arrived))
            await arrived
        return self.requests[count - 1]

    def max_cost_usd(self, model: str, prompt_tokens: int) -> float:
        """Return what a call costs in advance: nothing. Its usage is counted when it has ended."""
        return 0.0

    async def complete(self, request: ModelRequest[OutputT]) -> ModelResult[OutputT]:
        """Return the next answer."""
        self.requests.append(request)
        number = self.calls
        self._wake()
        reply = await self._next(request, number)
        self._check(reply.expect, request, number)
        await self._pass(reply.delay_seconds)
        if reply.trouble is not None:
            await reply.trouble.happen()
        output, raw = self._output(reply, request, number)
        return ModelResult(
            output,
            reply.usage,
            reply.tool_calls,
            raw,
            reply.api_mode_used,
            reply.response_id,
            reply.response_output_items,
        )

    async def complete_streaming(self, request: ModelRequest[OutputT], on_token: OnToken) -> ModelResult[OutputT]:
        """Return the next answer and stream it word by word."""
        result = await self.complete(request)
        await send_words(on_token, result.raw_output)
        return result

    def _wake(self) -> None:
        for count, arrived in self._waiting:
            if count <= self.calls and not arrived.done():
                arrived.set_result(None)
        self._waiting = [(count, arrived) for count, arrived in self._waiting if not arrived.done()]

    async def _next(self, request: ModelRequest[Any], number: int) -> Reply:
        if self._left:
            return self._left.pop(0)
        if self._answering is None:
            raise self._complaint(f"the script has no answer for request {number}", request)
        answer = self._answering(request)
        return as_reply(await answer if inspect.isawaitable(answer) else answer)

    def _check(self, expect: Expectation | None, request: ModelRequest[Any], number: int) -> None:
        if expect is None:
            return
        if isinstance(expect, str):
            if not any(expect in text for text in (request.prompt, *(each.content for each in request.messages))):
                raise self._complaint(f"expected request {number} to contain `{expect}`", request)
        elif not expect(request):
            raise self._complaint(f"request {number} is not the one that was expected", request)

    def _complaint(self, message: str, request: ModelRequest[Any]) -> ScriptMismatch:
        asked = request.messages[-1].content if request.messages else request.prompt
        complaint = ScriptMismatch(f"{message}; found `{one_line(asked, 200)}`")
        self._complaints.append(complaint)
        return complaint

    async def _pass(self, seconds: float) -> None:
        if self._clock is not None:
            self._clock.advance(seconds)
        elif seconds:
            await asyncio.sleep(seconds)

    def _output(self, reply: Reply, request: ModelRequest[OutputT], number: int) -> tuple[OutputT, str]:
        schema = request.output_schema
        if reply.output is None and reply.tool_calls:
            return blank_output(schema), ""
        try:
            output = schema.model_validate(_plain(reply.output))
        except ValidationError as error:
            name = schema.__name__
            raise self._complaint(f"answer {number} is not a `{name}`: {one_line(str(error), 300)}", request) from error
        return output, output_json_of(output)


def _plain(output: object) -> object:
    """Return an output as plain data, as a model sends it."""
    if output is None:
        return {}
    return output if isinstance(output, dict) or not hasattr(output, "model_dump") else output.model_dump()
