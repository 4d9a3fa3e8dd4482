"""Calls that were announced and have no result: nobody knows whether they happened, and nobody guesses."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from gert.ecosystem.executors.descendants import mark_for, marked
from gert.ecosystem.host.worlds import World
from gert.errors import InDoubt, UsageError
from gert.kernel.engine.asks import AnyAnswer, Ask, CallExtension, CallPreview, CallTool, ToolAnswer
from gert.kernel.events.runbook import Failure, StepReconciled
from gert.kernel.events.vocabulary import Reconciliation
from gert.kernel.foundation.text import printable

ALL: Final = "*"
_MOST_NAMED: Final = 10


class Choice(msgspec.Struct, frozen=True):
    """What becomes of one question that may have been put before."""

    key: str
    path: str
    event: StepReconciled


def settle_doubts(announced: Iterable[Ask[Any]], said: Mapping[str, Reconciliation]) -> list[Choice]:
    """What becomes of calls that may have happened; InDoubt where only the operator can say.

    A call whose contract is idempotent is simply made again, unless something is said of that very step. Questions to
    people are put again, too.
    """
    calls = [ask for ask in announced if isinstance(ask, CallTool | CallExtension)]
    _require_open(said, calls)
    choices: list[Choice] = []
    doubtful: list[str] = []
    for ask in calls:
        given = said.get(ask.path) or said.get(ask.step_id)
        if given is None and not ask.contract.idempotent:
            given = said.get(ALL)
            if given is None:
                doubtful.append(ask.path)
                continue
        event = StepReconciled(step_id=ask.step_id, choice=given or "retry", automatic=given is None)
        choices.append(Choice(ask.key, ask.path, event))
    if doubtful:
        listed = ", ".join(f"`{path}`" for path in doubtful)
        raise InDoubt(
            f"nobody knows whether {listed} happened: it was announced, and the process ended before its result",
            hint="look, and say so: `--reconcile success`, `failed` or `retry`, or for one step `--reconcile STEP=…`",
        )
    return choices


def require_ended(run_id: str, announced: Iterable[Ask[Any]]) -> None:
    """Refuse to call anything while a process of an open call still runs on this machine."""
    steps = {mark_for(run_id, ask.key): ask.path for ask in announced if isinstance(ask, CallTool | CallPreview)}
    found = marked(steps)
    if not found:
        return
    mark, pid, command = found[0]
    more = f", and {len(found) - 1} more" if len(found) > 1 else ""
    pids = " ".join(str(each) for _, each, _ in found[:_MOST_NAMED])
    raise InDoubt(
        f"`{steps[mark]}` is still running, and the gert that started it has ended: process {pid} "
        f"`{printable(command)}`{more}",
        hint=f"wait for it to end, or end it with `kill {pids}`, and resume; `--allow-running` resumes beside it",
    )


def _require_open(said: Mapping[str, Reconciliation], calls: list[CallTool | CallExtension]) -> None:
    """Refuse to hear of a step that is not open: whoever names it is mistaken about what happened."""
    known = {name for ask in calls for name in (ask.path, ask.step_id)}
    for name in said:
        if name != ALL and name not in known:
            listed = ", ".join(f"`{ask.path}`" for ask in calls)
            raise UsageError(
                f"`{name}` is no call without a result", hint=f"there is {listed}" if listed else "there is none"
            )


class Reconciled:
    """A world in which some questions are settled: they are answered with what the operator said."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.settled: dict[str, Choice] = {}

    def immediate(self, ask: Ask[Any]) -> AnyAnswer | None:
        """What the operator said; and what else needs no world."""
        choice = self.settled.get(ask.key)
        if choice is not None and choice.event.choice != "retry":
            del self.settled[ask.key]
            return _said(choice)
        return self._world.immediate(ask)

    async def answer(self, ask: Ask[Any]) -> AnyAnswer:
        """What the operator said, once; otherwise the world is asked."""
        choice = self.settled.pop(ask.key, None)
        if choice is None or choice.event.choice == "retry":
            return await self._world.answer(ask)
        return _said(choice)


def _said(choice: Choice) -> ToolAnswer:
    if choice.event.choice == "success":
        return ToolAnswer()
    return ToolAnswer(failure=Failure("reported", "the operator says that it failed"))
