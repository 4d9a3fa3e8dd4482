"""Where a step runs: the run it belongs to, its lane's state, and its place; what kinds use to render and to say."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, TypeAlias, TypeVar

import msgspec
from msgspec import field

from gert.errors import CanonicalError, TemplateError, TemplateEvalError
from gert.kernel.engine.clock import Clock
from gert.kernel.engine.plan import Planner
from gert.kernel.engine.requests import Answer, Ask, AwaitApproval, CollectEvidence, Said, Steps
from gert.kernel.engine.results import NEVER_CONTINUED, Result
from gert.kernel.engine.state import State
from gert.kernel.engine.symbolic import (
    UNKNOWN,
    Guarded,
    Unknown,
    UnknownRead,
    any_reads_unknown,
    reads_unknown,
    unwrapped,
)
from gert.kernel.engine.view import visible
from gert.kernel.events.path import child, item
from gert.kernel.events.payload import Payload
from gert.kernel.events.runbook import DeniedStep, MissingKey, Outcome, Recent, RunStart
from gert.kernel.events.summary import without_item
from gert.kernel.events.vocabulary import RunMode, SkipReason
from gert.kernel.foundation.canonical import require_canonical
from gert.kernel.foundation.globs import Visibility
from gert.kernel.foundation.principal import Principal
from gert.kernel.governance.rules import Policy
from gert.kernel.runbook.documents.steps import Step
from gert.kernel.runbook.model import listing
from gert.kernel.runbook.program import Program
from gert.kernel.template import Template, condition, evaluate, render, render_value
from gert.kernel.template import render_text as text_of

A = TypeVar("A", bound=Answer)

_MOST_REMEMBERED = 256
_MOST_WARNINGS = 100
_MOST_KEYS = 20


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a run is given before it begins.

    started: the first event of the run: who started it, and with what; the engine completes it from the program
    secret_inputs: inputs that `started` has references in place of
    explores: outcomes are looked for, and none is claimed
    groups: people by group, for approvals
    break_glass: why governance is overridden in an emergency, where its rules allow that
    recent: what `max_per_hour` counts beside the run itself; none where no rule asks for it
    """

    program: Program
    run_id: str
    started: RunStart
    policies: tuple[Policy, ...] = ()
    secret_inputs: frozenset[str] = frozenset()
    groups: dict[str, tuple[str, ...]] = field(default_factory=dict)
    explores: bool = False
    break_glass: str | None = None
    recent: Recent | None = None

    @property
    def mode(self) -> RunMode:
        """Which world answers the run."""
        return self.started.mode

    @property
    def actor(self) -> str:
        """Who started the run."""
        return self.started.actor

    @property
    def inputs(self) -> dict[str, Any]:
        """The values of the inputs, with references in place of those that are secret."""
        return self.started.inputs


class Run:
    """What all lanes of a run share: plans, what deterministic steps gave before, and outcomes found in a dry run."""

    __slots__ = (
        "_remembered",
        "_targets",
        "actor",
        "assumption",
        "denied",
        "ending",
        "glass_broken",
        "guesses",
        "missing",
        "outcomes",
        "plan",
        "program",
        "reader",
        "setup",
        "skipped_write",
        "warnings",
    )

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.program = setup.program
        self.actor = Principal("human", setup.actor)
        self.assumption: SkipReason | None = None
        """Why something in the state is unknown; nothing is, until an answer was assumed."""
        self.glass_broken = 0
        """How many decisions were overridden in an emergency."""
        self.skipped_write = False
        """Whether a step that may write was only assumed, on any way."""
        self.guesses = 0
        """How many steps were assumed to have gone well so far, and how many ways to fail may not be taken."""
        self.outcomes: list[Outcome] = []
        self.denied: dict[str, DeniedStep] = {}
        """Steps that policy denied on any way; of the items of a loop, the first."""
        planner = Planner(setup.program, setup.policies)
        self.plan, self.ending = planner.plan, planner.ending
        self.reader: tuple[str, str] = ("", "")
        """Where the template stands that is evaluated now: path and step id."""
        self.missing: dict[str, list[MissingKey]] = {}
        """Keys that templates have looked for in vain, by the path of their step, until they are on record."""
        self.warnings: dict[tuple[str, str], str] = {}
        self._targets: dict[int, str] = {}
        self._remembered: dict[str, dict[bytes, dict[str, Any]]] = {}

    def miss(self, loop: str, key: str, keys: Iterable[str]) -> None:
        """Note that the result of a keyed loop has no such key; each is a warning once."""
        if (loop, key) in self.warnings or len(self.warnings) >= _MOST_WARNINGS:
            return
        path, step_id = self.reader
        known = tuple(islice(keys, _MOST_KEYS))
        listed = f"it has {listing(known)}" if known else "it has none"
        self.warnings[loop, key] = f"`.{loop}` has no key `{key}`, read by `{step_id}`; {listed}"
        self.missing.setdefault(path, []).append(MissingKey(step_id=step_id, loop=loop, key=key, keys=known))

    def reach(self, outcome: Outcome | None) -> None:
        """Note an outcome that can be reached, if there is one."""
        if outcome is not None and outcome not in self.outcomes:
            self.outcomes.append(outcome)

    def deny(self, path: str, refusal: Result) -> None:
        """Note a step that policy denied; where ways are explored, it may be gone through more than once."""
        if refusal.failure is not None:
            self.denied.setdefault(without_item(path), DeniedStep(path, refusal.failure.message))

    def doubt(self, result: Result) -> None:
        """Note how a way ended that may not be taken: its outcome can be reached, and the blocks around may fail."""
        self.reach(result.outcome)
        if result.failure is not None and result.stops and result.failure.kind not in NEVER_CONTINUED:
            self.guesses += 1

    def count(self, step: Step, target: str, state: State) -> None:
        """Count one more execution of a step, and so of its target."""
        self._targets[id(step)] = target
        state.executions[id(step)] = state.executions.get(id(step), 0) + 1

    def executed(self, target: str, state: State) -> int:
        """How often a target has executed; where outcomes are explored, on every way that leads here."""
        return sum(count for step, count in state.executions.items() if self._targets[step] == target)

    def before(self, step_id: str, inputs: bytes, outputs: dict[str, Any]) -> dict[str, Any] | None:
        """What a step gave with equal inputs before, if it did; only so many are remembered."""
        given = self._remembered.setdefault(step_id, {})
        earlier = given.get(inputs)
        if earlier is None and len(given) < _MOST_REMEMBERED:
            given[inputs] = outputs
        return earlier


class Strand(msgspec.Struct, frozen=True, kw_only=True):
    """What all steps of one lane, or one item of a loop, share.

    items: the current items of the loops around, by the name the author gave them
    item_key, item: of the innermost keyed loop
    targets: how often a step in the loops around runs, all its items together
    """

    run: Run
    state: State
    clock: Clock
    items: Mapping[str, Any] = field(default_factory=dict)
    item_key: str | None = None
    item: Any = None
    targets: int = 1


class Frame(msgspec.Struct, frozen=True):
    """One place in a run.

    path: where, as events carry it
    key: the same, and how often the run has been there; questions are named after it
    view: what the step may see, where that is not everything
    principal: who acts in the step
    """

    strand: Strand
    path: str | None = None
    key: str | None = None
    step_id: str = ""
    view: Mapping[str, Any] | None = None
    principal: Principal | None = None

    @property
    def run(self) -> Run:
        """The run."""
        return self.strand.run

    @property
    def state(self) -> State:
        """The state of this lane."""
        return self.strand.state

    @property
    def clock(self) -> Clock:
        """The time of this lane."""
        return self.strand.clock

    # --- moving

    def at_step(self, name: str, visit: int) -> "Frame":
        """The frame of a step of this list; a later visit has a key of its own."""
        path = child(self.path, name)
        key = path if self.key == self.path else child_key(self.key, name)
        return Frame(self.strand, path, key if visit == 1 else f"{key}~{visit}", name)

    def inside(self, segment: str | int, state: State | None = None, clock: Clock | None = None) -> "Frame":
        """The frame of an arm, a lane or an iteration of this block."""
        path = child(self.path, segment)
        key = path if self.key == self.path else child_key(self.key, segment)
        return Frame(self._strand(state, clock), path, key)

    def on(self, state: State) -> "Frame":
        """This place, on another state."""
        return Frame(self._strand(state, None), self.path, self.key, self.step_id)

    def _strand(self, state: State | None, clock: Clock | None) -> Strand:
        if state is None and clock is None:
            return self.strand
        return msgspec.structs.replace(self.strand, state=state or self.state, clock=clock or self.clock)

    def each(
        self, name: str, value: Any, index: int, key: str | None, targets: int, state: State, clock: Clock
    ) -> "Frame":
        """The frame of one item of this step's loop."""
        bracket = index if key is None else key
        if isinstance(bracket, Unknown):
            bracket = index  # keys nobody knows must not meet
        path = item(self.path or "", bracket)
        state.root[name] = value
        outer = self.strand
        strand = Strand(
            run=outer.run,
            state=state,
            clock=clock,
            items={**outer.items, name: value},
            item_key=key if key is not None else outer.item_key,
            item=value if key is not None else outer.item,
            targets=outer.targets * targets,
        )
        own_key = path if self.key == self.path else item(self.key or "", bracket)
        return Frame(strand, path, own_key, item(self.step_id, bracket))

    def by(self, principal: Principal) -> "Frame":
        """This place, with somebody else acting."""
        return Frame(self.strand, self.path, self.key, self.step_id, self.view, principal)

    # --- saying and asking

    def say(self, payload: Payload, principal: Principal | None = None) -> Said:
        """Something to write down about this place."""
        return Said(payload, self.path, principal)

    def ask(self, question: Ask[A]) -> Steps[A]:
        """Put a question; the time it takes passes in this lane."""
        asked = self.clock.now
        answer: A = yield question
        self.heard(answer)
        if isinstance(question, AwaitApproval | CollectEvidence):
            self.clock.wait(asked)
        return answer

    def heard(self, answer: A) -> A:
        """Take note of an answer: its time passes, and what was assumed is unknown from now on."""
        self.strand.clock.pass_to(answer.at, answer.duration, answer.idle)
        if answer.assumed is not None and self.strand.run.assumption is None:
            self.strand.run.assumption = answer.assumed
        return answer

    # --- rendering

    @property
    def data(self) -> Mapping[str, Any]:
        """What templates of the step see."""
        return self.state.root if self.view is None else self.view

    def seeing(self, visibility: Visibility | None, principal: Principal) -> "Frame":
        """This frame with the step's principal, and the view its visibility leaves."""
        view = None if visibility is None else visible(self.state.root, visibility, self.strand.items)
        return Frame(self.strand, self.path, self.key, self.step_id, view, principal)

    def reads(self) -> None:
        """Note that what is read from the state now, is read here."""
        self.strand.run.reader = (self.path or "", self.step_id)

    def warned(self) -> Iterator[Said]:
        """The warnings about this place that are not on record yet."""
        for missing in self.run.missing.pop(self.path or "", ()):
            yield self.say(missing)

    def render(self, compiled: Any) -> Any:
        """A value with its templates evaluated; what depends on something unknown is unknown itself."""
        self.reads()
        if self.run.assumption is not None and any_reads_unknown(compiled, self.data):
            return self._render_unknown(compiled)
        value = evaluate(compiled, self.data) if type(compiled) is Template else render_value(compiled, self.data)
        if type(value) is not str or not value.isascii():
            _require_json(value)
        return value

    def render_text(self, template: Template) -> str:
        """A template as text."""
        self.reads()
        if self.run.assumption is not None and reads_unknown(template, self.data):
            shown = self._shown(template)
            return shown if isinstance(shown, str) else text_of(shown)
        return render(template, self.data)

    def holds(self, template: Template | None) -> bool | None:
        """Whether a condition of flow holds, on all of the state; None when it depends on something unknown."""
        if template is None:
            return True
        self.reads()
        if self.run.assumption is not None and reads_unknown(template, self.state.root):
            try:
                return condition(template, Guarded(self.state.root))
            except UnknownRead:
                return None
        return condition(template, self.state.root)

    def count(self, limit: int | Template) -> int | None:
        """A number that may be a template; None when it is unknown."""
        if isinstance(limit, int):
            return limit
        self.reads()
        if self.run.assumption is not None and reads_unknown(limit, self.state.root):
            return None
        value = evaluate(limit, self.state.root)
        number = int(value) if isinstance(value, str) and value.strip().isdecimal() and len(value) < 10 else value
        if not isinstance(number, int) or isinstance(number, bool) or number < 0:
            raise TemplateEvalError(f"`{limit.source}` is not a number of times", hint="a whole number, 0 or more")
        return min(number, _MOST_TIMES)

    def _render_unknown(self, compiled: Any) -> Any:
        if isinstance(compiled, Template):
            if not reads_unknown(compiled, self.data):
                return render_value(compiled, self.data)
            return self._shown(compiled)
        if isinstance(compiled, Mapping):
            return {key: self._render_unknown(value) for key, value in compiled.items()}
        if isinstance(compiled, list):
            return [self._render_unknown(value) for value in compiled]
        return compiled

    def _shown(self, template: Template) -> Any:
        """What a template gives that may read something unknown; as text, it shows what is known of it."""
        try:
            return unwrapped(evaluate(template, Guarded(self.data)))
        except UnknownRead:
            pass
        try:
            return UNKNOWN if template.is_value else Unknown(render(template, self.data))
        except TemplateError:
            return UNKNOWN


RunBlock: TypeAlias = Callable[[tuple[Step, ...], Frame], Steps[Result]]
"""Runs a list of steps in a frame: what kinds that hold steps are handed."""

_MOST_TIMES = 10_000


def child_key(key: str | None, name: str | int) -> str:
    """The key of something inside a place that was visited before."""
    return f"{key}/{child(None, name)}"


def _require_json(value: Any) -> None:
    try:
        require_canonical(value)
    except CanonicalError as error:
        raise TemplateEvalError(error.message, hint=error.hint) from None


def questions(frame: Frame) -> Iterator[str]:
    """Names for the questions one visit of a step asks, in order."""
    key = frame.key or ""
    yield key
    number = 1
    while True:
        number += 1
        yield f"{key}#{number}"
