"""A runbook of thirty steps that leaves marks in the world, and what must hold after its process was killed."""

import asyncio
import json
import os
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec
from tests.ecosystem.surfaces.cli.workbench import PATIENCE, Project, Recorded, environment, of_type

from gert.ecosystem.approvals.terminal import TerminalApprovals
from gert.ecosystem.host.config.policies import Floor, floor_for
from gert.ecosystem.host.config.workspace import Workspace
from gert.ecosystem.host.redrive.recorded_run import start_of
from gert.ecosystem.host.run.driver.driver import Driver
from gert.ecosystem.host.run.record.journal import Journal, RecordedAnswer, now, read_answers
from gert.ecosystem.host.run.world.console import Console
from gert.ecosystem.host.run.world.evidence import EvidenceEntries, collect
from gert.ecosystem.host.run.world.sanitize import Sanitizer
from gert.ecosystem.host.run.world.worlds import Real
from gert.ecosystem.ledger.sqlite.ledger import SqliteLedger
from gert.ecosystem.ledger.verify_run import verify_run
from gert.ecosystem.tools.command import CommandContext
from gert.ecosystem.tools.stdio import Stdio
from gert.kernel.engine.frame import Setup
from gert.kernel.engine.requests import ToolAnswer
from gert.kernel.engine.run import RunResult, run
from gert.kernel.events.envelope import decode
from gert.kernel.events.trace_seal import CheckReport
from gert.kernel.foundation.redaction import Redactor
from gert.kernel.runbook.program import Program

KILLER = Path(__file__).with_name("killer.py")
STAMPS = ("timestamp", "prev_hash", "answers")
MOST_OPEN = 3
APPROVE = {"name": "restarts", "effects": ["restart"], "action": "require-approval"}


def _note(step: str, word: str | None = None, **more: Any) -> dict[str, Any]:
    return {
        "id": step,
        "type": "tool",
        "tool": more.pop("tool", "mark"),
        "inputs": {"word": word or step, "folder": "{{ .folder }}"},
        **more,
    }


def _assert(step: str, value: str, expected: str) -> dict[str, Any]:
    return {"id": step, "type": "assert", "assert": [{"type": "equals", "value": value, "expected": expected}]}


STEPS: list[dict[str, Any]] = [
    _note("s01"),
    _note("s02"),
    _assert("s03", "{{ .step.s02.said }}", "s02"),
    {
        "id": "s04",
        "type": "branch",
        "branches": [
            {"condition": '{{ eq .step.s01.said "no" }}', "label": "never", "steps": [_note("never")]},
            {
                "condition": "default",
                "label": "taken",
                "steps": [_note("s05"), _assert("s06", "{{ .step.s05.said }}", "s05"), _note("s07")],
            },
        ],
    },
    _note("s08", "s08-{{ .item }}", for_each={"as": "item", "over": ["a", "b", "c"]}),
    {
        "id": "s09",
        "type": "parallel",
        "branches": [
            {"label": "left", "steps": [_note("s10", scope="left"), _note("s11", scope="left")]},
            {"label": "right", "steps": [_note("s12", scope="right"), _note("s13", scope="right")]},
            {"label": "first", "steps": [_note("s14", scope="first", contract={"writes": ["door"]})]},
            {"label": "second", "steps": [_note("s15", scope="second", contract={"writes": ["door"]})]},
        ],
    },
    {
        "id": "s16",
        "type": "repeat",
        "repeat": {"max": 2},
        "steps": [_note("s17", "s17-{{ .repeat.index }}"), _note("s18", "s18-{{ .repeat.index }}")],
    },
    {
        "id": "s19",
        "type": "manual",
        "instructions": "look at it",
        "contract": {"effects": [], "idempotent": True},
        "required_evidence": [{"kind": "text", "name": "seen"}],
    },
    _assert("s20", "{{ .seen }}", "all is well"),
    _note("s21", tool="flaky", retry={"max": 2, "backoff": "1ms"}),
    _note("s22", contract={"effects": ["files", "restart"]}),
    _note("s23", "s23-{{ .each }}", for_each={"as": "each", "over": ["x", "y"], "parallel": True}),
    _note("s24", when='{{ eq .seen "nothing" }}'),
    _note("s25"),
    _assert("s26", "{{ .step.s25.said }}", "s25"),
    _note("s27"),
    _note("s28"),
    {
        "type": "end",
        "outcome": {"category": "resolved", "code": "all_done", "meta": {"last": "{{ .step.s28.said }}"}},
    },
]
AFTER = [_note("s30")]
WORDS = {
    *(f"s{number:02}" for number in (1, 2, 5, 7, 10, 11, 12, 13, 14, 15, 21, 22, 25, 27, 28, 30)),
    *("s08-a", "s08-b", "s08-c", "s17-0", "s17-1", "s18-0", "s18-1", "s21-2", "s23-x", "s23-y"),
}


def thirty(root: Path) -> Project:
    """A project with the runbook, its tools, and everything people say."""
    project = Project(root)
    inputs = {"word": {"type": "string", "required": True}, "folder": {"type": "string", "required": True}}
    extract = {"said": {"from": "stdout", "pattern": "noted (.*)"}}
    mark = 'printf "%s\\n" "$1" >> "$2/effects"; printf "noted %s\\n" "$1"'
    project.tool("mark", ["sh", "-c", mark, "sh", "{{ .word }}", "{{ .folder }}"], inputs=inputs, extract=extract)
    flaky = f'if [ -e "$2/again" ]; then set -- "$1-2" "$2"; {mark}; else : > "$2/again"; {mark}; exit 1; fi'
    project.tool("flaky", ["sh", "-c", flaky, "sh", "{{ .word }}", "{{ .folder }}"], inputs=inputs, extract=extract)
    project.runbook(
        *STEPS,
        tools=["mark", "flaky"],
        after=AFTER,
        ends=False,
        inputs={"folder": {"type": "string", "required": True}},
        governance={"rules": [APPROVE, {"default": "allow"}]},
    )
    project.write("evidence.yaml", {"s19": {"seen": "all is well"}})
    project.write("stdin", "y go on\n")
    return project


def kill_at(project: Project, points: Iterable[tuple[str, int]]) -> list["Killed"]:
    """Run the runbook once for each point, and kill it there."""
    job = {
        "book": str(project.root / "book.yaml"),
        "evidence": str(project.root / "evidence.yaml"),
        "stdin": str(project.root / "stdin"),
        "points": [{"what": what, "n": n, "at": str(project.root / f"{what}-{n}")} for what, n in points],
    }
    ended = subprocess.run(
        [sys.executable, str(KILLER)],
        input=json.dumps(job).encode(),
        capture_output=True,
        cwd=project.root,
        env=environment(),
        timeout=4 * PATIENCE,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr.decode()
    assert not ended.stderr, ended.stderr.decode()
    return [Killed(project, Path(each["at"]), each["status"]) for each in json.loads(ended.stdout)]


@dataclass(frozen=True)
class Killed:
    """A run whose process is gone, and the folder it left."""

    project: Project
    at: Path
    status: int

    @property
    def run(self) -> Recorded:
        (only,) = (each for each in (self.at / "runs").iterdir() if each.is_dir())
        return Recorded(only)

    def words(self) -> list[str]:
        effects = self.at / "effects"
        return effects.read_text().splitlines() if effects.exists() else []

    def lines(self) -> list[bytes]:
        return self.run.lines()

    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.lines()]

    def logged(self) -> list[RecordedAnswer]:
        return read_answers(line for (line,) in self._rows("SELECT line FROM answers ORDER BY n"))

    @property
    def ledger(self) -> Path:
        return self.run.ledger

    def _rows(self, statement: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(f"file:{self.ledger}?mode=ro", uri=True)) as found:
            return found.execute(statement).fetchall()


class KilledInDatabase(Killed):
    """The same, of a run in a ledger that was named: it has no mirror."""

    @property
    def ledger(self) -> Path:
        return self.at / "runs.db"

    def lines(self) -> list[bytes]:
        return [line for (line,) in self._rows("SELECT line FROM events ORDER BY seq")]


def bare(event: dict[str, Any]) -> dict[str, Any]:
    """An event without its stamps."""
    data = {name: value for name, value in event["data"].items() if name not in ("chain_hash", "signature")}
    return {**{name: value for name, value in event.items() if name not in STAMPS}, "data": data}


def announced(events: Iterable[dict[str, Any]]) -> set[str]:
    """The words of the steps that were announced."""
    starts = of_type(list(events), "step_start")
    return {start["data"]["inputs"]["word"] for start in starts if "word" in start["data"].get("inputs", {})}


def check_record(killed: Killed) -> None:
    """The record holds up to the kill, its mirror is no further, and nothing was done that it does not announce."""
    events = killed.events()
    report = asyncio.run(_verified(killed.ledger, events[0]["run_id"])) if events else None
    assert report is None or (report.holds and report.events == len(events)), report
    lines = b"".join(line + b"\n" for line in killed.lines())
    assert lines.startswith(killed.run.trace.read_bytes())
    check_announced(killed)


async def _verified(ledger: Path, run_id: str) -> CheckReport:
    async with SqliteLedger(ledger, read_only=True) as opened:
        return await verify_run(opened, run_id)


def check_announced(killed: Killed) -> None:
    """Nothing was done that the record does not announce."""
    unannounced = {word.removesuffix("-2") for word in killed.words()} - announced(killed.events())
    assert unannounced == set(), unannounced


def is_over(events: list[dict[str, Any]]) -> bool:
    return events[-1:] != [] and bool(events[-1]["type"] == "run_complete")


def done_words(logged: Iterable[RecordedAnswer]) -> list[str]:
    """The words of the calls whose answers were kept."""
    return [each.answer.stdout.split()[1] for each in logged if isinstance(each.answer, ToolAnswer)]


@lru_cache(maxsize=4)
def _loaded(file: str) -> tuple[Program, str, Floor]:
    workspace = Workspace(str(Path(file).parent))
    checked = workspace.program(file)
    assert checked.program is not None
    return checked.program, checked.document.digest, floor_for(workspace, file, checked.program)


def redrive(killed: Killed, logged: list[RecordedAnswer]) -> tuple[RunResult, list[dict[str, Any]]]:
    """Run again: what was answered is not asked again, what was not is asked of the live world."""
    first = decode(killed.lines()[0])
    project, (started, start) = killed.project, start_of(first)
    program, digest, floor = _loaded(start.file)
    setup = Setup(
        program=program,
        run_id=first.run_id,
        started=msgspec.structs.replace(started, runbook_hash=digest, policy_hashes=floor.digests),
        policies=tuple(floor.policies),
    )
    stdin = os.open(project.root / "stdin", os.O_RDONLY)

    async def drive() -> tuple[RunResult, list[dict[str, Any]]]:
        context = CommandContext(
            environment=environment(), secrets={}, withheld=frozenset(), working=str(project.root), run_id="again"
        )
        stdio = Stdio(context, Redactor())
        evidence = EvidenceEntries.from_file(str(project.root / "evidence.yaml"), "kim")
        world = Real(
            program,
            Sanitizer(Redactor()),
            transports={"stdio": stdio},
            approvals=TerminalApprovals(Console(stdin, lambda _: None), "kim", now, lambda: "ticket-again"),
            collect=lambda ask: collect(ask, evidence),
        )
        async with asyncio.timeout(PATIENCE), SqliteLedger(":memory:") as ledger:
            await ledger.acquire(setup.run_id, "again", PATIENCE)
            result = await Driver(world, Journal(setup.run_id, ledger), recorded=logged).drive(run(setup))
            return result, [json.loads(line) async for line in ledger.stream(setup.run_id)]

    try:
        return asyncio.run(drive())
    finally:
        os.close(stdin)


def check_redrive(killed: Killed) -> None:
    """A run that is gone on with writes what it wrote, does nothing twice that was answered, and ends as it should."""
    before = [bare(event) for event in killed.events()]
    if not before:
        assert killed.words() == [], "something was done before the run was on record"
        return
    logged = killed.logged()
    done = done_words(logged)
    result, events = redrive(killed, logged)
    again = [bare(event) for event in events]
    differ = [(mine, its) for mine, its in zip(again, before, strict=False) if mine != its]
    assert not differ, differ[0]
    assert len(again) >= len(before)
    assert result.outcome is not None
    assert (result.status, result.outcome.code, result.outcome.meta) == ("completed", "all_done", {"last": "s28"})
    assert result.finally_failure is None
    counts = Counter(killed.words())
    twice = {word for word in counts if counts[word] != 1}
    assert twice.isdisjoint(done), twice
    assert set(counts) == WORDS, set(counts) ^ WORDS
    # What was under way is in doubt, and that is never more than the lanes that were open.
    assert len(twice) <= MOST_OPEN, counts
    assert max(counts.values()) <= 2, counts
