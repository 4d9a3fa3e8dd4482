"""What a dry run or a probe shows of each step: what it would be given, what it touches, and what it needs."""

import os
from collections.abc import Callable, Iterator
from typing import Any

from gert.ecosystem.host.facts import platform
from gert.ecosystem.surfaces.cli.phrases import clip
from gert.kernel.events.envelope import Envelope
from gert.kernel.events.path import split
from gert.kernel.events.payload import Payload
from gert.kernel.events.runbook import GovernanceDecision, StepStart
from gert.kernel.runbook.program import Program
from gert.kernel.template import render_text


class Rehearsal:
    """Adds lines to those of the plain view."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write
        self._program: Program | None = None
        self._rules: dict[str, str] = {}

    def begin(self, program: Program, secrets: list[str]) -> None:
        """Show what the run needs."""
        self._program = program
        if secrets:
            states = ", ".join(f"{name} ({'set' if os.environ.get(name) else 'missing'})" for name in secrets)
            self._write(f"secrets: {clip(states)}")

    def said(self, event: Envelope, payload: Payload) -> None:
        """Show what a step would do."""
        if isinstance(payload, GovernanceDecision):
            self._rules = {payload.step_id: f"{payload.decision}{f' by {payload.rule}' if payload.rule else ''}"}
        elif isinstance(payload, StepStart) and payload.contract_summary:
            indent = "  " * (len(split(event.path)) if event.path else 1)
            for line in self._about(payload):
                self._write(f"{indent}  {clip(line)}")

    def printed(self, path: str, stream: str, text: str) -> None:
        """Nothing to add."""

    def pause(self) -> None:
        """Nothing to hold back."""

    def unpause(self) -> None:
        """Nothing was held back."""

    def close(self) -> None:
        """Nothing is left."""

    def _about(self, step: StepStart) -> Iterator[str]:
        contract = step.contract_summary
        promises = [name for name in ("deterministic", "idempotent") if contract.get(name)]
        touched = [f"{name} {_listed(contract.get(name))}" for name in ("effects", "reads", "writes")]
        yield f"contract: {', '.join([*touched, *promises])}; risk {contract.get('risk')}"
        if step.step_id in self._rules:
            yield f"governance: {self._rules[step.step_id]}"
        for name, value in step.inputs.items():
            yield f"{name} = {render_text(value)}"
        if step.secrets:
            states = (f"{name} ({'set' if os.environ.get(name) else 'missing'})" for name in step.secrets)
            yield f"secrets: {', '.join(states)}"
        lookup = self._program.tool_names.get(step.tool) if self._program is not None and step.tool else None
        if lookup is not None and lookup.tool is not None and lookup.tool.meta.platform:
            here = platform()
            systems = lookup.tool.meta.platform
            yield f"platform: {', '.join(systems)}{'' if here in systems else f' (this is {here})'}"


def _listed(tags: Any) -> str:
    return "undeclared" if tags is None else " ".join(tags) or "none"
