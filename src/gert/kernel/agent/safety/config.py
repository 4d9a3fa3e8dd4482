"""The safety policy of tools as callers declare it. A policy that could not be enforced is refused when it is made."""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, Self

import msgspec
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, model_validator

from gert.kernel.agent.safety.semantic_key import check_template
from gert.kernel.agent.types.payloads import event_moment
from gert.kernel.governance.rules import DEFAULT_APPROVAL_TIMEOUT

RECIPIENT_VERIFICATION: Final = "policy::recipient_verification"

Name = Annotated[str, Field(min_length=1)]
Count = Annotated[int, Field(ge=0)]
Seconds = Annotated[int, Field(gt=0)]
Operator = Literal["eq", "ne", "gt", "gte", "lt", "lte", "in", "not_in"]
InvariantType = Literal[
    "required_arg_true",
    "email_domain_allowlist",
    "recipient_must_be_verified",
    "custom_json_rule",
    "ast_validation_passed",
    "linter_passed",
]
NEEDS: Final[Mapping[str, tuple[str, ...]]] = {
    "required_arg_true": ("field",),
    "email_domain_allowlist": ("field", "allowed_domains"),
    "recipient_must_be_verified": ("recipient_arg_path",),
    "custom_json_rule": ("json_path", "operator", "value_json"),
    "ast_validation_passed": ("field",),
    "linter_passed": ("field",),
}
"""The fields that each type of invariant needs."""


class _Policy(BaseModel):
    # An unknown key is a misspelled rule, which must not be ignored.
    model_config = ConfigDict(frozen=True, extra="forbid")


class IntentRequirement(_Policy):
    """A tool that is called only under an intent plan, which must not be older than `max_age_seconds`."""

    require_intent: bool = True
    max_age_seconds: Seconds | None = None


class SemanticIdempotencyRequirement(_Policy):
    """Calls that are the same if their arguments fill the template alike, such as `invoice:{tenant_id}:{month}`.

    template: `{path}` is an argument, `{tenant_id}` and `{tool_name}` those of the call
    required_fields: arguments that must be present and not empty
    """

    template: Name
    required_fields: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _is_unambiguous(self) -> Self:
        check_template(self.template)
        return self


class ToolLimitPolicy(_Policy):
    """How often a tool may be called, and with which amount."""

    max_calls_per_run: Count | None = None
    max_calls_per_tenant_window: Count | None = None
    tenant_window_seconds: Seconds | None = None
    max_amount_usd_per_call: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    amount_arg_path: Name | None = None

    @model_validator(mode="after")
    def _is_complete(self) -> Self:
        if (self.max_calls_per_tenant_window is None) != (self.tenant_window_seconds is None):
            raise ValueError("`max_calls_per_tenant_window` and `tenant_window_seconds` need each other")
        if self.max_amount_usd_per_call is not None and self.amount_arg_path is None:
            raise ValueError("`max_amount_usd_per_call` needs `amount_arg_path`")
        return self


class ApprovalGatePolicy(_Policy):
    """Who approves a call before it is made: people, or a model that reviews it.

    approval_ttl_seconds: how long an approval can be used after it was given
    reusable: an approval covers equal calls until it expires; otherwise one call
    min_approvers, approvers, separation_of_duties, require_signed_approvals, notify: as in the rules of runbooks;
        approvers are people and `group:` names
    timeout_seconds: how long a ticket stays open
    """

    mode: Literal["human", "critic"]
    critic_model: Name | None = None
    approval_ttl_seconds: Seconds | None = None
    reusable: bool = False
    min_approvers: Annotated[int, Field(ge=1)] = 1
    approvers: tuple[Name, ...] = ()
    separation_of_duties: bool = False
    require_signed_approvals: bool = False
    notify: tuple[Name, ...] = ()
    timeout_seconds: Seconds = int(DEFAULT_APPROVAL_TIMEOUT)

    @model_validator(mode="after")
    def _is_complete(self) -> Self:
        if self.mode == "critic" and self.critic_model is None:
            raise ValueError("a critic needs `critic_model`")
        return self

    @property
    def demands(self) -> dict[str, Any]:
        """What an approval must satisfy: an approval under other demands does not count."""
        names = ("min_approvers", "approvers", "separation_of_duties", "require_signed_approvals")
        return {name: msgspec.to_builtins(getattr(self, name)) for name in names}


class InvariantRule(_Policy):
    """A condition on the arguments of a call that is decided without asking anyone.

    field: the path of the argument; a list of addresses is checked one by one
    recipient_arg_path: the recipient, who needs a summary `verification_summary_type` in the run
    json_path, operator, value_json: the argument is compared with the JSON value
    """

    type: InvariantType
    field: Name | None = None
    allowed_domains: tuple[Name, ...] = ()
    recipient_arg_path: Name | None = None
    verification_summary_type: Name = RECIPIENT_VERIFICATION
    json_path: Name | None = None
    operator: Operator | None = None
    value_json: str | None = None

    @model_validator(mode="after")
    def _is_complete(self) -> Self:
        missing = [name for name in NEEDS[self.type] if not getattr(self, name)]
        if missing:
            raise ValueError(f"`{self.type}` needs {' and '.join(f'`{name}`' for name in missing)}")
        if self.value_json is not None:
            value = _json(self.value_json)
            if self.operator in ("in", "not_in") and not isinstance(value, list):
                raise ValueError(f"`{self.operator}` needs a JSON list in `value_json`")
        return self


class ToolSafetyPolicy(_Policy):
    """The safety policy of one tool."""

    intent: IntentRequirement | None = None
    semantic_idempotency: SemanticIdempotencyRequirement | None = None
    limits: ToolLimitPolicy | None = None
    approval: ApprovalGatePolicy | None = None
    invariants: tuple[InvariantRule, ...] = ()


class SafetyPolicyConfig(_Policy):
    """The safety policies of tools, by name. A tool without one is not restricted."""

    tools: dict[str, ToolSafetyPolicy] = Field(default_factory=dict)

    def policy_for(self, tool_name: str) -> ToolSafetyPolicy | None:
        """Return the policy of a tool."""
        return self.tools.get(tool_name)


class IntentPlanRecord(BaseModel):
    """What an agent is about to do, and why.

    applies_to_tools: the tools it covers; empty for all
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    intent_id: Name
    goal: str
    why: str
    success_criteria: str
    assumed_state: str
    applies_to_tools: tuple[str, ...] = ()
    created_at: AwareDatetime = Field(default_factory=event_moment)

    def covers(self, tool_name: str) -> bool:
        """Whether the plan is about a tool."""
        return not self.applies_to_tools or tool_name in self.applies_to_tools


def _json(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ValueError(f"`value_json` is not JSON: {error}") from None
