"""Tool executors of the embedding program, as a run calls tools.

A call arrives here after governance has allowed it. What comes back is treated as the output of a process is: bounded,
redacted, and checked against the contract by the engine.
"""

import asyncio
import time
from collections.abc import Mapping
from copy import copy
from typing import Any, Final

from msgspec.structs import replace

from gert.ecosystem.host.embedding.calling import call_part, error_of, name_of
from gert.ecosystem.host.embedding.ports import ToolCall, ToolExecutor, ToolResult
from gert.ecosystem.process.capture import Capture
from gert.ecosystem.tools.command import line_for
from gert.ecosystem.tools.outputs import ExitedProcess, answer_of, reads_json, redacted_failure, redactor_for
from gert.errors import CanonicalError, InputError, TemplateEvalError, ToolError, ToolUnknownOutcomeError
from gert.kernel.engine.requests import CallPreview, CallTool, ToolAnswer
from gert.kernel.events.runbook.parts import Failure
from gert.kernel.events.vocabulary import FailureKind
from gert.kernel.foundation.canonical import require_canonical
from gert.kernel.foundation.redaction import Redactor
from gert.kernel.foundation.secret_refs import reveal
from gert.kernel.runbook.documents.tool import ActionBlock, Tool

MAX_OUTPUT: Final = 10 * 1024 * 1024


class EmbeddedTool:
    """Calls one tool with the executor of the embedding program.

    secrets: the values of secret inputs, by input
    redactor: masks every secret of the environment and of inputs
    """

    def __init__(self, executor: ToolExecutor, *, run_id: str, secrets: Mapping[str, str], redactor: Redactor) -> None:
        self._executor = executor
        self._run_id = run_id
        self._secrets = secrets
        self._redactor = redactor
        self._name = f"the tool executor `{name_of(executor)}`"

    async def call(self, tool: Tool, action_name: str, action: ActionBlock, ask: CallTool | CallPreview) -> ToolAnswer:
        """Execute an action, or show its preview where the executor can."""
        method = self._executor.execute if isinstance(ask, CallTool) else getattr(self._executor, "preview", None)
        if method is None:
            return ToolAnswer(failure=Failure("denied", f"{self._name} shows no previews"))
        started = time.monotonic()
        answer = await self._answer(method, tool, action_name, action, ask)
        return replace(answer, duration=round(time.monotonic() - started, 3))

    async def _answer(
        self, method: Any, tool: Tool, action_name: str, action: ActionBlock, ask: CallTool | CallPreview
    ) -> ToolAnswer:
        redactor = redactor_for(self._redactor, ask)
        try:
            call = self._call(tool, action_name, action, ask)
        except (InputError, TemplateEvalError) as problem:
            kind: FailureKind = "evaluation" if isinstance(problem, TemplateEvalError) else "invalid_input"
            return ToolAnswer(failure=redacted_failure(Failure(kind, problem.message), redactor))
        try:
            result = await call_part(method, call)
        except Exception as error:
            return ToolAnswer(failure=redacted_failure(self._failure(error, ask), redactor))
        return await asyncio.to_thread(self._taken, result, action, ask, redactor)

    def _call(self, tool: Tool, action_name: str, action: ActionBlock, ask: CallTool | CallPreview) -> ToolCall:
        return ToolCall(
            run_id=self._run_id,
            step_id=ask.step_id,
            path=ask.path,
            key=ask.key,
            tool=ask.tool,
            action=action_name,
            inputs={name: self._revealed(value) for name, value in ask.inputs.items()},
            contract=ask.contract,
            command=line_for(tool, action, ask.inputs, self._secrets, is_preview=isinstance(ask, CallPreview))
            if action.argv is not None
            else None,
            timeout=ask.timeout,
            definition=tool,
        )

    def _revealed(self, value: Any) -> Any:
        """A copy of a value in which references are replaced by the secrets."""
        if isinstance(value, str):
            return reveal(value, self._secrets)
        if isinstance(value, Mapping):
            return {self._revealed(key): self._revealed(each) for key, each in value.items()}
        return [self._revealed(each) for each in value] if isinstance(value, list | tuple) else value

    def _failure(self, error: Exception, ask: CallTool | CallPreview) -> Failure:
        """Why there is no result; where the call may have changed something, its outcome is unknown."""
        message = f"{self._name} failed: {error_of(error)}"
        if isinstance(error, ToolUnknownOutcomeError):
            return Failure("unknown_outcome", message)
        may_have_acted = ask.contract.may_write or ask.contract.hides_writes
        if not isinstance(error, ToolError) and may_have_acted and not ask.contract.idempotent:
            return Failure("unknown_outcome", message)
        return Failure("transport", message)

    def _taken(self, result: Any, action: ActionBlock, ask: CallTool | CallPreview, redactor: Redactor) -> ToolAnswer:
        """The answer with what the executor returned; outputs are extracted only where it gives none."""
        given = ToolResult(outputs=result) if isinstance(result, Mapping) else result
        flaw = _flaw(given)
        if flaw is not None:
            return ToolAnswer(failure=Failure("extraction", f"{self._name} returned {flaw}"))
        if given.outputs is not None:
            action = copy(action)
            action.extract = {}
        stdout = _captured(given.stdout, redactor, keeps_raw=reads_json(action))
        ended = ExitedProcess(ask.tool, given.exit_code or 0, stdout, _captured(given.stderr, redactor))
        answer = replace(answer_of(ended, action, ask.contract, redactor), exit_code=given.exit_code)
        if given.outputs is not None:
            shown = redactor.value(dict(given.outputs))
            answer = replace(answer, outputs=shown.value, redacted=answer.redacted + shown.masked)
        if given.error is not None:
            answer = replace(answer, failure=redacted_failure(Failure("tool_error", given.error), redactor))
        return answer


def _captured(text: str, redactor: Redactor, *, keeps_raw: bool = False) -> Capture:
    capture = Capture(redactor, MAX_OUTPUT, keeps_raw=keeps_raw)
    capture.feed(text.encode("utf-8", "replace"))
    capture.close()
    return capture


def _is_data(outputs: Any) -> bool:
    if not isinstance(outputs, Mapping):
        return False
    try:
        require_canonical(dict(outputs))
    except (CanonicalError, TypeError, ValueError, RecursionError):
        return False
    return True


def _flaw(given: Any) -> str | None:
    """Why something is no result of a call."""
    if not isinstance(given, ToolResult):
        return f"a `{type(given).__name__}`, expected a `ToolResult` or a mapping of outputs"
    if given.outputs is not None and not _is_data(given.outputs):
        return "outputs that are not plain data by name"
    if given.exit_code is not None and type(given.exit_code) is not int:
        return "an exit code that is not a number"
    texts = (given.stdout, given.stderr, given.error if given.error is not None else "")
    return None if all(isinstance(text, str) for text in texts) else "output that is not text"
