"""A program that writes runbooks by chance, kills their runs at every boundary, goes on with them, and compares.

Called with a JSON document. With `crowd` many runs wait at once, see there. Otherwise it names a `folder` for all
that is made, the `seeds` to write runbooks from, and whether a run is killed in `every_way` at each boundary or in one
of them. Prints a JSON document: what was counted, and every way in which a run that was killed is not the run that was
not.

Steps leave a word in a file by a real process. Where gert says that it does not know whether a call happened, the
operator here looks into that file and says what is there: so a call that may not be repeated must have happened exactly
as often as in the run nobody killed.

before   nothing of the n-th append is written
midway   the n-th append is written and not committed
mirror   the n-th append is committed, and its lines are not in the mirror, or only half of them
after    the n-th append is committed, and nothing that follows from it has happened
put      the n-th question is put, and nobody has begun to answer it
mid      the n-th process was started a moment ago
done     the n-th question is answered, and nobody has taken the answer
"""

import asyncio
import ctypes
import gc
import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NoReturn

from gert.ecosystem.approvals.tickets import TicketView
from gert.ecosystem.host.approvals.ticket_ledger import TicketPlace, open_tickets
from gert.ecosystem.host.config.workspace import Workspace
from gert.ecosystem.host.redrive.resume import ResumeOptions, resume
from gert.ecosystem.host.run.execute import execute
from gert.ecosystem.host.run.options import Executed, RunOptions
from gert.ecosystem.host.run.world.worlds import Real
from gert.ecosystem.ledger import transactions
from gert.ecosystem.ledger.jsonl.mirror import Mirror
from gert.ecosystem.ledger.sqlite.ledger import SqliteLedger
from gert.ecosystem.ledger.verify_run import verify_run
from gert.errors import InDoubt, TraceError, UsageError
from gert.kernel.engine.inputs import GivenInput
from gert.kernel.events.envelope import format_timestamp
from gert.kernel.events.seal import CheckReport
from gert.kernel.governance.approval import Response
from gert.kernel.ledger.record import Write

Step = dict[str, Any]
Point = tuple[str, int]

APPENDS: Final = ("before", "midway", "mirror", "after")
QUESTIONS: Final = ("put", "mid", "done")
DEPTH: Final = 2
IN_A_ROW: Final = 12
MOST_KILLS: Final = 400
PATIENCE: Final = 60
ENVIRON: Final = {"PATH": os.environ.get("PATH", os.defpath)}
WAITED_FOR: Final = "restart"
PR_SET_CHILD_SUBREAPER: Final = 36


# --- runbooks

MARK: Final = 'printf "%s\\n" "$1" >> "$2/effects"; printf "noted %s\\n" "$1"'
FLAKY: Final = f'if [ -e "$2/again-$1" ]; then {MARK}; else : > "$2/again-$1"; {MARK}; exit 1; fi'
TOOLS: Final[Mapping[str, tuple[str, bool]]] = {
    "mark": (MARK, True),
    "once": (MARK, False),
    "fails": (f"{MARK}; exit 3", True),
    "fails-once": (f"{MARK}; exit 3", False),
    "flaky": (FLAKY, True),
}


class Author:
    """Writes one runbook; every way through it is decided by its seed."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.evidence: dict[str, Any] = {}
        self._names = 0
        self._suffix = ""
        self._quiet = False
        self._known: list[str] = []

    def runbook(self) -> Step:
        steps = self.steps(DEPTH, self.chance.choice((1, 2, 2, 3)))
        last = self.end()
        after = self.steps(0, 1) if self.often(0.35) else []
        return {
            "apiVersion": "kernel/v0",
            "meta": {
                "name": "walk",
                "inputs": {"folder": {"type": "string", "required": True}},
                "governance": {
                    "rules": [
                        {"name": "asked", "effects": [WAITED_FOR], "action": "require-approval"},
                        {"default": "allow"},
                    ]
                },
            },
            "tools": list(TOOLS),
            "steps": [*steps, last],
            **({"finally": after} if after else {}),
        }

    def often(self, share: float) -> bool:
        return self.chance.random() < share

    def name(self) -> str:
        self._names += 1
        return f"s{self._names}"

    def end(self) -> Step:
        """What is known of the last steps is part of the outcome."""
        meta = {name: f"{{{{ .step.{name}.status }}}}" for name in self._known[-3:]}
        return {"type": "end", "outcome": {"category": "resolved", "code": "done", "meta": meta}}

    def steps(self, depth: int, count: int) -> list[Step]:
        return [self.step(depth) for _ in range(count)]

    def step(self, depth: int) -> Step:
        table = {"tool": 5.0, "loop": 1.0, "jump": 0.7, "manual": 0.8, "assert": 0.5}
        if depth:
            table |= {"branch": 1.0, "parallel": 2.0, "repeat": 1.0}
        kind = self.chance.choices(list(table), list(table.values()))[0]
        written: Step = getattr(self, kind)(depth)
        return written

    def tool(self, _: int, word: str = "") -> Step:
        name = self.name()
        tool = self.chance.choices(list(TOOLS), [4, 5, 0.7, 1.2, 1.2])[0]
        step: Step = {
            "id": name,
            "type": "tool",
            "tool": tool,
            "inputs": {"word": f"{name}{self._suffix}{word}", "folder": "{{ .folder }}"},
            "scope": f"of-{name}",
        }
        if tool == "flaky" or (tool == "fails" and self.often(0.5)):
            step["retry"] = {"max": 2, "backoff": "1ms"}
        if (tool == "flaky" and self._quiet) or (tool.startswith("fails") and (self._quiet or self.often(0.8))):
            step["continue_on_fail"] = True
        if self.often(0.25):
            step["contract"] = {"effects": ["files", WAITED_FOR]}
        if self._known and self.often(0.2):
            step["when"] = self.condition()
        if not self._suffix:
            self._known.append(name)
        return step

    def loop(self, depth: int) -> Step:
        """A tool for each of some items: one after the other, at once, or by key."""
        was, self._quiet = self._quiet, True
        step = self.tool(depth, "-{{ .item }}")
        self._quiet = was
        if step["id"] in self._known:
            self._known.remove(step["id"])
        loop: Step = {"as": "item", "over": ["a", "b", "c"][: self.chance.choice((1, 2, 2, 3))]}
        if self.often(0.6):
            loop["parallel"] = True
        if self.often(0.4):
            loop["key"] = "{{ .item }}"
        return {**step, "for_each": loop}

    def jump(self, depth: int) -> Step:
        """A step that is done again a few times."""
        step = self.tool(depth)
        name = step["id"]
        step["inputs"]["word"] += f"-{{{{ .{name}.retry_count }}}}"
        step.pop("when", None)
        step["next"] = {"step": name, "max": self.chance.randint(1, 2)}
        return step

    def manual(self, _: int) -> Step:
        name = self.name()
        self.evidence[name] = {f"seen_{name}": f"all is well with {name}"}
        return {
            "id": name,
            "type": "manual",
            "instructions": "look at it",
            "contract": {"effects": [], "idempotent": self.often(0.5)},
            "required_evidence": [{"kind": "text", "name": f"seen_{name}"}],
            "scope": f"of-{name}",
        }

    def condition(self) -> str:
        name = self.chance.choice(self._known)
        return f'{{{{ eq .step.{name}.status "{self.chance.choice(["success", "success", "failed"])}" }}}}'

    def _assert(self, _: int) -> Step:
        return {
            "id": self.name(),
            "type": "assert",
            "assert": [{"type": "equals", "value": "{{ .folder }}", "expected": "{{ .folder }}"}],
        }

    def branch(self, depth: int) -> Step:
        before = list(self._known)
        condition = self.condition() if before else '{{ eq .folder "" }}'
        arms = []
        for each in (condition, "default"):
            arms.append({"condition": each, "steps": self.steps(depth - 1, self.chance.randint(1, 2))})
            self._known = list(before)
        return {"id": self.name(), "type": "branch", "branches": arms}

    def parallel(self, depth: int) -> Step:
        before, was = list(self._known), self._quiet
        self._quiet = True
        lanes = []
        for _ in range(self.chance.choice((2, 2, 2, 3))):
            lanes.append({"steps": self.steps(depth - 1, self.chance.randint(1, 2))})
            self._known = list(before)
        self._quiet = was
        return {"id": self.name(), "type": "parallel", "branches": lanes}

    def repeat(self, depth: int) -> Step:
        before, self._suffix = (list(self._known), self._suffix), self._suffix + "-{{ .repeat.index }}"
        steps = self.steps(0, self.chance.randint(1, 2))
        self._known, self._suffix = before
        return {"id": self.name(), "type": "repeat", "repeat": {"max": self.chance.randint(1, 2)}, "steps": steps}


setattr(Author, "assert", Author._assert)


class Book:
    """A runbook on disk with its tools and everything people say."""

    def __init__(self, root: Path, seed: int) -> None:
        self.root, self.seed = root, seed
        author = Author(seed)
        self.document = author.runbook()
        (root / "tools").mkdir(parents=True)
        (root / "gert-project.yaml").write_text("name: walk\n")
        for name, (script, idempotent) in TOOLS.items():
            (root / "tools" / f"{name}.tool.yaml").write_text(json.dumps(_tool(name, script, idempotent)))
        self.file = root / "book.yaml"
        self.file.write_text(json.dumps(self.document, indent=1))
        self.evidence = root / "evidence.yaml"
        self.evidence.write_text(json.dumps(author.evidence))
        self.tools = {step["id"]: step["tool"] for step in _all_steps(self.document) if "tool" in step}

    def ending(self) -> Step:
        """The last step."""
        last: Step = self.document["steps"][-1]
        return {**last, "outcome": {"category": "resolved", "code": "done"}}

    def decides(self, step_id: str) -> bool:
        """Whether a step is approved; whoever is asked says the same every time."""
        return random.Random(f"{self.seed}/{step_id}").random() < 0.85

    def is_single(self, word: str) -> bool:
        """Whether the word is left by a call that may not be repeated."""
        return self.tools[word.partition("-")[0]] in ("once", "fails-once")


def _tool(name: str, script: str, idempotent: bool) -> Step:
    texts = {each: {"type": "string", "required": True} for each in ("word", "folder")}
    contract = {"effects": ["files"], "writes": [], "idempotent": idempotent, "inputs": texts, "outputs": {}}
    action = {"argv": ["sh", "-c", script, "sh", "{{ .word }}", "{{ .folder }}"]}
    return {"apiVersion": "tool/v0", "meta": {"name": name}, "contract": contract, "actions": {"go": action}}


def _all_steps(node: Any) -> Iterator[Step]:
    if isinstance(node, dict):
        if "id" in node:
            yield node
        for value in node.values():
            yield from _all_steps(value)
    elif isinstance(node, list):
        for value in node:
            yield from _all_steps(value)


# --- killing


def die() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("still alive")


class Boundaries:
    """Counts the boundaries of a run in this process, and kills it at one of them."""

    def __init__(self, point: Point | None) -> None:
        self._what, self._n = point or ("", 0)
        self.counts: Counter[str] = Counter()

    def _is_here(self, kind: str) -> bool:
        self.counts[kind] += 1
        return self.counts[kind] == self._n

    def install(self) -> Callable[[], None]:
        """Listen at every boundary; the result stops it."""
        append, answer, popen = SqliteLedger.append, Real.answer, subprocess.Popen.__init__
        transaction, mirrored = transactions.append, Mirror.write
        here = False

        async def appending(ledger: SqliteLedger, run_id: str, write: Write, **more: Any) -> Any:
            nonlocal here
            here = self._is_here("append")
            if here and self._what == "before":
                die()
            return await append(ledger, run_id, write, **more)

        def transacting(*terms: Any, **more: Any) -> Generator[Any, Any, Any]:
            written = yield from transaction(*terms, **more)
            if here and self._what == "midway":
                die()
            return written

        def mirroring(mirror: Mirror, lines: Sequence[bytes]) -> None:
            if here and self._what == "mirror":
                mirror._write(b"\n".join(lines)[: self._n % 2 * 200])
                die()
            mirrored(mirror, lines)
            if here and self._what == "after":
                die()

        async def answering(world: Real, ask: Any) -> Any:
            is_here = self._is_here("question")
            if is_here and self._what == "put":
                die()
            got = await answer(world, ask)
            if is_here and self._what == "done":
                die()
            return got

        def opening(process: Any, *words: Any, **options: Any) -> None:
            popen(process, *words, **options)
            if self._is_here("process") and self._what == "mid":
                die()

        def restore() -> None:
            SqliteLedger.append, Real.answer, subprocess.Popen.__init__ = append, answer, popen  # type: ignore[method-assign]
            transactions.append, Mirror.write = transaction, mirrored  # type: ignore[method-assign]

        SqliteLedger.append, Real.answer, subprocess.Popen.__init__ = appending, answering, opening  # type: ignore[method-assign, assignment]
        transactions.append, Mirror.write = transacting, mirroring  # type: ignore[assignment, method-assign]
        return restore

    def points(self, chance: random.Random, *, every_way: bool) -> Iterator[Point]:
        """Every boundary that was seen: each append and each question, with one way to be killed there, or all."""
        for kind, ways, likely in (("append", APPENDS, "after"), ("question", QUESTIONS, "done")):
            for n in range(1, self.counts[kind] + 1):
                chosen = ways if every_way else [likely if chance.random() < 0.5 else chance.choice(ways)]
                # There are more questions than processes: a question that needs none is only answered.
                yield from (
                    (way if _counted(way) != "process" or n <= self.counts["process"] else likely, n) for way in chosen
                )


def _counted(way: str) -> str:
    """What is counted to come to a point."""
    return "append" if way in APPENDS else "process" if way == "mid" else "question"


# --- going on


@dataclass
class Stood:
    """How a run stands when its process is gone or gives up on it: ended, waiting, in doubt, or killed."""

    status: str
    outcome: Any = None
    doubts: str = ""
    counts: dict[str, int] = field(default_factory=dict)


@dataclass
class Account:
    """What must be the same, killed or not."""

    status: str
    outcome: Any
    visited: list[tuple[str, str]]
    words: Counter[str]


class Place:
    """The folder of one run of a book, with its record and its side effects."""

    def __init__(self, book: Book, at: Path, *, sync: bool = False) -> None:
        self.book, self.at, self.sync = book, at, sync
        at.mkdir()
        self.kills = self.doubts = self.resumes = 0
        self.chance = random.Random(f"{book.seed}/{at.name}")

    @property
    def run_id(self) -> str | None:
        """The run, once there is something to go on with."""
        found = self._rows("SELECT run_id FROM runs WHERE count > 0")
        return str(found[0][0]) if found else None

    @property
    def ledger(self) -> Path:
        return self.at / "runs" / "ledger.db"

    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for (line,) in self._rows("SELECT line FROM events ORDER BY seq")]

    def _rows(self, statement: str) -> list[tuple[Any, ...]]:
        if not self.ledger.exists():
            return []
        with closing(sqlite3.connect(f"file:{self.ledger}?mode=ro", uri=True, timeout=PATIENCE)) as found:
            try:
                return found.execute(statement).fetchall()
            except sqlite3.OperationalError:
                return []  # killed before the ledger had its tables

    def words(self) -> Counter[str]:
        file = self.at / "effects"
        return Counter(file.read_text().splitlines() if file.exists() else [])

    # --- one process

    def begin(self) -> Executed:
        options = RunOptions(
            file=str(self.book.file),
            given={"folder": GivenInput(str(self.at))},
            actor="kim",
            state_dir=str(self.at),
            evidence=str(self.book.evidence),
            approvals="detach",
            sync=self.sync,
        )
        return asyncio.run(execute(options, environ=ENVIRON))

    def go_on(self, reconcile: Mapping[str, Any]) -> Executed:
        options = ResumeOptions(
            run_id=self.run_id or "", state_dir=str(self.at), actor="lou", reconcile=reconcile, sync=self.sync
        )
        return asyncio.run(resume(options, environ=ENVIRON))

    def live(self, reconcile: Mapping[str, Any]) -> Stood:
        """Begin, or go on; the process may be killed in it."""
        try:
            executed = self.begin() if self.run_id is None else self.go_on(reconcile)
        except InDoubt as doubt:
            return Stood("in doubt", doubts=doubt.message)
        outcome = executed.outcome
        return Stood(executed.status, None if outcome is None else [outcome.code, outcome.meta])

    def killed(self, point: Point, reconcile: Mapping[str, Any]) -> Stood:
        """The same in a process of its own that is killed at a point."""
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            code = 70
            try:
                signal.alarm(PATIENCE)
                boundaries = Boundaries(point)
                boundaries.install()
                stood = self.live(reconcile)
                stood.counts = boundaries.counts
                os.write(writing, json.dumps(vars(stood)).encode())
                code = 0
            except BaseException:
                os.write(writing, traceback.format_exc().encode()[-60_000:])
            finally:
                os._exit(code)
        os.close(writing)
        with os.fdopen(reading) as said:
            text = said.read()
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        _wait_for_orphans()
        assert status in (0, -signal.SIGKILL), text or f"{point}: {status}"
        if status == 0:
            return Stood(**json.loads(text))
        self.kills += 1
        return self._ended() or Stood("killed")

    def _ended(self) -> Stood | None:
        """Killed when everything was over."""
        last = self.events()[-1] if self.run_id is not None and self.events() else None
        if last is None or last["type"] != "run_complete":
            return None
        outcome = last["data"].get("outcome")
        return Stood(last["data"]["status"], None if outcome is None else [outcome["code"], outcome.get("meta", {})])

    # --- from kill to kill

    def drive(self, points: Iterator[Point]) -> Account:
        """Begin, go on after every kill, approve what is waited for, say what is there; until the run has ended."""
        reconcile: dict[str, Any] = {}
        point: Point | None = None
        for _ in range(MOST_KILLS):
            point = point or next(points, None)
            self.resumes += self.run_id is not None
            if self.run_id is None and self.words():
                raise AssertionError("something happened before the run was on record")
            before = self._record()
            stood = self.killed(point, reconcile) if point is not None else self.live(reconcile)
            # Set aside before it came to the point: boundaries are counted on in the next process.
            point = _later(point, stood) if stood.status == "waiting" else None
            if stood.status == "in doubt":
                assert self._record() == before, "a run that is in doubt was changed"
                reconcile = self._look(stood.doubts)
                self.doubts += 1
                continue
            if stood.status == "waiting":
                self._answer()
            elif stood.status != "killed":
                return self._account(stood)
            reconcile = {}
        raise AssertionError("the run never ends")

    def _record(self) -> list[tuple[Any, ...]]:
        """What is recorded; who drives the run is left out."""
        heads = self._rows("SELECT count, hash, answers, answers_hash, snapshot, status FROM runs")
        return [*heads, *self._rows("SELECT line FROM events"), *self._rows("SELECT line FROM answers")]

    def _answer(self) -> None:
        """Decide some of the tickets that are open."""
        pending = _pending(self.at)
        assert pending, "it waits for nothing"
        for view in self.chance.sample(pending, self.chance.randint(1, len(pending))):
            approved = self.book.decides(view.ticket.request.step_id.partition("[")[0])
            assert _respond(self.at, view.id, "sam", approved=approved) is None

    def _look(self, message: str) -> dict[str, Any]:
        """What the operator says of each call in doubt: what the file of side effects says."""
        paths = message.partition("outcome of ")[2].partition(" is unknown")[0].replace("`", "").split(", ")
        starts = {event["path"]: event for event in self.events() if event["type"] == "step_start"}
        ended = [event["path"] for event in self.events() if event["type"] == "step_complete"]
        said: dict[str, Any] = {}
        for path in paths:
            word = starts[path]["data"]["inputs"]["word"]
            assert self.book.is_single(word), f"{path} is in doubt, and may be repeated"
            begun = [event["path"] for event in self.events() if event["type"] == "step_start"].count(path)
            assert begun > ended.count(path), f"{path} is in doubt, and has ended"
            found = self.words()[word]
            assert found <= 1, f"{path} happened {found} times"
            failing = self.book.tools[word.partition("-")[0]] == "fails-once"
            said[path] = "retry" if not found else "failed" if failing else "success"
        return said

    def _account(self, stood: Stood) -> Account:
        report = asyncio.run(self._verified())
        assert report.holds, report
        events = self.events()
        ends = [(event["path"], event["data"]["status"]) for event in events if event["type"] == "step_complete"]
        resumed = [event["data"]["answered"] for event in events if event["type"] == "run_resumed"]
        answers = len(self._rows("SELECT n FROM answers"))
        assert resumed == sorted(resumed), resumed
        assert all(0 <= each <= answers for each in resumed), (resumed, answers)
        (mirror,) = self.at.glob(f"runs/{self.run_id}/*")
        copied = b"".join(line + b"\n" for (line,) in self._rows("SELECT line FROM events ORDER BY seq"))
        # A run that was killed when all was over has a mirror that nobody has completed.
        assert mirror.read_bytes() == copied or (self.kills and copied.startswith(mirror.read_bytes()))
        return Account(stood.status, stood.outcome, sorted(ends), self.words())

    async def _verified(self) -> CheckReport:
        async with SqliteLedger(self.ledger, read_only=True) as ledger:
            return await verify_run(ledger, self.run_id or "")


def _later(point: Point | None, stood: Stood) -> Point | None:
    if point is None:
        return None
    way, n = point
    left = n - stood.counts.get(_counted(way), 0)
    return (way, left) if left > 0 else None


def _wait_for_orphans() -> None:
    """Processes the killed one had started are ours now; what they do, they have done when they are gone."""
    try:
        while True:
            os.waitpid(-1, 0)
    except ChildProcessError:
        return


# --- comparing


@dataclass
class Tally:
    """What was done in all."""

    books: int = 0
    kills: int = 0
    resumes: int = 0
    doubts: int = 0
    boundaries: int = 0
    steps: int = 0
    words: int = 0
    seen: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)

    def add(self, place: Place) -> None:
        self.kills += place.kills
        self.resumes += place.resumes
        self.doubts += place.doubts


def differences(book: Book, whole: Account, killed: Account) -> Iterator[str]:
    """In what a run that was killed is not the run that was not."""
    for name in ("status", "outcome", "visited"):
        mine, its = getattr(killed, name), getattr(whole, name)
        if mine != its:
            yield f"{name}: {mine} and not {its}"
    if set(killed.words) != set(whole.words):
        yield f"side effects: {sorted(set(killed.words) ^ set(whole.words))}"
    for word, count in killed.words.items():
        if book.is_single(word) and count != 1:
            yield f"{word} happened {count} times"
        elif count < whole.words[word] - 1:
            yield f"{word} happened {count} times and not {whole.words[word]}"


def kill_everywhere(book: Book, tally: Tally, *, every_way: bool) -> None:
    """Run once for itself, once for every boundary, and of every other book once killed many times in a row."""
    chance = random.Random(f"points/{book.seed}")
    whole = Place(book, book.root / "whole")
    boundaries = Boundaries(None)
    restore = boundaries.install()
    try:
        account = whole.drive(iter(()))
    finally:
        restore()
    assert whole.doubts == 0
    tally.boundaries += sum(boundaries.counts.values())
    tally.steps += len(account.visited)
    tally.words += sum(account.words.values())
    tally.seen.update(_kinds(whole.events()))
    points = list(boundaries.points(chance, every_way=every_way))
    plans = [(f"{what}-{n}", [(what, n)]) for what, n in points]
    if every_way or book.seed // 8 % 2:
        ways = (*APPENDS, *QUESTIONS)
        plans.append(("row", [(chance.choice(ways), chance.choice((2, 2, 3, 4))) for _ in range(IN_A_ROW)]))
    for number, (name, plan) in enumerate(plans):
        place = Place(book, book.root / name, sync=number % 10 == 0)
        try:
            for problem in differences(book, account, place.drive(iter(plan))):
                tally.problems.append(f"seed {book.seed}, {name}: {problem}")
        except Exception:
            tally.problems.append(f"seed {book.seed}, {name}: {traceback.format_exc()}")
        else:
            shutil.rmtree(place.at)
        tally.add(place)


def _kinds(events: list[dict[str, Any]]) -> Iterator[str]:
    for event in events:
        kind = event["type"]
        yield f"{kind} {event['data'].get('status', '')}" if kind in ("step_complete", "run_complete") else kind


# --- many that wait


def crowd(root: Path, count: int, processes: int) -> dict[str, Any]:
    """Many runs that wait; then many processes that approve all of them at once, and go on with all of them at once."""
    book = Book(root / "book", 0)
    steps = [_crowded("a"), {**_crowded("b"), "contract": {"effects": ["files", WAITED_FOR]}}, _crowded("c")]
    inputs = {"folder": {"type": "string"}, "n": {"type": "int"}}
    document = {**book.document, "meta": {**book.document["meta"], "inputs": inputs}, "steps": [*steps, book.ending()]}
    document.pop("finally", None)
    book.file.write_text(json.dumps(document))
    checked = Workspace().program(str(book.file))
    Workspace.program = lambda self, file: checked  # type: ignore[method-assign]
    given = [{"folder": GivenInput(str(root)), "n": GivenInput(n)} for n in range(count)]
    shared: dict[str, Any] = {"state_dir": str(root), "sync": False}
    waits = [
        asyncio.run(execute(RunOptions(file=str(book.file), given=each, approvals="detach", **shared), environ=ENVIRON))
        for each in given
    ]
    waiting = Counter(each.status for each in waits)
    assert _has_no_children(), "a run that waits has a process"
    ids = [each.run_id for each in waits]
    tickets = [each.pending[0].ticket_id for each in waits]
    counted = _each_of(processes, lambda n: sum(_counts(root, each, f"person-{n}") for each in _mixed(tickets, n)))
    ended = _each_of(processes, lambda n: sum(_goes_on(each, shared) for each in _mixed(ids, n)))
    words = Counter((root / "effects").read_text().splitlines())
    left = [view.id for view in _pending(root)]
    twice = [word for word in words if words[word] != 1]
    return {"waiting": waiting, "counted": counted, "ended": ended, "words": len(words), "twice": twice, "left": left}


def _crowded(name: str) -> Step:
    inputs = {"word": f"{name}-{{{{ .n }}}}", "folder": "{{ .folder }}"}
    return {"id": name, "type": "tool", "tool": "once", "inputs": inputs}


def _mixed(things: Sequence[str], seed: int) -> list[str]:
    return random.Random(seed).sample(things, len(things))


def _has_no_children() -> bool:
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return True
    return False


def _counts(root: Path, ticket: str, person: str) -> bool:
    return _respond(root, ticket, person, approved=True) is None


def _pending(root: Path) -> list[TicketView]:
    async def read() -> list[TicketView]:
        async with open_tickets(TicketPlace(state_dir=str(root)), ENVIRON) as tickets:
            return [view for view in await tickets.all("pending") if not view.waiting]

    return asyncio.run(read())


def _respond(root: Path, ticket: str, person: str, *, approved: bool) -> str | None:
    """Respond to a ticket; why the response could not count, if so."""

    async def respond() -> str | None:
        async with open_tickets(TicketPlace(state_dir=str(root)), ENVIRON, to_post=True) as tickets:
            moment = format_timestamp(await tickets.time())
            response = Response(approver=person, approved=approved, timestamp=moment, ticket_id=ticket)
            return (await tickets.answer(ticket, response)).objection

    return asyncio.run(respond())


def _goes_on(run_id: str, shared: Mapping[str, Any]) -> bool:
    """Whether this process brought a run to its end; another one may be at it, or have done so."""
    try:
        return asyncio.run(resume(ResumeOptions(run_id=run_id, **shared), environ=ENVIRON)).status == "completed"
    except (TraceError, UsageError) as problem:
        if "driven by another process" in problem.message or "has ended" in problem.message:
            return False
        raise


def _each_of(processes: int, work: Callable[[int], int]) -> list[int]:
    """What each of some processes comes to, all at the same time."""
    pipes = []
    for n in range(processes):
        reading, writing = os.pipe()
        if not os.fork():
            code = 70
            try:
                os.write(writing, str(work(n)).encode())
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        os.close(writing)
        pipes.append(reading)
    found = [os.read(pipe, 100).decode() for pipe in pipes]
    for pipe in pipes:
        os.close(pipe)
    _wait_for_orphans()
    return [int(text) for text in found]


def main() -> None:
    job = json.load(sys.stdin)
    if "crowd" in job:
        json.dump(crowd(Path(job["folder"]), job["crowd"], job["processes"]), sys.stdout)
        return
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    gc.freeze()  # what is never collected is not copied into every process
    tally = Tally()
    plain = Workspace.program
    for seed in job["seeds"]:
        book = Book(Path(job["folder"]) / str(seed), seed)
        checked = plain(Workspace(), str(book.file))
        Workspace.program = lambda self, file, checked=checked: checked  # type: ignore[method-assign, misc]
        try:
            kill_everywhere(book, tally, every_way=job["every_way"])
        except Exception:
            tally.problems.append(f"seed {seed}: {traceback.format_exc()}")
        else:
            if not tally.problems:
                shutil.rmtree(book.root)
        tally.books += 1
    json.dump(vars(tally), sys.stdout)


if __name__ == "__main__":
    main()
