"""A case: one program to be checked, what is known of the world, and what several rules work out once."""

from functools import cached_property

from gert.kernel.runbook.program import Program
from gert.kernel.runbook.validate.domain.reach import Flow
from gert.kernel.runbook.validate.facts import Facts


class Case:
    """What a domain rule looks at."""

    def __init__(self, program: Program, facts: Facts) -> None:
        self.program = program
        self.facts = facts

    @cached_property
    def flow(self) -> Flow:
        """Which steps can be reached, and which lists let control through."""
        return Flow(self.program)
