"""`gert reject`: say no to what a run asks for."""

import click

from gert.ecosystem.surfaces.cli.answering import put, takes_answer


@click.command(epilog="Example: gert reject 20260228-143000-123-abc123 --as ann --reason 'not during the freeze'")
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
    """Reject what a run asks for; one rejection closes the ticket.

    TICKET is the id of a ticket, or as much of it as no other has. Exits with 0 when the rejection counts, 1 when
    it does not, 2 when there is no such ticket.
    """
    return put(ticket, False, approver, reason, key, key_id, state_dir, as_json=as_json)
