"""`gert policy`: test and explain policies."""

import time
from typing import Any

import click
import msgspec

from gert.ecosystem.surfaces.cli.render.output import plural, print_json, print_line, print_lines
from gert.errors import Exit, UsageError
from gert.kernel.foundation.names import listing
from gert.kernel.foundation.text import printable


@click.group(epilog="Example: gert policy test policies/ --coverage")
def command() -> None:
    """Test and explain policies.

    The policies of GERT_POLICY, the settings and --policy are the floor of every run: a runbook can be stricter, never
    more permissive.
    """


@command.command(name="test", epilog="Example: gert policy test policies/ --coverage --junit report.xml")
@click.argument("names", nargs=-1, metavar="[FILES|DIRS]...")
@click.option(
    "--policy",
    "policies",
    multiple=True,
    metavar="FILE",
    help="Add a policy file or folder to those the tests name.",
)
@click.option("--coverage", is_flag=True, help="Show rules that no case reaches.")
@click.option("--fail-fast", is_flag=True, help="Stop at the first failure.")
@click.option("--junit", "junit_file", metavar="FILE", help="Also write a JUnit report to FILE.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@click.option("--verbose", "-v", is_flag=True, help="Show every difference of a failed case.")
def test(
    names: tuple[str, ...],
    policies: tuple[str, ...],
    coverage: bool,
    fail_fast: bool,
    junit_file: str | None,
    as_json: bool,
    verbose: bool,
) -> int:
    """Test policies: each case gives a contract and the expected decision.

    FILES are policy tests; in DIRS gert finds every `*.policy-test.yaml`; none is a note. Only the policies
    that a test names and those of --policy apply, so a test has the same result everywhere.
    """
    from gert.ecosystem.host.policy.policy_tests import JudgedCase, PolicySuite, find_policy_tests
    from gert.ecosystem.surfaces.cli.render.authoring.suite_report import Report, write_junit
    from gert.ecosystem.surfaces.cli.render.governance.policy_text import coverage_lines

    files = find_policy_tests(names or (".",))
    if not files:
        where = listing(names) or "this folder"
        click.echo(f"note: no policy tests found in {printable(where)}: name them `*.policy-test.yaml`", err=True)
    suite = PolicySuite(files, policies)
    report = Report(quiet=as_json, verbose=verbose)
    cases: list[JudgedCase] = []
    started = time.perf_counter()
    for case in suite.run():
        cases.append(case)
        report.tested(case.tested)
        if fail_fast and case.tested.verdict != "passed":
            report.stopped = True
            break
    report.seconds = time.perf_counter() - started
    if junit_file is not None:
        write_junit(junit_file, report)
    covered = suite.coverage() if coverage else []
    if as_json:
        document = report.as_json(coverage=False) | {"tests": [_case_json(case) for case in cases]}
        del document["skipped"], document["updated"]
        print_json(document | ({"coverage": [_covered_json(each) for each in covered]} if coverage else {}))
    else:
        print_lines((*coverage_lines(covered), *report.summary(coverage=False)))
    return Exit.DONE if report.is_passed else Exit.REFUSED


@command.command(epilog="Example: gert policy explain production.policy.yaml --tool tools/kubectl.tool.yaml")
@click.argument("names", nargs=-1, required=True, metavar="FILES|DIRS...")
@click.option("--runbook", metavar="FILE", help="Show the decision for each step of this runbook, with its own rules.")
@click.option("--tool", metavar="FILE", help="Show the decision for each action of this tool.")
@click.option("--contract", metavar="YAML", help="Show the decision for a contract, such as `{effects: [network]}`.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def explain(names: tuple[str, ...], runbook: str | None, tool: str | None, contract: str | None, as_json: bool) -> int:
    """Explain policies rule by rule, or what they decide about a runbook, a tool or a contract, and why.

    With --runbook, the rest of its floor applies as well, as in a run. No step is executed.
    """
    from gert.ecosystem.host.policy import explain_policy as host
    from gert.ecosystem.surfaces.cli.render.governance import policy_text as text

    if sum(each is not None for each in (runbook, tool, contract)) > 1:
        raise UsageError("expected one of `--runbook`, `--tool` and `--contract`, found several", hint="pass only one")
    sources = host.policies_named(names)
    rulings: list[host.Ruling] | None = None
    if runbook is not None:
        rulings = host.rulings_on_runbook(runbook, names)
    elif tool is not None:
        rulings = host.rulings_on_tool(tool, sources)
    elif contract is not None:
        rulings = [host.ruling_on_contract(contract, sources)]
    if as_json:
        found = [text.policy_json(source) for source in sources]
        print_json(
            {"policies": found} | ({"decisions": [each.as_json() for each in rulings]} if rulings is not None else {})
        )
    elif rulings is None:
        _say_blocks([list(text.policy_lines(source)) for source in sources])
    elif not rulings:
        print_line("no step of this runbook has a contract: this runbook executes nothing")
    else:
        _say_blocks([list(text.ruling_lines(each)) for each in rulings])
        if len(rulings) > 1:
            print_line()
            print_line(_counted([each.explanation.decision.verdict.word for each in rulings]))
    return Exit.DONE


def _say_blocks(blocks: list[list[str]]) -> None:
    for index, block in enumerate(blocks):
        if index:
            print_line()
        print_lines(block)


def _counted(verdicts: list[str]) -> str:
    counts = {word: verdicts.count(word) for word in ("allow", "require-approval", "deny")}
    shown = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
    return f"{plural(len(verdicts), 'decision')}: {shown}"


def _case_json(case: Any) -> dict[str, Any]:
    """A case, its file and its decision under their own names."""
    said = msgspec.to_builtins(case.tested, enc_hook=str)
    kept = {name: value for name, value in said.items() if name not in {"runbook", "scenario", "folder", "outcome"}}
    found: dict[str, Any] = {"file": case.tested.runbook, "line": case.line, "case": case.tested.scenario, **kept}
    if case.judged is not None:
        judged = case.judged
        found["found"] = {"risk": judged.risk.risk.word, **judged.decision.summary(), "reasons": list(judged.reasons)}
    return found


def _covered_json(covered: Any) -> dict[str, Any]:
    part = covered.rules
    rules = {"reached": part.reached, "total": part.total, "missed": list(part.missed)}
    return {"policy": covered.policy, "file": covered.file, "complete": not part.missed, "rules": rules}
