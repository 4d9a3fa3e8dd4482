"""Run lanes side by side, each on its own copy of the state."""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from gert.kernel.engine.clock import format_seconds, format_wait
from gert.kernel.engine.frame import Frame, RunBlock
from gert.kernel.engine.lanes import ScopeClaims, access_of, run_after, schedule_lanes
from gert.kernel.engine.requests import RunLanes, Steps
from gert.kernel.engine.results import NEVER_CONTINUED, Result, block_result, failed
from gert.kernel.events.runbook import BranchOutcome, ParallelFork, ParallelMerge
from gert.kernel.foundation.canonical import digest_value
from gert.kernel.foundation.names import listing
from gert.kernel.runbook.documents.steps import ParallelStep

_MAX_SHOWN: Final = 1024 * 1024


def run_parallel(step: ParallelStep, frame: Frame, run_block: RunBlock) -> Steps[Result]:
    """Fork, run every lane to its end even if others fail, and merge in order."""
    labels = step.names
    waits = schedule_lanes([access_of(lane.steps, frame.run.plan) for lane in step.branches])
    yield frame.emit(
        ParallelFork(
            step_id=frame.step_id,
            branch_count=len(labels),
            forked_state_hash=digest_value(frame.state.root),
            branches=labels,
            serialized=waits.contending,
        )
    )
    frames = [frame.inside(label, frame.state.fork(), frame.clock.fork()) for label in labels]
    clocks = [inside.clock for inside in frames]
    lanes = tuple(
        run_after(run_block(lane.steps, inside), inside, [frames[earlier] for earlier in before])
        for lane, inside, before in zip(step.branches, frames, waits.after, strict=True)
    )
    ended: tuple[Result | None, ...] = yield RunLanes(lanes, waits.after)
    results = [each if each is not None else failed("cancelled", "the lane was not started") for each in ended]
    frame.clock.join(clocks)
    merged: dict[str, Any] = {}
    claims = ScopeClaims()
    for index, inside in enumerate(frames):
        clash = claims.conflict(inside.state.changes) if inside.state.changes is not None else None
        if clash is not None:
            results[index] = results[index] if results[index].failure is not None else clash.failed()
        elif inside.state.changes is not None:
            merged.update(inside.state.changes.names)
            frame.state.merge(inside.state.changes)
    outcomes = tuple(
        BranchOutcome(
            index=index,
            status=block_result(result).status,
            label=step.branches[index].label,
            outcome=result.outcome,
            failure=result.failure,
            duration=format_seconds(clocks[index].ended - clocks[index].started) if clocks[index].has_begun else None,
            waited=format_wait(clocks[index].waited(clocks[index].started, clocks[index].ended)),
        )
        for index, result in enumerate(results)
    )
    yield frame.emit(ParallelMerge(step_id=frame.step_id, branch_outcomes=outcomes, merged_outputs=_shown(merged)))
    if step.continue_on_fail:
        # In a dry run any lane may fail, and then the outcome of another lane counts.
        for result in results:
            frame.run.add_outcome(result.outcome)
    return join_lanes(results, labels)


def join_lanes(results: list[Result], labels: Sequence[str]) -> Result:
    """Combine the results of lanes: a failure in any lane wins, else the outcome of the first lane that has one."""
    broken = [(label, each) for label, each in zip(labels, results, strict=True) if each.failure and not each.continued]
    ended = next((each for each in results if each.ended), None)
    if broken:
        # A denial or a cancellation must not turn into a failure that could be continued.
        final = next((each for _, each in broken if each.failure and each.failure.kind in NEVER_CONTINUED), None)
        if final is not None:
            return block_result(final)
        names = listing(label for label, _ in broken)
        _, first = broken[0]
        message = f"{names} failed: {first.failure.message}" if first.failure else f"{names} failed"
        return failed(
            "lane_failed",
            message,
            failed_step=first.failed_step,
            outcome=ended.outcome if ended is not None else None,
        )
    return block_result(ended) if ended is not None else Result()


def _shown(merged: dict[str, Any]) -> dict[str, Any]:
    """Return what the lanes set, or digests if it is large: the lanes have already recorded it."""
    if len(msgspec.json.encode(merged, enc_hook=str)) <= _MAX_SHOWN:
        return merged
    return {name: digest_value(value) for name, value in merged.items()}
