"""Models through litellm, or functions with its signature; litellm is imported when it is first used."""

import asyncio
import importlib
from collections.abc import Awaitable, Callable, Mapping
from inspect import isawaitable
from typing import Any, cast

import msgspec

from gert.ecosystem.models.answers import Answer, result_of
from gert.ecosystem.models.conversation import encoded
from gert.ecosystem.models.errors import malformed, retry_after
from gert.ecosystem.models.limits import Limits
from gert.ecosystem.models.openai import chat, responses
from gert.ecosystem.models.openai.api_choice import ApiChoice
from gert.ecosystem.models.prices import Pricing
from gert.ecosystem.models.retry import with_retries
from gert.errors import ModelError, ModelPermanentError, ModelTimeoutError, ModelTransientError
from gert.kernel.agent.ports.model import (
    LiteLLMCompletionFn,
    LiteLLMResponsesFn,
    ModelAPIModeUsed,
    ModelRequest,
    ModelResult,
    OutputT,
)
from gert.kernel.foundation.redaction import Redactor

_NO_SECRETS = Redactor()
_MAX_DOLLARS = 1e12
_TRANSIENT = frozenset({408, 409, 425, 429})
_TRANSIENT_NAMES = ("RateLimitError", "APIConnectionError", "ServiceUnavailableError", "InternalServerError")
_UNSUPPORTED_NAMES = ("NotFoundError", "UnsupportedParamsError")


class LiteLLMAdapter:
    """A model port over `litellm.acompletion` and `litellm.aresponses`, or over functions like them.

    With `api_mode="auto"` the Responses function is called if there is one: the one passed, or litellm's own if no
    function was passed. Costs are those that litellm reports.
    """

    def __init__(
        self,
        completion_fn: LiteLLMCompletionFn | None = None,
        responses_fn: LiteLLMResponsesFn | None = None,
        *,
        timeout_seconds: float = 30.0,
        max_retries: int = 2,
        initial_backoff_seconds: float = 0.25,
        max_backoff_seconds: float = 2.0,
        fail_on_unknown_cost: bool = False,
    ) -> None:
        self._completion_fn = completion_fn
        self._responses_fn = responses_fn
        self._api = ApiChoice()
        self._pricing = Pricing({}, fail_on_unknown_cost)
        self._sleep: Callable[[float], Awaitable[object]] = asyncio.sleep
        self._limits = Limits(
            timeout_seconds=timeout_seconds,
            max_retries=max_retries,
            initial_backoff_seconds=initial_backoff_seconds,
            max_backoff_seconds=max_backoff_seconds,
        )

    async def complete(self, request: ModelRequest[OutputT]) -> ModelResult[OutputT]:
        """Call a model and wait for its whole answer."""

        async def by(mode: ModelAPIModeUsed) -> ModelResult[OutputT]:
            answer = await (self._by_chat(request) if mode == "chat" else self._by_responses(request))
            return result_of(request, answer, mode, self._pricing, _NO_SECRETS)

        offered = self._responses_fn is not None or self._completion_fn is None
        return await self._api.call(request, by, responses=offered)

    async def _by_chat(self, request: ModelRequest[OutputT]) -> Answer:
        call = self._completion_fn or _litellm("acompletion")
        return await self._ask(call, _named_results(request, chat.body_of(request)), chat.answer_of)

    async def _by_responses(self, request: ModelRequest[OutputT]) -> Answer:
        call = self._responses_fn or _litellm("aresponses")
        return await self._ask(call, responses.body_of(request), responses.answer_of)

    async def _ask(
        self,
        call: Callable[..., Any],
        arguments: dict[str, Any],
        read: Callable[[dict[str, Any], Redactor], Answer],
    ) -> Answer:
        encoded(arguments)  # report input without a JSON form before any vendor does

        async def attempt() -> Answer:
            try:
                async with asyncio.timeout(self._limits.timeout_seconds):
                    response = call(**arguments)
                    response = await response if isawaitable(response) else response
            except ModelError:
                raise
            except Exception as problem:
                raise _failure(problem, self._limits.timeout_seconds) from problem
            return msgspec.structs.replace(read(_plain(response), _NO_SECRETS), cost=_cost(response))

        return await with_retries(attempt, self._limits, self._sleep)


def _litellm(name: str) -> Callable[..., Any]:
    try:
        module = importlib.import_module("litellm")
    except ImportError:
        raise ModelPermanentError(
            "litellm is not installed, and no function was passed in its place",
            category="configuration",
            hint="install litellm, pass `completion_fn`, or use one of the native adapters",
        ) from None
    function = getattr(module, name, None)
    if not callable(function):
        raise ModelPermanentError(f"this litellm has no `{name}`", category="unsupported")
    return cast("Callable[..., Any]", function)


def _failure(problem: Exception, seconds: float) -> ModelError:
    """Convert a foreign exception to a model error, without its message, which may contain a key."""
    name = type(problem).__name__
    status = getattr(problem, "status_code", None)
    status = status if isinstance(status, int) and not isinstance(status, bool) else None
    if isinstance(problem, TimeoutError) or name in ("Timeout", "APITimeoutError"):
        return ModelTimeoutError(f"the model did not answer within {seconds:g}s", status=status, category="timeout")
    what = f"the call of the model failed with `{name}`"
    fleeting = status is not None and (status in _TRANSIENT or (status >= 500 and status != 501))
    if fleeting or isinstance(problem, ConnectionError) or name in _TRANSIENT_NAMES:
        category = "rate_limit" if status == 429 else "connection" if status is None else "server"
        return ModelTransientError(what, status=status, category=category, retry_after=_retry_after(problem))
    unsupported = status in (404, 405, 501) or name in _UNSUPPORTED_NAMES or isinstance(problem, NotImplementedError)
    return ModelPermanentError(what, status=status, category="unsupported" if unsupported else "request")


def _retry_after(problem: Exception) -> float | None:
    """Return the seconds the vendor asks to wait, from the response that the exception carries."""
    headers = getattr(getattr(problem, "response", None), "headers", None)
    return retry_after(headers) if isinstance(headers, Mapping) else None


def _plain(response: object) -> dict[str, Any]:
    """Convert a vendor's object to plain data."""
    value = response
    if not isinstance(response, Mapping):
        dump, dump_json = getattr(response, "model_dump", None), getattr(response, "model_dump_json", None)
        if callable(dump):
            value = dump()
        elif callable(dump_json):
            value = dump_json()
    try:
        # Through JSON and back: only plain data can be recorded.
        plain = msgspec.json.decode(value if isinstance(value, str) else msgspec.json.encode(value))
    except (TypeError, ValueError, RecursionError):
        plain = None
    if not isinstance(plain, dict):
        raise malformed("the model's answer is not a completion")
    # A property of the object, which its data does not have.
    text = _part(response, "output_text")
    return {**plain, "output_text": text} if isinstance(text, str) and "output_text" not in plain else plain


def _named_results(request: ModelRequest[OutputT], body: dict[str, Any]) -> dict[str, Any]:
    """Add the name of its tool to each result: some vendors behind litellm pair results by name."""
    for message, sent in zip(request.messages, body["messages"], strict=False):
        if message.role == "tool" and message.name is not None:
            sent["name"] = message.name
    return body


def _cost(response: object) -> float | None:
    """Return the cost that litellm reports: on the response itself, or among its hidden parameters."""
    cost = _part(response, "_response_cost")
    if cost is None:
        hidden = _part(response, "_hidden_params")
        cost = hidden.get("response_cost") if isinstance(hidden, Mapping) else _part(response, "response_cost")
    if not isinstance(cost, int | float) or isinstance(cost, bool):
        return None
    return float(cost) if 0 <= cost <= _MAX_DOLLARS else None  # not NaN or infinite


def _part(response: object, name: str) -> Any:
    return response.get(name) if isinstance(response, Mapping) else getattr(response, name, None)
