"""`gert resume --ready`: resume the runs that wait for nothing but a resume, and print one line for each."""

import os
import sys

from gert.ecosystem.host.redrive.ready import Attempt, resume_ready
from gert.ecosystem.host.redrive.resume import ResumeOptions
from gert.ecosystem.host.run.options import Executed
from gert.ecosystem.host.shapes.runs import ReadyRun
from gert.ecosystem.surfaces.cli.live.unsent import Unsent
from gert.ecosystem.surfaces.cli.options import open_runs
from gert.ecosystem.surfaces.cli.render.output import plural, print_error, print_json, print_line, print_warning
from gert.ecosystem.surfaces.cli.render.runs.result import exit_code
from gert.ecosystem.surfaces.cli.render.text import LONGEST_NAME, clip
from gert.errors import Exit, exit_of
from gert.kernel.foundation.text import path_text


def resume_all(options: ResumeOptions, *, as_json: bool) -> int:
    """Resume the runs that are ready; the exit code is the highest of theirs, and a busy run is no failure."""
    code: int = Exit.DONE
    documents: list[ReadyRun] = []
    unsent = Unsent()
    with open_runs(options.state_dir, options.db, options.dsn) as runs:
        for attempt in resume_ready(runs, options, os.environ, (unsent,)):
            code = max(code, _code(attempt))
            documents.append(_document(attempt))
            if not as_json:
                print_line(_line(documents[-1]))
            sys.stdout.flush()
            unsent.show()
            _say_problem(attempt)
    if as_json:
        print_json(documents)
    elif not documents:
        print_line("no run is ready to resume")
    return code


def _code(attempt: Attempt) -> int:
    if attempt.executed is not None:
        return exit_code(attempt.executed)
    return exit_of(attempt.problem) if attempt.status == "error" and attempt.problem is not None else Exit.DONE


def _say_problem(attempt: Attempt) -> None:
    problem, executed = attempt.problem, attempt.executed
    if problem is not None and attempt.status == "error":
        print_error(f"run `{attempt.run_id}`: {problem.message}", problem.hint)
    elif problem is not None:
        print_warning(f"run `{attempt.run_id}` was skipped: {problem.message}")
    if executed is not None and executed.warning is not None:
        print_warning(f"run `{attempt.run_id}`: {executed.warning}")


def _document(attempt: Attempt) -> ReadyRun:
    executed = attempt.executed
    outcome = executed.outcome if executed is not None else None
    return {
        "run_id": attempt.run_id,
        "runbook_name": attempt.runbook,
        "status": executed.status if executed is not None else attempt.status or "error",
        "outcome": {"category": outcome.category, "code": outcome.code} if outcome is not None else None,
        "reason": _reason(attempt),
        "tickets": [each.ticket_id for each in executed.pending] if executed is not None else [],
    }


def _reason(attempt: Attempt) -> str | None:
    if attempt.problem is not None:
        return attempt.problem.message
    if attempt.status == "busy":
        return "another process drives or resumed it"
    return _failure(attempt.executed) if attempt.executed is not None else None


def _failure(executed: Executed) -> str | None:
    if executed.failure is None:
        return executed.scenario.problem if executed.scenario is not None else None
    where = f"`{path_text(executed.failed_step)}`: " if executed.failed_step else ""
    return f"{where}{executed.failure.message}"


def _line(said: ReadyRun) -> str:
    """What became of a run, on one line."""
    outcome, tickets = said["outcome"], said["tickets"]
    told: str = said["status"]
    if outcome is not None:
        told += f", {outcome['category']}: {outcome['code']}"
    if said["reason"] is not None:
        told += f": {said['reason']}"
    if tickets:
        told += f" for {plural(len(tickets), 'approval')}: {', '.join(tickets)}"
    name = f" ({clip(said['runbook_name'], LONGEST_NAME)})" if said["runbook_name"] else ""
    return f"{clip(said['run_id'], 2 * LONGEST_NAME)}{name}: {clip(told)}"
