"""`gert test`: replay scenarios and check their expectations."""

import asyncio
import os
import time
from collections.abc import Iterator

import click
import msgspec

from gert.ecosystem.host.scenarios.folders import find_scenarios
from gert.ecosystem.host.scenarios.suite import Covered, Group, SuiteOptions, Tested, groups_of, run_groups, untested
from gert.ecosystem.surfaces.cli.options import seconds_of
from gert.ecosystem.surfaces.cli.render.authoring.suite_report import Report, changes, write_junit
from gert.ecosystem.surfaces.cli.render.output import print_json, print_lines
from gert.errors import Exit, GertError, UsageError
from gert.kernel.foundation.names import listing

RUNBOOKS_PER_WORKER = 8
"""With fewer runbooks than this, starting a worker process costs more than it saves."""


@click.command(
    name="test",
    epilog="Example: gert test runbooks/ --coverage --junit report.xml",
)
@click.argument("names", nargs=-1, metavar="[FILES|DIRS]...")
@click.option(
    "--scenario", "scenarios", multiple=True, metavar="NAME", help="Only scenarios with this name; `*` is a wildcard."
)
@click.option("--tag", "tags", multiple=True, metavar="TAG", help="Only scenarios with one of these tags.")
@click.option("--all", "include_archived", is_flag=True, help="Include archived scenarios (`golden: false`).")
@click.option("--coverage", is_flag=True, help="Show steps, arms and outcomes that no scenario reaches.")
@click.option("--update", is_flag=True, help="Show what changed and update the expectations.")
@click.option("--fail-fast", is_flag=True, help="Stop at the first failure.")
@click.option(
    "--timeout", metavar="DURATION", default="1m", show_default=True, help="Maximum duration of one scenario."
)
@click.option("--policy", "policies", multiple=True, metavar="FILE", help="Add a policy file or folder to the floor.")
@click.option("--config", metavar="FILE", help="Settings file to read in addition to the project's.")
@click.option("--jobs", type=click.IntRange(1, 64), help="Worker processes (default: automatic).")
@click.option("--junit", "junit_file", metavar="FILE", help="Also write a JUnit report to FILE.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@click.option("--verbose", "-v", is_flag=True, help="Show skipped scenarios, all differences, and notes.")
def command(
    names: tuple[str, ...],
    scenarios: tuple[str, ...],
    tags: tuple[str, ...],
    include_archived: bool,
    coverage: bool,
    update: bool,
    fail_fast: bool,
    timeout: str,
    policies: tuple[str, ...],
    config: str | None,
    jobs: int | None,
    junit_file: str | None,
    as_json: bool,
    verbose: bool,
) -> int:
    """Replay the scenarios of runbooks and check their expectations.

    FILES are runbooks or scenarios; in DIRS gert finds every scenario in `scenarios/<runbook>/<name>/` next to its
    runbook. No tool is called: every answer comes from `scenario.yaml`, and `test.yaml` holds the expectations.
    Recorded scenarios run once you promote them, or with --all.
    """
    folders = find_scenarios(names or (".",))
    if not folders:
        where = listing(names) or "this folder"
        raise UsageError(f"no scenarios found in {where}", hint="create one with `gert scenario new RUNBOOK NAME`")
    options = SuiteOptions(
        named=tuple(os.path.abspath(name) for name in names),
        scenarios=scenarios,
        tags=tags,
        include_archived=include_archived,
        policies=tuple(os.path.abspath(path) for path in policies),
        config=config,
        timeout=seconds_of("--timeout", timeout),
        wants_updates=update,
    )
    groups = groups_of(folders)
    report = Report(quiet=as_json, verbose=verbose)
    started = time.perf_counter()
    for found in _found(groups, options, jobs or _default_jobs(groups)):
        if isinstance(found, Covered):
            report.covered(found)
            continue
        tested, changed = _updated(found) if update and found.updates else (found, [])
        report.tested(tested, changed)
        if fail_fast and tested.verdict in ("failed", "error"):
            report.stopped = True
            break
    report.seconds = time.perf_counter() - started
    if not report.tests:
        option = "--tag" if tags else "--scenario"
        raise UsageError(f"no scenario matches `{option}`", hint="list them with `gert scenario list`")
    if coverage and not scenarios and not tags:
        for uncovered in untested(names or (".",), {group.runbook for group in groups}):
            report.covered(uncovered)
    if as_json:
        print_json(report.as_json(coverage=coverage))
    else:
        print_lines(report.summary(coverage=coverage))
    # Last: if this report cannot be written, the other one is already out.
    if junit_file is not None:
        write_junit(junit_file, report)
    return Exit.DONE if report.is_passed else Exit.REFUSED


def _found(groups: list[Group], options: SuiteOptions, jobs: int) -> Iterator[Tested | Covered]:
    if jobs < 2 or len(groups) < 2:
        yield from run_groups(groups, options)
        return
    from gert.ecosystem.host.scenarios.worker import RunbookResult, run_parallel

    with asyncio.Runner() as runner:
        books = run_parallel(groups, options, min(jobs, len(groups)))

        async def next_book() -> RunbookResult | None:
            return await anext(books, None)

        try:
            while (book := runner.run(next_book())) is not None:
                yield from book.tested
                if book.covered is not None:
                    yield book.covered
        finally:
            runner.run(books.aclose())


def _default_jobs(groups: list[Group]) -> int:
    return min(os.cpu_count() or 1, len(groups) // RUNBOOKS_PER_WORKER)


def _updated(tested: Tested) -> tuple[Tested, list[str]]:
    """Update the test of a scenario, and show the change; a file that cannot be written does not stop the others."""
    try:
        return msgspec.structs.replace(tested, verdict="updated"), _update(tested)
    except GertError as problem:
        return msgspec.structs.replace(tested, verdict="error", message=problem.message, hint=problem.hint), []


def _update(tested: Tested) -> list[str]:
    """Write the change, and return how to show it."""
    from gert.ecosystem.host.config.files import is_file, read_document
    from gert.ecosystem.host.scenarios.edit import Edited, edit_file, edited, write_atomically
    from gert.kernel.runbook.writer import to_yaml

    path = os.path.join(tested.folder, "test.yaml")
    before = read_document(path).decode("utf-8", "replace") if is_file(path) else ""
    after = edited(before, tested.updates) if before else Edited(to_yaml(tested.updates))
    if before:
        edit_file(path, tested.updates)
    else:
        write_atomically(path, after.text)
    lost = ["      the whole file was rewritten: its comments are lost"] if after.rewritten else []
    return [*changes(path, before, after.text), *lost]
