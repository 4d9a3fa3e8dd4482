"""Policy tests: every case has a subject and an expectation without contradictions."""

from collections.abc import Iterator
from typing import Final

from gert.kernel.foundation.text import shorten
from gert.kernel.runbook.documents.policy_test import NO_RULE, ExpectedDecisionBlock, PolicyCaseBlock, PolicyTest
from gert.kernel.runbook.finding import Finding, error, warning
from gert.kernel.runbook.validate.domain.contracts import contract_limits, deprecated_keys
from gert.kernel.runbook.validate.domain.governance import APPROVAL_ONLY, flat_groups

# Fields of a decision that requires approval; separation of duties may also apply to a whole policy.
APPROVAL_FIELDS: Final = tuple(name for name in APPROVAL_ONLY if name != "separation_of_duties")


def policy_test_file(test: PolicyTest) -> Iterator[Finding]:
    """D40: groups list people. D63: cases are complete. D64: their expectations can be met."""
    yield from flat_groups(test.groups)
    seen: dict[str, int] = {}
    for number, case in enumerate(test.cases, 1):
        if case.name in seen:
            message = f"case {seen[case.name]} is also named `{shorten(case.name)}`"
            yield error("D63", case.at("name"), message)
        seen.setdefault(case.name, number)
        yield from _check_subject(case)
        yield from _check_expectation(case)


def _check_subject(case: PolicyCaseBlock) -> Iterator[Finding]:
    if case.outcome is not None and (case.contract is not None or case.tool is not None):
        yield error("D63", case.at("outcome"), "an `end` has no contract and no tool", "use a separate case for each")
    if case.contract is None and case.tool is None and case.outcome is None:
        hint = "set `contract`, `tool` and `action`, or `outcome`; `contract: {}` declares nothing"
        yield error("D63", case.path, "the case has no `contract`, `tool` or `outcome`", hint)
    if case.action is not None and case.tool is None:
        yield error("D63", case.at("action"), "`action` needs a `tool`")
    if case.contract is not None:
        yield from deprecated_keys(case.contract, both_is_error=case.tool is None)
        yield from contract_limits(case.contract)


def _check_expectation(case: PolicyCaseBlock) -> Iterator[Finding]:
    expect = case.expect
    said = [name for name in expect.fields if getattr(expect, name) not in (None, ())] if expect is not None else []
    # An empty list means that no one is listed; an empty list of reasons means nothing.
    said += [name for name in ("approvers", "escalate_to", "notify") if expect and getattr(expect, name) == ()]
    if not said and not case.may_approve:
        yield warning("D64", case.path, "nothing is expected, so this case cannot fail")
    if expect is not None:
        yield from _contradictions(expect)
    decision = expect.decision if expect is not None else None
    for person, may in case.may_approve.items():
        if may and decision in {"allow", "deny"}:
            message = f"no approval is requested if the decision is `{decision}`, so `{shorten(person)}` cannot approve"
            yield error("D64", case.at("may_approve", person), message)


def _contradictions(expect: ExpectedDecisionBlock) -> Iterator[Finding]:
    asks = expect.decision in {None, "require-approval"}
    for name in APPROVAL_FIELDS:
        if not asks and getattr(expect, name):
            message = f"`{name}` belongs to `require-approval`, and `{expect.decision}` is expected"
            yield error("D64", expect.at(name), message)
    if asks and expect.decision is not None and expect.min_approvers == 0:
        yield error("D64", expect.at("min_approvers"), "an approval needs at least one person")
    if expect.escalate_to and expect.on_timeout == "reject":
        yield error("D64", expect.at("escalate_to"), "`escalate_to` has no effect if `on_timeout` is `reject`")
    if expect.break_glass and expect.decision == "allow":
        yield error("D64", expect.at("break_glass"), "`break_glass` has no effect if the step is allowed")
    if expect.rule == NO_RULE and (expect.policy is not None or expect.decision in {"require-approval", "deny"}):
        what = "`policy`" if expect.policy is not None else f"`{expect.decision}`"
        yield error(
            "D64",
            expect.at("rule"),
            f"if no rule matches, the step is allowed without a policy: {what} contradicts that",
        )
