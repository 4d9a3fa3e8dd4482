"""Reconcile calls that were announced and have no result: the operator says whether they happened."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias, cast

import msgspec
from msgspec import field

from gert.ecosystem.host.run.world.sanitize import Sanitizer
from gert.ecosystem.host.run.world.worlds import World
from gert.ecosystem.process.descendants import closed_orphans, mark_for, marked
from gert.ecosystem.tools.extension import server_name as extension_server
from gert.ecosystem.tools.jsonrpc import server_name as tool_server
from gert.ecosystem.tools.server_calls import server_mark
from gert.errors import InDoubt, InputError, OutputsMissing, UsageError
from gert.kernel.engine.inputs import fit
from gert.kernel.engine.requests import AnyAnswer, CallExtension, CallPreview, CallTool, Request, ToolAnswer
from gert.kernel.events.envelope import decode, parse_timestamp
from gert.kernel.events.path import named
from gert.kernel.events.runbook import Failure, StepReconciled
from gert.kernel.events.vocabulary import Reconciliation
from gert.kernel.foundation.names import listing
from gert.kernel.foundation.redaction import PLACEHOLDER
from gert.kernel.foundation.text import path_text, printable
from gert.kernel.governance.parameter import Parameter

ALL: Final = "*"
OPTION: Final = "--reconcile-output"
_MOST_NAMED: Final = 10

Call: TypeAlias = CallTool | CallExtension


class Choice(msgspec.Struct, frozen=True):
    """What becomes of one request that may have been put before; `outputs` are those of a success."""

    key: str
    path: str
    event: StepReconciled
    outputs: dict[str, Any] = field(default_factory=dict)


class Missing(NamedTuple):
    """An output that a call which succeeded must have given."""

    path: str
    name: str
    parameter: Parameter


def reconcile_calls(
    announced: Iterable[Request[Any]],
    said: Mapping[str, Reconciliation],
    outputs: Sequence[str] = (),
    knows: Callable[[Call], bool] | None = None,
) -> list[Choice]:
    """What becomes of calls that may have happened; InDoubt where only the operator can say.

    A call whose contract is idempotent is made again, unless there is a choice for that very step. Requests to people
    are put again, too.

    outputs: what calls gave that succeeded, each as `STEP.name=value`
    knows: whether a call has a record of its own, or never began; then it is asked for again, and not made twice
    """
    calls = [ask for ask in announced if isinstance(ask, CallTool | CallExtension)]
    chosen_by_path = _by_path(said, calls)
    given = _outputs(outputs, calls)
    choices: list[Choice] = []
    doubtful: list[str] = []
    for ask in calls:
        chosen = chosen_by_path.get(ask.path)
        is_known = chosen is None and knows is not None and knows(ask)
        if chosen is None and not ask.contract.idempotent and not is_known:
            chosen = said.get(ALL)
            if chosen is None:
                doubtful.append(ask.path)
                continue
        event = StepReconciled(step_id=ask.step_id, choice=chosen or "retry", automatic=chosen is None)
        kept = {**(_secret(ask) if event.choice == "success" else {}), **given.get(ask.key, {})}
        choices.append(Choice(ask.key, ask.path, event, kept))
    if doubtful:
        raise InDoubt(
            f"outcome of {_listed(doubtful)} is unknown: gert stopped before recording a result",
            hint="check the target, then pass `--reconcile success|failed|retry`, or for one step `--reconcile STEP=…`",
        )
    _require_success(choices)
    _require_outputs(choices, {ask.key: ask for ask in calls})
    return choices


def _outputs(texts: Sequence[str], calls: list[Call]) -> dict[str, dict[str, Any]]:
    """The outputs the operator gives, by question and name, each of its declared type."""
    found: dict[str, dict[str, Any]] = {}
    asked = {ask.path: ask for ask in calls}
    for text in texts:
        # A key of an item may hold a dot: the longest name is the one that was meant.
        ends = (at for at in range(len(text) - 1, 0, -1) if text[at] == ".")
        step, paths = next(((text[:at], paths) for at in ends if (paths := named(text[:at], asked))), ("", []))
        output, equals, value = text[len(step) + 1 :].partition("=")
        if not paths or not equals:
            raise UsageError(
                f"`{OPTION}` takes STEP.NAME=VALUE for a call without a result, not `{text}`",
                hint=f"calls without a result: {_listed(asked) or 'none'}",
            )
        ask = asked[_one(step, paths)]
        found.setdefault(ask.key, {})[output] = _fitting(ask, output, value)
    return found


def _secret(ask: Call) -> dict[str, Any]:
    """The required outputs that are secret: their values would not be kept, so the operator is not asked for them."""
    return {name: PLACEHOLDER for name, each in ask.contract.outputs.items() if each.required and each.secret}


def _fitting(ask: Call, output: str, value: str) -> Any:
    parameter = ask.contract.outputs.get(output)
    if parameter is None:
        listed = listing(ask.contract.outputs) or "no outputs"
        raise UsageError(f"`{path_text(ask.path)}` has no output `{output}`", hint=f"its contract declares {listed}")
    try:
        return fit(value, parameter)
    except InputError as problem:
        raise UsageError(
            f"the output `{output}` of `{path_text(ask.path)}`: {problem.message}", hint=problem.hint
        ) from None


def _require_success(choices: list[Choice]) -> None:
    """Refuse outputs of a call that is not reconciled as a success: they would be dropped."""
    for choice in choices:
        if choice.outputs and choice.event.choice != "success":
            raise UsageError(
                f"`{OPTION}` is only for calls that succeeded, and `{path_text(choice.path)}` is reconciled as "
                f"`{choice.event.choice}`",
                hint=f"add --reconcile {path_text(choice.path)}=success",
            )


def _require_outputs(choices: list[Choice], calls: Mapping[str, Call]) -> None:
    """Refuse a success without the outputs it must have: steps after it rely on them."""
    missing = [each for choice in choices for each in _missing(choice, calls[choice.key])]
    if missing:
        listed = ", ".join(f"`{each.name}` of `{path_text(each.path)}`" for each in missing)
        raise OutputsMissing(
            f"a call that succeeded must have its required outputs, and these are not given: {listed}",
            hint=" ".join(f"{OPTION} {path_text(each.path)}.{each.name}=VALUE" for each in missing),
            missing=missing,
        )


def _missing(choice: Choice, ask: Call) -> Iterator[Missing]:
    if choice.event.choice != "success":
        return
    for name, parameter in ask.contract.outputs.items():
        if parameter.required and name not in choice.outputs:
            yield Missing(choice.path, name, parameter)


def require_ended(run_id: str, announced: Iterable[Request[Any]], recorded: Iterable[bytes]) -> None:
    """Refuse to call anything while a process of an open call still runs on this machine, or may.

    recorded: the events of the run; they say when the open calls were made
    """
    calls = [ask for ask in announced if isinstance(ask, CallTool | CallPreview | CallExtension)]
    steps = {mark: ask.path for ask in calls for mark in _marks(run_id, ask)}
    found = marked(steps)
    if found:
        raise _running(
            f"`{path_text(steps[found[0][0]])}` is still running, and the gert that started it has ended",
            [(pid, command) for _, pid, command in found],
        )
    closed = closed_orphans(_first_moment(set(steps.values()), recorded)) if calls else []
    if closed:
        raise _running(
            f"`{path_text(calls[0].path)}` may still be running: a process that started after it began does not let "
            "gert see which call it belongs to",
            closed,
        )


def _marks(run_id: str, ask: CallTool | CallPreview | CallExtension) -> Iterator[str]:
    """The marks of the processes that a call may have: its own, or those of the server that was called."""
    yield mark_for(run_id, ask.key)
    if isinstance(ask, CallExtension):
        yield server_mark(run_id, extension_server(ask.extension))
    else:
        yield server_mark(run_id, tool_server(ask.tool))


def _running(message: str, found: list[tuple[int, str]]) -> InDoubt:
    (pid, command), *others = found
    more = f", and {len(others)} more" if others else ""
    pids = " ".join(str(each) for each, _ in found[:_MOST_NAMED])
    return InDoubt(
        f"{message}: process {pid} `{printable(command)}`{more}",
        hint="wait for it to end and resume; if it is meant to stay, such as a service that the step started, resume "
        f"with `--allow-running`; otherwise end it with `kill {pids}`",
    )


def _first_moment(paths: set[str], recorded: Iterable[bytes]) -> float:
    """When the first of these steps began; the start of the run where the record does not say."""
    events = [decode(line) for line in recorded]
    of_steps = [event for event in events if event.path in paths]
    return min((parse_timestamp(each.timestamp).timestamp() for each in of_steps or events), default=0.0)


def _by_path(said: Mapping[str, Reconciliation], calls: list[Call]) -> dict[str, Reconciliation]:
    """The choices for single calls; one for a step without an open call, or for several, is refused."""
    found: dict[str, Reconciliation] = {}
    for name, choice in said.items():
        if name == ALL:
            continue
        paths = named(name, (ask.path for ask in calls))
        if not paths:
            listed = _listed(ask.path for ask in calls)
            raise UsageError(
                f"`{name}` is not a call without a result", hint=f"there is {listed}" if listed else "there is none"
            )
        if found.setdefault(_one(name, paths), choice) != choice:
            raise UsageError(f"`{path_text(paths[0])}` is reconciled twice", hint="pass one choice for each call")
    return found


def _one(name: str, paths: list[str]) -> str:
    """The only path that a name means."""
    if len(paths) > 1:
        # As recorded: two paths may read the same.
        listed = listing(paths, _MOST_NAMED)
        raise UsageError(f"`{name}` names {len(paths)} calls without a result", hint=f"name one of {listed}")
    return paths[0]


def _listed(paths: Iterable[str]) -> str:
    return listing(map(path_text, paths))


class Reconciled:
    """A world in which some calls are reconciled: they are answered with what the operator said."""

    def __init__(self, world: World, intake: Sanitizer) -> None:
        self._world = world
        self._intake = intake
        self.settled: dict[str, Choice] = {}

    def immediate(self, ask: Request[Any]) -> AnyAnswer | None:
        """What the operator said; and what else needs no world."""
        choice = self.settled.get(ask.key)
        if choice is not None and choice.event.choice != "retry":
            del self.settled[ask.key]
            return self._answered(choice, ask)
        return self._world.immediate(ask)

    async def answer(self, ask: Request[Any]) -> AnyAnswer:
        """What the operator said, once; otherwise the world is asked."""
        choice = self.settled.pop(ask.key, None)
        if choice is None or choice.event.choice == "retry":
            return await self._world.answer(ask)
        return self._answered(choice, ask)

    def _answered(self, choice: Choice, ask: Request[Any]) -> AnyAnswer:
        return cast("AnyAnswer", self._intake.take(_said(choice), ask))


def _said(choice: Choice) -> ToolAnswer:
    if choice.event.choice == "success":
        return ToolAnswer(outputs=choice.outputs, reconciled=True)
    return ToolAnswer(failure=Failure("reported", "the operator says that it failed"))
