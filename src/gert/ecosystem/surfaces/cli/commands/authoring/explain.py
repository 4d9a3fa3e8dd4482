"""`gert explain`: the contract and risk of each step of a runbook, and the rule that decides."""

from collections.abc import Iterator

import click

from gert.ecosystem.host.policy.explain_runbook import ExplainedPreview, ExplainedStep, explain_file
from gert.ecosystem.host.run.boundary import Crossing
from gert.ecosystem.surfaces.cli.render.governance.contract_text import (
    RISK_COLOURS,
    VERDICT_COLOURS,
    effects_text,
    needs_text,
    parameter_text,
    promises_text,
)
from gert.ecosystem.surfaces.cli.render.output import print_json, print_line, print_pair
from gert.ecosystem.surfaces.cli.render.table import Cell, print_table
from gert.kernel.governance.contract import Contract
from gert.kernel.governance.decide import Decision
from gert.kernel.governance.explain import PolicyMatch


@click.command(epilog="Example: gert explain runbooks/pod-restart.yaml delete_pod --policy production.policy.yaml")
@click.argument("runbook", metavar="RUNBOOK")
@click.argument("step", required=False, metavar="[STEP]")
@click.option(
    "--policy", "policies", multiple=True, metavar="FILE", help="Add a policy file or folder; may be repeated."
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def command(runbook: str, step: str | None, policies: tuple[str, ...], as_json: bool) -> int:
    """Show the contract of every step of RUNBOOK, its risk, and the rule that decides.

    With STEP, show that step in full: its inputs and outputs, and every rule that was considered.
    The project's `policies` apply as well. No step is executed.
    """
    found = explain_file(runbook, step, policies)
    if as_json:
        crossings = {"crossings": found.crossings} if step is None else {}
        name = found.program.runbook.meta.name
        print_json({"runbook_name": name, "steps": [each.as_json() for each in found.steps], **crossings})
    elif step is not None:
        for each in found.steps:
            _detail(each)
    elif not found.steps:
        print_line("no step of this runbook has a contract: this runbook executes nothing")
    else:
        _table(found.steps)
        for each in found.steps:
            if each.preview is not None:
                print_pair("preview", f"{each.name}: {_preview(each.preview)}")
    if found.crossings and not as_json:
        _crossings(found.crossings)
    return 0


def _crossings(crossings: list[Crossing]) -> None:
    """Show inputs and webhooks, which cross the boundary without a step."""
    print_line()
    print_table(
        ["without a step", "", "from or to", "effect", "decision"],
        [[each.direction, each.what, each.place, each.effect, _refusal(each.refusal)] for each in crossings],
    )


def _refusal(refusal: str | None) -> Cell:
    return _verdict("allow") if refusal is None else (refusal, VERDICT_COLOURS["deny"])


def _verdict(word: str) -> Cell:
    return word, VERDICT_COLOURS[word]


def _table(explained: list[ExplainedStep]) -> None:
    print_table(
        ["step", "does", "effects", "writes", "promises", "risk", "decision", "by rule"],
        [
            [
                each.name,
                each.target or each.step.type,
                effects_text(each.contract),
                _writes(each.contract),
                promises_text(each.contract),
                (each.explanation.risk.word, RISK_COLOURS[each.explanation.risk.word]),
                _verdict(each.explanation.decision.verdict.word),
                _rules(each.explanation.decision),
            ]
            for each in explained
        ],
        spare=["promises", "effects", "writes", "does", "risk"],
    )


def _detail(each: ExplainedStep) -> None:
    contract, explanation = each.contract, each.explanation
    decision = explanation.decision
    print_pair("step", f"{each.name} ({' '.join(filter(None, (each.step.type, each.target)))})")
    if each.step.description is not None:
        print_pair("about", each.step.description.source)
    print_pair("effects", effects_text(contract))
    print_pair("reads", ", ".join(sorted(contract.reads)) or "-")
    print_pair("writes", _writes(contract))
    print_pair("promises", promises_text(contract))
    print_pair("risk", f"{explanation.risk.word}: {explanation.reason}", RISK_COLOURS[explanation.risk.word])
    verdict = f"{decision.verdict.word}: {decision.rule or 'no rule matches'}"
    print_pair("decision", verdict, VERDICT_COLOURS[decision.verdict.word])
    _say_list("needs", list(needs_text(decision)))
    _say_list("inputs", [f"{name}: {parameter_text(parameter)}" for name, parameter in contract.inputs.items()])
    _say_list("outputs", [f"{name}: {parameter_text(parameter)}" for name, parameter in contract.outputs.items()])
    if each.preview is not None:
        print_pair("preview", _preview(each.preview))
    # A step that adds to the contract of its tool is judged by both (ADR 0010).
    judged_twice = any(match.of_tool for match in explanation.policies)
    whose = {False: "for the step: ", True: "for its tool alone: "} if judged_twice else {False: ""}
    rules = [f"{whose[match.of_tool]}{line}" for match in explanation.policies for line in _considered(match)]
    _say_list("rules", rules)


def _preview(preview: ExplainedPreview) -> str:
    """A preview with its command and contract; a template is shown as it is written."""
    command = " ".join(preview.command)
    refusal = f"; not run: {preview.refusal}" if preview.refusal is not None else ""
    return f"{command} (effects {effects_text(preview.contract)}, writes nothing){refusal}"


def _say_list(title: str, lines: list[str]) -> None:
    for index, line in enumerate(lines):
        print_pair(title if index == 0 else "", line)


def _considered(match: PolicyMatch) -> Iterator[str]:
    for considered in match.considered:
        why = f"no: {considered.failed}" if considered.failed else f"matches, {match.verdict.word}"
        why = "matches, serialize" if considered.goes_on else why
        yield f"{considered.rule}: {why}"
    if not match.considered:
        yield f"{match.policy}: no rules"


def _rules(decision: Decision) -> str:
    return "; ".join(rule.short for rule in sorted(decision.rules)) or "no rule matches"


def _writes(contract: Contract) -> str:
    """What it writes; effects without `writes` are no promise to write nothing (D48)."""
    return ", ".join(sorted(contract.writes)) or ("undeclared" if contract.hides_writes else "-")
