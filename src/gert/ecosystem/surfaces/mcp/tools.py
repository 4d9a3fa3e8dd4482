"""The tools of the server: the operations of gert, and runbooks that are published as tools of their own."""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final

from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitResult,
    InputRequiredResult,
    ListToolsResult,
    PaginatedRequestParams,
    Tool,
    ToolAnnotations,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from gert.ecosystem.host.operations.access import Access, Refused
from gert.ecosystem.host.operations.run_status import Progress
from gert.ecosystem.host.operations.runs import Exec, missing_inputs
from gert.ecosystem.host.operations.table import OPERATIONS, Operation, as_refused, perform, read_params
from gert.ecosystem.surfaces.mcp.published import Published
from gert.ecosystem.surfaces.mcp.results import refusal, result_of, without_hidden
from gert.errors import GertError
from gert.kernel.foundation.names import listing
from gert.kernel.foundation.text import plain_line
from gert.kernel.governance.parameter_schema import parameter_schema

PREFIX: Final = "gert_"
ALIASES: Final = {f"gert/{name.replace('_', '-')}": f"{PREFIX}{name}" for name in OPERATIONS}
"""The documented names; several clients accept no slash (DECISIONS 45)."""
_FORM: Final = "inputs"
MOST_CALLS: Final = 32
"""Calls of one caller that are performed at the same time."""

Context = ServerRequestContext[Any, Any]


def tool_of(operation: Operation) -> Tool:
    """An operation as an MCP tool."""
    return Tool(
        name=f"{PREFIX}{operation.name}",
        title=operation.title,
        description=operation.description,
        input_schema=operation.input_schema,
        output_schema=operation.output_schema,
        annotations=ToolAnnotations(
            read_only_hint=not operation.writes,
            destructive_hint=operation.destructive,
            idempotent_hint=operation.repeats,
            open_world_hint=operation.writes,
        ),
    )


class Tools:
    """Lists and calls tools.

    access: what a caller may do, given its context
    toolsets: names of operations that are offered; None for all
    """

    def __init__(
        self,
        access: Callable[[Context], Access],
        published: Mapping[str, Published],
        toolset: frozenset[str] | None = None,
    ) -> None:
        self._access = access
        self._published = published
        self._offered = {
            f"{PREFIX}{name}": operation for name, operation in OPERATIONS.items() if toolset is None or name in toolset
        }
        self._calls: Counter[str] = Counter()

    async def list(self, ctx: Context, params: PaginatedRequestParams | None) -> ListToolsResult:
        """The tools that this caller is offered: a read-only server offers none that writes."""
        read_only = self._access(ctx).read_only
        tools = [tool_of(each) for each in self._offered.values() if not (read_only and each.writes)]
        if not read_only:
            tools += [each.tool for each in self._published.values()]
        return ListToolsResult(tools=tools)

    def schema(self, name: str) -> Mapping[str, Any] | None:
        """The input schema of a tool."""
        published = self._published.get(name)
        if published is not None:
            return published.tool.input_schema
        operation = self._offered.get(ALIASES.get(name, name))
        return operation.input_schema if operation is not None else None

    async def call(self, ctx: Context, params: CallToolRequestParams) -> CallToolResult | InputRequiredResult:
        """Call a tool; what it refuses is a result the model can read."""
        name, arguments = params.name, dict(params.arguments or {})
        published = self._published.get(name)
        if published is not None:
            name, arguments = f"{PREFIX}exec", _exec_arguments(published, arguments)
        operation = self._offered.get(ALIASES.get(name, name)) or (OPERATIONS["exec"] if published else None)
        if operation is None:
            raise MCPError(code=INVALID_PARAMS, message=f"unknown tool `{plain_line(params.name, 80)}`")
        access = self._access(ctx)
        caller = access.caller.id if access.caller is not None else ""
        self._calls[caller] += 1
        try:
            if self._calls[caller] > MOST_CALLS:
                raise Refused("busy", f"more than {MOST_CALLS} calls at once", retryable=True)
            if operation.writes:
                access.require_write()
            if operation.name == "exec":
                asked = await self._elicit(ctx, params, access, arguments)
                if isinstance(asked, InputRequiredResult):
                    return asked
                arguments = dict(asked)
            return result_of(await perform(operation, access, arguments, on_progress=_reporter(ctx)))
        except GertError as problem:
            return refusal(as_refused(access, problem))
        finally:
            self._calls[caller] -= 1
            if not self._calls[caller]:
                del self._calls[caller]

    async def _elicit(
        self, ctx: Context, params: CallToolRequestParams, access: Access, arguments: Mapping[str, Any]
    ) -> Mapping[str, Any] | InputRequiredResult:
        """Ask for inputs that are missing, where the client can show a form; inputs only, never an approval."""
        said: Exec = read_params(OPERATIONS["exec"], arguments)
        missing = missing_inputs(access, said)
        if not missing:
            return arguments
        form = ElicitRequestFormParams(
            message=f"`{plain_line(access.shown(access.runbook(said.path)), 200)}` needs {len(missing)} more input(s)",
            requested_schema={
                "type": "object",
                "properties": {name: without_hidden(_field(each)) for name, each in missing.items()},
                "required": list(missing),
            },
        )
        answer: ElicitResult | None = None
        if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
            answered = (params.input_responses or {}).get(_FORM)
            if answered is None and _can_elicit(ctx):
                return InputRequiredResult(
                    input_requests={_FORM: ElicitRequest(params=form)}, request_state="gert-inputs"
                )
            answer = answered if isinstance(answered, ElicitResult) else None
        elif _can_elicit(ctx):
            # On the stream of this very request: another one may not be open, and the question would be lost.
            answer = await ctx.session.elicit_form(form.message, form.requested_schema, ctx.request_id)
        if answer is None or answer.action != "accept" or not answer.content:
            named = listing(missing)
            raise Refused("invalid_inputs", f"no value for {named}", field="vars", hint="pass them in `vars`")
        given = {name: value for name, value in answer.content.items() if name in missing}
        return {**arguments, "vars": {**said.vars, **given}}


def _exec_arguments(published: Published, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """A call of a published runbook as a call of `exec`."""
    values = dict(arguments)
    request_id = values.pop("request_id", None)
    return {"path": published.file, "vars": values, **({"request_id": request_id} if request_id else {})}


def _field(parameter: Any) -> dict[str, Any]:
    """A field of a form: forms have only plain types."""
    schema = parameter_schema(parameter)
    if schema.get("type") not in ("string", "integer", "number", "boolean"):
        schema = {"type": "string", "description": schema.get("description", "as JSON")}
    if "enum" in schema:
        schema["enum"] = [str(each) for each in schema["enum"]]
        schema["type"] = "string"
    schema.pop("pattern", None)
    return schema


def _can_elicit(ctx: Context) -> bool:
    capabilities = ctx.session.client_capabilities
    return capabilities is not None and capabilities.elicitation is not None


def _reporter(ctx: Context) -> Any:
    async def report(progress: Progress) -> None:
        running = ", ".join(progress.running[:3]) or "between steps"
        await ctx.session.report_progress(float(progress.events), None, f"{progress.done} steps done; {running}")

    return report
