"""Laws of every run on runbooks with all kinds of step and all modifiers, in worlds where anything may go wrong."""

import asyncio
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import msgspec
import pytest
from tests.conformance.going_on import Batches, Stopped, driven, gone_on
from tests.conformance.going_on import told as said_by_place
from tests.conformance.laws import lawful, require_lawful
from tests.conformance.runs import Refusing, events_of, execute
from tests.conformance.test_replay import Taken, by_place, recorded_and_replayed, unstamped
from tests.conformance.test_walks import exploring, lanes_clash, setups, told
from tests.conformance.wide_walks import LateWorld, SteadyWorld, WideWalk, WideWorld
from tests.memory_ledger import MemoryLedger
from tests.soak import sampled

from gert.ecosystem.host.policy.explain_runbook import explained_steps
from gert.ecosystem.host.redrive.fork import StepName, fork_at
from gert.ecosystem.host.run.record.journal import read_answers
from gert.ecosystem.host.run.world.worlds import DryRun, Probe
from gert.errors import GertError, UsageError
from gert.kernel.engine.frame import Setup
from gert.kernel.events.envelope import Envelope
from gert.kernel.events.runbook import Outcome

LANES: Final = (1, 2, 16)
# Seeds that have broken a law once.
BROKEN: Final = (97,)


def batches(count: int, size: int) -> pytest.MarkDecorator:
    """So many runbooks, each batch a test; `make test` takes those that have broken a law, and the first batch."""
    ranges = [range(start, min(start + size, count)) for start in range(0, count, size)]
    named = {"runbooks that broke a law": BROKEN} | {f"runbooks {each[0]} to {each[-1]}": each for each in ranges}
    return pytest.mark.parametrize("seeds", sampled(named, list(named)[:2]))


def walks(seeds: Sequence[int]) -> Iterator[tuple[WideWalk, Setup]]:
    """The runbooks of a batch that are sound."""
    for walk, setup in setups(seeds, WideWalk):
        assert isinstance(walk, WideWalk)
        yield walk, setup


def codes(outcomes: Sequence[Outcome]) -> set[str]:
    """Outcomes by their codes: details may be unknown in a dry run."""
    return {each.code for each in outcomes}


@batches(200, 50)
def test_a_run_ends_in_an_outcome_its_dry_run_and_its_probe_list(seeds: Sequence[int]) -> None:
    for walk, setup in walks(seeds):
        with told(walk, "dry run"):
            listed = codes(lawful(exploring(setup, "dry-run"), DryRun()).reachable_outcomes)
        if lanes_clash(setup):
            continue
        for number in range(2):
            world = f"{walk.seed}/{number}"
            with told(walk, world):
                outcome = lawful(setup, WideWorld(world)).outcome
                assert outcome is None or outcome.code in listed
                steady = lawful(setup, SteadyWorld(world)).outcome
                assert steady is None or steady.code in listed
                probe = lawful(exploring(setup, "probe"), Probe(SteadyWorld(world)))
                assert steady is None or steady.code in codes(probe.reachable_outcomes)


@batches(100, 50)
def test_what_is_decided_in_a_run_is_what_was_explained_before(seeds: Sequence[int]) -> None:
    for walk, setup in walks(seeds):
        explained = {each.name: each.as_json() for each in explained_steps(setup.program, list(setup.policies))}
        with told(walk, str(walk.seed)):
            _, lines, _ = execute(setup, WideWorld(f"{walk.seed}/0"))
            for event in events_of(lines):
                if event.type == "governance_decision" and not event.data.get("reasons"):
                    assert _decision(event) == _decision_of(explained[event.data["step_id"].partition("[")[0]])


def _decision(event: Envelope) -> tuple[Any, ...]:
    return event.data["decision"], event.data["risk_level"], event.data.get("rule")


def _decision_of(step: dict[str, Any]) -> tuple[Any, ...]:
    return step["decision"], step["risk_level"], step["rule"]


@batches(100, 50)
def test_a_recorded_run_replays_to_the_same_whatever_its_answers(seeds: Sequence[int]) -> None:
    for walk, setup in walks(seeds):
        world = f"{walk.seed}/0"
        with told(walk, world):
            first, second = recorded_and_replayed(setup, Taken(WideWorld(world)))
            assert [unstamped(line) for line in second[1]] == [unstamped(line) for line in first[1]]
            assert second[0] == first[0]


@batches(100, 50)
def test_the_order_in_which_lanes_are_answered_changes_nothing(seeds: Sequence[int]) -> None:
    for walk, setup in walks(seeds):
        world = f"{walk.seed}/0"
        with told(walk, world):
            first, replayed = recorded_and_replayed(setup, LateWorld(world))
            assert by_place(replayed[1]) == by_place(first[1])
            result, lines, _ = execute(setup, LateWorld(world, "otherwise"), max_parallel=_lanes(world))
            if "cancelled" not in (result.status, first[0].status):
                assert by_place(lines) == by_place(first[1])
                assert (result.status, result.outcome) == (first[0].status, first[0].outcome)


@batches(100, 50)
def test_a_run_that_is_stopped_anywhere_is_whole_and_driven_again_to_the_same(seeds: Sequence[int]) -> None:
    for walk, setup in walks(seeds):
        world, chance = f"{walk.seed}/0", random.Random(walk.seed)
        with told(walk, world):
            stopped, store = Stopped(LateWorld(world), chance.randint(1, 6), within=chance.random() < 0.5), Batches()
            result = driven(setup, stopped, store, _lanes(world))
            require_lawful(list(store.events(setup.run_id)))
            again = Batches()
            answers = list(read_answers(store.answers(setup.run_id)))
            assert driven(setup, Refusing(), again, _lanes(world), recorded=answers) == result
            before, after = (map(unstamped, each.events(setup.run_id)) for each in (store, again))
            assert list(before) == list(after)


@batches(40, 20)
def test_a_run_that_is_cut_off_anywhere_and_resumed_equals_the_run_that_was_not_cut_off(seeds: Sequence[int]) -> None:
    for walk, setup in walks(seeds):
        world, chance, store = f"{walk.seed}/0", random.Random(walk.seed), Batches()
        with told(walk, world):
            result = driven(setup, LateWorld(world), store, _lanes(world))
            whole = said_by_place(store.events(setup.run_id))
            moments = store.sizes[:-1]
            for moment in chance.sample(moments, min(len(moments), 8)):
                kept = store.until(setup.run_id, *moment)
                again = gone_on(setup, LateWorld(world, "again"), kept, _lanes(world))
                require_lawful(list(kept.events(setup.run_id)))
                if "cancelled" not in (result.status, again.status):
                    assert said_by_place(kept.events(setup.run_id)) == whole, moment
                    assert (again.status, again.outcome) == (result.status, result.outcome), moment


@batches(40, 20)
def test_a_new_run_from_any_step_of_an_old_one_takes_the_same_way(seeds: Sequence[int]) -> None:
    for walk, setup in walks(seeds):
        world, store, lanes = f"{walk.seed}/0", Batches(), _lanes(f"{walk.seed}/0")
        with told(walk, world):
            result = driven(setup, LateWorld(world), store, lanes)
            lines, answers = list(store.events(setup.run_id)), list(read_answers(store.answers(setup.run_id)))
            anew = msgspec.structs.replace(setup, run_id="run-2")
            for step in dict.fromkeys(each for event in events_of(lines) for each in _names(event)):
                place = StepName(step, setup.program)
                try:
                    fork = asyncio.run(fork_at(place, anew, answers, lines, strictly=True, lanes=lanes))
                except UsageError as refusal:
                    assert "nothing is asked" in refusal.message, step  # noqa: PT017 - the only good reason
                    continue
                record = Batches()
                again = driven(anew, LateWorld(world, step), record, lanes, recorded=fork.answers)
                require_lawful(list(record.events("run-2")))
                if "cancelled" not in (result.status, again.status):
                    assert said_by_place(record.events("run-2")) == said_by_place(lines), step


def _names(event: Envelope) -> tuple[str, ...]:
    if event.type != "step_complete":
        return ()
    step: str = event.data["step_id"]
    return event.path or "", step, step.partition("[")[0]


Change = Callable[[list[dict[str, Any]], int, random.Random], None]


def _set(name: str, *values: Any) -> Change:
    return lambda log, at, chance: log[at].update({name: chance.choice(values)})


def _say(name: str, *values: Any) -> Change:
    return lambda log, at, chance: log[at]["answer"].update({name: chance.choice(values)})


CHANGES: Final[dict[str, Change]] = {
    "an answer is gone": lambda log, at, _: log.__delitem__(at),
    "an answer is there twice": lambda log, at, _: log.insert(at, msgspec.json.decode(msgspec.json.encode(log[at]))),
    "two answers have changed places": lambda log, at, chance: log.insert(chance.randrange(len(log)), log.pop(at)),
    "an answer is to another question": lambda log, at, chance: log[at].update(key=chance.choice(log)["key"]),
    "an answer says that it came at once": _set("at_once", True),
    "a cancellation has another turn": _set("turn", 0, 1, 10**9, -1, "x"),
    "an answer has other outputs": _say("outputs", {}, {"value": {"a": []}}, {"surplus": 1}),
    "an answer failed": _say("failure", {"kind": "timeout", "message": "m"}, {"kind": "nothing", "message": "m"}),
    "an answer is of another kind": _say("kind", "tool", "evidence", "ticket", "approval", "pause", "none"),
    "an answer took for ever": _say("duration", -1, 1e18, 1e308, "x"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_a_log_that_was_changed_is_refused_or_makes_no_difference(change: Change) -> None:
    for walk, setup in walks(range(30)):
        world, chance, store = f"{walk.seed}/0", random.Random(walk.seed), Batches()
        driven(setup, LateWorld(world), store, 2)
        cuts = [(events, answers) for events, answers in store.sizes[:-1] if answers]
        if not cuts:
            continue
        events, answers = chance.choice(cuts)
        lines = list(store.events(setup.run_id))
        log = [msgspec.json.decode(line) for line in list(store.answers(setup.run_id))[:answers]]
        change(log, chance.randrange(len(log)), chance)
        kept = MemoryLedger.holding(setup.run_id, lines[:events], [msgspec.json.encode(each) for each in log])
        with told(walk, world):
            try:
                gone_on(setup, LateWorld(world), kept, 2)
            except (GertError, msgspec.MsgspecError):
                assert list(kept.events(setup.run_id)) == lines[:events], "whoever refuses changes nothing"
            else:
                assert list(kept.events(setup.run_id))[:events] == lines[:events]
                assert said_by_place(kept.events(setup.run_id)) == said_by_place(lines)


def _lanes(seed: str) -> int:
    return random.Random(seed).choice(LANES)
