"""All exceptions of gert, as a tree.

    GertError
    ├── UsageError              wrong use of a command
    ├── DocumentError           a file is not the expected document
    ├── TemplateError           a `{{ }}` template
    │   ├── TemplateSyntaxError     does not parse
    │   └── TemplateEvalError       fails or exceeds its budget when evaluated
    ├── PatternError            a regular expression that does not compile
    ├── InputError              a value is missing or does not fit what was declared
    │   └── ArgumentTypeError       an argument is of the wrong type
    ├── CanonicalError          a value that has no canonical JSON form
    ├── TraceError              a trace or ledger cannot be written or read
    │   ├── Busy                    another process is writing the record
    │   └── Unavailable             the ledger server cannot be reached
    ├── IntegrityError          a chain, seal or signature is invalid
    ├── Refused                 a plan, skill or secret is refused; `rule` says why
    ├── InDoubt                 a call may have happened; the operator must reconcile it
    │   └── OutputsMissing          it succeeded, and required outputs are not given
    ├── RpcError                a JSON-RPC call
    │   ├── RpcFault                the peer answered with an error; `code` and `data` are the peer's
    │   ├── RpcTimeout              no answer in time
    │   └── RpcLost                 the connection ended; `sent` says whether the call may have been received
    ├── AgentError              a durable agent run
    │   ├── RunError                the run cannot be used, for example because it belongs to another tenant
    │   │   ├── RunExists               it already exists
    │   │   └── RunNotFound             there is no such run
    │   ├── RunBlocked              the run is paused or blocked
    │   ├── LeaseLost               another worker holds the run
    │   ├── ReplayConsistencyError  a request differs from the recorded one
    │   ├── CapabilityDeniedError   the tenant may not use a tool
    │   ├── PolicyViolationError    a safety rule refuses a tool call; `code` says which
    │   ├── ApprovalRequiredError   a tool call waits for an approval
    │   ├── BudgetExceededError     the tenant's budget is spent
    │   ├── ToolExecutionFailedError    a tool step failed; `outcome` says how
    │   │   └── ToolNotFound            there is no such tool
    │   ├── HarnessStateError       a harness cannot continue from its saved state
    │   │   └── TaskProgressValidationError     tasks may not change in this way
    │   ├── MaxIterationsExceeded   an agent has no answer after its last turn
    │   └── AgentRunFailed          a sub-agent failed; `status` says how
    ├── ToolError               raised by a tool
    │   ├── ToolTransientError      the call did not happen; a retry may succeed
    │   ├── ToolPermanentError      the call did not happen; a retry will not succeed
    │   ├── ToolUnknownOutcomeError     the call may have happened
    │   └── ToolSuspended           the call has not ended; the same step continues it
    └── ModelError              raised by a model or its transport
        ├── ModelTimeoutError       no answer in time
        ├── ModelTransientError     a retry may succeed
        └── ModelPermanentError     a retry will not succeed

Errors of callers are also what Python callers expect: `UsageError`, `InputError`, `CanonicalError` and `RunError` are
`ValueError`s, `ArgumentTypeError` is a `TypeError` as well, and `RunNotFound` and `ToolNotFound` are `KeyError`s.

Messages are lower case, one line, without a final period; the user's words are in backticks.
"""

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Final


class GertError(Exception):
    """An expected failure; `hint` says what to do about it."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return self.message  # a `KeyError` would quote it


class UsageError(GertError, ValueError):
    """A command was used wrongly."""


class DocumentError(GertError):
    """A file is not the expected document.

    findings: what is wrong with it, as JSON data with its file, where it was validated
    """

    def __init__(self, message: str, *, hint: str | None = None, findings: Sequence[Mapping[str, object]] = ()) -> None:
        super().__init__(message, hint=hint)
        self.findings = tuple(findings)


class TemplateError(GertError):
    """A template is invalid; `offset` is the position in its source."""

    def __init__(self, message: str, *, offset: int = 0, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.offset = offset


class TemplateSyntaxError(TemplateError):
    """A template does not parse."""


class TemplateEvalError(TemplateError):
    """A template failed or exceeded its budget when evaluated."""


class PatternError(GertError):
    """A regular expression does not compile."""


class InputError(GertError, ValueError):
    """A value is missing or does not fit what was declared.

    problems: each input that has no value, and why, as `gert.kernel.engine.inputs.InputProblem`
    """

    def __init__(self, message: str, *, hint: str | None = None, problems: Sequence[object] = ()) -> None:
        super().__init__(message, hint=hint)
        self.problems = tuple(problems)


class ArgumentTypeError(InputError, TypeError):
    """An argument is of the wrong type."""


class CanonicalError(GertError, ValueError):
    """A value has no canonical JSON form."""


class TraceError(GertError):
    """A trace or ledger cannot be written or read."""


class Busy(TraceError):
    """Another process is writing the record."""


class Unavailable(TraceError):
    """The ledger server cannot be reached; the record itself may be intact."""


class Forbidden(Unavailable):
    """The database role of this process has no right to do that."""


class IntegrityError(GertError):
    """A chain, seal or signature is invalid."""


class Refused(GertError):
    """A plan, skill, secret or request is refused, or its execution failed; `rule` names the reason for machines."""

    def __init__(self, rule: str, message: str, *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.rule = rule


class InDoubt(GertError):
    """A call may have happened; the operator must reconcile it."""


class OutputsMissing(InDoubt):
    """A call is reconciled as a success without its required outputs; `missing` lists them."""

    def __init__(self, message: str, *, missing: Sequence[object], hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.missing = missing


class RpcError(GertError, RuntimeError):
    """A JSON-RPC call failed."""


class RpcFault(RpcError):
    """The peer answered with an error, or a handler answers with one."""

    def __init__(self, message: str, *, code: int = -32000, data: object = None, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.code = code
        self.data = data


class RpcTimeout(RpcError, TimeoutError):
    """No answer came in time."""


class RpcLost(RpcError, ConnectionError):
    """The connection to the peer ended, or was never made.

    sent: the peer may have received the call
    by_exit: the process ended, and did not violate the protocol
    """

    def __init__(self, message: str, *, sent: bool = True, by_exit: bool = False, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.sent = sent
        self.by_exit = by_exit


class AgentError(GertError, RuntimeError):
    """A durable agent run cannot do what was requested."""


class RunError(AgentError, ValueError):
    """A run cannot be used as asked, for example because it belongs to another tenant."""


class RunExists(RunError):
    """A run with this id already exists."""


class RunNotFound(RunError, KeyError):
    """There is no run with this id."""


class RunBlocked(AgentError):
    """A run is paused or blocked, and runs no steps; `blocked_on` names what it waits for."""

    def __init__(self, message: str, *, blocked_on: str | None = None, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.blocked_on = blocked_on


class LeaseLost(AgentError):
    """Another worker has or had the lease of the run."""


class ReplayConsistencyError(AgentError):
    """A request differs from the recorded one; `drift_fields` and `tools` say how."""

    def __init__(
        self, message: str, *, drift_fields: tuple[str, ...] = (), tools: tuple[str, ...] = (), hint: str | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.drift_fields = drift_fields
        self.tools = tools


class CapabilityDeniedError(AgentError, PermissionError):
    """A tenant may not use a tool."""


class PolicyViolationError(AgentError):
    """A safety rule refuses a tool call."""

    def __init__(self, *, code: str, message: str, tool_name: str, fingerprint: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.tool_name = tool_name
        self.fingerprint = fingerprint


class ApprovalRequiredError(AgentError):
    """A tool call waits for an approval.

    run_id: the run that waits: that of the agent, of a sub-agent or of a runbook
    ticket_id: the ticket of a runbook's run, where the tool is a runbook
    """

    def __init__(
        self,
        *,
        tool_name: str,
        approval_key: str,
        mode: str,
        message: str,
        critic_model: str | None = None,
        fingerprint: str | None = None,
        arguments_json: str | None = None,
        run_id: str | None = None,
        ticket_id: str | None = None,
    ) -> None:
        super().__init__(message)
        self.run_id = run_id
        self.ticket_id = ticket_id
        self.tool_name = tool_name
        self.approval_key = approval_key
        self.mode = mode
        self.critic_model = critic_model
        self.fingerprint = fingerprint
        self.arguments_json = arguments_json


class BudgetExceededError(AgentError):
    """A tenant's budget is spent."""


class ToolExecutionFailedError(AgentError):
    """A tool step failed; `outcome` says how; if `in_doubt`, it must be reconciled before the run continues."""

    def __init__(self, message: str, *, outcome: str = "permanent_error", hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.outcome = outcome

    @property
    def in_doubt(self) -> bool:
        """Whether the call may have happened."""
        return self.outcome == "unknown_outcome"


class ToolNotFound(ToolExecutionFailedError, KeyError):
    """There is no tool with this name."""


class HarnessStateError(AgentError):
    """A harness cannot continue from its saved state."""


class TaskProgressValidationError(HarnessStateError):
    """The tasks of a harness may not change in this way."""


class MaxIterationsExceeded(AgentError):
    """An agent has no accepted answer after its last turn."""


class AgentRunFailed(AgentError):
    """The run of a sub-agent failed."""

    def __init__(self, *, status: str, message: str) -> None:
        super().__init__(message)
        self.status = status


class ToolError(GertError, RuntimeError):
    """Raised by a tool about its own call."""


class ToolTransientError(ToolError):
    """The call did not happen; a retry may succeed."""


class ToolPermanentError(ToolError):
    """The call did not happen; a retry will not succeed."""


class ToolUnknownOutcomeError(ToolError):
    """The call may have happened."""


class ToolSuspended(ToolError):
    """Raised by a resumable tool whose call has not ended: the same step continues it.

    reason: why; the caller of the step gets this exception
    """

    def __init__(self, reason: Exception) -> None:
        super().__init__(f"the call is suspended: {reason}")
        self.reason = reason


class ModelError(GertError, RuntimeError):
    """Raised by a model or its transport.

    status: the HTTP status, where there was one
    usage: what was used and paid for an unusable answer; a `ModelUsage`, if the vendor reported it
    """

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        category: str = "",
        retry_after: float | None = None,
        usage: object | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.status = status
        self.category = category
        self.retry_after = retry_after
        self.usage = usage


class ModelTimeoutError(ModelError):
    """No answer came in time."""


class ModelTransientError(ModelError):
    """The model failed; a retry may succeed."""


class ModelPermanentError(ModelError):
    """The model failed; a retry will not succeed."""


# --- exit codes


class Exit(IntEnum):
    """The exit codes of every command (DECISIONS 46)."""

    DONE = 0
    REFUSED = 1
    """A check said no: a document is invalid, a scenario failed, a record does not verify."""
    USAGE = 2
    NOT_COMPLETED = 3
    """A run failed, was denied, or waits for the operator to decide."""
    ENGINE = 4
    INTERRUPTED = 130
    READER_GONE = 141
    """As if by SIGPIPE."""


EXIT_MEANINGS: Final[Mapping[Exit, str]] = {
    Exit.DONE: "done, or waiting for approval",
    Exit.REFUSED: "a check failed",
    Exit.USAGE: "usage error",
    Exit.NOT_COMPLETED: "run failed, denied or in doubt",
    Exit.ENGINE: "engine error",
    Exit.INTERRUPTED: "interrupted",
}
"""What help pages say of each."""

_EXITS: Final[Mapping[type[GertError], Exit]] = {
    UsageError: Exit.USAGE,
    InputError: Exit.USAGE,
    DocumentError: Exit.REFUSED,
    IntegrityError: Exit.REFUSED,
    Refused: Exit.REFUSED,
    InDoubt: Exit.NOT_COMPLETED,
    Busy: Exit.USAGE,
}


def exit_of(problem: GertError) -> Exit:
    """The exit code of a command that fails with this error."""
    return next((code for kind, code in _EXITS.items() if isinstance(problem, kind)), Exit.ENGINE)


_CODES: Final[Mapping[type[GertError], str]] = {
    UsageError: "usage",
    InputError: "invalid_inputs",
    DocumentError: "invalid_document",
    IntegrityError: "integrity",
    Refused: "refused",
    InDoubt: "in_doubt",
    Busy: "busy",
    Unavailable: "unavailable",
    TraceError: "ledger",
}


def code_of(problem: GertError) -> str:
    """The name of an error for programs."""
    return next((code for kind, code in _CODES.items() if isinstance(problem, kind)), "engine")
