"""The policy test document, `policy-test/v0`: contracts, and the decisions expected from policies."""

from typing import Any, Final

from gert.kernel.events.vocabulary import OUTCOME_CATEGORIES
from gert.kernel.runbook.documents.contract import ContractBlock
from gert.kernel.runbook.documents.expectations import DecisionBlock
from gert.kernel.runbook.documents.governance import RISK
from gert.kernel.runbook.documents.policy import GROUPS
from gert.kernel.runbook.kinds import (
    BOOL,
    EXTENSIONS,
    NAME_WORD,
    NONEMPTY,
    TEXT,
    TEXTS,
    Int,
    ListOf,
    MapOf,
    Nested,
    words,
)
from gert.kernel.runbook.model import Model, optional, required

API_VERSION: Final = "policy-test/v0"
FILE_SUFFIXES: Final = (".policy-test.yaml", ".policy-test.yml")
"""The suffix of policy tests, which distinguishes them from policies in the same folder."""

NO_RULE: Final = "none"
"""The value of `rule` if no rule is expected to match."""


class ExpectedDecisionBlock(DecisionBlock):
    """The expected decision, with the keys of `gert explain --json`; omitted keys are not checked."""

    risk: str | None = optional(RISK, "derived risk level")
    rule: str | None = optional(NONEMPTY, "a rule that made the verdict, by name or number; `none` if none matches")
    policy: str | None = optional(NAME_WORD, "the policy of that rule")
    reasons: tuple[str, ...] = optional(TEXTS, "texts, each contained in one of the reasons", default=())


class PolicyCaseBlock(Model):
    """One contract, and the decision expected about it."""

    name: str = required(NONEMPTY, "what is tested, in words")
    contract: ContractBlock | None = optional(
        Nested(ContractBlock), "the contract; with `tool`, what a step adds to that of the tool"
    )
    tool: str | None = optional(NONEMPTY, "a tool file whose contract is decided on; relative to this file")
    action: str | None = optional(NONEMPTY, "its action; optional if there is only one")
    outcome: str | None = optional(
        words(*OUTCOME_CATEGORIES), "the outcome category of an `end` step, instead of a contract"
    )
    targets: int = optional(Int(minimum=1), "how many targets the step touches, for `max_targets`", default=1)
    requested_by: str | None = optional(NONEMPTY, "who started the run")
    expect: ExpectedDecisionBlock | None = optional(Nested(ExpectedDecisionBlock), "the expected decision")
    may_approve: dict[str, bool] = optional(MapOf(BOOL), "whether a person may approve, by name", default={})


class PolicyTest(Model):
    """Test cases for policies."""

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
