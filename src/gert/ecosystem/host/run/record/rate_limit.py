"""`limits.max_per_hour`: executions are claimed in the ledger by the append that announces them (DECISIONS 56).

Every attempt of a real run is counted, with a limit or without. The kernel denies what exceeds the count at the start
of the run; the claim denies what other runs executed since then. A count that cannot be read denies as well.
"""

import os
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, Final

from gert.ecosystem.host.config.ledger_location import Database, mask_password, open_ledger
from gert.errors import GertError
from gert.kernel.engine.requests import Request
from gert.kernel.events.runbook import Recent
from gert.kernel.governance.rules import Policy
from gert.kernel.ledger.record import LIMIT_WINDOW, Claim
from gert.kernel.runbook.documents.steps import ExtensionStep, Step, ToolStep
from gert.kernel.runbook.program import Program

_TOOL_FILE: Final = re.compile(r"(?:\.tool)?\.ya?ml\Z")


async def count_recent(
    program: Program, policies: Iterable[Policy], database: Database, environ: Mapping[str, str], now: datetime
) -> Recent | None:
    """How often each target of a program was executed in the last hour; None where no rule limits it."""
    if all(rule.limits.max_per_hour is None for policy in policies for rule in policy.rules):
        return None
    try:
        counted = await _counted(database, environ, now - LIMIT_WINDOW)
    except GertError as problem:
        return Recent(flaw=mask_password(database, problem).message)
    return Recent({target: counted[key] for target, key in _keys(program).items() if key in counted})


async def _counted(database: Database, environ: Mapping[str, str], since: datetime) -> Mapping[str, int]:
    if isinstance(database, str) and not os.path.exists(database):
        return {}
    async with open_ledger(database, environ, read_only=isinstance(database, str)) as ledger:
        return await ledger.claimed(since)


def claims_for(program: Program) -> Callable[[Request[Any]], Claim | None]:
    """The claim that a request makes before it is put to the world; None for one that executes nothing."""
    keys = _keys(program)

    def claim_of(ask: Request[Any]) -> Claim | None:
        if ask.counts is None:
            return None
        return Claim(keys.get(ask.counts.target, ask.counts.target), ask.key, ask.counts.max_per_hour)

    return claim_of


def _keys(program: Program) -> Mapping[str, str]:
    """What each target of a program is counted under: a tool by its own name, not by the name of its file."""
    return {target: key for step in program.steps for target, key in (_key_of(step, program),)}


def _key_of(step: Step, program: Program) -> tuple[str, str]:
    if isinstance(step, ToolStep):
        tool, action = program.tool_of(step), program.action_of(step)
        name = tool.meta.name if tool is not None else _TOOL_FILE.sub("", step.tool.rpartition("/")[2])
        return (step.tool, name) if action is None else (f"{step.tool}:{action[0]}", f"{name}:{action[0]}")
    name = step.extension if isinstance(step, ExtensionStep) else step.type
    return name, name
