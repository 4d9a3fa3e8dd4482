"""What earlier runs executed in the last hour, counted in the ledger for `limits.max_per_hour` (DECISIONS 56).

Every attempt of a real run counts. What cannot be read cannot be counted, and then the limit cannot be kept: a reason
is given in place of a number, and the kernel denies.
"""

import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Final

from gert.ecosystem.host.config.ledger_location import Database, masked, open_ledger
from gert.errors import GertError
from gert.kernel.events.runbook import Recent
from gert.kernel.governance.rules import Policy
from gert.kernel.runbook.documents.steps import ExtensionStep, Step, ToolStep
from gert.kernel.runbook.program import Program

WINDOW: Final = timedelta(hours=1)
_TOOL_FILE: Final = re.compile(r"(?:\.tool)?\.ya?ml\Z")


async def count_recent(
    program: Program, policies: Iterable[Policy], database: Database, environ: Mapping[str, str], now: datetime
) -> Recent | None:
    """How often each target of a program was executed in the last hour; none where no rule asks."""
    if all(rule.limits.max_per_hour is None for policy in policies for rule in policy.rules):
        return None
    try:
        found = await _executed(database, environ, now - WINDOW)
    except GertError as problem:
        return Recent(flaw=masked(database, problem).message)
    counts = {target: sum(found[name] for name in names) for target, names in _names(program).items()}
    return Recent({target: count for target, count in counts.items() if count})


async def _executed(database: Database, environ: Mapping[str, str], since: datetime) -> Counter[str]:
    """What runs of a ledger called; calls that a rerun only took the answers of were not made by it."""
    if isinstance(database, str) and not os.path.exists(database):
        return Counter()
    counted: Counter[str] = Counter()
    forked: dict[str, int] = {}
    async with open_ledger(database, environ, read_only=isinstance(database, str)) as ledger:
        for run_id, _, done, target in await ledger.called(since):
            if run_id not in forked:
                head = await ledger.head(run_id)
                snapshot = head.runbook if head is not None else None
                is_real = snapshot is not None and snapshot.mode == "real"
                forked[run_id] = snapshot.forked if snapshot is not None and is_real else _NEVER
            # The step that a rerun begins with starts before it forks, and is executed after that.
            counted[_called(target)] += (_NEVER if done is None else done) > forked[run_id]
    return counted


_NEVER: Final = 1 << 62


# --- targets


def _names(program: Program) -> Mapping[str, frozenset[str]]:
    """The targets of a program, each with everything it may be called in a trace."""
    return {target: names for step in program.steps for target, names in (_names_of(step, program),)}


def _names_of(step: Step, program: Program) -> tuple[str, frozenset[str]]:
    if isinstance(step, ToolStep):
        tool, action = program.tool_of(step), program.action_of(step)
        called = {_plain(step.tool), *([tool.meta.name] if tool is not None else [])}
        if action is None:
            return step.tool, frozenset(called)
        return f"{step.tool}:{action[0]}", frozenset(f"{name}:{action[0]}" for name in called)
    name = step.extension if isinstance(step, ExtensionStep) else step.type
    return name, frozenset({name})


def _plain(tool: str) -> str:
    """A tool without the folder and the ending of its file: however it is written, it is the same one."""
    return _TOOL_FILE.sub("", tool.rpartition("/")[2])


def _called(target: str) -> str:
    """A target as a ledger names it, without the folder and the ending of a tool's file."""
    tool, colon, action = target.rpartition(":")
    return f"{_plain(tool)}:{action}" if colon else _plain(action)
