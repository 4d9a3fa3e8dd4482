"""An approval request and the responses to it: the same for a step of a runbook and for a tool call of an agent."""

import re
from typing import Any, Final, Literal

import msgspec
from msgspec import field

from gert.kernel.foundation.canonical import canonical, sha256_hex
from gert.kernel.foundation.names import MAX_NAME
from gert.kernel.foundation.secret_refs import masked
from gert.kernel.foundation.text import path_text

_HEX: Final = 12
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9._-]+")


class ApprovalRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What an approver must know: the call, its risk, and the rule that requires approval.

    path: the step's path in the run, which distinguishes loop items and lanes
    request_hash: binds a response to the exact call (`gert.kernel.governance.approval_rules.hash_of`)
    approvers, admitted: lists of who may approve, as declared by the policy and with groups resolved
    tool_digest, command: the tool file, and the command or call that would be made, without the values of secrets
    hidden: inputs that are not shown, and what marks them secret: `runbook` or `tool`
    secrets: an HMAC of each hidden input under a key of the run
    program, folder, host: where the program was found and would run, and on which host
    preview, preview_command, preview_skipped: what the preview printed, its command, and why it was not run
    plan: the plan that a runner would execute, for a step that calls a skill
    run_kind: what kind of run asks; `runbook` names the agent where it is not a runbook
    """

    run_id: str
    runbook: str
    step_id: str
    title: str | None
    risk_level: str
    rule: str | None
    contract: dict[str, Any]
    target: str
    inputs: dict[str, Any]
    request_hash: str
    min_approvers: int
    approvers: tuple[tuple[str, ...], ...]
    admitted: tuple[tuple[str, ...], ...]
    separation_of_duties: bool
    require_signed_approvals: bool
    requested_by: str | None
    approval_timeout: float
    notify: tuple[str, ...] = ()
    preview: str | None = None
    runbook_hash: str = ""
    extensions: dict[str, Any] = field(default_factory=dict)
    step_type: str = "tool"
    description: str | None = None
    tool_digest: str | None = None
    command: dict[str, Any] | None = None
    hidden: dict[str, str] = field(default_factory=dict)
    secrets: dict[str, str] = field(default_factory=dict)
    program: str | None = None
    folder: str | None = None
    host: str | None = None
    preview_command: tuple[str, ...] = ()
    preview_skipped: str | None = None
    path: str = ""
    run_kind: Literal["runbook", "agent", "runner"] = "runbook"
    plan: dict[str, Any] | None = None

    @property
    def origin(self) -> str:
        """What asks, by name: a runbook, or the tenant of an agent."""
        return self.runbook.partition(":")[2] if self.run_kind != "runbook" else self.runbook

    @property
    def place(self) -> str:
        """The name of the step for people: its path."""
        return path_text(self.path) if self.path else self.step_id


class Response(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One approver's response to an approval request.

    ticket_id, request_hash: the request it responds to, if the response names it
    verified: its signature was checked and is valid
    flaw: why its signature is invalid
    unfit: why it is no response at all
    scripted: it comes from a scenario, so it cannot be signed
    received_at: when the ledger received it, by the ledger's clock; it decides about the timeout
    message_id: the message of the inbox it came in
    method: how it was given, where the provider knows better than when it gave the ticket
    """

    approver: str
    approved: bool
    timestamp: str
    reason: str | None = None
    ticket_id: str = ""
    request_hash: str = ""
    signature: str | None = None
    signature_alg: str | None = None
    key_id: str | None = None
    verified: bool = False
    flaw: str | None = None
    unfit: str | None = None
    scripted: bool = False
    received_at: str | None = None
    message_id: int | None = None
    method: str | None = None


def as_recorded(request: ApprovalRequest) -> dict[str, Any]:
    """The request as plain data without secrets: what approvers see, and what the hash can be computed from.

    The id of the run is that of the event.
    """
    # Through JSON, so that it is read back as it was written.
    plain: dict[str, Any] = masked(msgspec.json.decode(msgspec.json.encode(request, enc_hook=str)))
    del plain["run_id"]
    if plain["run_kind"] == "runbook":
        del plain["run_kind"]
    if plain["plan"] is None:
        del plain["plan"]
    return plain


def ticket_id_for(run_id: str, key: str) -> str:
    """Return the id of the ticket for a request: the same whenever the run asks it, so no approver is asked twice."""
    mark = sha256_hex(canonical({"run_id": run_id, "question": key}))[:_HEX]
    return f"{ticket_prefix(run_id)}-{mark}"


def ticket_prefix(run_id: str) -> str:
    """Return what the ids of a run's tickets begin with: of a long id, as much as leaves room.

    Ticket ids are names of files; the ids of agent runs need not be.
    """
    return _UNSAFE.sub("-", run_id[: MAX_NAME - _HEX - 1])
