"""Runs a step once for each item of a list: `for_each`, sequential or parallel (kernel-v0 §6.4)."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeAlias

import msgspec

from gert.errors import InputError, TemplateEvalError
from gert.kernel.engine.frame import Frame
from gert.kernel.engine.lanes import ScopeClaims, is_serialized, run_after
from gert.kernel.engine.requests import RunLanes, Steps
from gert.kernel.engine.results import NEVER_CONTINUED, Result, failed
from gert.kernel.engine.state_maps import StateMap, facts_of, outputs_of
from gert.kernel.events.runbook import Failure, ForEachItem, ForEachStart
from gert.kernel.foundation.names import listing
from gert.kernel.foundation.secret_refs import is_marked
from gert.kernel.foundation.values import coerce, show
from gert.kernel.runbook.documents.modifiers import ForEachBlock
from gert.kernel.runbook.documents.steps import Step
from gert.kernel.template import Template, render
from gert.kernel.template.unknown import UNKNOWN, GuardedState, Unknown, UnknownRead

RunItem: TypeAlias = Callable[[Frame], Steps[Result]]

MAX_ITEMS: Final = 100_000


class Item(msgspec.Struct, frozen=True):
    """One item, its index, and its key if the loop has keys."""

    index: int
    value: Any
    key: str | None


def run_loop(step: Step, block: ForEachBlock, frame: Frame, run_item: RunItem) -> Steps[Result]:
    """Run the step for every item, and keep the results under its id: a list, or with keys a map."""
    values = _values(block, frame)
    if isinstance(values, Unknown):
        return (yield from _explore(step, block, frame, run_item))
    items = list(_items(block, values, frame))
    yield frame.emit(
        ForEachStart(
            step_id=frame.step_id,
            over=_source_of(block.over),
            item_count=len(items),
            parallel=block.parallel,
            variable=block.as_,
            keys=tuple(each.key for each in items if each.key is not None),
        )
    )
    run_items = _run_parallel if block.parallel else _run_sequential
    results = yield from run_items(step, block, items, frame, run_item)
    records = [_record(step, result) for result in results]
    total = _combine(results, [each.index if each.key is None else each.key for each in items], step)
    collected: Any = records
    if block.key is not None:
        collected = {each.key: record for each, record in zip(items, records, strict=False)}
    if any(isinstance(each.key, Unknown) for each in items) and step.id is not None:
        frame.state.set_unknown(step.id)  # the keys of the results are unknown
    elif step.id is not None:
        frame.state.set_results(step.id, collected, total.status)
    if step.continue_on_fail:
        # In a dry run any item may fail, and then the outcome of another item counts.
        for result in results:
            frame.run.add_outcome(result.outcome)
    return total


def _explore(step: Step, block: ForEachBlock, frame: Frame, run_item: RunItem) -> Steps[Result]:
    """Explore a loop over an unknown list: one unknown item shows what can happen, and nothing of it is certain."""
    yield frame.emit(
        ForEachStart(
            step_id=frame.step_id,
            over=_source_of(block.over),
            item_count=1,
            parallel=block.parallel,
            variable=block.as_,
            explored=True,
        )
    )
    state = frame.state.fork(uncertain=True)
    inside = frame.for_item(block.as_, UNKNOWN, 0, None, 1, state, frame.clock)
    result = yield from _run_item(Item(0, UNKNOWN, None), inside, run_item)
    if result.is_cancelled:
        return result
    frame.run.add_uncertain_end(result)
    frame.state.merge_uncertain([state, None])
    if step.id is not None:
        frame.state.set_unknown(step.id)
    return Result(assumed=True, uncertain=True)


def _source_of(over: Any) -> Any:
    """Return a list as the author wrote it, with its templates."""
    if isinstance(over, Template):
        return over.source
    if isinstance(over, Mapping):
        return {key: _source_of(value) for key, value in over.items()}
    return [_source_of(value) for value in over] if isinstance(over, list) else over


def _record(step: Step, result: Result) -> StateMap:
    return facts_of(result.facts).overlay(result.outputs) if step.executes else outputs_of(result.outputs)


def _run_sequential(
    step: Step, block: ForEachBlock, items: list[Item], frame: Frame, run_item: RunItem
) -> Steps[list[Result]]:
    """Run the items in order; a failure that is not continued ends the loop."""
    results: list[Result] = []
    outer = frame.state.root.get(block.as_, _ABSENT)
    for each in items:
        state = frame.state if step.executes else frame.state.fork()
        inside = frame.for_item(block.as_, each.value, each.index, each.key, len(items), state, frame.clock)
        result = yield from _run_item(each, inside, run_item)
        if state is not frame.state:
            result = _merge_item(result, inside, frame)
        results.append(result)
        if result.stops:
            break
    if step.executes:
        if outer is _ABSENT:
            frame.state.root.pop(block.as_, None)
        else:
            frame.state.root[block.as_] = outer
    return results


def _run_parallel(
    step: Step, block: ForEachBlock, items: list[Item], frame: Frame, run_item: RunItem
) -> Steps[list[Result]]:
    """Run all items concurrently, each on its own copy of the state; only a rule can serialize them."""
    frames = [
        frame.for_item(block.as_, each.value, each.index, each.key, len(items), frame.state.fork(), frame.clock.fork())
        for each in items
    ]
    after = _each_after_previous(len(items)) if is_serialized(step, frame.run.plan) else (frozenset(),) * len(items)
    lanes = tuple(
        run_after(_run_item(each, inside, run_item), inside, [frames[earlier] for earlier in before])
        for each, inside, before in zip(items, frames, after, strict=True)
    )
    ended: tuple[Result | None, ...] = yield RunLanes(lanes, after)
    frame.clock.join(inside.clock for inside in frames)
    results = [each if each is not None else failed("cancelled", "the item was not started") for each in ended]
    claims = ScopeClaims()
    for index, inside in enumerate(frames):
        clash = claims.conflict(inside.state.changes) if inside.state.changes is not None else None
        if clash is None:
            results[index] = _merge_item(results[index], inside, frame)
        elif results[index].failure is None:
            results[index] = clash.failed(continued=step.continue_on_fail)
    return results


def _each_after_previous(count: int) -> tuple[frozenset[int], ...]:
    return tuple(frozenset((index - 1,) if index else ()) for index in range(count))


def _run_item(each: Item, frame: Frame, run_item: RunItem) -> Steps[Result]:
    item = ForEachItem(step_id=frame.step_id, index=each.index, value=each.value, key=each.key)
    stop: Failure | None = yield frame.emit(item)
    return failed(stop.kind, stop.message) if stop is not None else (yield from run_item(frame))


def _merge_item(result: Result, inside: Frame, frame: Frame) -> Result:
    """Merge what survives an iteration: its scopes, and for a block the outputs of its steps."""
    changes = inside.state.changes
    if changes is None:
        return result
    frame.state.merge_scopes(changes)
    return msgspec.structs.replace(result, outputs=result.outputs or changes.archive())


def _combine(results: list[Result], names: list[str | int], step: Step) -> Result:
    """Combine the results of the iterations; the worst of them decides."""
    broken = [(name, each) for name, each in zip(names, results, strict=False) if each.failure is not None]
    ended = next((each for each in results if each.ended), None)
    if not broken:
        # If no item has run, the step's `next` is not taken; if perhaps none has, it may not be.
        skips = bool(results) and all(each.reason == "when_false" or each.uncertain for each in results)
        uncertain = skips and any(each.uncertain for each in results)
        return Result(
            outcome=ended.outcome if ended else None,
            ended=ended is not None,
            assumed=any(each.assumed for each in results),
            reason="when_false" if skips and not uncertain else None,
            uncertain=uncertain,
        )
    _, worst = next(
        (pair for pair in broken if pair[1].failure and pair[1].failure.kind in NEVER_CONTINUED),
        next((pair for pair in broken if not pair[1].continued), broken[0]),
    )
    assert worst.failure is not None  # noqa: S101 - only failures are in the list
    if worst.failure.kind in NEVER_CONTINUED:
        status = "failed" if worst.status == "skipped" else worst.status
        return Result(status=status, failure=worst.failure, failed_step=worst.failed_step)
    listed = listing((f"{step.id}[{name}]" for name, _ in broken), 3)
    failure = msgspec.structs.replace(worst.failure, message=f"{listed}: {worst.failure.message}")
    return Result(
        status=worst.status,
        failure=failure,
        failed_step=worst.failed_step,
        outcome=ended.outcome if ended is not None else None,
    )


_ABSENT: Final = object()


def _items(block: ForEachBlock, values: list[Any], frame: Frame) -> Iterator[Item]:
    """Yield the items; known keys are unique."""
    seen: set[str] = set()
    for index, value in enumerate(values):
        key = _key(block, value, frame) if block.key is not None else None
        if key is not None and not isinstance(key, Unknown):
            if key in seen:
                raise DuplicateKey(key)
            seen.add(key)
        yield Item(index, value, key)


class DuplicateKey(Exception):
    """Two items have the same key."""


def _values(block: ForEachBlock, frame: Frame) -> list[Any] | Unknown:
    """Evaluate the list of a loop, once before its first item."""
    value = frame.render(block.over)
    if isinstance(value, Unknown):
        return value
    if isinstance(value, str):
        value = _as_list(value)
    if value is None:
        value = []
    if not isinstance(value, list | tuple):
        raise TemplateEvalError(f"`over` takes a list, found {show(value)}")
    if len(value) > MAX_ITEMS:
        raise TemplateEvalError(f"`over` has {len(value)} items, and a loop takes at most {MAX_ITEMS}")
    return list(value)


def _as_list(text: str) -> Any:
    """Parse a text as a JSON list; other text is never split, because the separator is unknown (DECISIONS 63)."""
    try:
        return coerce(text, "list")
    except InputError:
        hint = 'use `lines: true` where the text is extracted, or `split`, as in `{{ split "," .names }}`'
        raise TemplateEvalError(f"`over` takes a list, found the text {show(text)}", hint=hint) from None


def _key(block: ForEachBlock, value: Any, frame: Frame) -> str:
    assert block.key is not None  # noqa: S101 - only called for loops with keys
    frame.mark_reader()
    data: Mapping[str, Any] = {**frame.state.root, block.as_: value}
    try:
        text = render(block.key, GuardedState(data) if frame.run.assumption is not None else data)
    except UnknownRead:
        return Unknown("?")
    if is_marked(text):
        raise TemplateEvalError(
            "a secret cannot be the key of an item", hint="keys are recorded and shown; use another field as the key"
        )
    if not text.strip():
        raise TemplateEvalError("the key of an item is empty", hint="every item needs its own key")
    return text
