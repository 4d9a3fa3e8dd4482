"""The runner's side of the extension protocol: answer `initialize`, `execute` and `shutdown` (ecosystem-v0 §6.3)."""

import asyncio
import contextlib
import inspect
import threading
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeAlias

from gert.ecosystem.rpc.messages import INVALID_PARAMS, INVALID_REQUEST
from gert.ecosystem.rpc.own_stdio import own_stdio
from gert.errors import CanonicalError, RpcFault
from gert.kernel.foundation.canonical import require_canonical
from gert.kernel.foundation.principal import parse_principal

PROTOCOL_VERSION: Final = "1"


class Step:
    """A step to execute.

    inputs: as the contract declares them, in their types
    vars: the variables that the step may see
    contract: the contract of the step, with `inputs`, `outputs`, `effects`, `reads`, `writes`
    call: the id of the call; only gert's own runner for agents gets it
    child_run_id: set it to the id of a run that the step starts, to link it in the record
    waits_for: the ticket that the step waits for; only gert's own runner for agents sets it, and is called again
    """

    __slots__ = ("_cancelled", "call", "child_run_id", "contract", "inputs", "vars", "waits_for")

    def __init__(
        self,
        inputs: dict[str, Any],
        variables: dict[str, Any],
        contract: dict[str, Any],
        call: dict[str, Any] | None = None,
    ) -> None:
        self.inputs = inputs
        self.vars = variables
        self.contract = contract
        self.call = call or {}
        self.child_run_id: str | None = None
        self.waits_for: str | None = None
        self._cancelled = threading.Event()

    @property
    def is_cancelled(self) -> bool:
        """Whether gert no longer wants the result; a long function should return when it is."""
        return self._cancelled.is_set()

    def cancel(self) -> None:
        """Mark it as cancelled."""
        self._cancelled.set()


class Failed(Exception):
    """Raised by a runner: the step failed; `outputs` are kept as far as they are declared."""

    def __init__(self, message: str, *, exit_code: int = 1, outputs: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.exit_code = exit_code
        self.outputs = dict(outputs or {})


Execute: TypeAlias = Callable[[Step], Mapping[str, Any] | Awaitable[Mapping[str, Any] | None] | None]
"""Executes a step and returns its outputs; a plain function runs in a thread."""


def run(execute: Execute, *, principal: Mapping[str, str] | None = None) -> None:
    """Be an extension runner: execute steps until gert ends the connection.

    What the function prints goes to standard error, which gert records. An exception other than `Failed` is an error of
    the runner, and its traceback is printed.

    principal: who the runner acts as, for example `{"kind": "agent", "id": "judge", "model": "..."}`
    """
    declared = {"principal": dict(principal)} if principal is not None else {}
    if declared:
        parse_principal(principal)
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_serve(execute, {"capabilities": {}, "protocol_version": PROTOCOL_VERSION, **declared}))


async def _serve(execute: Execute, greeting: dict[str, Any]) -> None:
    async with own_stdio({}) as peer:

        def initialize(params: Any) -> Any:
            wanted = params.get("protocol_version") if isinstance(params, dict) else None
            if wanted != PROTOCOL_VERSION:
                message = f"this runner speaks protocol version `{PROTOCOL_VERSION}`, not `{wanted}`"
                raise RpcFault(message, code=INVALID_PARAMS)
            return greeting

        async def shutdown(params: Any) -> Any:
            asyncio.get_running_loop().call_later(0.01, peer.end, "gert ended the connection")
            return {}

        async def answer(params: Any) -> Any:
            return await _execute(execute, _step(params))

        peer.handlers.update(initialize=initialize, execute=answer, shutdown=shutdown)
        await peer.ended()


def _step(params: Any) -> Step:
    given = params if isinstance(params, dict) else {}
    parts = [given.get(name, {}) for name in ("inputs", "vars", "contract", "call")]
    if not isinstance(params, dict) or not all(isinstance(part, dict) for part in parts):
        raise RpcFault("expected `inputs`, `vars`, `contract` and `call` to be objects", code=INVALID_REQUEST)
    return Step(*parts)


async def _execute(execute: Execute, step: Step) -> dict[str, Any]:
    try:
        result = await (execute(step) if inspect.iscoroutinefunction(execute) else _in_thread(execute, step))
    except Failed as failed:
        said = {"outputs": failed.outputs, "exit_code": failed.exit_code, "stderr": f"{failed}\n"}
        return {**said, **_child(step)}
    outputs = {} if result is None else result
    if not isinstance(outputs, Mapping):
        raise RpcFault(f"expected the runner to return a dictionary of outputs, not a `{type(result).__name__}`")
    try:
        require_canonical(dict(outputs))
    except CanonicalError as problem:
        raise RpcFault(f"an output is not plain data: {problem.message}") from None
    return {"outputs": dict(outputs), "exit_code": 0, "stderr": "", **_child(step)}


def _child(step: Step) -> dict[str, str]:
    said = {"child_run_id": step.child_run_id, "waits_for": step.waits_for}
    return {name: value for name, value in said.items() if value is not None}


async def _in_thread(execute: Execute, step: Step) -> Any:
    """Run a plain function in a thread.

    A thread cannot be stopped. A cancelled step is therefore answered only when its function has returned: gert ends a
    runner that takes too long, and never takes a step for ended that still runs.
    """
    work = asyncio.get_running_loop().run_in_executor(None, execute, step)
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        step.cancel()
        await asyncio.wait([work])
        raise
