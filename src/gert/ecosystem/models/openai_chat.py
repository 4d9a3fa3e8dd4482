"""OpenAI's chat completions: requests, answers, and streamed answers put together."""

from typing import Any

from gert.ecosystem.models.answers import (
    Answer,
    call_item,
    canonical_arguments,
    event_object,
    message_item,
    objects,
    required_name,
    text_of,
)
from gert.ecosystem.models.conversation import StructuredOutput, answered_call, in_words, messages_of, parameters_of
from gert.ecosystem.models.failures import malformed, of_event
from gert.ecosystem.models.prices import Tokens, count
from gert.ecosystem.models.schemas import OutputFormat, output_format
from gert.ecosystem.models.sse import Event
from gert.kernel.agent.messages import ChatMessage
from gert.kernel.agent.ports.model import ModelRequest, OutputT, ToolCall
from gert.kernel.foundation.redaction import Redactor

PATH = "/chat/completions"
_STOPPED = {"length": "length", "content_filter": "content_filter"}


def body_of(request: ModelRequest[OutputT], model: str, structured: StructuredOutput = "schema") -> dict[str, Any]:
    """The body of a request."""
    asked = output_format(request.output_schema)
    messages = [_message(message) for message in messages_of(request)]
    if structured != "schema":
        messages.insert(0, {"role": "system", "content": in_words(asked.schema)})
    body: dict[str, Any] = {"model": model, "messages": messages}
    if structured != "text":
        body["response_format"] = _response_format(asked, structured)
    if request.allowed_tools:
        body["tools"] = [
            {
                "type": "function",
                "function": {"name": tool.name, "description": tool.description, "parameters": parameters_of(tool)},
            }
            for tool in request.allowed_tools
        ]
    options = request.model_options
    if options.reasoning_effort is not None:
        body["reasoning_effort"] = options.reasoning_effort
    if options.verbosity is not None:
        body["verbosity"] = options.verbosity
    return body


def _response_format(asked: OutputFormat, structured: StructuredOutput) -> dict[str, Any]:
    if structured == "json":
        return {"type": "json_object"}
    schema = {"name": asked.name, "schema": asked.schema, "strict": asked.strict}
    return {"type": "json_schema", "json_schema": schema}


def _message(message: ChatMessage) -> dict[str, Any]:
    if message.role == "tool":
        return {"role": "tool", "tool_call_id": answered_call(message), "content": message.content}
    said: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.name is not None:
        said["name"] = message.name
    if message.role == "assistant" and message.tool_calls:
        said["content"] = message.content or None
        said["tool_calls"] = [call.model_dump() for call in message.tool_calls]
    return said


def answer_of(body: dict[str, Any]) -> Answer:
    """Read an answer; its first choice is the one that was asked for."""
    choices = objects(body.get("choices"))
    message = choices[0].get("message") if choices else None
    if not isinstance(message, dict):
        raise malformed("the model's server answered without a message")
    text, refusal = _text(message.get("content")), text_of(message.get("refusal"))
    calls = tuple(_call(call) for call in objects(message.get("tool_calls")))
    stopped = _STOPPED.get(text_of(choices[0].get("finish_reason")))
    items = (*([message_item(text)] if text else []), *map(call_item, calls))
    return Answer(
        text=text,
        tool_calls=calls,
        tokens=_tokens(body.get("usage")),
        items=items,
        response_id=text_of(body.get("id")) or None,
        model=text_of(body.get("model")) or None,
        stopped="refusal" if refusal else stopped,
        refusal=refusal,
    )


def _text(content: object) -> str:
    """A message's text; some servers give it in parts."""
    if isinstance(content, list):
        return "".join(text_of(part.get("text")) for part in objects(content))
    return text_of(content)


def _call(call: dict[str, Any]) -> ToolCall:
    function = call.get("function")
    function = function if isinstance(function, dict) else {}
    name = required_name(function.get("name"))
    return ToolCall(name, canonical_arguments(function.get("arguments", "")), text_of(call.get("id")) or None)


def _tokens(usage: object) -> Tokens | None:
    if not isinstance(usage, dict):
        return None
    details = usage.get("prompt_tokens_details")
    cached = count(details.get("cached_tokens")) if isinstance(details, dict) else 0
    return Tokens(count(usage.get("prompt_tokens")), count(usage.get("completion_tokens")), cached)


class ChatFold:
    """Puts chunks of a completion together; the chunk after the last choice may still bring the usage."""

    def __init__(self, redactor: Redactor) -> None:
        self.done = False
        self._redactor = redactor
        self._whole: dict[str, Any] = {}
        self._content: list[str] = []
        self._refusal: list[str] = []
        self._calls: dict[int, dict[str, Any]] = {}
        self._finish: str | None = None

    def take(self, event: Event) -> str:
        """Take a chunk and give its text."""
        if event.data.strip() == "[DONE]":
            if self._finish is None:
                raise malformed("the model's answer ended without saying why")
            self.done = True
            return ""
        chunk = event_object(event)
        if chunk.get("error"):
            raise of_event(chunk, self._redactor)
        for key in ("id", "model", "usage"):
            if chunk.get(key):
                self._whole[key] = chunk[key]
        choices = objects(chunk.get("choices"))
        if not choices:
            return ""
        self._finish = choices[0].get("finish_reason") or self._finish
        delta = choices[0].get("delta")
        return self._take_delta(delta) if isinstance(delta, dict) else ""

    def _take_delta(self, delta: dict[str, Any]) -> str:
        text = _text(delta.get("content"))
        self._content.append(text)
        self._refusal.append(text_of(delta.get("refusal")))
        for position, part in enumerate(objects(delta.get("tool_calls"))):
            index = part.get("index")
            call = self._calls.setdefault(
                index if isinstance(index, int) else position, {"id": None, "name": None, "arguments": []}
            )
            function = part.get("function")
            function = function if isinstance(function, dict) else {}
            call["id"] = part.get("id") or call["id"]
            call["name"] = function.get("name") or call["name"]
            call["arguments"].append(text_of(function.get("arguments")))
        return text

    def answer(self) -> dict[str, Any]:
        """The completion as it would have come whole."""
        calls = [
            {"id": call["id"], "function": {"name": call["name"], "arguments": "".join(call["arguments"])}}
            for _, call in sorted(self._calls.items())
        ]
        message = {"content": "".join(self._content), "refusal": "".join(self._refusal), "tool_calls": calls}
        return {**self._whole, "choices": [{"message": message, "finish_reason": self._finish}]}
