"""`gert reject`: say no to what a run asks for."""

from gert.ecosystem.surfaces.cli.commands.answer_command import answering

command = answering(
    "reject",
    """Reject what a run asks for; one rejection closes the ticket.

    TICKET is the id of a ticket, or as much of it as no other has. Exits with 0 when the rejection counts, 1 when
    it does not, 2 when there is no such ticket.
    """,
    approved=False,
    example="--as ann --reason 'not during the freeze'",
)
