"""How much an evaluation may cost, and the meter that counts it."""

from msgspec import Struct

from gert.errors import TemplateEvalError


class Budget(Struct, frozen=True):
    """The limits of one evaluation: steps, characters made, and depth of nested values."""

    max_steps: int = 100_000
    max_output: int = 4_000_000
    max_depth: int = 100


DEFAULT_BUDGET = Budget()

_CHARACTERS_PER_STEP = 4096
_ITEMS_PER_STEP = 16


class Meter:
    """Counts one evaluation against its budget and knows the offset it has reached."""

    __slots__ = ("characters", "max_depth", "offset", "steps")

    def __init__(self, budget: Budget | None = None) -> None:
        budget = budget or DEFAULT_BUDGET
        self.steps = budget.max_steps
        self.characters = budget.max_output
        self.max_depth = budget.max_depth
        self.offset = 0

    @property
    def is_spent(self) -> bool:
        """Whether a limit has been exceeded."""
        return self.steps < 0 or self.characters < 0

    def step(self, count: int = 1) -> None:
        """Spend steps."""
        self.steps -= count
        if self.steps < 0:
            raise self.fault("the template takes too many steps")

    def read(self, characters: int, per_step: int = _CHARACTERS_PER_STEP) -> None:
        """Spend steps on text that is scanned."""
        if characters >= per_step:
            self.step(characters // per_step)

    def visit(self, items: int) -> None:
        """Spend steps on items that are read or copied."""
        if items >= _ITEMS_PER_STEP:
            self.step(items // _ITEMS_PER_STEP)

    def make(self, characters: int) -> None:
        """Spend characters; called before they are allocated."""
        self.characters -= characters
        if self.characters < 0:
            raise self.fault("the template makes too much text")

    def fault(self, message: str, *, hint: str | None = None) -> TemplateEvalError:
        """Return an error at the current position of the evaluation."""
        return TemplateEvalError(message, offset=self.offset, hint=hint)


def too_deep() -> TemplateEvalError:
    """Return the error for an exhausted Python stack, which depends on the caller."""
    return TemplateEvalError("the template is nested too deeply for where it is used")
