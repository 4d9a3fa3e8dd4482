"""Every conformance run, recorded as a scenario, replays to the same events: byte for byte apart from its stamps."""

import asyncio
import random
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.conformance.runs import RUNS, Case, cases, execute, setup_of, world_of
from tests.conformance.walks import Chancy, Walk
from tests.soak import sampled

from gert.ecosystem.host.run.world.sanitize import Sanitizer
from gert.ecosystem.host.run.world.worlds import World
from gert.ecosystem.host.scenarios.replay import Replay, script_for
from gert.errors import DocumentError
from gert.kernel.engine.frame import Setup
from gert.kernel.engine.inputs import ResolvedInputs
from gert.kernel.engine.requests import AnyAnswer, Request
from gert.kernel.engine.run import RunResult
from gert.kernel.events.envelope import decode
from gert.kernel.foundation.redaction import Redactor
from gert.kernel.runbook.document import load
from gert.kernel.runbook.finding import Severity
from gert.kernel.runbook.validate import validate
from gert.kernel.runbook.writer import to_yaml
from gert.kernel.scenario.inputs import SOURCE, replayed_inputs
from gert.kernel.scenario.recording import collect_requests, recorded_scenario

RECORDED = [file for file in cases() if Case(file).get("mode", "real") == "real"]


Ran = tuple[RunResult, list[bytes]]


def recorded_and_replayed(setup: Setup, world: World, max_parallel: int = 16) -> tuple[Ran, Ran]:
    """A run, and the replay of the scenario it was recorded as."""
    asks: dict[str, Any] = {}
    result, lines, answers = execute(
        setup, world, max_parallel=max_parallel, around=lambda steps: collect_requests(steps, asks)
    )
    text = to_yaml(recorded_scenario(setup, asks, [(entry.key, entry.answer) for entry in answers]))
    document = validate(load(text.encode(), kind="scenario"), setup.program)
    assert not [each for each in document.findings if each.severity is Severity.ERROR], text
    inputs: ResolvedInputs = replayed_inputs(setup.program.runbook.meta.inputs, document.model)
    started = msgspec.structs.replace(
        setup.started, mode="replay", scenario="recorded", inputs=inputs.values, input_sources=inputs.sources
    )
    again = msgspec.structs.replace(setup, started=started, secret_inputs=frozenset(inputs.secrets))
    script = script_for(document.model, again)
    replayed, relines, _ = execute(again, Replay(script))
    assert not script.missing, text
    return (result, lines), (replayed, relines)


@pytest.mark.parametrize("file", RECORDED, ids=lambda file: str(file.relative_to(RUNS).with_suffix("")))
def test_a_recorded_run_replays_to_the_same_events(file: Path) -> None:
    case = Case(file)
    setup = setup_of(case)
    first, second = recorded_and_replayed(setup, Taken(world_of(case, setup)), case.get("max_parallel", 16))
    assert [unstamped(line) for line in second[1]] == [unstamped(line) for line in first[1]]
    assert second[0] == first[0]


@pytest.mark.parametrize("start", sampled(range(0, 300, 50), [0]))
def test_runs_whose_lanes_are_answered_in_any_order_replay_to_the_same(start: int) -> None:
    for walk in map(Walk, range(start, start + 50)):
        try:
            setup = setup_of(walk)
        except DocumentError:
            continue
        for number in range(3):
            first, second = recorded_and_replayed(setup, Late(f"{walk.seed}/{number}"))
            # Lanes took other turns, so events stand in another order; each place says the same, in its own order.
            assert by_place(second[1]) == by_place(first[1]), walk
            assert second[0].status == first[0].status
            assert second[0].outcome == first[0].outcome


def by_place(lines: list[bytes]) -> dict[str | None, list[dict[str, Any]]]:
    """What was said at each place of a run, in order; how long somebody was waited for is not part of it."""
    places: dict[str | None, list[dict[str, Any]]] = {}
    for line in lines:
        said = unstamped(line)
        del said["seq"]
        for timed in (said["data"], *said["data"].get("branch_outcomes", ())):
            timed.pop("duration", None)
            timed.pop("waited", None)
        places.setdefault(said["path"], []).append(said)
    return places


class Late(Chancy):
    """A world that takes its time, each question another."""

    def immediate(self, ask: Request[Any]) -> AnyAnswer | None:
        return None

    async def answer(self, ask: Request[Any]) -> AnyAnswer:
        answer = super().immediate(ask)
        assert answer is not None
        for _ in range(random.Random(f"{ask.key}/late").randint(0, 5)):
            await asyncio.sleep(0)
        return answer


class Taken:
    """A world whose answers are taken in, as those of the real one are."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._intake = Sanitizer(Redactor())

    def immediate(self, ask: Request[Any]) -> AnyAnswer | None:
        answer = self._world.immediate(ask)
        assert answer is not None
        taken: AnyAnswer = self._intake.take(answer, ask)
        return taken

    async def answer(self, ask: Request[Any]) -> AnyAnswer:
        raise AssertionError("every answer is there at once")


def unstamped(line: bytes) -> dict[str, Any]:
    """An event without what says when and how it was made, and not what happened."""
    event = decode(line)
    data = dict(event.data)
    for name in ("mode", "scenario", "chain_hash", "body_signature"):
        data.pop(name, None)
    if event.type == "run_start":
        data["input_sources"] = {name: _source(each) for name, each in data.get("input_sources", {}).items()}
    if event.type == "input_resolved":
        data["source"] = _source(data["source"])
    return {"seq": event.seq, "type": event.type, "path": event.path, "principal": event.principal, "data": data}


def _source(source: str) -> str:
    return SOURCE if source == "cli" else source
