"""What gert says of policies: their rules, their tests, and what they decide."""

from typing import NotRequired, TypedDict

from gert.ecosystem.host.shapes.documents import (
    FREE,
    ConsideredPolicy,
    ContractSummary,
    Counted,
    CoveredPart,
    DecisionDocument,
    Finding,
    MissedExpectation,
)


class JudgedDecision(DecisionDocument):
    """What the policies of a test decided."""

    risk: str
    reasons: list[str]


class PolicyTestRow(TypedDict):
    """The result of one case of a policy test."""

    file: str
    line: int
    case: str
    verdict: str
    seconds: float
    description: str | None
    status: str | None
    differences: list[MissedExpectation]
    message: str | None
    hint: str | None
    notes: list[str]
    updates: FREE
    found: NotRequired[JudgedDecision]


class PolicyCoverage(TypedDict):
    """The coverage of a policy by its tests."""

    policy: str
    file: str
    complete: bool
    rules: CoveredPart


class PolicyTestReport(Counted):
    """The results of policy tests."""

    tests: list[PolicyTestRow]
    coverage: NotRequired[list[PolicyCoverage]]


class RuleRow(TypedDict):
    """A rule of a policy, in words.

    never_reached: why it never decides
    """

    number: int
    name: str | None
    matches: str
    decision: str | None
    words: list[str]
    never_reached: str | None


class PolicyDocument(TypedDict):
    """A policy, rule by rule."""

    policy: str
    file: str
    digest: str
    description: str | None
    approval_timeout: float
    require_signed_approvals: bool
    separation_of_duties: bool
    violations_deny: bool
    groups: dict[str, list[str]]
    rules: list[RuleRow]
    otherwise: str
    warnings: list[Finding]


class RulingDocument(DecisionDocument):
    """What policies decide about a contract.

    won_by: the policies that decided
    considered_of_tool: for the contract of the tool, where it differs
    """

    subject: str
    contract: ContractSummary
    risk: str
    risk_reason: str
    won_by: list[str]
    considered: list[ConsideredPolicy]
    considered_of_tool: NotRequired[list[ConsideredPolicy]]


class ExplainedPolicies(TypedDict):
    """Policies, and what they decide."""

    policies: list[PolicyDocument]
    decisions: NotRequired[list[RulingDocument]]
