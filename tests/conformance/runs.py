"""The cases of `conformance/run`: a runbook, what the world answers, and the events that must follow."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import msgspec
import yaml
from tests.conformance.cases import ROOT
from tests.memory_ledger import MemoryLedger

from gert.ecosystem.host.config.policies import require_sound
from gert.ecosystem.host.config.workspace import Workspace
from gert.ecosystem.host.run.driver.driver import Driver
from gert.ecosystem.host.run.record.journal import Journal, RecordedAnswer, read_answers
from gert.ecosystem.host.run.world.worlds import DryRun, Probe, World
from gert.kernel.engine.extract import ToolOutput, extract
from gert.kernel.engine.frame import Setup
from gert.kernel.engine.inputs import GivenInput, resolve_inputs
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
    Steps,
    SubmitApproval,
    TicketAnswer,
    ToolAnswer,
    failed_answer,
)
from gert.kernel.engine.run import RunResult, run
from gert.kernel.events.envelope import Envelope, decode
from gert.kernel.events.runbook import Failure, RunStart
from gert.kernel.foundation.principal import Principal
from gert.kernel.governance.approval import Response
from gert.kernel.runbook.document import load
from gert.kernel.runbook.program import Program, policy_file, policy_of

RUNS = ROOT / "conformance" / "run"

# These are told in every run; they count only in a case that lists one of their kind.
QUIET = frozenset({"run_start", "input_resolved", "contract_evaluated", "governance_decision", "run_complete"})
KEYS = frozenset(
    {"note", "section", "runbook", "inputs", "actor", "groups", "policies", "mode", "allow_effects", "tools",
     "evidence", "approvals", "extensions", "break_glass", "cancel", "max_parallel", "expect"}
)  # fmt: skip
EXPECTED = frozenset({"status", "outcome", "failure", "failed_step", "finally_failure", "reachable", "events"})
NOON = 1_772_280_000_000_000  # in microseconds


class Case:
    """One case, as its file has it."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.data: dict[str, Any] = yaml.safe_load(file.read_text("utf-8"))
        assert self.data.keys() <= KEYS, f"unknown keys {sorted(self.data.keys() - KEYS)}"
        self.expect: dict[str, Any] = self.data["expect"]
        assert self.expect.keys() <= EXPECTED, f"unknown expectations {sorted(self.expect.keys() - EXPECTED)}"

    def get(self, key: str, default: Any = None) -> Any:
        """What the case says of something."""
        return self.data.get(key, default)


def cases() -> list[Path]:
    """Every case, in a stable order."""
    shared = {RUNS / "gert-project.yaml", *(RUNS / "tools").glob("*.yaml")}
    return sorted(file for file in RUNS.rglob("*.yaml") if file not in shared)


class Scripted:
    """A world that answers from a case: by path or step id, one answer after the other."""

    def __init__(self, case: Case, program: Program) -> None:
        self._case = case
        self._program = program
        self._used: dict[tuple[str, str], int] = {}
        self.cancel: dict[str, Any] | None = case.get("cancel")

    def immediate(self, ask: Request[Any]) -> AnyAnswer | None:
        """The next answer to a question."""
        question = {Pause: "pause", AwaitApproval: "approval"}.get(type(ask), "first")
        cancel = self.cancel
        if cancel and cancel["at"] in (ask.path, ask.step_id) and cancel.get("question", question) == question:
            return failed_answer(ask, Failure("cancelled", cancel.get("reason", "interrupted")))
        if isinstance(ask, CallTool):
            return self._tool(ask)
        if isinstance(ask, CallExtension):
            return msgspec.convert(self._next("extensions", ask), ToolAnswer)
        if isinstance(ask, CollectEvidence):
            return self._evidence(ask)
        if isinstance(ask, SubmitApproval):
            return TicketAnswer(ticket_id=f"ticket-{ask.key}", method="scripted")
        if isinstance(ask, AwaitApproval):
            return self._approval(ask)
        assert isinstance(ask, Pause)
        return PauseAnswer(duration=ask.seconds)

    async def answer(self, ask: Request[Any]) -> AnyAnswer:
        """The same, for those who wait."""
        answer = self.immediate(ask)
        assert answer is not None
        return answer

    def _next(self, section: str, ask: Request[Any]) -> dict[str, Any]:
        given: Mapping[str, Any] = self._case.get(section, {})
        key = next((each for each in (ask.path, ask.step_id) if each in given), None)
        assert key is not None, f"the case has no answer in `{section}` for `{ask.path}`"
        answers = given[key] if isinstance(given[key], list) else [given[key]]
        at = self._used.get((section, key), 0)
        assert at < len(answers), f"the case has only {len(answers)} answers in `{section}` for `{key}`"
        self._used[section, key] = at + 1
        return cast("dict[str, Any]", answers[at])

    def _tool(self, ask: CallTool) -> ToolAnswer:
        given = dict(self._next("tools", ask))
        code = given.get("exit_code", None if "failure" in given else 0)
        if code:
            given.setdefault("failure", {"kind": "exit_code", "message": f"`{ask.tool}` exited with {code}"})
        if ("outputs" not in given and "failure" not in given) or code:
            given.setdefault("outputs", {})
            tool = self._program.tool_names[ask.tool].tool
            assert tool is not None
            printed = ToolOutput(exit_code=code or 0, stdout=given.get("stdout", ""), stderr=given.get("stderr", ""))
            found = extract(tool.actions[ask.action], ask.contract.outputs, printed)
            given["outputs"] = {**found.outputs, **given["outputs"]}
            if found.failure is not None:
                given["failure"] = msgspec.to_builtins(found.failure)
        return msgspec.convert({**given, "exit_code": code, "kind": "tool"}, ToolAnswer)

    def _evidence(self, ask: CollectEvidence) -> EvidenceAnswer:
        given = dict(self._next("evidence", ask))
        by = given.pop("by", None)
        answer = msgspec.convert({**given, "kind": "evidence"}, EvidenceAnswer)
        return msgspec.structs.replace(answer, by=Principal("human", by)) if by else answer

    def _approval(self, ask: AwaitApproval) -> ApprovalAnswer:
        given = self._next("approvals", ask)
        responses = tuple(
            Response(
                approver=each["approver"],
                approved=each["approved"],
                timestamp="2026-02-28T12:00:00Z",
                reason=each.get("reason"),
            )
            for each in given.get("responses", ())
        )
        return ApprovalAnswer(responses=responses, expired=given.get("expired", False))


class Refusing:
    """A world nobody may ask."""

    def immediate(self, ask: Request[Any]) -> AnyAnswer | None:
        """Refuse."""
        raise AssertionError(f"`{ask.key}` was asked again")

    async def answer(self, ask: Request[Any]) -> AnyAnswer:
        """Refuse."""
        raise AssertionError(f"`{ask.key}` was asked again")


def setup_of(case: Case) -> Setup:
    """The run a case asks for."""
    checked = require_sound(Workspace(str(RUNS)).check(str(RUNS / "case.yaml"), source=case.data["runbook"].encode()))
    assert checked.program is not None
    policies = [policy_of(checked.program.runbook.meta.governance)]
    for text in case.get("policies", ()):
        policies.append(policy_file(load(text.encode(), kind="policy").model))
    given = {name: GivenInput(value, "cli") for name, value in case.get("inputs", {}).items()}
    resolving = resolve_inputs(checked.program.runbook.meta.inputs, given)
    try:
        batch = next(resolving)
    except StopIteration as end:
        resolved = end.value
    else:
        raise AssertionError(f"a case gives its inputs itself, and {batch} was asked")
    mode = case.get("mode", "real")
    return Setup(
        program=checked.program,
        run_id="run-1",
        started=RunStart(
            runbook=checked.program.runbook.meta.name,
            runbook_hash=checked.document.digest,
            mode=mode,
            actor=case.get("actor", "alice@example.com"),
            host="host-1",
            gert_version="gert test",
            inputs=resolved.values,
            input_sources=resolved.sources,
        ),
        policies=tuple(policies),
        secret_inputs=frozenset(resolved.secrets),
        groups={name: tuple(people) for name, people in case.get("groups", {}).items()},
        explores=mode != "real",
        break_glass=case.get("break_glass"),
    )


def world_of(case: Case, setup: Setup) -> World:
    """Whoever answers in a case."""
    scripted = Scripted(case, setup.program)
    if setup.mode == "dry-run":
        return DryRun()
    if setup.mode == "probe":
        return Probe(scripted, frozenset(case.get("allow_effects", ["network"])))
    return scripted


def execute(
    setup: Setup,
    world: World,
    *,
    recorded: list[RecordedAnswer] | None = None,
    max_parallel: int = 16,
    around: Callable[[Steps[RunResult]], Steps[RunResult]] = lambda steps: steps,
) -> tuple[RunResult, list[bytes], list[RecordedAnswer]]:
    """Drive a run on a clock that ticks with every event; gives its result, its lines and its answer log."""
    store = MemoryLedger()
    ticks = iter(range(10_000_000))

    async def drive() -> RunResult:
        journal = Journal(
            setup.run_id,
            store.port,
            clock=lambda: NOON + 1000 * next(ticks),
            has_secrets=bool(setup.secret_inputs),
        )
        return await Driver(world, journal, recorded=recorded or (), max_parallel=max_parallel).drive(
            around(run(setup))
        )

    result = asyncio.run(drive())
    return result, list(store.events(setup.run_id)), list(read_answers(store.answers(setup.run_id)))


def shown(events: list[Envelope], listed: set[str]) -> list[Envelope]:
    """The events that count in a case."""
    return [event for event in events if event.type not in QUIET or event.type in listed]


def expected_events(case: Case) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Type, path and the fields that must be so, of each event a case lists."""
    for line in case.expect.get("events", ()):
        head, brace, fields = line.partition(" {")
        kind, _, path = head.strip().partition(" ")
        yield kind, path.strip(), yaml.safe_load(brace + fields) if brace else {}


def events_of(lines: list[bytes]) -> list[Envelope]:
    """The lines of a trace, read."""
    return [decode(line) for line in lines]


def holds(expected: Any, found: Any) -> bool:
    """Whether what was found is what was expected; of a map, only the keys that are expected count.

    `<absent>` is a key that must not be there, `/…/` a text that must contain these words.
    """
    if isinstance(expected, dict) and isinstance(found, dict):
        return all(
            (key not in found) if want == "<absent>" else (key in found and holds(want, found[key]))
            for key, want in expected.items()
        )
    if isinstance(expected, list) and isinstance(found, list):
        return len(expected) == len(found) and all(map(holds, expected, found))
    if isinstance(expected, str) and len(expected) > 2 and expected.startswith("/") and expected.endswith("/"):
        return isinstance(found, str) and expected[1:-1] in found
    return bool(expected == found) and isinstance(expected, bool) == isinstance(found, bool)
