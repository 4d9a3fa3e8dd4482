"""A model client over a kernel: one prompt, one typed answer, and a derived step key if the caller passes none."""

import inspect
import re
import warnings
from typing import Any, Protocol

from gert.errors import InputError, RunExists, RunNotFound
from gert.kernel.agent.ports.model import ModelCallOptions, OnToken, OutputT
from gert.kernel.agent.steps.outputs import check_output_schema
from gert.kernel.agent.types.api import (
    ContextVersion,
    ModelClientCapabilities,
    ModelInput,
    ReplayPolicy,
    StepModelResult,
    TenantContext,
    ToolDrift,
)
from gert.kernel.foundation.arguments import checks_arguments
from gert.kernel.foundation.canonical import sha256_hex
from gert.kernel.foundation.canonical_v1 import canonical_json_dumps
from gert.kernel.foundation.names import listing

_UNEXPECTED = re.compile(r"\bstep_model\(\) got an unexpected keyword argument '(\w+)'")
_DEFAULTS: dict[str, object] = {
    "replay_policy": "strict",
    "context_version": None,
    "tool_drift": "refuse",
    "on_token": None,
}
"""Arguments that a kernel of another version may not accept, with their defaults."""


class TakesModelSteps(Protocol):
    """A kernel of this or another version."""

    async def step_model(self, **request: Any) -> StepModelResult[Any]:
        """Run a model step."""

    async def start_run(self, **request: Any) -> Any:
        """Start a run."""


@checks_arguments
class KernelModelClient:
    """Calls models through a kernel."""

    def __init__(self, kernel: Any) -> None:
        if not callable(getattr(kernel, "step_model", None)):
            raise InputError(f"expected `kernel` to be a kernel, found a `{type(kernel).__name__}`")
        self._kernel: TakesModelSteps = kernel

    def capabilities(self) -> ModelClientCapabilities:
        """Return which arguments the kernel accepts."""
        return ModelClientCapabilities(self._knows("replay_policy"), self._knows("context_version"))

    async def step(
        self,
        *,
        run_id: str,
        tenant: TenantContext,
        model: str,
        prompt: str,
        output_schema: type[OutputT],
        step_key: str | None = None,
        model_options: ModelCallOptions | None = None,
        replay_policy: ReplayPolicy = "strict",
        context_version: ContextVersion | None = None,
        tool_drift: ToolDrift = "refuse",
        on_token: OnToken | None = None,
    ) -> StepModelResult[OutputT]:
        """Run a model step; the same question in the same run has the same answer. A missing run is started."""
        check_output_schema(output_schema)
        optional = {
            "replay_policy": replay_policy,
            "context_version": context_version,
            "tool_drift": tool_drift,
            "on_token": on_token,
        }
        known = {name: value for name, value in optional.items() if self._knows(name)}
        _warn([name for name in optional if name not in known and optional[name] != _DEFAULTS[name]])
        request = {
            "run_id": run_id,
            "tenant": tenant,
            "model": model,
            "input": ModelInput.from_prompt(prompt),
            "output_schema": output_schema,
            "step_key": step_key if step_key is not None else derived_step_key(model, output_schema, prompt),
            "model_options": model_options,
        }
        started = False
        while True:
            try:
                return await self._kernel.step_model(**request, **known)
            except RunNotFound:
                if started:
                    raise
                started = True
                await self._start(run_id, tenant)
            except TypeError as error:
                # A kernel may declare any keyword and still refuse it.
                refused = _refused(error)
                if refused is None or known.pop(refused, _DEFAULTS) is _DEFAULTS:
                    raise
                _warn([refused])

    async def _start(self, run_id: str, tenant: TenantContext) -> None:
        try:
            await self._kernel.start_run(tenant=tenant, run_id=run_id)
        except RunExists:
            # Another caller started the run first.
            return

    def _knows(self, name: str) -> bool:
        parameters = inspect.signature(self._kernel.step_model).parameters
        return name in parameters or any(each.kind is each.VAR_KEYWORD for each in parameters.values())


class SingleStepModelClient(KernelModelClient):
    """`KernelModelClient` under its name for single steps."""


def derived_step_key(model: str, output_schema: type[OutputT], prompt: str) -> str:
    """Derive a step key from model, output schema and prompt."""
    schema = canonical_json_dumps(output_schema.model_json_schema())
    hashed = sha256_hex(canonical_json_dumps([model, output_schema.__name__, schema, prompt]).encode())
    return f"model_step_{hashed[:24]}"


def _refused(error: TypeError) -> str | None:
    """Return the keyword that a kernel refused, if no model was called yet.

    That is so if the call of `step_model` itself failed, here or in a `step_model` that passes its keywords on. The
    same error from a deeper frame may come from a model that was called.
    """
    trace = error.__traceback__.tb_next if error.__traceback__ is not None else None
    while trace is not None:
        if trace.tb_frame.f_code.co_name != "step_model":
            return None
        trace = trace.tb_next
    refused = _UNEXPECTED.search(str(error))
    return None if refused is None else refused[1]


def _warn(names: list[str]) -> None:
    if names:
        warnings.warn(
            f"the kernel does not accept {listing(names)}; called without",
            UserWarning,
            stacklevel=3,
        )
