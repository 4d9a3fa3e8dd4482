"""Runbooks written by chance with all kinds of step and all modifiers, and a world that knows every way to fail."""

import asyncio
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml
from tests.conformance.walks import WRITE, Author, Chancy, Step, Walk

from gert.kernel.engine.requests import (
    AnyAnswer,
    ApprovalAnswer,
    AwaitApproval,
    CallExtension,
    CallTool,
    CollectEvidence,
    EvidenceAnswer,
    Pause,
    PauseAnswer,
    Request,
    SubmitApproval,
    TicketAnswer,
    ToolAnswer,
    failed_answer,
)
from gert.kernel.events.runbook import Failure
from gert.kernel.events.vocabulary import FailureKind
from gert.kernel.foundation.principal import Principal
from gert.kernel.governance.approval import Response

# What a tool may say became of it; the others are for the engine to say.
FAILURES: Final[tuple[FailureKind, ...]] = (
    "exit_code", "tool_error", "reported", "timeout", "not_found", "transport", "extraction", "unknown_outcome",
)  # fmt: skip
RULES: Final[tuple[dict[str, Any], ...]] = (
    {"writes": ["cache"], "action": "deny"},
    {"writes": ["cache"], "action": "require-approval"},
    {"effects": ["kubernetes"], "action": "require-approval", "min_approvers": 2},
    {"risk": "critical", "action": "require-approval", "on_timeout": "escalate", "escalate_to": ["zoe@example.com"]},
    {"effects": ["agents"], "action": "require-approval", "separation_of_duties": True},
    {"effects": ["network"], "action": "allow", "limits": {"max_targets": 3}},
    {"contract_violations": "deny"},
)
WIDE_INPUTS: Final = {"x": 1, "xs": [1, 2], "word": "a"}
CONSTANTS: Final = {"most": 2, "given": {"of": "{{ .x }}"}, "where": {"target": "host-{{ .word }}"}}
OVER: Final[tuple[Any, ...]] = (
    [], [1], [1, 2], [2, 2], '["a", "b"]', "{{ .xs }}", ["{{ .x }}", "{{ .word }}"],
    [{"id": "u", "role": "judge"}, {"id": "v"}],
)  # fmt: skip
COMPARED: Final = ("greater_than", "less_or_equal", "contains", "not_contains", "matches", "not_matches")
ALONE: Final = ("exists", "not_exists", "empty", "not_empty")
OUTPUTS: Final[Mapping[str, tuple[str, ...]]] = {
    "f-two": ("value", "list"), "f-writer": ("value",), "f-value": ("value",), "f-silent": ("value",), "pure": ("sum",),
    "probe": ("code", "body"), "change": ("revision",), "f-config": ("url",),
}  # fmt: skip
PEOPLE: Final = ("bob@example.com", "Carol@example.com", "alice@example.com", "zoe@example.com")


class WideWalk(Walk):
    """A case whose runbook was written by chance, with everything the language has."""

    def __init__(self, seed: int) -> None:
        self.file = Path(f"wide-walk-{seed}")
        self.seed = seed
        text = yaml.safe_dump(WideAuthor(seed).runbook(), sort_keys=False, width=110, allow_unicode=True)
        self.data = {"runbook": text, "inputs": WIDE_INPUTS}
        self.expect = {}


class WideAuthor(Author):
    """Writes one runbook with all kinds of step and all modifiers."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.depth = 2 + seed % 2
        self.known.facts += ["eq (len .xs) {n}", 'eq .word "a"', "lt .x .most"]
        self.known.values += [".word", ".xs", ".most", ".given"]
        self.known.lists += [".xs"]

    def runbook(self) -> dict[str, Any]:
        """The whole document."""
        document = super().runbook()
        meta = document["meta"]
        meta["inputs"] = {"x": {"type": "int"}, "xs": {"type": "list"}, "word": {"type": "string"}}
        meta["constants"] = CONSTANTS
        meta.pop("governance", None)
        if self.often(0.5):
            rules = self.chance.sample(RULES, self.chance.randint(1, 3))
            meta["governance"] = {"rules": [*rules, {"default": "allow"}]}
        return document

    def kind(self, depth: int) -> str:
        """What the next step is."""
        return self.chance.choice(["manual", "extension", "extension"]) if self.often(0.25) else super().kind(depth)

    # --- steps

    def step(self, kind: str, name: str, depth: int, jump: Step | None) -> Step:
        """One step with its modifiers."""
        if jump is not None and "max" in jump and self.often(0.3):
            jump["max"] = "{{ .most }}"
        step = super().step(kind, name, depth, jump)
        if kind == "parallel" and self.often(0.4):
            step["branches"].append({"steps": [self.plain_tool()]})
        if kind in ("branch", "parallel"):
            for index, each in enumerate(step["branches"]):
                if self.often(0.4):
                    each["label"] = f"way {index}/ö"
        if kind in ("tool", "manual", "assert", "extension"):
            self.modify(step)
        return step

    def modify(self, step: Step) -> None:
        """What only steps take that do something."""
        if self.often(0.15):
            step["timeout"] = "5s"
        if self.often(0.1):
            step["principal"] = {"kind": "agent", "id": "agent-{{ .x }}", "role": "{{ .word }}"}
        if self.often(0.15):
            hidden = self.chance.choice([["scope.other.**"], ["step.other.status"], ["most"]])
            step["visibility"] = {"deny": hidden}
        if self.often(0.1):
            step["title"] = "about {{ " + self.chance.choice(self.known.values) + " }}"
        if self.often(0.1):
            step["extensions"] = {"x-team": ["a", 1]}

    def plain_tool(self) -> Step:
        """A tool in a lane of its own."""
        self.tools.add("f-value")
        return {"id": self.name("t"), "type": "tool", "tool": "f-value", "scope": self.name("s")}

    def learn(self, step: Step) -> None:
        """From here on, what a step leaves can be read."""
        known, name = self.known, step["id"]
        if step["type"] != "tool" or "for_each" in step:
            super().learn(step)
        else:
            self.learn_tool(step)
        if "for_each" in step:
            known.lists.append(f"values .{name}" if "key" in step["for_each"] else f".{name}")
            return
        if step["type"] == "repeat":
            known.values.append(f"len .scope.repeat.{name}")
        for output in step.get("contract", {}).get("outputs", ()):
            known.facts += [f"eq (default 0 .{name}.{output}) {{n}}"]
            known.values.append(f".{name}.{output}")
            if output in step.get("export", ()):
                known.facts += [f"eq (default 0 .{output}) {{n}}"] * 2
                known.values.append(f".{output}")

    def learn_tool(self, step: Step) -> None:
        """What a tool step leaves: its outputs, how it ended, and what is in its scope."""
        known, name = self.known, step["id"]
        known.facts += [f'eq .step.{name}.status "{{status}}"', f"eq (default 9 .{name}.exit_code) {{n}}"]
        for output in OUTPUTS[step["tool"]]:
            scope = step.get("scope", "{")
            places = [name] if "{" in scope else [name, f"scope.{scope}"]
            known.facts += [f"eq (default 0 .{place}.{output}) {{n}}" for place in places]
            known.values += [f"default 0 .{name}.{output}", f".{name}.{output}"]
            if output == "list":
                known.lists.append(f".{name}.list")

    def loop(self) -> Step:
        """Over a list, a text, or what a step gave."""
        loop = super().loop()
        if self.often(0.5):
            loop["over"] = self.chance.choice(OVER)
        if self.often(0.3):
            # An id that only a run can miss: validation knows what the items of most lists are.
            keys = ["{{ .n }}", "{{ (fromJson (toJson .n)).id }}", "{{ toJson .n }}", "k/{{ .n }}[0]"]
            loop["key"] = self.chance.choice(keys)
        return loop

    def tool(self, depth: int) -> Step:
        """A tool that looks, computes, writes or changes something."""
        if self.often(0.4):
            return super().tool(depth)
        name = self.chance.choice(["f-value", "pure", "probe", "change", "f-silent", "f-config"])
        self.tools.add(name)
        step: Step = {"tool": name}
        chosen = self.chance.choice(self.known.values)
        # Behind a call nobody knows what it is, so that a run finds out what does not fit.
        value = "{{ default 0 " + chosen + " }}" if chosen in (".xs", ".given") else "{{ " + chosen + " }}"
        if name in ("f-value", "pure"):
            step |= {"inputs_from": "given"} if self.often(0.4) else {"inputs": {"of": value}}
        elif name == "probe" and self.often(0.7):
            step |= {"inputs_from": "where"} if self.often(0.5) else {"inputs": {"count": value}}
        elif name == "change":
            step["inputs"] = {"name": f"x{value}"}
        elif name == "f-config":
            step["inputs"] = {"name": value, "options": {"deep": [value, 1]}, "value": value}
            if self.often(0.3):
                step["inputs"] |= {self.chance.choice(["port", "hosts", "secure", "ratio"]): value}
        if self._lanes or self.often(0.5):
            step["scope"] = self.scope()
        if self.often(0.2) and name not in ("change", "f-silent"):
            step["retry"] = {"max": 1, "backoff": "1s"} if self.often(0.5) else {"max": 2, "on": ["failed"]}
        return step

    def scope(self) -> str:
        """A scope of its own, which may depend on what is known."""
        name = self.name("s")
        return name if self.often(0.6) else f"{name}/{{{{ .x }}}}"

    def extension(self, _: int) -> Step:
        """A runner under a contract of its own, whose output has a name of its own."""
        output = self.name("v")
        contract: Step = {"effects": ["agents"] if self.often(0.5) else [], "writes": []}
        contract |= {"deterministic": self.often(0.3), "idempotent": True, "outputs": {output: {"type": "any"}}}
        step: Step = {"extension": "runner", "contract": contract}
        step["inputs"] = {"prompt": "{{ " + self.chance.choice(self.known.values) + " }}"}
        if self.often(0.6):
            step["scope"] = self.scope()
        if self.often(0.5):
            step["export"] = [output]
        if self.often(0.2):
            step["retry"] = {"max": 1}
        return step

    def manual(self, _: int) -> Step:
        """Something a person does, with evidence of it."""
        kind = self.chance.choice(["text", "checklist", "attachment"])
        evidence: Step = {"kind": kind, "name": self.name("w")}
        if kind == "checklist":
            evidence["items"] = ["one", "two"]
        step: Step = {"instructions": "do {{ " + self.chance.choice(self.known.values) + " }}"}
        if self.often(0.7):
            step["required_evidence"] = [evidence]
        if self.often(0.5):
            step["contract"] = {"effects": [], "writes": []}
        if self._lanes or self.often(0.3):
            step["scope"] = self.scope()
        return step

    def assertion(self, depth: int) -> Step:
        """Assertions of any kind."""
        step = super().assertion(depth)
        if self.often(0.5):
            value = "{{ " + self.chance.choice(self.known.values) + " }}"
            if self.often(0.5):
                step["assert"].append({"type": self.chance.choice(ALONE), "value": value})
            else:
                more = {"type": self.chance.choice(COMPARED), "value": value, "expected": "1"}
                step["assert"].append(more | {"message": f"found {value}"})
        return step

    def repeat(self, depth: int) -> Step:
        """Rounds; what is exported in one may end them."""
        step = super().repeat(depth)
        if self.often(0.2):
            step["repeat"]["max"] = "{{ .most }}"
        return step

    def end(self, code: str, *, guarded: bool = False) -> Step:
        """The end of a run, which tells of what is known."""
        step = super().end(code, guarded=guarded)
        if self.often(0.4):
            step["outcome"]["meta"] = {"found": ["{{ " + self.chance.choice(self.known.values) + " }}"]}
        return step


WideAuthor.writes = {
    **WRITE,
    "tool": WideAuthor.tool,
    "assert": WideAuthor.assertion,
    "repeat": WideAuthor.repeat,
    "manual": WideAuthor.manual,
    "extension": WideAuthor.extension,
}


class WideWorld(Chancy):
    """A world in which tools, runners and people do whatever they may do, right or wrong."""

    def immediate(self, ask: Request[Any]) -> AnyAnswer | None:
        """What the seed says to this question, in whatever order questions come."""
        chance = random.Random(f"{self._seed}/{ask.key}")
        if chance.random() < 0.005:
            return failed_answer(ask, Failure("cancelled", "interrupted"))
        answer = ANSWER[type(ask)](ask, chance)
        if isinstance(ask, Pause | SubmitApproval):
            return answer
        return msgspec.structs.replace(answer, duration=chance.choice([0.0, 0.25, 3.0]))


class SteadyWorld(WideWorld):
    """The same world, in which a step gets the same answer whenever it asks, and nobody stops the run."""

    def immediate(self, ask: Request[Any]) -> AnyAnswer | None:
        """What the seed says to this step."""
        name = f"{ask.step_id.partition('[')[0]} {type(ask).__name__}"
        return ANSWER[type(ask)](ask, random.Random(f"{self._seed}/{name}"))


class LateWorld(WideWorld):
    """The same world where everything takes its time; what is declared deterministic is.

    order: which question takes how long
    """

    def __init__(self, seed: str, order: str = "") -> None:
        super().__init__(seed)
        self._order = order

    def immediate(self, ask: Request[Any]) -> AnyAnswer | None:
        """Everybody has to be waited for."""
        return None

    async def answer(self, ask: Request[Any]) -> AnyAnswer:
        """What the seed says, after a while."""
        for _ in range(random.Random(f"{ask.key}/{self._order}").randint(0, 5)):
            await asyncio.sleep(0)
        # Which of two different answers came first would depend on the order, and so would who broke the contract.
        if isinstance(ask, CallTool | CallExtension) and ask.contract.deterministic:
            ask = msgspec.structs.replace(ask, key=f"{ask.step_id.partition('[')[0]} {ask.inputs}")
        answer = super().immediate(ask)
        assert answer is not None
        return answer


def _called(ask: CallTool | CallExtension, chance: random.Random) -> ToolAnswer:
    kind = chance.choice(FAILURES) if chance.random() < 0.2 else None
    outputs = {name: _value(chance) for name in ask.contract.outputs if chance.random() < 0.9}
    if chance.random() < 0.05:
        outputs["surplus"] = _value(chance)
    by = Principal("agent", "runner-1") if isinstance(ask, CallExtension) and chance.random() < 0.3 else None
    code = chance.choice([1, 2]) if kind == "exit_code" else None if kind else 0
    return ToolAnswer(
        exit_code=None if isinstance(ask, CallExtension) else code,
        outputs=outputs if kind is None or chance.random() < 0.3 else {},
        failure=Failure(kind, "by chance") if kind is not None else None,
        principal=by,
        redacted=1 if chance.random() < 0.05 else 0,
    )


def _value(chance: random.Random) -> Any:
    values = ["1", "2", 1, 2, 2.5, [], [1, 2], [2, 2], {}, {"of": 1}, {"id": "u"}, None, True, "", "ü, b", "(unknown)"]
    return chance.choice(values)


def _shown(ask: CollectEvidence, chance: random.Random) -> EvidenceAnswer:
    by = Principal("human", chance.choice(PEOPLE))
    if chance.random() < 0.15:
        kind: FailureKind = chance.choice(["rejected", "timeout", "transport"])
        return EvidenceAnswer(failure=Failure(kind, "by chance"), by=by)
    given = {each.name: _evidence(each.kind) for each in ask.evidence if chance.random() < 0.9}
    return EvidenceAnswer(evidence=given, by=by)


def _evidence(kind: str) -> Any:
    return {"text": "seen", "checklist": ["one", "two"]}.get(kind, {"path": "a.png", "sha256": "0" * 64, "size": 3})


def _submitted(ask: SubmitApproval, chance: random.Random) -> TicketAnswer:
    if chance.random() < 0.05:
        return TicketAnswer(failure=Failure("transport", "nobody to ask"))
    return TicketAnswer(ticket_id=f"ticket-{ask.key}", method="scripted")


def _approved(ask: AwaitApproval, chance: random.Random) -> ApprovalAnswer:
    who = chance.sample(PEOPLE, chance.randint(0, 3))
    responses = tuple(
        Response(approver=each, approved=chance.random() < 0.9, timestamp="2026-02-28T12:00:00Z") for each in who
    )
    return ApprovalAnswer(responses=responses, expired=not responses or chance.random() < 0.1)


def _paused(ask: Pause, _: random.Random) -> PauseAnswer:
    return PauseAnswer(duration=ask.seconds)


ANSWER: Final[Mapping[type[Request[Any]], Callable[[Any, random.Random], AnyAnswer]]] = {
    CallTool: _called,
    CallExtension: _called,
    CollectEvidence: _shown,
    SubmitApproval: _submitted,
    AwaitApproval: _approved,
    Pause: _paused,
}
