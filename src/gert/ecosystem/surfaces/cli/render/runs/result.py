"""The result of a run: as text, as JSON, and as an exit code."""

import shlex
from collections.abc import Iterator, Mapping

from gert.ecosystem.host.config.ledger_location import ledger_arguments, ledger_name
from gert.ecosystem.host.run.options import Executed, Recorded
from gert.ecosystem.host.runs.logs import logs_command
from gert.ecosystem.surfaces.cli.options import WAITING
from gert.ecosystem.surfaces.cli.render.output import (
    near_path,
    plural,
    print_error,
    print_json,
    print_lines,
    print_warning,
)
from gert.ecosystem.surfaces.cli.render.runs.step_results import StepResults
from gert.errors import Exit
from gert.kernel.events.runbook import Outcome
from gert.kernel.foundation.text import path_text, printable


def show(
    executed: Executed,
    *,
    as_json: bool,
    quiet: bool,
    results: StepResults | None = None,
    more: Mapping[str, str] | None = None,
    fail_on: frozenset[str] = frozenset(),
) -> int:
    """Print the result of a run and return the exit code.

    more: what else the document has
    fail_on: outcome categories, and `waiting`, that count as a failure
    """
    _print(executed, as_json=as_json, quiet=quiet, results=results, more=more or {})
    code = exit_code(executed)
    if code == Exit.DONE and (named := _named(executed, fail_on)) is not None:
        print_error(f"{named}, which `--fail-on` names")
        return Exit.NOT_COMPLETED
    return code


def _print(
    executed: Executed, *, as_json: bool, quiet: bool, results: StepResults | None, more: Mapping[str, str]
) -> None:
    if executed.warning is not None:
        print_warning(executed.warning)
    scenario = executed.scenario
    if scenario is not None and scenario.problem is not None:
        again = f"gert scenario new RUNBOOK NAME --run {executed.run_id}"
        print_error(scenario.problem, f"the run itself is recorded; make a scenario of it with `{again}`")
    if as_json:
        steps = {"steps": results.steps, "outputs": results.outputs} if results is not None else {}
        print_json({**executed.as_json(), **steps, **more})
        return
    # The findings of a dry run are its result, not progress; and --quiet must still name open tickets.
    lines = _summary(executed) if not quiet or executed.status == "waiting" else _reachable(executed)
    print_lines(lines)
    if quiet and scenario is not None and scenario.differs is not None:
        print_warning(_replay(scenario))
    if quiet and executed.status not in ("completed", "waiting"):
        print_error(_why(executed))


def exit_code(executed: Executed) -> int:
    """The exit code of a run: waiting for approval is success, a denial on any path of a dry run is not.

    A run that completed without the scenario that was wanted of it is not what was asked for.
    """
    if executed.status in ("completed", "waiting"):
        if executed.denied:
            return Exit.NOT_COMPLETED
        return Exit.ENGINE if executed.scenario is not None and executed.scenario.problem is not None else Exit.DONE
    return Exit.INTERRUPTED if executed.interrupted and executed.status == "cancelled" else Exit.NOT_COMPLETED


def _named(executed: Executed, fail_on: frozenset[str]) -> str | None:
    """What of a run counts as a failure, though it completed or waits."""
    if executed.status == WAITING and WAITING in fail_on:
        return "the run waits for approval"
    outcome = executed.outcome
    return f"the outcome is `{_outcome(outcome)}`" if outcome is not None and outcome.category in fail_on else None


def _reachable(executed: Executed) -> Iterator[str]:
    if executed.mode not in ("dry-run", "probe"):
        return
    outcomes = executed.reachable_outcomes
    yield "Reachable outcomes:" if outcomes else "No outcome is reachable."
    yield from (f"  {_outcome(outcome)}" for outcome in outcomes)
    yield from (f"Policy denies `{path_text(each.path)}`: {printable(each.message)}" for each in executed.denied)
    yield f"This was a {executed.mode}: no outcome was recorded."


def _summary(executed: Executed) -> Iterator[str]:
    database = executed.database
    trace = near_path(executed.trace) if executed.trace else None
    where = trace or (ledger_name(database) if database is not None else None)
    recorded = f" in {printable(where)}" if where is not None else ", not recorded"
    yield f"{printable(executed.run_id)}: {plural(executed.events, 'event')}{recorded}"
    if executed.status == "waiting":
        yield from _waiting(executed)
    failure = executed.failure
    if failure is not None and where is not None:
        options = ledger_arguments(database) or executed.state_words
        logs = logs_command(executed.run_id, failure.kind, executed.failed_step, options)
        yield from (f"output of the failed step: {printable(each)}" for each in (logs,) if each is not None)
    scenario = executed.scenario
    if scenario is not None and scenario.problem is None:
        yield printable(_replay(scenario))


def _replay(scenario: Recorded) -> str:
    how = "has the same outcome" if scenario.differs is None else f"differs: {scenario.differs}"
    return f"scenario recorded in {scenario.folder}; its replay {how}"


def _waiting(executed: Executed) -> Iterator[str]:
    where = ledger_arguments(executed.database) or executed.state_words
    for each in executed.pending:
        ticket = f"{printable(each.ticket_id)}{printable(where)}"
        yield f"approval pending for `{path_text(each.path)}`: gert approve {ticket}"
        if each.page is not None:
            yield f"  or in a browser, with `gert approvals serve` running: {printable(each.page)}"
    if len({each.ticket_id for each in executed.pending if each.ticket_id}) > 1:
        yield f"approve all of them: gert approve {printable(executed.run_id)} --all{printable(where)}"
    record = f" --record {shlex.quote(executed.record)}" if executed.record is not None else ""
    options = printable(f"{where}{executed.input_words}{record}")
    yield f"resume with: gert resume {printable(executed.run_id)}{options}"


def _outcome(outcome: Outcome) -> str:
    return f"{outcome.category}: {printable(outcome.code)}"


def _why(executed: Executed) -> str:
    failure = executed.failure
    where = f" at `{path_text(executed.failed_step)}`" if executed.failed_step else ""
    ended = {"error": "ended in an error", "cancelled": "was cancelled"}.get(executed.status, "failed")
    if failure is None:
        return "the run did not complete"
    # A loop names the item that failed, and so does the path of the step in it.
    item, colon, rest = failure.message.partition("`: ")
    within = (executed.failed_step or "").startswith(item.removeprefix("`")) and item.startswith("`")
    return f"the run {ended}{where}: {rest if colon and within else failure.message}"
