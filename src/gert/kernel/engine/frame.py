"""The frame a step runs in: its run, the state of its lane, and its path; step kinds render and emit through it."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, TypeAlias, TypeVar

import msgspec
from msgspec import field

from gert.errors import CanonicalError, TemplateError, TemplateEvalError
from gert.kernel.engine.clock import Clock
from gert.kernel.engine.plan import Planner
from gert.kernel.engine.requests import Answer, AwaitApproval, CollectEvidence, Emit, Request, Steps
from gert.kernel.engine.results import NEVER_CONTINUED, Result
from gert.kernel.engine.state import State
from gert.kernel.engine.symbolic import any_reads_unknown, reads_unknown
from gert.kernel.engine.view import visible
from gert.kernel.events.path import child, item
from gert.kernel.events.payload import Payload
from gert.kernel.events.runbook import DeniedStep, MissingKey, Outcome, Recent, RunStart
from gert.kernel.events.summary import without_item
from gert.kernel.events.vocabulary import RunMode, SkipReason
from gert.kernel.foundation.canonical import require_canonical
from gert.kernel.foundation.globs import Visibility
from gert.kernel.foundation.names import listing
from gert.kernel.foundation.principal import Principal
from gert.kernel.governance.rules import Policy
from gert.kernel.runbook.documents.steps import Step
from gert.kernel.runbook.program import Program
from gert.kernel.template import Template, condition, evaluate, render, render_value
from gert.kernel.template import render_text as text_of
from gert.kernel.template.partial import render_known_parts
from gert.kernel.template.unknown import UNKNOWN, GuardedState, Unknown, UnknownRead, unwrap

A = TypeVar("A", bound=Answer)

_MAX_REMEMBERED = 256
_MAX_WARNINGS = 100
_MAX_KEYS = 20


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a run is started with.

    started: the first event of the run: who started it, and with what; the engine completes it from the program
    secret_inputs: inputs that `started` has references in place of
    explores: the run lists the outcomes it can reach, and claims none (dry-run, probe)
    groups: people by group, for approvals
    break_glass: the reason for an emergency override, where the rules allow one
    recent: executions by earlier runs, for `max_per_hour`; None if the host did not count them
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
    """What all lanes of a run share: plans, earlier outputs of deterministic steps, and reachable outcomes."""

    __slots__ = (
        "_remembered",
        "_targets",
        "actor",
        "assumption",
        "break_glass_count",
        "denied",
        "end_settings",
        "guesses",
        "missing",
        "outcomes",
        "plan",
        "program",
        "reader",
        "refusals",
        "setup",
        "skipped_write",
        "warnings",
    )

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.program = setup.program
        self.actor = setup.started.principal or Principal("human", setup.actor)
        self.assumption: SkipReason | None = None
        """Why some state is unknown; None until an answer is assumed."""
        self.break_glass_count = 0
        """How many decisions were overridden in an emergency."""
        self.skipped_write = False
        """Whether a step that may write was only assumed, on any explored path."""
        self.guesses = 0
        """How many steps were assumed to succeed so far, plus failures on paths that may not be taken."""
        self.outcomes: list[Outcome] = []
        self.denied: dict[str, DeniedStep] = {}
        """Steps that the policy denied on any explored path; of the items of a loop, the first."""
        self.refusals: dict[str, SkipReason] = {}
        """Why steps were not allowed to run, by path."""
        planner = Planner(setup.program, setup.policies)
        self.plan, self.end_settings = planner.plan, planner.end_settings
        self.reader: tuple[str, str] = ("", "")
        """The step whose template is being evaluated: path and step id."""
        self.missing: dict[str, list[MissingKey]] = {}
        """Missing keys that templates read, by the path of their step, until they are recorded."""
        self.warnings: dict[tuple[str, str], str] = {}
        self._targets: dict[int, str] = {}
        self._remembered: dict[str, dict[bytes, dict[str, Any]]] = {}

    def report_missing_key(self, loop: str, key: str, keys: Iterable[str]) -> None:
        """Record that the result of a keyed loop has no such key; each key is reported once."""
        if (loop, key) in self.warnings or len(self.warnings) >= _MAX_WARNINGS:
            return
        path, step_id = self.reader
        known = tuple(islice(keys, _MAX_KEYS))
        listed = f"it has {listing(known)}" if known else "it has none"
        self.warnings[loop, key] = f"`.{loop}` has no key `{key}`, read by `{step_id}`; {listed}"
        self.missing.setdefault(path, []).append(MissingKey(step_id=step_id, loop=loop, key=key, keys=known))

    def add_outcome(self, outcome: Outcome | None) -> None:
        """Record an outcome that can be reached, if there is one."""
        if outcome is not None and outcome not in self.outcomes:
            self.outcomes.append(outcome)

    def add_denied(self, path: str, refusal: Result) -> None:
        """Record a step that the policy denied; an exploring run may visit it more than once."""
        if refusal.failure is not None:
            self.denied.setdefault(without_item(path), DeniedStep(path, refusal.failure.message))

    def add_uncertain_end(self, result: Result) -> None:
        """Record the end of a path that may not be taken: its outcome is reachable, and enclosing blocks may fail."""
        self.add_outcome(result.outcome)
        if result.failure is not None and result.stops and result.failure.kind not in NEVER_CONTINUED:
            self.guesses += 1

    def count_execution(self, step: Step, target: str, state: State) -> None:
        """Count one more execution of a step, and so of its target."""
        key, executions = id(step), state.executions
        self._targets[key] = target
        executions[key] = executions.get(key, 0) + 1

    def executions_of(self, target: str, state: State) -> int:
        """Return how often a target has executed; in an exploring run, on every path that leads here."""
        return sum(count for step, count in state.executions.items() if self._targets[step] == target)

    def earlier_outputs(self, step_id: str, inputs: bytes, outputs: dict[str, Any]) -> dict[str, Any] | None:
        """Return the step's earlier outputs for equal inputs, if any; the number kept is bounded."""
        given = self._remembered.setdefault(step_id, {})
        earlier = given.get(inputs)
        if earlier is None and len(given) < _MAX_REMEMBERED:
            given[inputs] = outputs
        return earlier


class LaneContext(msgspec.Struct, frozen=True, kw_only=True):
    """What all steps of one lane, or of one item of a loop, share.

    items: the current items of the enclosing loops, by their `as` name
    item_key, item: the current key and item of the innermost keyed loop
    targets: how often a step runs in the enclosing loops, over all items
    """

    run: Run
    state: State
    clock: Clock
    items: Mapping[str, Any] = field(default_factory=dict)
    item_key: str | None = None
    item: Any = None
    targets: int = 1


class Frame(msgspec.Struct, frozen=True):
    """One position in a run, and the operations a step needs there.

    path: the position, as in events
    key: the path and the number of the visit; request keys are derived from it
    view: the visible part of the state, or None if all of it is visible
    principal: who acts in the step
    """

    lane: LaneContext
    path: str | None = None
    key: str | None = None
    step_id: str = ""
    view: Mapping[str, Any] | None = None
    principal: Principal | None = None

    @property
    def run(self) -> Run:
        """The run."""
        return self.lane.run

    @property
    def state(self) -> State:
        """The state of this lane."""
        return self.lane.state

    @property
    def clock(self) -> Clock:
        """The time of this lane."""
        return self.lane.clock

    # --- moving

    def at_step(self, name: str, visit: int) -> "Frame":
        """Return the frame of a step in this list; each later visit has its own key."""
        path = child(self.path, name)
        key = path if self.key == self.path else child_key(self.key, name)
        return Frame(self.lane, path, key if visit == 1 else f"{key}~{visit}", name)

    def inside(self, segment: str | int, state: State | None = None, clock: Clock | None = None) -> "Frame":
        """Return the frame of an arm, a lane or an iteration of this block."""
        path = child(self.path, segment)
        key = path if self.key == self.path else child_key(self.key, segment)
        return Frame(self._lane(state, clock), path, key)

    def with_state(self, state: State) -> "Frame":
        """Return this frame with another state."""
        return Frame(self._lane(state, None), self.path, self.key, self.step_id)

    def _lane(self, state: State | None, clock: Clock | None) -> LaneContext:
        if state is None and clock is None:
            return self.lane
        return msgspec.structs.replace(self.lane, state=state or self.state, clock=clock or self.clock)

    def for_item(
        self, name: str, value: Any, index: int, key: str | None, targets: int, state: State, clock: Clock
    ) -> "Frame":
        """Return the frame of one item of this step's loop."""
        bracket = index if key is None else key
        if isinstance(bracket, Unknown):
            bracket = index  # unknown keys must not collide
        path = item(self.path or "", bracket)
        state.root[name] = value
        outer = self.lane
        lane = LaneContext(
            run=outer.run,
            state=state,
            clock=clock,
            items={**outer.items, name: value},
            item_key=key if key is not None else outer.item_key,
            item=value if key is not None else outer.item,
            targets=outer.targets * targets,
        )
        own_key = path if self.key == self.path else item(self.key or "", bracket)
        return Frame(lane, path, own_key, item(self.step_id, bracket))

    def acting_as(self, principal: Principal) -> "Frame":
        """Return this frame with another principal."""
        return Frame(self.lane, self.path, self.key, self.step_id, self.view, principal)

    # --- events and requests

    def emit(self, payload: Payload, principal: Principal | None = None) -> Emit:
        """Return an event to record at this path."""
        return Emit(payload, self.path, principal)

    def request(self, request: Request[A]) -> Steps[A]:
        """Yield a request and return its answer; its time passes in this lane."""
        asked = self.clock.now
        answer: A = yield request
        self.take_answer(answer)
        if isinstance(request, AwaitApproval | CollectEvidence):
            self.clock.wait(asked)
        return answer

    def take_answer(self, answer: A) -> A:
        """Advance the clock to an answer, and note if it was assumed."""
        self.lane.clock.advance(answer.at, answer.duration, answer.idle)
        if answer.assumed is not None and self.lane.run.assumption is None:
            self.lane.run.assumption = answer.assumed
        return answer

    # --- rendering

    @property
    def data(self) -> Mapping[str, Any]:
        """The data that the step's templates read."""
        return self.lane.state.root if self.view is None else self.view

    def with_view(self, visibility: Visibility | None, principal: Principal) -> "Frame":
        """Return this frame with the step's principal, and the view that its visibility allows."""
        view = None if visibility is None else visible(self.state.root, visibility, self.lane.items)
        return Frame(self.lane, self.path, self.key, self.step_id, view, principal)

    def mark_reader(self) -> None:
        """Mark this step as the reader of the state, for warnings."""
        self.lane.run.reader = (self.path or "", self.step_id)

    def missing_key_events(self) -> Iterable[Emit]:
        """Return the missing keys of this path that are not recorded yet."""
        missing = self.lane.run.missing
        return [self.emit(each) for each in missing.pop(self.path or "", ())] if missing else ()

    def render(self, compiled: Any) -> Any:
        """Evaluate the templates in a value; what depends on an unknown value is unknown."""
        self.mark_reader()
        data = self.data
        if self.lane.run.assumption is not None and any_reads_unknown(compiled, data):
            return self._render_unknown(compiled)
        value = evaluate(compiled, data) if type(compiled) is Template else render_value(compiled, data)
        if type(value) is not str or not value.isascii():
            _require_json(value)
        return value

    def render_text(self, template: Template) -> str:
        """Render a template as text."""
        self.mark_reader()
        if self.run.assumption is not None and reads_unknown(template, self.data):
            shown = self._shown(template)
            return shown if isinstance(shown, str) else text_of(shown)
        return render(template, self.data)

    def holds(self, template: Template | None) -> bool | None:
        """Return whether a flow condition holds on the whole state, or None if it depends on an unknown value."""
        if template is None:
            return True
        self.mark_reader()
        if self.run.assumption is not None and reads_unknown(template, self.state.root):
            try:
                return condition(template, GuardedState(self.state.root))
            except UnknownRead:
                return None
        return condition(template, self.state.root)

    def evaluate_count(self, limit: int | Template) -> int | None:
        """Evaluate a number that may be a template; None if it is unknown."""
        if isinstance(limit, int):
            return limit
        self.mark_reader()
        if self.run.assumption is not None and reads_unknown(limit, self.state.root):
            return None
        value = evaluate(limit, self.state.root)
        number = int(value) if isinstance(value, str) and value.strip().isdecimal() and len(value) < 10 else value
        if not isinstance(number, int) or isinstance(number, bool) or number < 0:
            raise TemplateEvalError(f"`{limit.source}` is not a valid count", hint="use a whole number, 0 or more")
        return min(number, _MAX_COUNT)

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
        """Render a template that may read an unknown value; text shows the known parts."""
        try:
            return unwrap(evaluate(template, GuardedState(self.data)))
        except UnknownRead:
            pass
        try:
            return UNKNOWN if template.is_value else Unknown(render_known_parts(template, self.data))
        except TemplateError:
            return UNKNOWN


RunBlock: TypeAlias = Callable[[tuple[Step, ...], Frame], Steps[Result]]
"""Runs a list of steps in a frame; passed to the kinds of steps that contain steps."""

_MAX_COUNT = 10_000


def child_key(key: str | None, name: str | int) -> str:
    """Return the key of a child of a path that was visited before."""
    return f"{key}/{child(None, name)}"


def _require_json(value: Any) -> None:
    try:
        require_canonical(value)
    except CanonicalError as error:
        raise TemplateEvalError(error.message, hint=error.hint) from None


def request_keys(frame: Frame) -> Iterator[str]:
    """Yield the keys of the requests that one visit of a step makes, in order."""
    key = frame.key or ""
    yield key
    number = 1
    while True:
        number += 1
        yield f"{key}#{number}"
