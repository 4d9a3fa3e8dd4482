"""The policy test document, `policy-test/v0`: contracts, and what policies are expected to decide about them."""

from typing import Any, Final

from gert.kernel.events.vocabulary import OUTCOME_CATEGORIES
from gert.kernel.runbook.documents.contract import ContractBlock
from gert.kernel.runbook.documents.governance import RISK, VERDICTS
from gert.kernel.runbook.documents.policy import GROUPS
from gert.kernel.runbook.kinds import (
    BOOL,
    EXTENSIONS,
    NAME_WORD,
    NONEMPTY,
    TEXT,
    TEXTS,
    TIMEOUT,
    Int,
    ListOf,
    MapOf,
    Nested,
    Text,
    words,
)
from gert.kernel.runbook.model import Model, optional, required

API_VERSION: Final = "policy-test/v0"
FILE_SUFFIXES: Final = (".policy-test.yaml", ".policy-test.yml")
"""How such files are called: beside a policy in its folder, this name keeps a test from being taken for one."""

NO_RULE: Final = "none"
"""What `rule` says where no rule is expected to match."""

# Unlike in a rule, an empty list says something: nobody is named.
_PEOPLE: Final = ListOf(Text("a person or `group:` name", minLength=1), uniqueItems=True)


class ExpectedDecisionBlock(Model):
    """What governance is expected to say, in the words of `gert explain --json`; what is left out may be anything."""

    decision: str | None = optional(words(*VERDICTS), "the verdict")
    risk: str | None = optional(RISK, "derived risk level")
    rule: str | None = optional(NONEMPTY, "a rule that made the verdict, by name or number; `none` where none matches")
    policy: str | None = optional(NAME_WORD, "the policy that rule is of")
    min_approvers: int | None = optional(Int(minimum=0, maximum=100), "how many different people must approve")
    approvers: tuple[str, ...] | None = optional(_PEOPLE, "who may approve, as all policies list them; `[]` is anybody")
    separation_of_duties: bool | None = optional(BOOL, "whether the person who started the run is barred")
    require_signed_approvals: bool | None = optional(BOOL, "whether only signed approvals count")
    approval_timeout: str | None = optional(TIMEOUT, "how long the request stays open")
    on_timeout: str | None = optional(words("reject", "escalate"), "what happens when nobody answers in time")
    escalate_to: tuple[str, ...] | None = optional(_PEOPLE, "who is asked then")
    notify: tuple[str, ...] | None = optional(_PEOPLE, "who hears of it")
    break_glass: bool | None = optional(BOOL, "whether an emergency override is open")
    violations_deny: bool | None = optional(BOOL, "whether a contract violation is an error of the step")
    max_targets: int | None = optional(Int(minimum=1), "most targets one step may touch")
    max_per_hour: int | None = optional(Int(minimum=1), "most executions in an hour")
    serialize: bool | None = optional(BOOL, "whether matching steps run one at a time")
    reasons: tuple[str, ...] = optional(TEXTS, "words each of which one of the reasons contains", default=())


class PolicyCaseBlock(Model):
    """One contract, and what is to be decided about it."""

    name: str = required(NONEMPTY, "what is tested, in words")
    contract: ContractBlock | None = optional(
        Nested(ContractBlock), "the contract; with `tool`, what a step adds to that of the tool"
    )
    tool: str | None = optional(NONEMPTY, "a tool file whose contract is judged; relative to this file")
    action: str | None = optional(NONEMPTY, "its action; may be left out where there is only one")
    outcome: str | None = optional(
        words(*OUTCOME_CATEGORIES), "the category of an `end` that is judged, instead of a contract"
    )
    targets: int = optional(Int(minimum=1), "how many targets the step touches, for `max_targets`", default=1)
    requested_by: str | None = optional(NONEMPTY, "who started the run")
    expect: ExpectedDecisionBlock | None = optional(Nested(ExpectedDecisionBlock), "what governance must say")
    may_approve: dict[str, bool] = optional(MapOf(BOOL), "whether a person may approve, by name", default={})


class PolicyTest(Model):
    """Cases that hold policies to what they are meant to decide."""

    api_version: str = required(words(API_VERSION), "version of the policy test format", key="apiVersion")
    description: str | None = optional(TEXT, "what is tested")
    policies: tuple[str, ...] = optional(
        TEXTS, "policy files and folders under test, relative to this file; a call may name more", default=()
    )
    groups: dict[str, tuple[str, ...]] = optional(
        GROUPS, "people by group, as the configuration would have them", default={}
    )
    cases: tuple[PolicyCaseBlock, ...] = required(ListOf(Nested(PolicyCaseBlock), minItems=1), "what is tested")
    extensions: dict[str, Any] = optional(EXTENSIONS, "free metadata", default={})
