"""Policies and their decisions as text."""

from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import Any, Final

import click

from gert.ecosystem.host.config.policies import PolicySource
from gert.ecosystem.host.policy.explain_policy import Ruling
from gert.ecosystem.host.policy.policy_tests import CoveredPolicy
from gert.ecosystem.surfaces.cli.render.governance.contract_text import RISK_COLOURS, VERDICT_COLOURS, needs_text
from gert.ecosystem.surfaces.cli.render.output import plural
from gert.kernel.foundation.duration import format_duration
from gert.kernel.foundation.text import printable
from gert.kernel.governance.contract import Contract
from gert.kernel.governance.explain import PolicyMatch
from gert.kernel.governance.risk import Risk
from gert.kernel.governance.rules import (
    DEFAULT_APPROVAL_TIMEOUT,
    Condition,
    Policy,
    Rule,
    conditions,
    ends_matching,
    is_unconditional,
    label,
)
from gert.kernel.governance.verdict import Verdict
from gert.kernel.runbook.documents.policy import PolicyFile
from gert.kernel.runbook.finding import Finding, Severity

NEVER_REACHED: Final = "D39"
_HAS: Final = {"effects": "has the effect", "writes": "writes", "reads": "reads"}
_HAS_NONE: Final = {"effects": "surely has no effects", "writes": "surely writes nothing", "reads": "reads nothing"}


def policy_lines(source: PolicySource) -> Iterator[str]:
    """A policy as text: its settings, its rules in order, the default, and warnings."""
    policy, model = source.policy, _model(source)
    about = f": {model.meta.description}" if model.meta.description else ""
    yield f"{click.style(printable(policy.name), bold=True)}{printable(about)} ({printable(source.checked.file)})"
    yield from (f"  {printable(line)}" for line in _terms(policy))
    lost = _never_reached(source)
    for number, rule in enumerate(policy.rules, 1):
        yield from _rule(number, rule, lost.get(number))
    yield f"  {_otherwise(policy)}"
    for finding in _oddities(source):
        mark = click.style("warning:", fg="yellow")
        yield f"  {mark} {printable(f'line {finding.line}: {finding.message}')}"
        if finding.hint:
            yield f"    {click.style('hint:', fg='cyan')} {printable(finding.hint)}"


def policy_json(source: PolicySource) -> dict[str, Any]:
    """A policy as JSON."""
    policy, lost = source.policy, _never_reached(source)
    last = next((rule for rule in policy.rules if is_unconditional(rule)), None)
    return {
        "policy": policy.name,
        "file": source.checked.file,
        "digest": source.checked.document.digest,
        "description": _model(source).meta.description,
        "approval_timeout": policy.approval_timeout or DEFAULT_APPROVAL_TIMEOUT,
        "require_signed_approvals": policy.require_signed_approvals,
        "separation_of_duties": policy.separation_of_duties,
        "violations_deny": policy.violations_deny,
        "groups": {name: sorted(people) for name, people in sorted(policy.groups.items())},
        "rules": [
            {
                "number": number,
                "name": rule.name,
                "matches": label(rule),
                "decision": rule.verdict.word if rule.verdict is not None else None,
                "words": [*_when(rule), *_then(rule)],
                "never_reached": lost[number].message if number in lost else None,
            }
            for number, rule in enumerate(policy.rules, 1)
        ],
        "otherwise": (last.verdict if last is not None and last.verdict is not None else Verdict.ALLOW).word,
        "warnings": [finding.as_json() for finding in (*lost.values(), *_oddities(source))],
    }


def ruling_lines(ruling: Ruling) -> Iterator[str]:
    """A decision and the rules that led to it, policy by policy."""
    explanation = ruling.explanation
    decision = explanation.decision
    risk, verdict = explanation.risk.word, decision.verdict.word
    yield click.style(printable(ruling.subject), bold=True)
    yield f"  contract  {printable(_contract(ruling.contract))}"
    yield f"  risk      {click.style(risk, fg=RISK_COLOURS[risk])}: {printable(explanation.reason)}"
    by = f"by {' and '.join(ruling.winners)}" if ruling.winners else "no rule matches"
    yield f"  decision  {click.style(verdict, fg=VERDICT_COLOURS[verdict])}, {printable(by)}"
    for index, line in enumerate(needs_text(ruling.explanation.decision)):
        yield f"  {'' if index else 'needs':9} {printable(line)}"
    for match in ruling.matches:
        yield from _chain(ruling, match, "")
    for match in ruling.matches_within:
        yield from _chain(ruling, match, ", for the tool behind it")


def coverage_lines(covered: Iterable[CoveredPolicy]) -> Iterator[str]:
    """Coverage, and the rules that no case reaches."""
    for each in covered:
        part = each.rules
        percent = 100 * part.reached // part.total if part.total else 100
        mark = click.style("○", fg="yellow") if part.missed else click.style("✓", fg="green")
        yield f"{mark} {printable(f'{each.policy} ({each.file})')}: rules {part.reached}/{part.total} ({percent} %)"
        yield from (f"    no case reaches rule {printable(missed)}" for missed in part.missed)


def _model(source: PolicySource) -> PolicyFile:
    model: PolicyFile = source.checked.document.model
    return model


def _terms(policy: Policy) -> Iterator[str]:
    waits = DEFAULT_APPROVAL_TIMEOUT if policy.approval_timeout is None else policy.approval_timeout
    otherwise = ", unless another policy sets a time" if policy.approval_timeout is None else ""
    signed = ", and count only if they are signed" if policy.require_signed_approvals else ""
    yield f"requests for approval stay open for {format_duration(timedelta(seconds=waits))}{otherwise}{signed}"
    if policy.separation_of_duties:
        yield "the actor who started a run cannot approve any of its steps"
    for name, people in sorted(policy.groups.items()):
        yield f"group:{name} is {_either(people, 'and')}"


def _rule(number: int, rule: Rule, lost: Finding | None) -> Iterator[str]:
    yield f"  {number}. {click.style(printable(rule.name or label(rule)), bold=True)}"
    indent = " " * (len(str(number)) + 4)
    yield from (f"{indent}{printable(line)}" for line in (*_when(rule), *_then(rule)))
    if lost is not None:
        yield f"{indent}{click.style('warning:', fg='yellow')} {printable(lost.message)}"


def _when(rule: Rule) -> Iterator[str]:
    if not (ends_matching(rule) or rule.serialize):
        return
    if rule.outcome is not None:
        yield f"when a run ends with an outcome of category {_either(rule.outcome)}"
        return
    asked = [_matcher(at) for at in conditions(rule)]
    yield f"when a step {', and '.join(asked)}" if asked else "for every remaining step"


def _matcher(condition: Condition) -> str:
    name, asked = condition
    if isinstance(asked, bool):
        return f"is {'' if asked else 'not '}{name}"
    if name == "risk":
        return f"is of {_either(each.word for each in sorted(asked) if isinstance(each, Risk))} risk"
    return f"{_HAS[name]} {_either(map(str, sorted(asked)))}" if asked else _HAS_NONE[name]


def _then(rule: Rule) -> Iterator[str]:
    verdict = rule.verdict
    if rule.serialize:
        yield "such steps run one at a time, also in lanes and parallel loops"
    if verdict is None and rule.contract_violations is not None:
        yield "a step that violates its contract fails, regardless of the deciding rule"
    if verdict is None:
        return
    if verdict is Verdict.REQUIRE_APPROVAL:
        yield from _approval(rule)
    else:
        yield "allow it" if verdict is Verdict.ALLOW else "deny it"
    if rule.limits.max_targets is not None:
        yield f"deny it with more than {plural(rule.limits.max_targets, 'target')}"
    if rule.limits.max_per_hour is not None:
        yield f"deny it after {plural(rule.limits.max_per_hour, 'execution')} per hour"
    if rule.notify:
        yield f"notify {_either(rule.notify, 'and')}"
    if verdict is not Verdict.ALLOW:
        yield "break-glass can override it, with a reason" if rule.break_glass else "break-glass cannot override it"


def _approval(rule: Rule) -> Iterator[str]:
    count = max(1, rule.min_approvers or 1)
    people = "approval by one person" if count == 1 else f"approval by {count} different people"
    among = f" among {_either(rule.approvers, 'and')}" if rule.approvers else ""
    barred = ", but not by the actor who started the run" if rule.separation_of_duties else ""
    yield f"require {people}{among}{barred}"
    if rule.on_timeout == "escalate":
        yield f"without an answer in time, escalate to {_either(rule.escalate_to)}"
    else:
        yield "without an answer in time, reject it"


def _otherwise(policy: Policy) -> str:
    if any(is_unconditional(rule) for rule in policy.rules):
        return "every step matches a rule"
    return "a step that no rule matches is allowed"


def _never_reached(source: PolicySource) -> dict[int, Finding]:
    """The rules that never decide, by number, as validation reports them."""
    findings = source.checked.findings
    return {int(each.path[2]) + 1: each for each in findings if each.rule == NEVER_REACHED and len(each.path) > 2}


def _oddities(source: PolicySource) -> list[Finding]:
    found = source.checked.findings
    return [each for each in found if each.severity is Severity.WARNING and each.rule != NEVER_REACHED]


def _chain(ruling: Ruling, match: PolicyMatch, whose: str) -> Iterator[str]:
    decides = " (this decides)" if ruling.decides(match) else ""
    says = f"{match.verdict.word}{decides}" if match.rule is not None else "no rule matches"
    yield f"  {printable(match.policy)}{whose}: {says}"
    for each in match.considered:
        if each.goes_on:
            yield f"    + {printable(f'{_within(match, each.rule.short)}: runs one at a time')}"
        elif each.failed is None:
            yield f"    → {printable(_within(match, str(each.rule)))}"
        else:
            yield f"    ✗ {printable(f'{_within(match, each.rule.short)}: `{each.failed}` does not hold')}"


def _within(match: PolicyMatch, rule: str) -> str:
    """The name of a rule without its policy."""
    return rule.removeprefix(f"{match.policy} ")


def _contract(contract: Contract) -> str:
    effects = "effects undeclared" if contract.effects is None else f"effects: {_listed(contract.effects)}"
    promises = [name for name in ("deterministic", "idempotent") if getattr(contract, name)]
    kept = f"; {', '.join(promises)}" if promises else ""
    return f"{effects}; reads: {_listed(contract.reads)}; writes: {_listed(contract.writes)}{kept}"


def _listed(tags: Iterable[str]) -> str:
    return ", ".join(sorted(tags)) or "nothing"


def _either(words: Iterable[str], joint: str = "or") -> str:
    listed = sorted(words) if isinstance(words, frozenset) else list(words)
    return f" {joint} ".join(filter(None, (", ".join(listed[:-1]), *listed[-1:])))
