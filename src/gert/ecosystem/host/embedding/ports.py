"""What a Python program can bring to a run, as protocols, and the data that they exchange (kernel-api).

Every method may be `async` or plain. An `async` method is cancelled with its run. A plain one is called on a thread of
its own and cannot be cancelled: gert stops waiting, and drops what it returns later.

A part answers; it does not decide. Policies are evaluated before a tool is called, rules of the kernel decide whether a
response counts, and answers are redacted and bounded before the run sees them.
"""

from collections.abc import Awaitable, Mapping
from typing import Any, Final, Protocol

import msgspec
from msgspec import field
from msgspec.structs import replace

from gert.errors import InputError
from gert.kernel.engine.inputs import InputBinding
from gert.kernel.governance.approval import ApprovalRequest, Response
from gert.kernel.governance.approval_rules import signed_message
from gert.kernel.governance.contract import Contract
from gert.kernel.runbook.command import CommandLine
from gert.kernel.runbook.documents.tool import Tool


class ApprovalTicket(msgspec.Struct, frozen=True, kw_only=True):
    """An open approval request.

    A provider that submits a request needs to set only `ticket_id`; gert adds the rest before it waits.

    created, expires: the time in which a response counts, as RFC 3339 text
    """

    ticket_id: str
    status: str = "pending"
    created: str | None = None
    expires: str | None = None
    request: ApprovalRequest | None = None


class ApprovalResponse(msgspec.Struct, frozen=True, kw_only=True):
    """What one approver responded (ecosystem-v0 §6.4).

    ticket_id: the ticket it responds to; a response to another ticket does not count
    timestamp: when the approver responded, as RFC 3339 text (default: now); a signature covers it
    """

    approved: bool
    approver_id: str
    ticket_id: str = ""
    timestamp: str | None = None
    reason: str | None = None
    signature: str | None = None
    signature_alg: str | None = None
    key_id: str | None = None

    def message_for(self, ticket: ApprovalTicket) -> bytes:
        """The bytes that the approver signs; `timestamp` has to be set, because they contain it."""
        if ticket.request is None or self.timestamp is None:
            raise InputError("a response is signed with its time, for a ticket with its request")
        said = Response(approver=self.approver_id, approved=self.approved, timestamp=self.timestamp)
        return signed_message(ticket.ticket_id, said, ticket.request.request_hash)

    def signed(self, signature: str, signature_alg: str, key_id: str | None = None) -> "ApprovalResponse":
        """The response with a signature."""
        return replace(self, signature=signature, signature_alg=signature_alg, key_id=key_id)


class SignedResponse(msgspec.Struct, frozen=True, kw_only=True):
    """A response with the bytes that its signature must cover: they bind it to one ticket and one request."""

    message: bytes
    signature: str
    signature_alg: str | None
    key_id: str | None
    approver_id: str
    approved: bool


class ToolCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call of a tool that governance has allowed.

    key: the same whenever the same run makes the same call, so that it can serve as an idempotency key
    inputs: the values of the step's inputs; secret inputs have their values
    command: the command line of an action with `argv`, rendered; it may hold secrets
    timeout: seconds after which the call is cancelled
    definition: the tool file
    """

    run_id: str
    step_id: str
    path: str
    key: str
    tool: str
    action: str
    inputs: dict[str, Any]
    contract: Contract
    command: CommandLine | None = None
    timeout: float | None = None
    definition: Tool

    def __repr__(self) -> str:
        return f"ToolCall({self.tool}:{self.action} of {self.path} in {self.run_id})"


class ToolResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a tool call.

    outputs: the outputs by name; left out, they are extracted from `stdout`, `stderr` and `exit_code` as the tool file
        declares
    error: why the tool failed; the step then fails
    """

    outputs: Mapping[str, Any] | None = None
    exit_code: int | None = None
    stdout: str = ""
    stderr: str = ""
    error: str | None = None


class ApprovalProvider(Protocol):
    """Asks people for approval (kernel-api, ApprovalProvider)."""

    def submit(self, request: ApprovalRequest) -> ApprovalTicket | Awaitable[ApprovalTicket]:
        """Tell people about a request, and return its ticket at once."""

    def wait(self, ticket: ApprovalTicket) -> ApprovalResponse | Awaitable[ApprovalResponse]:
        """Wait for the next response to a ticket.

        Called again until enough responses count, and in another process after a resume. Raise `StillOpen` to set the
        run aside in place of waiting.
        """


class InputResolver(Protocol):
    """Finds the values of inputs (kernel-api, InputResolver)."""

    def resolve(self, binding: InputBinding) -> Any | Awaitable[Any]:
        """Return the value of an input; None if there is none, so that its default applies.

        Raise `InputError` if it cannot be found out: a default never hides a failure. Keep nothing between calls.
        """


class ToolExecutor(Protocol):
    """Calls tools (kernel-api, ToolExecutor)."""

    def execute(self, call: ToolCall) -> ToolResult | Mapping[str, Any] | Awaitable[ToolResult | Mapping[str, Any]]:
        """Make a call, and return its result, or only its outputs.

        Raise `ToolTransientError` or `ToolPermanentError` if the call was not made, and `ToolUnknownOutcomeError` if it
        may have been made.

        An executor may also have a method `preview(call)`, which shows on `stdout` what the call would do and changes
        nothing; it is called before an approval is requested, for actions with a `preview`.
        """


class SignatureVerifier(Protocol):
    """Verifies signatures on approval responses (ecosystem-v0 §6.4)."""

    def verify(self, response: SignedResponse) -> bool:
        """Whether the signature covers the message, by a key that speaks for the approver.

        Not `async`: it is called wherever a response is looked at, and must need no network.
        """


EVERY: Final = "*"
"""The key of the executor for every tool that has none of its own."""


class Parts(msgspec.Struct, frozen=True, kw_only=True):
    """The parts that a program brings to a run; what is left out is gert's own.

    approvals: asks people for approval, in place of the terminal or tickets
    inputs: resolvers of `provider/NAME.PATH`, by NAME; they come before configured providers
    prompt: resolves inputs bound to `prompt`, in place of the terminal
    tools: executors by the name of a tool, and under `*` for every other tool
    verifier: verifies signatures on approvals, in place of the keys of the environment
    """

    approvals: ApprovalProvider | None = None
    inputs: Mapping[str, InputResolver] = field(default_factory=dict)
    prompt: InputResolver | None = None
    tools: Mapping[str, ToolExecutor] = field(default_factory=dict)
    verifier: SignatureVerifier | None = None

    def executor_of(self, tool: str) -> ToolExecutor | None:
        """The executor of a tool, if there is one."""
        return self.tools.get(tool, self.tools.get(EVERY))
