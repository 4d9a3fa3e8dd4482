"""`gert approve`: say yes to what a run asks for."""

import click

from gert.ecosystem.surfaces.cli.answering import put, takes_answer


@click.command(epilog="Example: gert approve 20260228-143000-123-abc123 --as ann --reason 'checked with ops'")
@takes_answer
def command(
    ticket: str,
    approver: str | None,
    reason: str | None,
    key: str | None,
    key_id: str | None,
    state_dir: str | None,
    as_json: bool,
) -> int:
    """Approve what a run asks for; `gert approvals show TICKET` shows it first.

    TICKET is the id of a ticket, or as much of it as no other has. Exits with 0 when the approval counts, 1 when
    it does not, 2 when there is no such ticket.
    """
    return put(ticket, True, approver, reason, key, key_id, state_dir, as_json=as_json)
