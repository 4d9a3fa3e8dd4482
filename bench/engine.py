"""The engine: what a step costs beside its bare events, a real run beside a bare spawn loop, and how both grow."""

import asyncio
import gc
import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from bench.ratio import Ratio, report, timed
from gert.ecosystem.host.config.policies import require_sound
from gert.ecosystem.host.config.workspace import Workspace
from gert.ecosystem.host.run.driver.driver import Driver
from gert.ecosystem.host.run.record.journal import Journal
from gert.ecosystem.host.run.record.lease import hold_lease
from gert.ecosystem.host.run.world.sanitize import Sanitizer
from gert.ecosystem.host.run.world.worlds import Real, World
from gert.ecosystem.ledger.jsonl.mirror import Mirror
from gert.ecosystem.ledger.sqlite.ledger import SqliteLedger
from gert.ecosystem.process.descriptors import keep_private
from gert.ecosystem.tools.command import CommandContext
from gert.ecosystem.tools.stdio import Stdio
from gert.kernel.engine.frame import Setup
from gert.kernel.engine.requests import AnyAnswer, Request, ToolAnswer
from gert.kernel.engine.run import run
from gert.kernel.events.runbook import RunStart
from gert.kernel.foundation.redaction import Redactor
from gert.kernel.runbook.program import Program, policy_of

TOOL = """\
apiVersion: tool/v0
meta: { name: look }
contract:
  effects: [network]
  writes: []
  idempotent: true
  inputs: { host: { type: string, required: true }, tries: { type: int, default: 3 } }
  outputs: { code: { type: int } }
actions:
  get: { argv: ["true", "{{ .host }}"], extract: { code: { from: exit_code } } }
  wait: { argv: [sleep, "0.05"] }
"""
HEAD = """\
apiVersion: kernel/v0
meta:
  name: bench
  inputs: { host: { type: string, default: web-1 } }
  governance: { rules: [ { risk: critical, action: deny }, { default: allow } ] }
tools: [look]
steps:
"""
END = "  - { type: end, outcome: { category: resolved, code: done } }\n"
STEPS = 2_000
SPAWNS = 200
LANES, SLEEP, PARALLEL = 200, 0.05, 50
LOOPS = 2_500


class Immediate:
    """A world that answers at once, as a replay does."""

    def __init__(self) -> None:
        self._answer = ToolAnswer(outputs={"code": 200}, exit_code=0)

    def immediate(self, ask: Request[Any]) -> AnyAnswer | None:
        """Always the same."""
        return self._answer

    async def answer(self, ask: Request[Any]) -> AnyAnswer:
        """Never comes to this."""
        return self._answer


def program_of(folder: Path, steps: str) -> tuple[Program, str]:
    """A program from its steps."""
    (folder / "tools").mkdir(exist_ok=True)
    (folder / "tools" / "look.tool.yaml").write_text(TOOL)
    file = folder / "bench.yaml"
    file.write_text(HEAD + steps + END)
    checked = require_sound(Workspace().check(str(file)))
    assert checked.program is not None
    return checked.program, checked.document.digest


def setup_of(program: Program, digest: str) -> Setup:
    """A run of it."""
    return Setup(
        program=program,
        run_id="run-1",
        started=RunStart(
            runbook="bench",
            runbook_hash=digest,
            mode="real",
            actor="bench",
            host="here",
            gert_version="gert",
            inputs={"host": "web-1"},
            input_sources={"host": "default"},
        ),
        policies=(policy_of(program.runbook.meta.governance),),
    )


def drive(program: tuple[Program, str], world: World, folder: Path | None = None, most: int = 16) -> list[bytes]:
    """Run to the end: recorded in a ledger with its mirror where a folder is given, and else nowhere."""

    async def go() -> list[bytes]:
        if folder is None:
            await finish(Journal("run-1"))
            return []
        async with SqliteLedger(folder / "ledger.db") as ledger, hold_lease(ledger, "run-1"):
            await finish(Journal("run-1", ledger, mirror=Mirror.begin(str(folder / "trace.jsonl"))))
            return [line async for line in ledger.stream("run-1")]

    async def finish(journal: Journal) -> None:
        try:
            result = await Driver(world, journal, max_parallel=most).drive(run(setup_of(*program)))
        finally:
            journal.close()
        assert result.status == "completed", result

    return asyncio.run(go())


def real(program: Program, **added: str) -> World:
    """The real world."""
    environment = {**os.environ, **added}
    context = CommandContext(
        environment=environment, secrets={}, withheld=frozenset(), working=os.getcwd(), run_id="bench"
    )
    stdio = Stdio(context, Redactor())
    nobody: Any = type("Nobody", (), {"wait": None})()
    return Real(program, Sanitizer(Redactor()), transports={"stdio": stdio}, approvals=nobody, collect=nobody.wait)


@contextmanager
def recording(folder: Path) -> Iterator[Path]:
    """A place for a durable record, as a real run has one."""
    with tempfile.TemporaryDirectory(dir=folder) as place:
        yield Path(place)


def calls(count: int, action: str = "get") -> str:
    """That many tool steps, one after the other."""
    line = '  - {{ id: s{0}, type: tool, tool: look, action: {1}, inputs: {{ host: "{{{{ .host }}}}" }} }}\n'
    return "".join(line.format(number, action) for number in range(count))


def fastest(work: Callable[[], object], rounds: int) -> float:
    """The shortest of several measurements: what is above it is other people's work."""
    taken = []
    for _ in range(rounds):
        gc.collect()
        taken.append(timed(work))
    return min(taken)


def bare_events(lines: list[bytes]) -> Callable[[], None]:
    """Encode and hash the same events, and nothing else."""
    decoded = [msgspec.json.decode(line) for line in lines]
    encoder = msgspec.json.Encoder()

    def work() -> None:
        for event in decoded:
            hashlib.sha256(encoder.encode(event)).hexdigest()

    return work


def cost_of_a_step(folder: Path) -> list[Ratio]:
    """A tool step in a world that answers at once, beside its own events; and ten and a hundred times as many."""
    program = program_of(folder, calls(STEPS))
    with recording(folder) as place:
        bare = bare_events(drive(program, Immediate(), place))

    def bare_again() -> None:
        for _ in range(7):
            bare()

    # In turns and for as long, so that a slow moment of the machine hits both alike.
    pairs = [(fastest(lambda: drive(program, Immediate()), 1), fastest(bare_again, 1) / 7) for _ in range(15)]
    measured, floor = sorted(pairs, key=lambda pair: pair[0] / pair[1])[len(pairs) // 2]
    quickest = min(each for each, _ in pairs)
    print(f"     {STEPS / quickest:,.0f} steps a second")
    taken = {STEPS: quickest}
    for count in (100, 10_000):
        sized = program_of(folder, calls(count))
        taken[count] = fastest(lambda sized=sized: drive(sized, Immediate()), 7)  # type: ignore[misc]
    return [
        Ratio(f"{STEPS} tool steps / encoding and hashing their events", measured, floor, 8),
        Ratio("10,000 steps / 100 times 100 steps", taken[10_000], 100 * taken[100], 1.5),
        Ratio("10,000 steps / 5 times 2,000 steps", taken[10_000], 5 * taken[STEPS], 1.3),
    ]


def real_rate(folder: Path) -> Ratio:
    """Real processes with durable events, beside a bare loop that spawns the same command."""
    program = program_of(folder, calls(SPAWNS))

    async def spawn() -> None:
        for _ in range(SPAWNS):
            process = await asyncio.create_subprocess_exec(
                "true", "web-1", stdin=-3, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
            )
            await process.communicate()

    def governed() -> None:
        with recording(folder) as place:
            drive(program, real(program[0]), place)

    # The pair in the middle: a slow moment of the machine hits both of a pair alike, or takes that pair out.
    pairs = [(timed(lambda: asyncio.run(spawn())), timed(governed)) for _ in range(11)]
    floor, measured = sorted(pairs, key=lambda pair: pair[0] / pair[1])[len(pairs) // 2]
    print(f"     {SPAWNS / floor:,.0f} bare spawns a second, {SPAWNS / measured:,.0f} governed: {floor / measured:.0%}")
    return Ratio(f"{SPAWNS} real steps, durable / bare spawn loop", measured, floor, 1 / 0.6)


def fan_out(folder: Path) -> Ratio:
    """Many lanes that sleep, bounded, beside the time the sleeping alone takes."""
    steps = f"""\
  - id: fan
    type: tool
    tool: look
    action: wait
    for_each: {{ as: n, over: [{", ".join(map(str, range(LANES)))}], parallel: true }}
    inputs: {{ host: "{{{{ .n }}}}" }}
"""
    program = program_of(folder, steps)

    def governed(**added: str) -> None:
        with recording(folder) as place:
            drive(program, real(program[0], **added), place, PARALLEL)

    async def bare(**added: str) -> None:
        places = asyncio.Semaphore(PARALLEL)
        pipe, environment = asyncio.subprocess.PIPE, {**os.environ, **added}

        async def one() -> None:
            async with places:
                process = await asyncio.create_subprocess_exec(
                    "sleep", str(SLEEP), stdin=-3, stdout=pipe, stderr=pipe, env=environment
                )
                await process.communicate()

        await asyncio.gather(*(one() for _ in range(LANES)))

    # Both processors start processes nearly all the time, so anything else that runs takes its time from the lanes.
    # So does what `sleep` does before it sleeps: a fifth of that is loading a locale, and `C` has none to be loaded.
    rounds = [
        (timed(lambda: governed(LC_ALL="C")), timed(lambda: asyncio.run(bare(LC_ALL="C"))), timed(governed))
        for _ in range(15)
    ]
    measured, floor, theirs = (min(each) for each in zip(*rounds, strict=True))
    print(
        f"     {LANES} bare sleeping processes take {floor * 1e3:.0f} ms, lanes {measured * 1e3:.0f} ms;"
        f" {theirs * 1e3:.0f} ms in the locale of this machine"
    )
    ideal = SLEEP * LANES / PARALLEL
    return Ratio(f"{LANES} lanes of {SLEEP * 1e3:.0f} ms, {PARALLEL} at once / ideal", measured, ideal, 1.5)


def memory(folder: Path) -> Ratio:
    """What a run of 100,000 events holds on to, beside one of 10,000."""

    def peak(times: int) -> float:
        # Jumps keep nothing of a round: the memory of a run must not grow with their number.
        steps = calls(9).replace("id: s8,", f"id: s8, next: {{ step: s0, max: {times} }},")
        program = program_of(folder, steps)
        gc.collect()
        child = os.fork()
        if child == 0:
            drive(program, Immediate(), None)
            os._exit(0)
        _, status, usage = os.wait4(child, 0)
        assert status == 0
        return usage.ru_maxrss / 1024

    small, large = peak(LOOPS // 10), peak(LOOPS)
    print(f"     {small:.1f} MiB at {LOOPS // 10 * 37:,} events, {large:.1f} MiB at {LOOPS * 37:,}")
    return Ratio("memory of about 100,000 events / of 10,000", large / 1e3, small / 1e3, 1.1)


def main() -> int:
    """Measure and report."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        # Processes first: starting one takes longer from a process that has grown.
        keep_private()
        ratios = [real_rate(folder), fan_out(folder), *cost_of_a_step(folder), memory(folder)]
    return report(ratios)
