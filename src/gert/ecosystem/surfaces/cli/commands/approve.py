"""`gert approve`: say yes to what a run asks for."""

from gert.ecosystem.surfaces.cli.commands.answer_command import answering

command = answering(
    "approve",
    """Approve what a run asks for; `gert approvals show TICKET` shows it first.

    TICKET is the id of a ticket, or as much of it as no other has. Exits with 0 when the approval counts, 1 when
    it does not, 2 when there is no such ticket.
    """,
    approved=True,
    example="--as ann --reason 'checked with ops'",
)
