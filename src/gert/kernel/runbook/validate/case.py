"""A case: one program to check, the facts about its environment, and results that several rules share."""

from functools import cached_property

from gert.kernel.runbook.program import Program
from gert.kernel.runbook.validate.domain.origins import Origins
from gert.kernel.runbook.validate.domain.reach import Flow
from gert.kernel.runbook.validate.facts import Facts


class Case:
    """The input of a domain rule."""

    def __init__(self, program: Program, facts: Facts) -> None:
        self.program = program
        self.facts = facts

    @cached_property
    def flow(self) -> Flow:
        """Which steps can be reached, and which lists control can leave at their end."""
        return Flow(self.program)

    @cached_property
    def origins(self) -> Origins:
        """Which secrets, inputs and outputs each name of the runbook is made of."""
        return Origins(self.program)
