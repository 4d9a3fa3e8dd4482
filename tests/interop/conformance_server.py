"""The fixtures of the protocol's conformance suite, behind gert's transport, token check and middleware.

`python -m tests.interop.conformance_server PORT`. The suite sends no token: an outer layer adds one to each request.
"""

import asyncio
import json
import secrets
import sys
import warnings
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, PromptsListChanged, ToolsListChanged
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    CallToolRequestParams,
    CallToolResult,
    CompleteResult,
    Completion,
    EmptyResult,
    GetPromptRequestParams,
    GetPromptResult,
    InputRequiredResult,
    ListPromptsResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    ListToolsResult,
    ReadResourceRequestParams,
    ReadResourceResult,
)

from gert.ecosystem.surfaces.mcp.http import FixedTokens, http_app, serve_http
from gert.ecosystem.surfaces.mcp.server import protect

Context = ServerRequestContext[Any, Any]
Answer = CallToolResult | InputRequiredResult
PNG: Final = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
WAV: Final = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA="
IMAGE: Final = {"type": "image", "data": PNG, "mimeType": "image/png"}
BUS: Final = InMemorySubscriptionBus()


def text(said: str) -> dict[str, Any]:
    return {"type": "text", "text": said}


def embedded(uri: str, kind: str, said: str) -> dict[str, Any]:
    return {"type": "resource", "resource": {"uri": uri, "mimeType": kind, "text": said}}


def result(*content: dict[str, Any], is_error: bool = False) -> CallToolResult:
    return CallToolResult.model_validate({"content": list(content), "isError": is_error})


def form(message: str, required: bool = True, **properties: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties, **({"required": list(properties)} if required else {})}
    return {"method": "elicitation/create", "params": {"message": message, "requestedSchema": schema}}


def sample(prompt: str, most: int = 100) -> dict[str, Any]:
    messages = [{"role": "user", "content": text(prompt)}]
    return {"method": "sampling/createMessage", "params": {"messages": messages, "maxTokens": most}}


STRING: Final = {"type": "string"}
ROOTS: Final = {"method": "roots/list", "params": {}}
NAME: Final = {"user_name": form("What is your name?", name=STRING)}


def ask(requests: Mapping[str, Any], state: str | None = None) -> InputRequiredResult:
    said = {"resultType": "input_required", "inputRequests": dict(requests)}
    return InputRequiredResult.model_validate({**said, **({"requestState": state} if state else {})})


# --- tools that answer with a constant

CONSTANT: Final[Mapping[str, CallToolResult]] = {
    "test_simple_text": result(text("This is a simple text response for testing.")),
    "test_image_content": result(IMAGE),
    "test_audio_content": result({"type": "audio", "data": WAV, "mimeType": "audio/wav"}),
    "test_embedded_resource": result(
        embedded("test://embedded-resource", "text/plain", "This is an embedded resource content.")
    ),
    "test_multiple_content_types": result(
        text("Multiple content types test:"),
        IMAGE,
        embedded("test://mixed-content-resource", "application/json", '{"test":"data","value":123}'),
    ),
    "test_error_handling": result(text("This tool intentionally returns an error for testing"), is_error=True),
}

# --- tools that talk to the client


async def with_logging(ctx: Context, params: CallToolRequestParams) -> Answer:
    for said in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            await ctx.session.send_log_message("info", said, related_request_id=ctx.request_id)
        await asyncio.sleep(0.05)
    return result(text("done"))


async def with_progress(ctx: Context, params: CallToolRequestParams) -> Answer:
    for percent in (0, 50, 100):
        await ctx.session.report_progress(percent, 100)
        await asyncio.sleep(0.05)
    return result(text("done"))


async def with_sampling(ctx: Context, params: CallToolRequestParams) -> Answer:
    from mcp_types import SamplingMessage

    prompt = str((params.arguments or {}).get("prompt"))
    message = SamplingMessage.model_validate({"role": "user", "content": text(prompt)})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        said = await ctx.session.create_message([message], max_tokens=100, related_request_id=ctx.request_id)
    return result(text(f"LLM response: {getattr(said.content, 'text', '')}"))


def elicits(message: str, schema: Mapping[str, Any], required: bool) -> Callable[..., Awaitable[Answer]]:
    async def call(ctx: Context, params: CallToolRequestParams) -> Answer:
        shown = str((params.arguments or {}).get("message", message))
        wanted = form(shown, required, **schema)["params"]["requestedSchema"]
        said = await ctx.session.elicit_form(shown, wanted, ctx.request_id)
        return result(text(f"User response: action={said.action}, content={json.dumps(said.content)}"))

    return call


def choices(*names: str) -> list[dict[str, str]]:
    return [{"const": name, "title": name.title()} for name in names]


OPTIONS: Final = ["option1", "option2", "option3"]
ENUMS: Final = {
    "untitledSingle": {"type": "string", "enum": OPTIONS},
    "titledSingle": {"type": "string", "oneOf": choices("value1", "value2", "value3")},
    "legacyEnum": {"type": "string", "enum": ["opt1", "opt2"], "enumNames": ["Option One", "Option Two"]},
    "untitledMulti": {"type": "array", "items": {"type": "string", "enum": OPTIONS}},
    "titledMulti": {"type": "array", "items": {"anyOf": choices("value1", "value2", "value3")}},
}
DEFAULTS: Final = {
    "name": {"type": "string", "default": "John Doe"},
    "age": {"type": "integer", "default": 30},
    "score": {"type": "number", "default": 95.5},
    "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
    "verified": {"type": "boolean", "default": True},
}

# --- tools that return a question


def answered(params: Any, *names: str) -> dict[str, Any] | None:
    """The answers of these names; None where one is missing."""
    given = params.input_responses or {}
    return {name: given[name] for name in names} if all(name in given for name in names) else None


def asks(requests: Mapping[str, Any], state: str | None = None) -> Callable[..., Awaitable[Answer]]:
    async def call(ctx: Context, params: CallToolRequestParams) -> Answer:
        given = answered(params, *requests)
        if given is None or (state is not None and params.request_state != state):
            return ask(requests, state)
        said = json.dumps({name: each.model_dump(mode="json") for name, each in given.items()})
        return result(text(f"Hello, {said} {'state-ok' if state else ''}"))

    return call


async def multi_round(ctx: Context, params: CallToolRequestParams) -> Answer:
    if answered(params, "step2") is not None and params.request_state == "two":
        return result(text("done"))
    if answered(params, "step1") is not None and params.request_state == "one":
        return ask({"step2": form("Step 2: What is your favorite color?", color=STRING)}, "two")
    return ask({"step1": form("Step 1: What is your name?", name=STRING)}, "one")


async def by_capability(ctx: Context, params: CallToolRequestParams) -> Answer:
    able = ctx.session.client_capabilities
    requests = {
        **(NAME if able is not None and able.elicitation is not None else {}),
        **({"greeting": sample("Greet")} if able is not None and able.sampling is not None else {}),
    }
    return ask(requests) if requests else result(text("nothing to ask"))


async def needs_sampling(ctx: Context, params: CallToolRequestParams) -> Answer:
    able = ctx.session.client_capabilities
    if able is None or able.sampling is None:
        needed: dict[str, Any] = {"requiredCapabilities": {"sampling": {}}}
        raise MCPError(MISSING_REQUIRED_CLIENT_CAPABILITY, "the client cannot sample", needed)
    return result(text("sampled"))


def changes(event: Any) -> Callable[..., Awaitable[Answer]]:
    async def call(ctx: Context, params: CallToolRequestParams) -> Answer:
        await BUS.publish(event)
        return result(text("changed"))

    return call


TALKING: Final[Mapping[str, Callable[..., Awaitable[Answer]]]] = {
    "test_tool_with_logging": with_logging,
    "test_logging_tool": with_logging,
    "test_tool_with_progress": with_progress,
    "test_sampling": with_sampling,
    "test_elicitation": elicits("?", {"username": STRING, "email": STRING}, True),
    "test_elicitation_sep1034_defaults": elicits("Who are you?", DEFAULTS, False),
    "test_elicitation_sep1330_enums": elicits("Choose", ENUMS, False),
    "test_missing_capability": needs_sampling,
    "test_streaming_elicitation": asks(NAME),
    "test_trigger_tool_change": changes(ToolsListChanged()),
    "test_trigger_prompt_change": changes(PromptsListChanged()),
    "test_input_required_result_elicitation": asks(NAME),
    "test_input_required_result_sampling": asks({"capital_question": sample("What is the capital of France?")}),
    "test_input_required_result_list_roots": asks({"client_roots": ROOTS}),
    "test_input_required_result_request_state": asks(
        {"confirm": form("Please confirm", ok={"type": "boolean"})}, "state"
    ),
    "test_input_required_result_tampered_state": asks({"confirm": form("Confirm", ok={"type": "boolean"})}, "state"),
    "test_input_required_result_multiple_inputs": asks(
        {**NAME, "greeting": sample("Generate a greeting", 50), "client_roots": ROOTS}, "state"
    ),
    "test_input_required_result_multi_round": multi_round,
    "test_input_required_result_capabilities": by_capability,
}
ARGUMENTS: Final = {"test_sampling": {"prompt": STRING}, "test_elicitation": {"message": STRING}}


def schema_of(name: str) -> dict[str, Any]:
    return {"type": "object", "properties": ARGUMENTS.get(name, {})}


async def list_tools(ctx: Context, params: Any) -> ListToolsResult:
    names = sorted({*CONSTANT, *TALKING})
    tools = [{"name": name, "description": f"Fixture {name}", "inputSchema": schema_of(name)} for name in names]
    return ListToolsResult.model_validate({"tools": tools})


async def call_tool(ctx: Context, params: CallToolRequestParams) -> Answer:
    if params.name in CONSTANT:
        return CONSTANT[params.name]
    if params.name in TALKING:
        return await TALKING[params.name](ctx, params)
    raise MCPError(INVALID_PARAMS, f"unknown tool {params.name}")


# --- resources and prompts

RESOURCES: Final[Mapping[str, dict[str, Any]]] = {
    "test://static-text": {"mimeType": "text/plain", "text": "This is the content of the static text resource."},
    "test://static-binary": {"mimeType": "image/png", "blob": PNG},
    "test://watched-resource": {"mimeType": "text/plain", "text": "Watched resource content"},
    "test://example-resource": {"mimeType": "text/plain", "text": "Example"},
}
TEMPLATE: Final = "test://template/{id}/data"


async def list_resources(ctx: Context, params: Any) -> ListResourcesResult:
    rows = [{"uri": uri, "name": uri, "description": "Fixture"} for uri in RESOURCES]
    return ListResourcesResult.model_validate({"resources": rows})


async def list_templates(ctx: Context, params: Any) -> ListResourceTemplatesResult:
    rows = [{"uriTemplate": TEMPLATE, "name": "template", "description": "Fixture"}]
    return ListResourceTemplatesResult.model_validate({"resourceTemplates": rows})


async def read_resource(ctx: Context, params: ReadResourceRequestParams) -> ReadResourceResult:
    uri = str(params.uri)
    found = RESOURCES.get(uri)
    before, _, after = TEMPLATE.partition("{id}")
    if found is None and uri.startswith(before) and uri.endswith(after):
        number = uri.removeprefix(before).removesuffix(after)
        said = {"id": number, "templateTest": True, "data": f"Data for ID: {number}"}
        found = {"mimeType": "application/json", "text": json.dumps(said)}
    if found is None:
        raise MCPError(INVALID_PARAMS, "Resource not found", {"uri": uri})
    return ReadResourceResult.model_validate({"contents": [{"uri": uri, **found}]})


async def nothing(ctx: Context, params: Any) -> EmptyResult:
    return EmptyResult()


PROMPTS: Final[Mapping[str, tuple[str, ...]]] = {
    "test_simple_prompt": (),
    "test_prompt_with_arguments": ("arg1", "arg2"),
    "test_prompt_with_embedded_resource": ("resourceUri",),
    "test_prompt_with_image": (),
    "test_input_required_result_prompt": (),
}


async def list_prompts(ctx: Context, params: Any) -> ListPromptsResult:
    rows = [
        {"name": name, "description": "Fixture", "arguments": [{"name": each, "required": True} for each in arguments]}
        for name, arguments in PROMPTS.items()
    ]
    return ListPromptsResult.model_validate({"prompts": rows})


async def get_prompt(ctx: Context, params: GetPromptRequestParams) -> GetPromptResult | InputRequiredResult:
    given = params.arguments or {}
    messages = {
        "test_simple_prompt": [text("This is a simple prompt for testing.")],
        "test_prompt_with_arguments": [
            text(f"Prompt with arguments: arg1='{given.get('arg1')}', arg2='{given.get('arg2')}'")
        ],
        "test_prompt_with_embedded_resource": [
            embedded(given.get("resourceUri", "test://x"), "text/plain", "Embedded resource content for testing."),
            text("Please process the embedded resource above."),
        ],
        "test_prompt_with_image": [IMAGE, text("Please analyze the image above.")],
        "test_input_required_result_prompt": [text("With your context.")],
    }.get(params.name)
    if messages is None:
        raise MCPError(INVALID_PARAMS, f"unknown prompt {params.name}")
    if params.name == "test_input_required_result_prompt" and answered(params, "user_context") is None:
        return ask({"user_context": form("What context should the prompt use?", context=STRING)})
    return GetPromptResult.model_validate({"messages": [{"role": "user", "content": each} for each in messages]})


async def complete(ctx: Context, params: Any) -> CompleteResult:
    return CompleteResult(completion=Completion(values=["paris", "park"], total=2, has_more=False))


def fixtures() -> Server[Any]:
    """A server with every fixture."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # logging is deprecated, and still required of the older era
        return Server(
            "conformance",
            version="1",
            get_tool_input_schema=schema_of,
            on_list_tools=list_tools,
            on_call_tool=call_tool,
            on_list_resources=list_resources,
            on_list_resource_templates=list_templates,
            on_read_resource=read_resource,
            on_subscribe_resource=nothing,
            on_unsubscribe_resource=nothing,
            on_subscriptions_listen=ListenHandler(BUS),
            on_list_prompts=list_prompts,
            on_get_prompt=get_prompt,
            on_completion=complete,
            on_set_logging_level=nothing,
        )


def with_token(app: Any, token: str) -> Any:
    """Add a token to every request."""

    async def called(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            scope = {**scope, "headers": [*scope["headers"], (b"authorization", f"Bearer {token}".encode())]}
        await app(scope, receive, send)

    return called


def main(port: int) -> None:
    """Serve the fixtures until SIGTERM."""
    token = secrets.token_hex(32)
    app = http_app(protect(fixtures()), "127.0.0.1", port, FixedTokens({"suite": token}), None)
    asyncio.run(serve_http(with_token(app, token), "127.0.0.1", port))


if __name__ == "__main__":
    main(int(sys.argv[1]))
