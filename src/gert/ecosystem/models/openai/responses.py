"""OpenAI's Responses API: requests, answers and streamed answers."""

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
from gert.ecosystem.models.conversation import (
    StructuredOutput,
    call_id_of,
    messages_of,
    parameters_of,
    schema_instruction,
)
from gert.ecosystem.models.errors import malformed, of_event
from gert.ecosystem.models.prices import Tokens, tokens_of
from gert.ecosystem.models.schemas import OutputFormat, output_format
from gert.ecosystem.models.sse import Event
from gert.kernel.agent.ports.model import ModelRequest, OutputT, ToolCall
from gert.kernel.agent.steps.messages import ChatMessage
from gert.kernel.foundation.redaction import Redactor

PATH = "/responses"
_STOPPED = {"max_output_tokens": "length", "max_tokens": "length", "content_filter": "content_filter"}
_LAST = frozenset({"response.completed", "response.incomplete", "response.failed"})


def body_of(request: ModelRequest[OutputT], structured: StructuredOutput = "schema") -> dict[str, Any]:
    """Build the body of a request."""
    options = request.model_options
    asked = output_format(request.output_schema)
    body: dict[str, Any] = {"model": request.model, "input": _input(request)}
    if structured != "schema":
        # Not as `instructions`: the JSON mode requires the word JSON in the input.
        body["input"].insert(0, {"role": "system", "content": schema_instruction(asked.schema)})
    text: dict[str, Any] = {} if structured == "text" else {"format": _format(asked, structured)}
    if options.verbosity is not None:
        text["verbosity"] = options.verbosity
    if text:
        body["text"] = text
    if request.allowed_tools:
        body["tools"] = [
            {
                "type": "function",
                "name": tool.name,
                "description": tool.description,
                "parameters": parameters_of(tool),
                "strict": False,  # otherwise an argument with a default could not be left out
            }
            for tool in request.allowed_tools
        ]
    if options.reasoning_effort is not None:
        body["reasoning"] = {"effort": options.reasoning_effort}
    if options.previous_response_id is not None:
        body["previous_response_id"] = options.previous_response_id
    return body


def _format(asked: OutputFormat, structured: StructuredOutput) -> dict[str, Any]:
    if structured == "json":
        return {"type": "json_object"}
    return {"type": "json_schema", "name": asked.name, "schema": asked.schema, "strict": asked.strict}


def _input(request: ModelRequest[OutputT]) -> list[dict[str, Any]]:
    items = request.model_options.responses_input_items
    if items is not None:
        return list(items)
    return [item for message in messages_of(request) for item in _items(message)]


def _items(message: ChatMessage) -> list[dict[str, Any]]:
    if message.role == "tool":
        return [{"type": "function_call_output", "call_id": call_id_of(message), "output": message.content}]
    calls = message.tool_calls or [] if message.role == "assistant" else []
    items = [{"role": message.role, "content": message.content}] if message.content or not calls else []
    return items + [call_item(ToolCall(call.function.name, call.function.arguments, call.id)) for call in calls]


def answer_of(body: dict[str, Any], redactor: Redactor) -> Answer:
    """Read an answer: messages are the text, function calls the tool calls; all items are kept."""
    status = body.get("status")
    if body.get("error") or status in ("failed", "cancelled"):
        raise of_event(body, redactor)
    if status not in (None, "", "completed", "incomplete"):
        raise malformed("the model's server answered before the answer was complete")
    if not isinstance(body.get("output"), list) and not text_of(body.get("output_text")):
        raise malformed("the model's server answered without an output")
    items = _items_of(body)
    parts = [part for item in items if _is_answer(item) for part in objects(item.get("content"))]
    refusal = "".join(text_of(part.get("refusal")) for part in parts if part.get("type") == "refusal")
    stopped = _stopped(body) if status == "incomplete" else None
    return Answer(
        text="".join(text_of(part.get("text")) for part in parts if part.get("type") == "output_text"),
        tool_calls=tuple(_call(item) for item in items if item.get("type") == "function_call"),
        tokens=tokens_in(body.get("usage")),
        items=tuple(items),
        response_id=text_of(body.get("id")) or None,
        model=text_of(body.get("model")) or None,
        stopped="refusal" if refusal else stopped,
        refusal=refusal,
    )


def _items_of(body: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the items of an answer; some libraries give its text beside them, or in their place."""
    items, text = objects(body.get("output")), text_of(body.get("output_text"))
    is_told = any(item.get("type") in ("message", "function_call") for item in items)
    return items if is_told or not text else [*items, message_item(text)]


def tokens_in(usage: object) -> Tokens | None:
    """Return the tokens of a usage; None if it lacks one of the two counts."""
    return tokens_of(usage, "input_tokens", "output_tokens")


def _is_answer(item: dict[str, Any]) -> bool:
    """Whether an item is part of the answer; commentary is not, and is kept with the items."""
    return item.get("type") == "message" and item.get("phase") != "commentary"


def _stopped(body: dict[str, Any]) -> str:
    details = body.get("incomplete_details")
    reason = text_of(details.get("reason")) if isinstance(details, dict) else ""
    return _STOPPED.get(reason, "length")


def _call(item: dict[str, Any]) -> ToolCall:
    call = text_of(item.get("call_id")) or text_of(item.get("id"))
    return ToolCall(required_name(item.get("name")), canonical_arguments(item.get("arguments", "")), call or None)


class ResponsesFold:
    """Waits for the event with the whole response, and returns text until then."""

    def __init__(self, redactor: Redactor) -> None:
        self.done = False
        self._redactor = redactor
        self._response: dict[str, Any] = {}
        self._items: dict[int, dict[str, Any]] = {}
        self._commentary: set[int] = set()

    def add(self, event: Event) -> str:
        """Add an event and return its text."""
        if event.data.strip() == b"[DONE]":
            return ""
        data = event_object(event)
        kind = text_of(data.get("type")) or event.name
        if kind == "error":
            # Its fields are at the top level, or with some servers below `error`; its type is only `error`.
            error = data["error"] if isinstance(data.get("error"), dict) else {**data, "type": None}
            raise of_event(error, self._redactor)
        if kind in _LAST:
            response = data.get("response")
            if not isinstance(response, dict):
                raise malformed("the last event of the model's answer has no response")
            # The event's name is the status; not every server repeats it in the response.
            self._response, self.done = {**response, "status": kind.removeprefix("response.")}, True
        elif kind == "response.output_item.done" and isinstance(data.get("item"), dict):
            index = data.get("output_index")
            self._items[index if isinstance(index, int) else len(self._items)] = data["item"]
        elif kind == "response.output_item.added":
            self._note_commentary(data.get("output_index"), data.get("item"))
        return (
            text_of(data.get("delta")) if kind == "response.output_text.delta" and not self._is_commentary(data) else ""
        )

    def _note_commentary(self, index: object, item: object) -> None:
        if isinstance(index, int) and isinstance(item, dict) and item.get("phase") == "commentary":
            self._commentary.add(index)

    def _is_commentary(self, data: dict[str, Any]) -> bool:
        index = data.get("output_index")
        return isinstance(index, int) and index in self._commentary

    def is_complete(self) -> bool:
        """Whether the last event arrived."""
        return self.done

    def answer(self) -> dict[str, Any]:
        """Return the response; some servers leave out the items they sent before."""
        if not self._response.get("output"):
            return {**self._response, "output": [item for _, item in sorted(self._items.items())]}
        return self._response
