"""Policy tests: every case says what is judged, expects something, and nothing that cannot be."""

from collections.abc import Iterator
from typing import Final

from gert.kernel.runbook.documents.policy_test import NO_RULE, ExpectedDecisionBlock, PolicyCaseBlock, PolicyTest
from gert.kernel.runbook.finding import Finding, error, warning
from gert.kernel.runbook.reader import shorten
from gert.kernel.runbook.validate.domain.contracts import contract_limits, old_words
from gert.kernel.runbook.validate.domain.governance import APPROVAL_ONLY, flat_groups

# What a decision has only where somebody is asked; separation of duties holds for a policy as a whole, too.
ASKED_ONLY: Final = tuple(name for name in APPROVAL_ONLY if name != "separation_of_duties")


def policy_test_file(test: PolicyTest) -> Iterator[Finding]:
    """D40: groups list people. D63: cases can be judged. D64: what they expect can be met."""
    yield from flat_groups(test.groups)
    seen: dict[str, int] = {}
    for number, case in enumerate(test.cases, 1):
        if case.name in seen:
            message = f"case {seen[case.name]} is called `{shorten(case.name)}`, too"
            yield error("D63", case.at("name"), message)
        seen.setdefault(case.name, number)
        yield from _judged(case)
        yield from _expected(case)


def _judged(case: PolicyCaseBlock) -> Iterator[Finding]:
    if case.outcome is not None and (case.contract is not None or case.tool is not None):
        yield error("D63", case.at("outcome"), "an `end` has no contract and no tool", "give each a case of its own")
    if case.contract is None and case.tool is None and case.outcome is None:
        hint = "give a `contract`, a `tool` and its `action`, or an `outcome`; `contract: {}` declares nothing"
        yield error("D63", case.path, "the case does not say what is judged", hint)
    if case.action is not None and case.tool is None:
        yield error("D63", case.at("action"), "`action` belongs to a `tool`, and there is none")
    if case.contract is not None:
        yield from old_words(case.contract, both_is_error=case.tool is None)
        yield from contract_limits(case.contract)


def _expected(case: PolicyCaseBlock) -> Iterator[Finding]:
    expect = case.expect
    said = [name for name in expect.fields if getattr(expect, name) not in (None, ())] if expect is not None else []
    # An empty list says that nobody is named; an empty list of reasons says nothing.
    said += [name for name in ("approvers", "escalate_to", "notify") if expect and getattr(expect, name) == ()]
    if not said and not case.may_approve:
        yield warning("D64", case.path, "nothing is expected, so this case cannot fail")
    if expect is not None:
        yield from _contradictions(expect)
    decision = expect.decision if expect is not None else None
    for person, may in case.may_approve.items():
        if may and decision in {"allow", "deny"}:
            message = f"nobody is asked where the decision is `{decision}`, so `{shorten(person)}` cannot approve"
            yield error("D64", case.at("may_approve", person), message)


def _contradictions(expect: ExpectedDecisionBlock) -> Iterator[Finding]:
    asks = expect.decision in {None, "require-approval"}
    for name in ASKED_ONLY:
        if not asks and getattr(expect, name):
            message = f"`{name}` belongs to `require-approval`, and `{expect.decision}` is expected"
            yield error("D64", expect.at(name), message)
    if asks and expect.decision is not None and expect.min_approvers == 0:
        yield error("D64", expect.at("min_approvers"), "an approval takes one person at least")
    if expect.escalate_to and expect.on_timeout == "reject":
        yield error("D64", expect.at("escalate_to"), "nobody is asked further where `on_timeout` is `reject`")
    if expect.break_glass and expect.decision == "allow":
        yield error("D64", expect.at("break_glass"), "there is nothing to override where the step is allowed")
    if expect.rule == NO_RULE and (expect.policy is not None or expect.decision in {"require-approval", "deny"}):
        what = "`policy`" if expect.policy is not None else f"`{expect.decision}`"
        yield error("D64", expect.at("rule"), f"where no rule matches the step is allowed, by no policy: {what} is not")
