"""The view of a dry run or a probe: the inputs, contract and needs of each step."""

import os
import shlex
from collections.abc import Callable, Iterable, Iterator, Set
from typing import Any

from gert.ecosystem.host.config.machine.platform import platform
from gert.ecosystem.host.run.observer import SilentObserver
from gert.ecosystem.host.run.world.worlds import why_skipped
from gert.ecosystem.surfaces.cli.render.text import clip
from gert.ecosystem.surfaces.cli.render.views.event_lines import INDENT
from gert.ecosystem.surfaces.cli.render.views.event_position import Positions
from gert.kernel.events.envelope import Envelope
from gert.kernel.events.payload import Payload
from gert.kernel.events.runbook import GovernanceDecision, StepComplete, StepStart
from gert.kernel.foundation.text import with_marked_newlines
from gert.kernel.governance.contract import Contract
from gert.kernel.runbook.command import masked_call
from gert.kernel.runbook.program import Program, ToolLookup
from gert.kernel.template import render_text


class DryRunView(SilentObserver):
    """Adds lines to those of the plain view.

    allowed: the effects that a probe may run
    """

    def __init__(self, write: Callable[[str], None], allowed: Set[str] = frozenset()) -> None:
        self._write = write
        self._allowed = allowed
        self._places = Positions()
        self._begun: dict[str | None, StepStart] = {}
        self._program: Program | None = None
        self._rules: dict[str, str] = {}

    def begin(self, program: Program, secrets: list[str]) -> None:
        """Show the secrets that the run needs."""
        self._program = program
        if secrets:
            states = ", ".join(f"{name} ({'set' if os.environ.get(name) else 'missing'})" for name in secrets)
            self._write(f"secrets: {clip(states)}")

    def said(self, event: Envelope, payload: Payload) -> None:
        """Show the contract and inputs of a step, or why it is skipped."""
        depth = self._places.of(event, payload).depth
        if isinstance(payload, GovernanceDecision):
            self._rules = {payload.step_id: f"{payload.decision}{f' by {payload.rule}' if payload.rule else ''}"}
        elif isinstance(payload, StepStart):
            self._begun[event.path] = payload
            if payload.contract_summary:
                self._add(self._about(payload), depth + 2)
        elif isinstance(payload, StepComplete):
            begun = self._begun.pop(event.path, None)
            if begun is not None and payload.reason == "after_skipped_write":
                self._add(
                    ["an earlier step that may write was skipped, so what this step would read is unknown"], depth + 1
                )
            elif begun is not None and payload.reason == "probe":
                self._add([self._why_not(begun)], depth + 1)

    def _add(self, lines: Iterable[str], depth: int) -> None:
        for line in lines:
            self._write(f"{INDENT * depth}{clip(line)}")

    def _why_not(self, step: StepStart) -> str:
        """Why a probe skips a step."""
        if step.step_type != "tool":
            return "a probe calls only tools and prompts no one"
        effects, writes = (step.contract_summary.get(name) for name in ("effects", "writes"))
        contract = Contract(
            effects=None if effects is None else frozenset(effects),
            writes=frozenset(writes or ()),
            omits_writes=self._omits_writes(step.step_id),
        )
        return why_skipped(contract, self._allowed) or "one of its inputs is unknown"

    def _omits_writes(self, step_id: str) -> bool:
        """Whether the contract of a step omits `writes`, which its summary cannot show."""
        step = self._program.by_id.get(step_id) if self._program is not None else None
        contract = self._program.contract_of(step) if self._program is not None and step is not None else None
        return contract is not None and contract.omits_writes

    def _lookup(self, step: StepStart) -> ToolLookup | None:
        return self._program.tool_names.get(step.tool) if self._program is not None and step.tool else None

    def _command(self, step: StepStart) -> Iterator[str]:
        """The command line that would be run, without values of secrets."""
        lookup = self._lookup(step)
        tool = lookup.tool if lookup is not None else None
        action = tool.actions.get(step.action or "") if tool is not None else None
        if tool is None or action is None or tool.meta.transport != "stdio":
            return
        call = masked_call(tool, step.action or "", action, step.inputs)
        yield f"command: {with_marked_newlines(shlex.join([call.get('program', ''), *call.get('arguments', ())]))}"

    def _about(self, step: StepStart) -> Iterator[str]:
        contract = step.contract_summary
        promises = [name for name in ("deterministic", "idempotent") if contract.get(name)]
        touched = [f"{name} {_listed(contract.get(name))}" for name in ("effects", "reads", "writes")]
        yield f"contract: {', '.join([*touched, *promises])}; risk {contract.get('risk')}"
        if step.step_id in self._rules:
            yield f"governance: {self._rules[step.step_id]}"
        yield from self._command(step)
        for name, value in step.inputs.items():
            yield f"{name} = {render_text(value)}"
        if step.secrets:
            states = (f"{name} ({'set' if os.environ.get(name) else 'missing'})" for name in step.secrets)
            yield f"secrets: {', '.join(states)}"
        lookup = self._lookup(step)
        if lookup is not None and lookup.tool is not None and lookup.tool.meta.platform:
            here = platform()
            systems = lookup.tool.meta.platform
            yield f"platform: {', '.join(systems)}{'' if here in systems else f' (this is {here})'}"


def _listed(tags: Any) -> str:
    return "undeclared" if tags is None else " ".join(tags) or "none"
