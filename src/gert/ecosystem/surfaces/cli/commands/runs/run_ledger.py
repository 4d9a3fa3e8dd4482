"""`gert run status|verify|summaries|artifacts|export`: read and verify the record of a run."""

import os
from contextlib import closing
from functools import partial

import click
import msgspec

from gert.ecosystem.host.config.keys.trace_keys import key_hint, verification_keys
from gert.ecosystem.host.runs.details import MOST_SUMMARIES, agent_facts, artifact_facts, status_facts, summary_facts
from gert.ecosystem.host.runs.export_spans import send_spans, spans_as_json
from gert.ecosystem.host.runs.logs import failed_output
from gert.ecosystem.host.runs.verify_ledger import Demands, Verified, check_ledger
from gert.ecosystem.host.shapes.reports import VerifiedRun
from gert.ecosystem.surfaces.cli.commands.runs.trace import write_out
from gert.ecosystem.surfaces.cli.options import LedgerChoice, ledger_options, named_run, open_runs, run_argument
from gert.ecosystem.surfaces.cli.render.output import plural, print_error, print_json, print_line, print_lines
from gert.ecosystem.surfaces.cli.render.runs.run_text import COLOURS, last_output, output_command, ticket_rows
from gert.ecosystem.surfaces.cli.render.table import print_table
from gert.ecosystem.surfaces.cli.render.text import BAD, GOOD, LONGEST_NAME, clip, value_text
from gert.errors import UsageError
from gert.kernel.foundation.text import printable


@click.command(name="status", epilog="Example: gert run status 20260228-1430")
@run_argument
def status(run_id: str, ledger: LedgerChoice, as_json: bool) -> int:
    """Show the status of a run, and what it waits for."""
    with open_runs(*ledger) as runs:
        entry = runs.entry(runs.find(run_id))
        printed = {} if as_json else failed_output(runs.reader, entry.head)
    facts = status_facts(entry)
    if as_json:
        print_json(facts)
        return 0
    print_line(
        f"run {clip(facts['run_id'], 2 * LONGEST_NAME)}: {click.style(facts['status'], fg=COLOURS[facts['status']])}"
    )
    rows = {
        "tenant": facts["tenant_id"],
        "events": f"{facts['last_event_seq']}, the last `{facts['last_event_type']}` at {facts['updated_at']}",
        "paused for": ", ".join(agent_facts(entry).get("pauses", ())) or None,
        "waits for": facts["blocked_on"] if not entry.tickets else None,
        "failed at": facts["failed_step"],
        "because": facts["failure_reason"],
    }
    for title, value in (*rows.items(), *ticket_rows(entry)):
        if value is not None:
            print_line(f"  {title}:".ljust(14) + clip(str(value)))
    print_lines(last_output(entry, printed))
    if (command := output_command(entry)) is not None:
        print_line("  output:".ljust(14) + clip(command))
    return 0


@click.command(name="verify-ledger", epilog="Example: gert run verify-ledger triage-1 --db agents.db")
@click.option("--key-id", metavar="ID", help="Require a seal by this key.")
@click.option("--require-signature", is_flag=True, help="Require a seal, by any key that is set.")
@click.option("--witness", metavar="FILE|URL", help="Witness to compare with (default: that of the settings).")
@partial(named_run, is_required=False)
@ledger_options
def verify(
    run_id: str | None,
    key_id: str | None,
    require_signature: bool,
    witness: str | None,
    ledger: LedgerChoice,
    as_json: bool,
) -> int:
    """Verify that the record of a run is complete and unchanged; without RUN, of every run of the ledger.

    Prints `valid`, or `invalid` and the reasons on standard error. Keys come from the environment as for `gert trace
    verify`; where one is set, a run that is not sealed is invalid. With a witness, a head that the ledger no longer has
    is invalid as well: the ledger was rolled back, or the run was removed.
    """
    demands = Demands(verification_keys(os.environ, key_id), key_id, require_signature)
    with open_runs(*ledger) as runs:
        found, elsewhere = check_ledger(runs, run_id, demands, witness, os.environ)
    if as_json:
        documents = [_document(each) for each in found]
        print_json(documents[0] if run_id is not None else {"runs": documents, "elsewhere": dict(elsewhere)})
    else:
        for each in found:
            _say_verified(each, named=run_id is None)
        if not found:
            print_line("there are no runs")
        for other, count in elsewhere.items():
            print_line(f"not checked: {plural(count, 'run')} that the witness has of the ledger {printable(other)}")
        if (require_signature or key_id is not None) and not len(demands.keys):
            print_error("no key to verify with is set", key_hint(key_id))
    return 0 if all(each.holds for each in found) else 1


def _say_verified(found: Verified, *, named: bool) -> None:
    name = f"{found.run_id}: " if named else ""
    print_line(name + (click.style("valid", fg=GOOD) if found.holds else click.style("invalid", fg=BAD)))
    for check in found.failures:
        print_error(f"{name}{check.reason}")
    unproven = [check for check in found.checks if check.passed is None]
    for note in (*(f"{check.name} not checked: {check.reason}" for check in unproven), *found.adopted):
        click.echo(f"  {printable(note)}", err=True)


@click.command(name="summaries", epilog="Example: gert run summaries triage-1 --type task_progress --db agents.db")
@click.option("--type", "summary_type", metavar="TYPE", help="Only summaries of this type.")
@click.option(
    "--limit",
    type=click.IntRange(1, 100_000),
    default=MOST_SUMMARIES,
    show_default=True,
    help="Most to show.",
)
@run_argument
def summaries(run_id: str, summary_type: str | None, limit: int, ledger: LedgerChoice, as_json: bool) -> int:
    """Show the summaries of an agent run, the newest first."""
    with open_runs(*ledger) as runs:
        found = runs.find(run_id)
        noted = summary_facts(runs.reader, found, summary_type, limit)
    if as_json:
        print_json({"run_id": found, "summaries": noted})
    elif noted:
        rows = [
            [
                str(each["seq"]),
                clip(each["summary_type"], LONGEST_NAME),
                clip(each["step_key"] or "", LONGEST_NAME),
                value_text(each["summary"]),
            ]
            for each in noted
        ]
        print_table(("seq", "type", "step", "summary"), rows)
    else:
        print_line("there are no such summaries")
    return 0


@click.command(name="artifacts", epilog="Example: gert run artifacts triage-1 --db agents.db")
@run_argument
def artifacts(run_id: str, ledger: LedgerChoice, as_json: bool) -> int:
    """Show the newest value of each artifact of an agent run."""
    with open_runs(*ledger) as runs:
        found = runs.find(run_id)
        held = artifact_facts(runs.reader, found)
    if as_json:
        print_json({"run_id": found, "artifacts": held})
    elif held:
        rows = [[clip(key, LONGEST_NAME), value_text(value)] for key, value in held.items()]
        print_table(("artifact", "value"), rows)
    else:
        print_line("there are no artifacts")
    return 0


@click.command(name="export", epilog="Example: gert run export 20260228-1430 --output run.jsonl")
@click.option("--output", "-o", metavar="FILE", help="Write to this new file instead of standard output.")
@click.option(
    "--format",
    "form",
    type=click.Choice(("jsonl", "otlp")),
    default="jsonl",
    show_default=True,
    help="Events as they were recorded, or spans as OTLP/JSON.",
)
@click.option("--send", is_flag=True, help="With `--format otlp`: send them to OTEL_EXPORTER_OTLP_ENDPOINT.")
@click.option("--capture-content", is_flag=True, help="With `--format otlp`: include prompts, arguments and results.")
@run_argument
def export(
    run_id: str,
    output: str | None,
    form: str,
    send: bool,
    capture_content: bool,
    ledger: LedgerChoice,
    as_json: bool,
) -> int:
    """Export a run: its JSONL byte for byte as it was recorded, or its spans for OpenTelemetry.

    Spans have the same ids whenever they are exported; what has not ended is exported as far as it is known. They need
    the extra `otel`.
    """
    if form != "otlp" and (send or capture_content):
        raise UsageError("`--send` and `--capture-content` need `--format otlp`")
    if send and output is not None:
        raise UsageError("expected `--send` or `--output`, found both", hint="leave one of them out")
    with open_runs(*ledger) as runs:
        found = runs.find(run_id)
        with closing(runs.reader.lines(found)) as lines:
            if form == "jsonl":
                write_out((line + b"\n" for line in lines), output)
            elif send:
                sent = send_spans(lines, captures=capture_content)
                print_json({"run_id": found, "spans": sent}) if as_json else print_line(f"sent {plural(sent, 'span')}")
            else:
                write_out(spans_as_json(lines, captures=capture_content), output)
    return 0


def _document(found: Verified) -> VerifiedRun:
    return {
        "run_id": found.run_id,
        "valid": found.holds,
        "proven": found.proven,
        "kind": found.kind,
        "events": found.events,
        "signed_by": found.signed_by,
        "adopted": list(found.adopted),
        "checks": msgspec.to_builtins(found.checks),
    }
