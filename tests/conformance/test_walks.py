"""Laws of every run, on runbooks and answers drawn by chance; a seed that breaks one is told with its runbook."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import msgspec
import pytest
from tests.conformance.laws import lawful
from tests.conformance.runs import execute, setup_of
from tests.conformance.walks import Chancy, Walk
from tests.soak import sampled

from gert.ecosystem.host.run.world.worlds import DryRun, Probe
from gert.errors import DocumentError
from gert.kernel.engine.frame import Setup
from gert.kernel.events.vocabulary import RunMode

WORLDS: Final = 6
# In these runs everything hangs on a jump that a dry run can only doubt; such seeds are rare.
JUMPS: Final = (506, 538, 848, 1191, 1303, 1681, 2341, 3021, 3355, 3445)
BATCHES: Final = {
    **{f"runbooks {start} to {start + 49}": range(start, start + 50) for start in range(0, 300, 50)},
    "runbooks that hang on a jump": JUMPS,
}

# Batches, because a seed takes no time to speak of, and two processes share these evenly.
by_batches = pytest.mark.parametrize("seeds", sampled(BATCHES, ["runbooks 0 to 49", "runbooks that hang on a jump"]))


@contextmanager
def told(walk: Walk, world: str) -> Iterator[None]:
    """Say which runbook and which world broke a law."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"in the world `{world}`, {walk}")
        raise


def setups(seeds: Sequence[int], kind: type[Walk] = Walk) -> Iterator[tuple[Walk, Setup]]:
    """The runbooks of a batch that are sound, which are most."""
    found = 0
    for walk in map(kind, seeds):
        try:
            setup = setup_of(walk)
        except DocumentError:
            continue
        found += 1
        yield walk, setup
    assert found > len(seeds) * 0.8


def exploring(setup: Setup, mode: RunMode) -> Setup:
    """The same run in a mode that looks for outcomes."""
    started = msgspec.structs.replace(setup.started, mode=mode)
    return msgspec.structs.replace(setup, started=started, explores=True)


def lanes_clash(setup: Setup) -> bool:
    """Whether the dry run finds lanes that write one scope (DECISIONS 67); a run gets by where one of them fails."""
    _, lines, _ = execute(exploring(setup, "dry-run"), DryRun())
    return any(b"both write the scope" in line for line in lines)


@by_batches
def test_a_run_ends_in_an_outcome_its_dry_run_lists(seeds: Sequence[int]) -> None:
    for walk, setup in setups(seeds):
        with told(walk, "dry run"):
            listed = lawful(exploring(setup, "dry-run"), DryRun()).reachable_outcomes
        if lanes_clash(setup):
            continue
        for number in range(WORLDS):
            world = f"{walk.seed}/{number}"
            with told(walk, world):
                outcome = lawful(setup, Chancy(world)).outcome
                assert outcome is None or outcome in listed


@by_batches
def test_a_run_ends_in_an_outcome_its_probe_lists_where_tools_answer_alike(seeds: Sequence[int]) -> None:
    for walk, setup in setups(seeds):
        for number in range(WORLDS // 2):
            world = f"{walk.seed}/steady/{number}"
            with told(walk, world):
                outcome = lawful(setup, Chancy(world, steady=True)).outcome
                probe = Probe(Chancy(world, steady=True))
                listed = lawful(exploring(setup, "probe"), probe).reachable_outcomes
                assert outcome is None or outcome in listed
