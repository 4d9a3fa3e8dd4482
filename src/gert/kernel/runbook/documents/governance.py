"""The `governance` block of a runbook or policy: rules and approval settings."""

from gert.kernel.events.vocabulary import OUTCOME_CATEGORIES
from gert.kernel.governance.risk import Risk
from gert.kernel.governance.verdict import Verdict
from gert.kernel.runbook.kinds import BOOL, NONEMPTY, TAGS, TIMEOUT, Choice, Int, ListOf, Nested, PersonText, words
from gert.kernel.runbook.model import Model, optional
from gert.kernel.runbook.tree import Seq

VERDICTS = Verdict.words()
RISK = words(*Risk.words())
APPROVERS = ListOf(PersonText("a person or `group:` name", minLength=1), minItems=1, uniqueItems=True)


class MatchBlock(Model):
    """Matchers on the contract of a step."""

    effects: tuple[str, ...] | None = optional(TAGS, "any of these effects is present")
    writes: tuple[str, ...] | None = optional(TAGS, "any of these resources is written")
    reads: tuple[str, ...] | None = optional(TAGS, "any of these resources is read")
    deterministic: bool | None = optional(BOOL, "whether the contract is deterministic")
    idempotent: bool | None = optional(BOOL, "whether the contract is idempotent")


class LimitsBlock(Model):
    """A circuit breaker: above a limit the verdict is deny."""

    max_targets: int | None = optional(Int(minimum=1), "most targets one step may touch")
    max_per_hour: int | None = optional(Int(minimum=1), "most executions in an hour, over the ledger")


class RuleBlock(MatchBlock):
    """One governance rule: all its matchers must hold, the first rule that matches decides."""

    name: str | None = optional(NONEMPTY, "a name for the rule, shown with its decisions")
    risk: tuple[str, ...] | str | None = optional(
        Choice("a risk level or a list of them", {str: RISK, Seq: ListOf(RISK, minItems=1)}),
        "derived risk level",
    )
    outcome: tuple[str, ...] | None = optional(
        ListOf(words(*OUTCOME_CATEGORIES), minItems=1, uniqueItems=True),
        "categories of outcomes: the rule applies to `end` steps only",
    )
    contract: MatchBlock | None = optional(Nested(MatchBlock), "further matchers on the contract")
    default: str | None = optional(words(*VERDICTS), "verdict for every step no earlier rule matched")
    action: str | None = optional(words(*VERDICTS), "verdict for a step that matches")
    min_approvers: int | None = optional(Int(minimum=1, maximum=100), "how many different people must approve")
    contract_violations: str | None = optional(words("deny"), "`deny` makes any contract violation a step error")
    approvers: tuple[str, ...] | None = optional(APPROVERS, "who may approve: people and `group:` names")
    separation_of_duties: bool | None = optional(BOOL, "the person who started the run may not approve")
    notify: tuple[str, ...] | None = optional(APPROVERS, "who is notified that an approval is waiting")
    on_timeout: str | None = optional(words("reject", "escalate"), "what happens when no approver responds in time")
    escalate_to: tuple[str, ...] | None = optional(APPROVERS, "who is asked when `on_timeout` is `escalate`")
    limits: LimitsBlock | None = optional(Nested(LimitsBlock), "a circuit breaker")
    break_glass: bool | None = optional(BOOL, "allow an emergency override, with a recorded reason")
    serialize: bool | None = optional(BOOL, "run matching steps of lanes and parallel loops one at a time")


class GovernanceBlock(Model):
    """Rules that decide whether a step may run, and approval settings."""

    rules: tuple[RuleBlock, ...] = optional(ListOf(Nested(RuleBlock)), "rules, the first match decides", default=())
    approval_timeout: str | None = optional(TIMEOUT, "how long an approval may take (default: `30m`)")
    require_signed_approvals: bool = optional(BOOL, "count only approvals with a valid signature", default=False)
    require_verified_approval: bool = optional(BOOL, "another name for `require_signed_approvals`", default=False)
    separation_of_duties: bool = optional(
        BOOL, "for every rule: the person who started the run may not approve", default=False
    )
