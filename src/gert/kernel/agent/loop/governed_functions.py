"""Tools of a kernel as plain async functions, for the agent of another library.

Every library makes a tool from a function with a name, a docstring and typed parameters. What such a function calls is
decided, approved, recorded and replayed as any tool step.
"""

import inspect
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import count
from typing import Annotated, Any, Final

import msgspec
from pydantic import WithJsonSchema
from pydantic_core import to_jsonable_python

from gert.errors import ApprovalRequiredError, ToolNotFound, UsageError
from gert.kernel.agent.api.bound import BoundRun
from gert.kernel.agent.loop.tool_round import ToolRound
from gert.kernel.agent.ports.model import ToolCall, ToolDefinition
from gert.kernel.foundation.canonical import sha256_hex
from gert.kernel.foundation.canonical_v1 import canonical_json_dumps

GovernedFunction = Callable[..., Awaitable[str]]

_DIGITS: Final = 16
_DEEPEST: Final = 6
_TYPES: Final[Mapping[str, Any]] = {
    "string": str,
    "integer": int,
    "number": float,
    "boolean": bool,
    "array": list[Any],
    "object": dict[str, Any],
}


def governed_functions(
    run: BoundRun, *, tools: Sequence[str] | None = None, wait_seconds: float = 0.0
) -> list[GovernedFunction]:
    """Return tools as async functions that take keyword arguments and return the result as JSON.

    A call that policy, an approver or the tool refuses returns `{"error": …}`, which the model reads. A call whose
    outcome is unknown raises. The n-th call of a tool with equal arguments is one step of the run: in a process that
    resumes the run, it returns what is on record. A call that raised, or was cancelled, is the same step when it is
    made again.

    tools: names of tools (default: all that the tenant may use)
    wait_seconds: how long a call waits for its approval, before it raises ApprovalRequiredError
    """
    known = {tool.name: tool for tool in run.kernel.list_tools_for_tenant(tenant=run.tenant)}
    for name in tools or ():
        if name not in known:
            raise ToolNotFound(f"there is no tool `{name[:64]}` that the tenant may use", hint=", ".join(sorted(known)))
    calls = _Calls(run, wait_seconds)
    return [_function(calls, known[name]) for name in (sorted(known) if tools is None else tools)]


class _Calls:
    """Calls tools as steps of one run."""

    def __init__(self, run: BoundRun, wait_seconds: float) -> None:
        self._run, self._wait = run, wait_seconds
        self._round = ToolRound(run.kernel, run.tenant)
        self._places: defaultdict[str, set[int]] = defaultdict(set)

    async def call(self, tool_name: str, arguments: dict[str, Any]) -> str:
        """Call a tool and return the text for the model."""
        given = canonical_json_dumps(to_jsonable_python(arguments))
        prefix = f"call_{sha256_hex(canonical_json_dumps([tool_name, given]).encode())[:_DIGITS]}"
        taken = self._places[prefix]
        place = next(number for number in count(1) if number not in taken)
        taken.add(place)
        try:
            return await self._step(prefix, place, ToolCall(tool_name=tool_name, arguments_json=given))
        except BaseException:
            # The model was told nothing. An equal call is the same step: it waits on, or its outcome is unknown.
            taken.discard(place)
            raise

    async def _step(self, prefix: str, place: int, call: ToolCall) -> str:
        run = self._run
        while True:
            try:
                [reply] = await self._round.run(run.run_id, prefix, (call,), first=place)
                return reply.text
            except ApprovalRequiredError as error:
                if not await self._is_decided(error):
                    raise

    async def _is_decided(self, error: ApprovalRequiredError) -> bool:
        """Wait for people; the call may wait in the run of a runbook or a sub-agent, perhaps in another ledger."""
        kernel, run_id = self._run.kernel, error.run_id or self._run.run_id
        if await kernel.ledger.head(run_id) is None:
            return False
        decided = await kernel.wait_for_approval(
            run_id=run_id, tenant=self._run.tenant, approval_key=error.approval_key, timeout_seconds=self._wait
        )
        return decided in ("approved", "rejected")


def _function(calls: _Calls, tool: ToolDefinition) -> GovernedFunction:
    schema: dict[str, Any] = msgspec.json.decode(tool.arguments_schema_json)
    required = frozenset(schema.get("required", ()))

    async def function(**arguments: Any) -> str:
        given = {name: value for name, value in arguments.items() if value is not None or name in required}
        return await calls.call(tool.name, given)

    parameters = [
        _parameter(tool.name, name, _inlined(each, schema.get("$defs", {}), _DEEPEST), is_required=name in required)
        for name, each in sorted(schema.get("properties", {}).items(), key=lambda item: item[0] not in required)
    ]
    function.__name__ = function.__qualname__ = tool.name
    function.__doc__ = tool.description
    function.__annotations__ = {**{each.name: each.annotation for each in parameters}, "return": str}
    function.__signature__ = inspect.Signature(parameters, return_annotation=str)  # type: ignore[attr-defined]
    return function


def _parameter(tool_name: str, name: str, schema: dict[str, Any], *, is_required: bool) -> inspect.Parameter:
    if not name.isidentifier():
        raise UsageError(f"the input `{name}` of `{tool_name}` cannot be a parameter of a Python function")
    kind: Any = _TYPES.get(str(schema.get("type")), Any)
    default = inspect.Parameter.empty if is_required else schema.get("default")
    typed: Any = Annotated[kind if is_required or kind is Any else kind | None, WithJsonSchema(schema)]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=typed)


def _inlined(schema: Any, known: Mapping[str, Any], depth: int) -> Any:
    """Return a schema that refers to no other one; beyond a depth, and within itself, anything is allowed."""
    if isinstance(schema, list):
        return [_inlined(each, known, depth) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        found = known.get(str(schema["$ref"]).removeprefix("#/$defs/"), {})
        return _inlined(found, known, depth - 1) if depth > 0 else {}
    return {name: _inlined(each, known, depth) for name, each in schema.items()}
