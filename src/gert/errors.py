"""Every deliberate exception of gert, drawn as a tree.

    GertError
    ├── UsageError              the command was called wrongly
    ├── DocumentError           a file cannot be read as the document it should be
    ├── TemplateError           a `{{ }}` template
    │   ├── TemplateSyntaxError     does not parse
    │   └── TemplateEvalError       parses, and fails or exceeds its budget when evaluated
    ├── PatternError            a regular expression that does not compile
    ├── InputError              a value is missing or does not fit what was declared
    ├── CanonicalError          a value that has no canonical JSON form
    ├── TraceError              a line that cannot be written or read as an event
    │   ├── Busy                    another process writes the record
    │   └── Unavailable             the server that keeps the record cannot be asked
    ├── IntegrityError          a chain, seal or signature does not hold
    ├── InDoubt                 a call may have happened, and only the operator can say
    │   └── OutputsMissing          it succeeded, and outputs it must have are not given
    ├── AgentError              a durable agent run
    │   ├── RunError                the run cannot be used, for example because it belongs to another tenant
    │   │   ├── RunExists               it has begun already
    │   │   └── RunNotFound             there is no such run
    │   ├── RunBlocked              the run is paused or blocked
    │   ├── LeaseLost               another worker holds the run
    │   ├── ReplayConsistencyError  what is asked now is not what was recorded
    │   ├── CapabilityDeniedError   the tenant may not use a tool
    │   ├── PolicyViolationError    a safety rule refuses a tool call; `code` says which
    │   ├── ApprovalRequiredError   a tool call waits for an approval
    │   ├── BudgetExceededError     the tenant has spent what it may
    │   ├── ToolExecutionFailedError    a tool step did not succeed; `outcome` says how
    │   │   └── ToolNotFound            there is no such tool
    │   └── HarnessStateError       a harness was left in a state it cannot go on from
    ├── ToolError               said by a tool
    │   ├── ToolTransientError      it did not happen, and may if it is tried again
    │   ├── ToolPermanentError      it did not happen, and will not
    │   └── ToolUnknownOutcomeError     it may have happened
    └── ModelError              said by a model or on the way to it
        ├── ModelTimeoutError       no answer in time
        ├── ModelTransientError     it may answer if it is asked again
        └── ModelPermanentError     it will not answer this

Errors of callers are also what Python callers expect: `UsageError`, `InputError`, `CanonicalError` and `RunError` are
`ValueError`s, and `RunNotFound` and `ToolNotFound` are `KeyError`s.

Messages are lower case, one line, without a final period; the user's words stand in backticks.
"""

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Final


class GertError(Exception):
    """A failure gert foresaw; `hint` says what to do about it."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return self.message  # a `KeyError` would quote it


class UsageError(GertError, ValueError):
    """The command was called wrongly."""


class DocumentError(GertError):
    """A file cannot be read as the document it should be."""


class TemplateError(GertError):
    """A template is wrong; `offset` is the character in its source where."""

    def __init__(self, message: str, *, offset: int = 0, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.offset = offset


class TemplateSyntaxError(TemplateError):
    """A template does not parse."""


class TemplateEvalError(TemplateError):
    """A template parsed, and failed or exceeded its budget when evaluated."""


class PatternError(GertError):
    """A regular expression does not compile."""


class InputError(GertError, ValueError):
    """A value is missing or does not fit what was declared."""


class CanonicalError(GertError, ValueError):
    """A value has no canonical JSON form."""


class TraceError(GertError):
    """A line cannot be written or read as an event."""


class Busy(TraceError):
    """Another process writes the record."""


class Unavailable(TraceError):
    """The server that keeps the record cannot be asked, which says nothing about the record."""


class Forbidden(Unavailable):
    """The database role of this process has no right to do that."""


class IntegrityError(GertError):
    """A chain, seal or signature does not hold."""


class InDoubt(GertError):
    """A call may have happened, and only the operator can say."""


class OutputsMissing(InDoubt):
    """A call is reconciled as a success, and outputs it must have are not given; `missing` says which."""

    def __init__(self, message: str, *, missing: Sequence[object], hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.missing = missing


class AgentError(GertError, RuntimeError):
    """A durable agent run cannot do what was asked."""


class RunError(AgentError, ValueError):
    """A run cannot be used as asked, for example because it belongs to another tenant."""


class RunExists(RunError):
    """A run of this id has begun already."""


class RunNotFound(RunError, KeyError):
    """There is no run of this id."""


class RunBlocked(AgentError):
    """A run is paused or blocked, and takes no steps; `blocked_on` names what it waits for."""

    def __init__(self, message: str, *, blocked_on: str | None = None, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.blocked_on = blocked_on


class LeaseLost(AgentError):
    """Another worker holds the run, or held it since."""


class ReplayConsistencyError(AgentError):
    """What is asked now is not what was recorded; `drift_fields` and `tools` say what differs."""

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
    """A tool call waits for an approval."""

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
    ) -> None:
        super().__init__(message)
        self.tool_name = tool_name
        self.approval_key = approval_key
        self.mode = mode
        self.critic_model = critic_model
        self.fingerprint = fingerprint
        self.arguments_json = arguments_json


class BudgetExceededError(AgentError):
    """A tenant has spent what it may."""


class ToolExecutionFailedError(AgentError):
    """A tool step did not succeed; `outcome` says how, and `in_doubt` that only reconciling can go on."""

    def __init__(self, message: str, *, outcome: str = "permanent_error", hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.outcome = outcome

    @property
    def in_doubt(self) -> bool:
        """Whether the call may have happened."""
        return self.outcome == "unknown_outcome"


class ToolNotFound(ToolExecutionFailedError, KeyError):
    """There is no tool of this name."""


class HarnessStateError(AgentError):
    """A harness was left in a state it cannot go on from."""


class ToolError(GertError, RuntimeError):
    """Said by a tool about its own call."""


class ToolTransientError(ToolError):
    """The call did not happen, and may if it is tried again."""


class ToolPermanentError(ToolError):
    """The call did not happen, and will not."""


class ToolUnknownOutcomeError(ToolError):
    """The call may have happened."""


class ModelError(GertError, RuntimeError):
    """Said by a model or on the way to it.

    status: the HTTP status, where there was one
    usage: what was used and paid for an answer nobody can use; a `ModelUsage`, where the vendor told it
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
    """It may answer if it is asked again."""


class ModelPermanentError(ModelError):
    """It will not answer this."""


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


_EXITS: Final[Mapping[type[GertError], Exit]] = {
    UsageError: Exit.USAGE,
    InputError: Exit.USAGE,
    DocumentError: Exit.REFUSED,
    IntegrityError: Exit.REFUSED,
    InDoubt: Exit.NOT_COMPLETED,
    Busy: Exit.USAGE,
}


def exit_of(problem: GertError) -> Exit:
    """The exit code of a command that fails with this error."""
    return next((code for kind, code in _EXITS.items() if isinstance(problem, kind)), Exit.ENGINE)
