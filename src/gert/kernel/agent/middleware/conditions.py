"""Conditions of middleware on the append that records a request: evaluated where no other process can append."""

from collections.abc import Callable
from dataclasses import dataclass

from gert.kernel.ledger.build_batch import Entry
from gert.kernel.ledger.record import Exceeded, Head, Held, Limit


@dataclass(frozen=True, slots=True)
class Refusal:
    """A refused request: the error that the caller gets, and what is recorded in place of the request."""

    error: Exception
    entries: tuple[Entry, ...] = ()


Guard = Callable[[Head], Refusal | None]
"""Decides inside the append, from the head of the run. It may be called more than once, on any thread: it is pure."""

OnRefused = Callable[[Held | Exceeded], Refusal | None]
"""Says what a refusal of the ledger means: a semantic key that another call holds, or a limit; None if another may."""


@dataclass(frozen=True, slots=True)
class Conditions:
    """What middleware adds to the append of a request.

    entries: recorded with the request, before it
    guards: the first that refuses decides
    limits: limits across runs, counted by the ledger inside the append
    on_refused: called if the ledger refuses the request
    reserved_usd: what a model call may cost, which counts against budgets until it ends
    """

    entries: tuple[Entry, ...] = ()
    guards: tuple[Guard, ...] = ()
    limits: tuple[Limit, ...] = ()
    on_refused: tuple[OnRefused, ...] = ()
    reserved_usd: float = 0.0

    def __and__(self, other: "Conditions") -> "Conditions":
        """Return the conditions of both, these first."""
        return Conditions(
            self.entries + other.entries,
            self.guards + other.guards,
            self.limits + other.limits,
            self.on_refused + other.on_refused,
            self.reserved_usd + other.reserved_usd,
        )

    def refusal(self, head: Head) -> Refusal | None:
        """Return the refusal of the first guard that refuses; one that records nothing is raised."""
        for guard in self.guards:
            refused = guard(head)
            if refused is not None and not refused.entries:
                raise refused.error
            if refused is not None:
                return refused
        return None

    def refusal_of(self, found: Held | Exceeded) -> Refusal | None:
        """Return what a refusal of the ledger means to the first that knows."""
        answers = (answer(found) for answer in self.on_refused)
        return next((each for each in answers if each is not None), None)


NO_CONDITIONS = Conditions()
