"""Which run started another: recorded in the first event of the other, so that both belong to one trace."""

from typing import Final, NamedTuple


class StartedBy(NamedTuple):
    """The run that started this one, and the first of the chain of runs that started each other."""

    parent_run_id: str | None = None
    root_run_id: str | None = None


NO_RUN: Final = StartedBy()
