"""`gert test`: replay scenarios, and hold each against what its test expects."""

import asyncio
import os
import time
from collections.abc import Iterator

import click
import msgspec

from gert.ecosystem.host.scenarios.folders import find
from gert.ecosystem.host.scenarios.suite import Covered, Group, SuiteOptions, Tested, groups_of, run_groups, untested
from gert.ecosystem.surfaces.cli.render.output import say, say_json
from gert.ecosystem.surfaces.cli.render.suite_report import Report, changes, junit
from gert.errors import Exit, GertError, InputError, UsageError
from gert.kernel.foundation.duration import parse_duration
from gert.kernel.foundation.text import printable

ENOUGH_FOR_TWO = 8
"""Runbooks a process of its own is worth starting for."""


@click.command(
    name="test",
    epilog="Example: gert test runbooks/ --coverage --junit report.xml",
)
@click.argument("names", nargs=-1, metavar="[FILES|DIRS]...")
@click.option("--scenario", "scenarios", multiple=True, metavar="NAME", help="Only scenarios of this name; `*` works.")
@click.option("--tag", "tags", multiple=True, metavar="TAG", help="Only scenarios with one of these tags.")
@click.option("--all", "include_archived", is_flag=True, help="Archived scenarios (`golden: false`), too.")
@click.option("--coverage", is_flag=True, help="Show which steps, arms and outcomes no scenario reaches.")
@click.option("--update", is_flag=True, help="Show what changed, and rewrite the expectations to it.")
@click.option("--fail-fast", is_flag=True, help="Stop at the first failure.")
@click.option(
    "--timeout", metavar="DURATION", default="1m", show_default=True, help="Longest time one scenario may take."
)
@click.option(
    "--policy", "policies", multiple=True, metavar="FILE", help="A policy, or a folder of them, as the floor."
)
@click.option("--config", metavar="FILE", help="Settings beside those of the project.")
@click.option("--jobs", type=click.IntRange(1, 64), help="Processes; as many as are worth it when left out.")
@click.option("--junit", "junit_file", metavar="FILE", help="Write a JUnit report, too.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@click.option("--verbose", "-v", is_flag=True, help="Show what is worth knowing of scenarios that pass, too.")
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
    """Replay the scenarios of runbooks, and check what they lead to.

    FILES are runbooks or scenarios; in DIRS every scenario is found that lies beside its runbook, in
    `scenarios/<runbook>/<name>/`. Nothing is executed: every answer comes from `scenario.yaml`, and what must come of
    it stands in `test.yaml`. Recorded scenarios run once they are promoted, or with --all.
    Exits with 0 when everything passed, 1 when something did not, 2 when it was called wrongly.
    """
    folders = find(names or (".",))
    if not folders:
        where = ", ".join(f"`{name}`" for name in names) or "this folder"
        raise UsageError(f"there are no scenarios in {where}", hint="`gert scenario new RUNBOOK NAME` makes one")
    options = SuiteOptions(
        named=tuple(os.path.abspath(name) for name in names),
        scenarios=scenarios,
        tags=tags,
        include_archived=include_archived,
        policies=tuple(os.path.abspath(path) for path in policies),
        config=config,
        timeout=_seconds(timeout),
        wants_updates=update,
    )
    groups = groups_of(folders)
    report = Report(quiet=as_json, verbose=verbose)
    started = time.perf_counter()
    for found in _found(groups, options, jobs or _worth(groups)):
        if isinstance(found, Covered):
            report.covered(found)
            continue
        report.tested(found)
        tested = _updated(found, say_it=not as_json) if update and found.updates else found
        report.revise(tested)
        if fail_fast and tested.verdict in ("failed", "error"):
            report.stopped = True
            break
    report.seconds = time.perf_counter() - started
    if not report.tests:
        what = "has such a tag" if tags else "is called so"
        raise UsageError(f"no scenario {what}", hint="`gert scenario list` shows what there is")
    if coverage and not scenarios and not tags:
        for uncovered in untested(names or (".",), {group.runbook for group in groups}):
            report.covered(uncovered)
    if as_json:
        say_json(report.as_json(coverage=coverage))
    else:
        for line in report.summary(coverage=coverage):
            say(line)
    # Last: that one report cannot be written must not cost the other.
    if junit_file is not None:
        _write(junit_file, junit(report))
    return Exit.DONE if report.is_passed else Exit.REFUSED


def _found(groups: list[Group], options: SuiteOptions, jobs: int) -> Iterator[Tested | Covered]:
    if jobs < 2 or len(groups) < 2:
        yield from run_groups(groups, options)
        return
    from gert.ecosystem.host.scenarios.worker import Book, side_by_side

    with asyncio.Runner() as runner:
        books = side_by_side(groups, options, min(jobs, len(groups)))

        async def next_book() -> Book | None:
            return await anext(books, None)

        try:
            while (book := runner.run(next_book())) is not None:
                yield from book.tested
                if book.covered is not None:
                    yield book.covered
        finally:
            runner.run(books.aclose())


def _worth(groups: list[Group]) -> int:
    return min(os.cpu_count() or 1, len(groups) // ENOUGH_FOR_TWO)


def _updated(tested: Tested, *, say_it: bool) -> Tested:
    """The scenario with its test brought up to date; one that cannot be written keeps no other from being told."""
    try:
        _update(tested, say_it=say_it)
    except GertError as problem:
        if say_it:
            say(f"      {printable(problem.message)}")
        return msgspec.structs.replace(tested, verdict="error", message=problem.message, hint=problem.hint)
    return msgspec.structs.replace(tested, verdict="updated")


def _update(tested: Tested, *, say_it: bool) -> None:
    """Show the change, then make it."""
    from gert.ecosystem.host.config.files import is_file, read_document
    from gert.ecosystem.host.scenarios.edit import Edited, edit_file, edited, write_atomically
    from gert.kernel.runbook.writer import to_yaml

    path = os.path.join(tested.folder, "test.yaml")
    before = read_document(path).decode("utf-8", "replace") if is_file(path) else ""
    after = edited(before, tested.updates) if before else Edited(to_yaml(tested.updates))
    if say_it:
        for line in changes(path, before, after.text):
            say(line)
        if after.rewritten:
            say("      the file has to be rewritten whole: its comments are lost")
    if before:
        edit_file(path, tested.updates)
    else:
        write_atomically(path, after.text)


def _seconds(timeout: str) -> float:
    try:
        return parse_duration(timeout).total_seconds()
    except InputError as problem:
        raise UsageError(problem.message, hint=problem.hint) from None


def _write(path: str, text: str) -> None:
    try:
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as problem:
        reason = (problem.strerror or str(problem)).lower()
        raise UsageError(f"the report cannot be written to `{path}`: {reason}") from None
