"""Governance: rules are well formed, can be reached, and name known groups."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from gert.kernel.foundation.names import did_you_mean
from gert.kernel.governance.contract import resolve
from gert.kernel.governance.decide import decide, person_key
from gert.kernel.governance.rules import ends_matching, is_unconditional, shadowed
from gert.kernel.governance.verdict import Verdict
from gert.kernel.runbook.documents.governance import GovernanceBlock, MatchBlock, RuleBlock
from gert.kernel.runbook.documents.policy import PolicyFile
from gert.kernel.runbook.finding import Finding, error, warning
from gert.kernel.runbook.program import policy_of
from gert.kernel.runbook.validate.case import Case
from gert.kernel.runbook.validate.domain.rule_matches import PROJECT, RUNBOOK, governed_by, unmatched_rules
from gert.kernel.runbook.validate.facts import Facts

APPROVAL_ONLY: Final = ("min_approvers", "approvers", "separation_of_duties", "on_timeout", "escalate_to")
MATCHERS: Final = ("outcome", "risk", "effects", "writes", "reads", "deterministic", "idempotent", "contract")
TAGS: Final = ("effects", "writes", "reads")
GROUP: Final = "group:"

# Beyond this many rules only an unconditional one is searched for, so that checking stays linear.
MAX_COMPARED: Final = 200


def runbook_rules(case: Case) -> Iterator[Finding]:
    """Check the rules of a runbook."""
    governance = case.program.runbook.meta.governance
    if governance is not None:
        unmatched = unmatched_rules(governance, governed_by(case.program), RUNBOOK)
        yield from rules(governance, {}, case.facts, unmatched)


def policy_rules(policy: PolicyFile, facts: Facts) -> Iterator[Finding]:
    """Check the rules of a policy file."""
    yield from flat_groups(policy.groups)
    governed = facts.governed
    unmatched = unmatched_rules(policy.governance, governed, PROJECT) if governed is not None else ()
    yield from rules(policy.governance, policy.groups, facts, unmatched)
    yield from _undeclared(policy)
    if not policy.governance.rules:
        yield warning("D38", policy.governance.path, "the policy has no rules, so it has no effect")


def _undeclared(policy: PolicyFile) -> Iterator[Finding]:
    """D46: a policy that restricts anything should also restrict steps without declared effects."""
    built = policy_of(policy.governance)
    restricts = any(rule.verdict is not None and rule.verdict > Verdict.ALLOW for rule in built.rules)
    decision = decide(resolve(), [built])
    if restricts and decision.verdict is Verdict.ALLOW:
        message = "a step that declares no effects is allowed to do anything"
        hint = "add `{ effects: [unknown], action: require-approval }` or a rule for `risk: critical`"
        if decision.rules:
            [allows] = decision.rules
            yield warning("D46", policy.governance.rules[allows.number - 1].path, message, f"{hint} before it")
        else:
            yield warning("D46", policy.governance.at("rules"), message, hint, on_key=True)


def flat_groups(groups: Mapping[str, tuple[str, ...]]) -> Iterator[Finding]:
    """D40: groups list people, not groups, so that it is clear who may approve."""
    for name, people in groups.items():
        for index, entry in enumerate(people):
            if entry.startswith(GROUP):
                yield error("D40", ("groups", name, index), f"`{entry}` is a group, and groups list people")


def rules(
    governance: GovernanceBlock, groups: Mapping[str, tuple[str, ...]], facts: Facts, unmatched: Iterable[Finding]
) -> Iterator[Finding]:
    """D38: a rule is well formed. D39: a rule can be reached. D40: a group is known. D57: a rule matches something."""
    sound = True
    all_groups = {**(facts.groups or {}), **groups}
    for rule in governance.rules:
        for finding in _well_formed(rule):
            sound = False
            yield finding
        yield from _groups(rule, groups, facts)
        yield from _enough_people(rule, all_groups)
    if sound:
        yield from _reachable(governance)
        yield from unmatched


def _well_formed(rule: RuleBlock) -> Iterator[Finding]:
    matchers = [name for name in MATCHERS if getattr(rule, name) is not None]
    if rule.action is not None and rule.default is not None:
        yield error("D38", rule.path, "a rule has `action` or `default`, not both")
    elif rule.default is not None and matchers:
        message = f"`default` applies to every step, so it takes no `{matchers[0]}`"
        yield error("D38", rule.at("default"), message, "use `action` for a rule with matchers")
    elif rule.action is None and rule.default is None and rule.contract_violations is None and not rule.serialize:
        yield error("D38", rule.path, "the rule has no `action`", "use `allow`, `require-approval` or `deny`")
    if rule.contract_violations is not None and (rule.action or rule.default or matchers or rule.serialize):
        message = "`contract_violations` needs its own rule: it applies to every step and takes no matchers"
        yield error("D38", rule.at("contract_violations"), message, "move it to a separate rule")
    if rule.outcome is not None:
        yield from _outcome_rule(rule, matchers)
    if rule.contract is not None and not any(getattr(rule.contract, name) is not None for name in rule.contract.fields):
        yield error("D38", rule.contract.path, "`contract` is empty, so it has no effect")
    verdict = rule.action or rule.default
    for name in APPROVAL_ONLY:
        if getattr(rule, name) is not None and verdict != "require-approval":
            message = (
                f"`{name}` belongs to `require-approval`, and the verdict of this rule is `{verdict or 'missing'}`"
            )
            yield error("D38", rule.at(name), message)
    if rule.break_glass and verdict in {None, "allow"}:
        yield error(
            "D38",
            rule.at("break_glass"),
            "`break_glass` overrides an approval or a denial, and this rule has neither",
        )
    if rule.on_timeout == "escalate" and not rule.escalate_to:
        yield error("D38", rule.at("on_timeout"), "`on_timeout: escalate` needs `escalate_to`")
    if rule.escalate_to and rule.on_timeout != "escalate":
        yield error("D38", rule.at("escalate_to"), "`escalate_to` needs `on_timeout: escalate`")
    if rule.limits is not None and rule.limits.max_targets is None and rule.limits.max_per_hour is None:
        yield error("D38", rule.limits.path, "`limits` is empty", "set `max_targets` or `max_per_hour`")
    yield from _plain_tags(rule)
    if rule.contract is not None:
        yield from _plain_tags(rule.contract)


def _outcome_rule(rule: RuleBlock, matchers: list[str]) -> Iterator[Finding]:
    """D38: a rule with `outcome` applies to `end` steps, which have no contract, limits or serialization."""
    for name in (*(each for each in matchers if each != "outcome"), "limits", "serialize"):
        if getattr(rule, name) not in (None, False):
            message = f"a rule with `outcome` applies to `end` steps, and `{name}` to steps that execute"
            yield error("D38", rule.at(name), message, "use a separate rule for each")


def _plain_tags(block: MatchBlock) -> Iterator[Finding]:
    for name in TAGS:
        for index, tag in enumerate(getattr(block, name) or ()):
            if "*" in tag:
                message = f"`{tag}` matches only a tag of exactly that name: tags are not patterns"
                yield error("D38", block.at(name, index), message, "list the tags")


def _enough_people(rule: RuleBlock, groups: Mapping[str, tuple[str, ...]]) -> Iterator[Finding]:
    """D38: enough people may approve, also after an escalation."""
    needed = rule.min_approvers or 0
    if (count := _count(rule.approvers, groups, needed)) < needed:
        yield error("D38", rule.at("min_approvers"), f"`min_approvers` is {needed}, and only {count} may approve")
    if (count := _count(rule.escalate_to, groups, needed)) < needed:
        message = (
            f"`min_approvers` is {needed}, and only {count} {'is' if count == 1 else 'are'} asked after the escalation"
        )
        yield warning("D38", rule.at("escalate_to"), message)


def _count(listed: tuple[str, ...] | None, groups: Mapping[str, tuple[str, ...]], enough: int) -> int:
    """Return how many people are listed; `enough` if none is listed, or if a group is unknown."""
    people: set[str] = set()
    for entry in listed or ():
        if entry.startswith(GROUP) and entry.removeprefix(GROUP) not in groups:
            return enough
        members = groups[entry.removeprefix(GROUP)] if entry.startswith(GROUP) else (entry,)
        people.update(map(person_key, members))
    return len(people) if listed else enough


def _reachable(governance: GovernanceBlock) -> Iterator[Finding]:
    built = policy_of(governance).rules
    for shadow in shadowed(built[:MAX_COMPARED]):
        yield warning("D39", governance.at("rules", shadow.rule), f"this rule is {shadow.message}")
    unconditional = next((i for i, rule in enumerate(built) if is_unconditional(rule)), None)
    if unconditional is not None and unconditional < MAX_COMPARED:
        for index in range(MAX_COMPARED, len(built)):
            if ends_matching(built[index]):
                message = f"this rule is never reached: rule {unconditional + 1} matches every step"
                yield warning("D39", governance.at("rules", index), message)


def _groups(rule: RuleBlock, groups: Mapping[str, tuple[str, ...]], facts: Facts) -> Iterator[Finding]:
    known = {*groups, *(facts.groups or ())}
    people = {person for each in (groups, facts.groups or {}) for listed in each.values() for person in listed}
    for name in ("approvers", "notify", "escalate_to"):
        for index, entry in enumerate(getattr(rule, name) or ()):
            group = entry.removeprefix(GROUP)
            if entry == group and group in known - people:
                message = f"`{entry}` is a person here, and there is a group of that name"
                yield warning("D40", rule.at(name, index), message, f"did you mean `{GROUP}{entry}`?")
            elif entry.startswith(GROUP) and group not in known and facts.groups is not None:
                guess = did_you_mean(group, sorted(known))
                hint = (
                    f"did you mean `group:{guess}`?" if guess else "define it under `groups` in a policy or the project"
                )
                yield warning("D40", rule.at(name, index), f"no group `{group}` is defined", hint)
