"""Runbooks written by chance, and a world that answers by chance: equal seeds give equal walks."""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Final

import yaml
from tests.conformance.runs import Case

from gert.kernel.engine.requests import AnyAnswer, CallTool, PauseAnswer, Request, ToolAnswer, failed_answer
from gert.kernel.events.runbook import Failure
from gert.kernel.events.vocabulary import FailureKind

Step = dict[str, Any]

DEPTH: Final = 2
STATUSES: Final = ("success", "failed", "skipped")
LISTS: Final[tuple[list[int], ...]] = ([], [1], [1, 2], [2, 2])
FAILURES: Final[tuple[FailureKind, ...]] = ("exit_code", "exit_code", "timeout", "transport")
RULES: Final = [{"writes": ["cache"], "action": "deny"}, {"default": "allow"}]
INPUTS: Final = {"x": 1}


class Walk(Case):
    """A case whose runbook was written by chance."""

    def __init__(self, seed: int) -> None:
        self.file = Path(f"walk-{seed}")
        self.seed = seed
        text = yaml.safe_dump(Author(seed).runbook(), sort_keys=False, width=110)
        self.data = {"runbook": text, "inputs": INPUTS}
        self.expect = {}

    def __str__(self) -> str:
        return f"the runbook of seed {self.seed}:\n{self.data['runbook']}"


@dataclass
class Known:
    """What may be read at some place of a runbook.

    facts: conditions that make sense here; `{n}` is any small number, `{status}` any status
    values: what an assertion may look at
    lists: what a loop may go over
    """

    facts: list[str] = field(default_factory=lambda: ["eq .x {n}"])
    values: list[str] = field(default_factory=lambda: [".x"])
    lists: list[str] = field(default_factory=list)

    def copy(self) -> "Known":
        """The same, to be added to apart."""
        return Known(list(self.facts), list(self.values), list(self.lists))

    def add(self, other: "Known") -> None:
        """Take what is known elsewhere, too."""
        for mine, more in ((self.facts, other.facts), (self.values, other.values), (self.lists, other.lists)):
            mine.extend(each for each in more if each not in mine)


class Author:
    """Writes one runbook, which may or may not be sound, and in which every `end` has a code of its own."""

    writes: ClassVar[Mapping[str, Callable[[Any, int], Step]]]

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.known = Known()
        self.tools: set[str] = set()
        self.depth = DEPTH
        self._names = 0
        self._lanes = 0
        self._ends = True

    def runbook(self) -> dict[str, Any]:
        """The whole document."""
        steps = [*self.steps(self.depth, least=1, most=4), self.end("last")]
        self._ends = False  # `finally` takes none
        always = self.steps(1, least=1, most=2) if self.often(0.25) else None
        meta: dict[str, Any] = {"name": "case", "inputs": {"x": {"type": "int"}}}
        if self.often(0.3):
            meta["governance"] = {"rules": RULES}
        document = {"apiVersion": "kernel/v0", "meta": meta, "tools": sorted(self.tools), "steps": steps}
        return {**document, "finally": always} if always else document

    # --- chance

    def often(self, share: float) -> bool:
        """Whether something is so, in this share of all cases."""
        return self.chance.random() < share

    def name(self, prefix: str) -> str:
        """A name nothing else has."""
        self._names += 1
        return f"{prefix}{self._names}"

    def condition(self) -> str:
        """Something that may hold or not."""
        facts = self.known.facts
        # What was learned last is looked at most: it is what the steps around it disturb.
        fact = self.chance.choice(facts[-6:] if self.often(0.6) else facts)
        text = fact.format(n=self.chance.randint(0, 2), status=self.chance.choice(STATUSES))
        return "{{ " + (f"not ({text})" if self.often(0.3) else text) + " }}"

    # --- lists

    def steps(self, depth: int, *, least: int, most: int) -> list[Step]:
        """A list of steps, some of which jump to another one."""
        kinds = [self.kind(depth) for _ in range(self.chance.randint(least, most))]
        names = [self.name(kind[0]) for kind in kinds]
        jumps = self.jumps([name for kind, name in zip(kinds, names, strict=True) if kind != "end"])
        for jump in jumps.values():
            self.known.facts += [f"eq .{jump['step']}.retry_count {{n}}"] * 2
        avoided = _jumped_over(names, jumps)
        steps = []
        for kind, name in zip(kinds, names, strict=True):
            if kind == "end":
                # Without a guard, an end may only stand where a jump leads over it: what follows must be reached.
                steps.append(self.end(name, guarded=name not in avoided or self.often(0.4)))
            else:
                steps.append(self.step(kind, name, depth, jumps.get(name)))
        if self._ends and depth < self.depth and self.often(0.15):
            steps.append(self.end(self.name("e")))
        return steps

    def kind(self, depth: int) -> str:
        """What the next step is."""
        weights = {"tool": 5.0, "assert": 2.0, "end": 1.5 if self._ends else 0.0}
        blocks = {"branch": 2.0, "parallel": 1.2, "repeat": 1.2} if depth else {}
        table = weights | blocks
        return self.chance.choices(list(table), list(table.values()))[0]

    def jumps(self, targets: list[str]) -> dict[str, Step]:
        """Which steps jump, and where to: forward, back, or to themselves."""
        found: dict[str, Step] = {}
        for at, name in enumerate(targets):
            if self.often(0.25):
                target = self.chance.randrange(len(targets))
                found[name] = {"step": targets[target]}
                if target <= at or self.often(0.5):
                    found[name]["max"] = self.chance.randint(1, 2)
        return found

    # --- steps

    def step(self, kind: str, name: str, depth: int, jump: Step | None) -> Step:
        """One step with its modifiers."""
        loop = self.loop() if self.often(0.2) else None
        before = self.known
        if loop is not None:
            self.known = before.copy()
            self.known.facts.append("eq .n {n}")
            self.known.values.append(".n")
        guard = {"when": self.condition()} if self.often(0.25 if jump is None else 0.6) else {}
        step: Step = {"id": name, "type": kind} | guard | self.writes[kind](self, depth)
        if self.often(0.45):
            step["continue_on_fail"] = True
        if jump is not None:
            step["next"] = jump
        if loop is not None:
            step["for_each"] = loop
            self.known = before
        self.learn(step)
        return step

    def learn(self, step: Step) -> None:
        """From here on, what a step leaves can be read."""
        known, name = self.known, step["id"]
        known.facts.append(f'eq .step.{name}.status "{{status}}"')
        if "for_each" in step:
            known.facts.append(f"eq (len .{name}) {{n}}")
        elif step["type"] == "assert":
            known.facts.append(f".{name}.passed")
        elif step["type"] == "tool":
            places = [name, f"scope.{step['scope']}"] if "scope" in step else [name]
            known.facts += [f"eq (default 0 .{place}.value) {{n}}" for place in places for _ in range(2)]
            known.values.append(f"default 0 .{name}.value")
            if step["tool"] == "f-two":
                known.lists.append(f".{name}.list")

    def loop(self) -> Step:
        """Over a list that stands there, or one a tool gives."""
        lists = self.known.lists
        over = "{{ " + self.chance.choice(lists) + " }}" if lists and self.often(0.6) else self.chance.choice(LISTS)
        loop: Step = {"as": "n", "over": over}
        if self.often(0.4):
            loop["parallel"] = True
        if self.often(0.2):
            loop["key"] = "{{ .n }}"
        return loop

    def tool(self, _: int) -> Step:
        """A tool that only looks, or one that writes, which a policy may deny and a probe never runs."""
        step: Step = {"tool": "f-two" if self.often(0.7) else "f-writer"}
        self.tools.add(step["tool"])
        # Lanes may not set one name both, unless each has a scope of its own.
        if self._lanes or self.often(0.5):
            step["scope"] = self.name("s")
        if self.often(0.2):
            step["retry"] = {"max": self.chance.randint(1, 2)}
            if self.often(0.5):
                step["retry"] |= {"backoff": "1s", "on": [self.chance.choice(["failed", "error", "timeout"])]}
        return step

    def assertion(self, _: int) -> Step:
        """An assertion that may hold or not."""
        value = "{{ " + self.chance.choice(self.known.values) + " }}"
        kind = self.chance.choice(["equals", "not_equals"])
        return {"assert": [{"type": kind, "value": value, "expected": str(self.chance.randint(1, 2))}]}

    def branch(self, depth: int) -> Step:
        """Arms of which one is taken."""
        conditions = [*(self.condition() for _ in range(self.chance.randint(1, 2))), "default"]
        arms = self.apart(depth, ways=len(conditions), least=0)
        pairs = zip(conditions, arms, strict=True)
        return {"branches": [{"condition": condition, "steps": arm} for condition, arm in pairs]}

    def parallel(self, depth: int) -> Step:
        """Two lanes."""
        self._lanes += 1
        lanes = self.apart(depth, ways=2, least=1)
        self._lanes -= 1
        return {"branches": [{"steps": lane} for lane in lanes]}

    def apart(self, depth: int, *, ways: int, least: int) -> list[list[Step]]:
        """Lists none of which knows of the others; what any of them sets may be read after them."""
        before, after, lists = self.known, self.known.copy(), []
        for _ in range(ways):
            self.known = before.copy()
            lists.append(self.steps(depth - 1, least=least, most=2))
            after.add(self.known)
        self.known = after
        return lists

    def repeat(self, depth: int) -> Step:
        """Rounds, of which nothing is known afterwards."""
        before, self.known = self.known, self.known.copy()
        self.known.facts.append("eq .repeat.index {n}")
        steps = self.steps(depth - 1, least=1, most=2)
        block: Step = {"max": self.chance.randint(1, 2)}
        if self.often(0.5):
            block["until"] = self.condition()
        self.known = before
        return {"repeat": block, "steps": steps}

    def end(self, code: str, *, guarded: bool = False) -> Step:
        """The end of a run."""
        guard = {"when": self.condition()} if guarded else {}
        return {"type": "end"} | guard | {"outcome": {"category": "resolved", "code": code}}


def _jumped_over(names: list[str], jumps: dict[str, Step]) -> set[str]:
    """The steps between where a jump forward begins and where it leads."""
    spans = [(names.index(name), names.index(jump["step"])) for name, jump in jumps.items()]
    return {each for source, target in spans for each in names[source + 1 : target]}


WRITE: Final[Mapping[str, Callable[[Author, int], Step]]] = {
    "tool": Author.tool,
    "assert": Author.assertion,
    "branch": Author.branch,
    "parallel": Author.parallel,
    "repeat": Author.repeat,
}
Author.writes = WRITE


class Chancy:
    """A world that answers by chance: with outputs, without them, or not at all.

    steady: a step gets the same answer whenever it asks, as a probe takes for granted
    """

    def __init__(self, seed: str, *, steady: bool = False) -> None:
        self._seed = seed
        self._steady = steady

    def immediate(self, ask: Request[Any]) -> AnyAnswer | None:
        """What the seed says to this question, in whatever order questions come."""
        key = ask.step_id.partition("[")[0] if self._steady else ask.key
        chance = random.Random(f"{self._seed}/{key}")
        # A probe that is cancelled where the run would not have come shows less than the run.
        if not self._steady and chance.random() < 0.01:
            return failed_answer(ask, Failure("cancelled", "interrupted"))
        return _called(ask, chance) if isinstance(ask, CallTool) else PauseAnswer()

    async def answer(self, ask: Request[Any]) -> AnyAnswer:
        """The same, for those who wait."""
        answer = self.immediate(ask)
        assert answer is not None
        return answer


def _called(ask: CallTool, chance: random.Random) -> ToolAnswer:
    if chance.random() < 0.25:
        kind = chance.choice(FAILURES)
        return ToolAnswer(exit_code=1 if kind == "exit_code" else None, failure=Failure(kind, "by chance"))
    drawn = {"value": str(chance.randint(1, 3)), "list": chance.choice(LISTS)}
    given = {name: drawn[name] for name in ask.contract.outputs if chance.random() < 0.95}
    return ToolAnswer(exit_code=0, outputs=given)
