"""An extension is handed the part of the state that its visibility leaves, and the hash on record is of that part."""

from pathlib import Path
from typing import Any

from tests.conformance.runs import Case, Scripted, events_of, execute, setup_of

from gert.kernel.engine.requests import AnyAnswer, CallExtension, Request
from gert.kernel.foundation.canonical import digest_value

CASE = """
note: x
section: x
runbook: |
  apiVersion: kernel/v0
  meta: { name: case }
  tools: [f-value]
  steps:
    - { id: one, type: tool, tool: f-value, scope: s, export: [value] }
    - { id: two, type: tool, tool: f-value, scope: t }
    - id: agent
      type: extension
      extension: judge
      visibility: { deny: [one.value] }
      contract: { effects: [] }
    - { type: end, outcome: { category: resolved, code: ok } }
tools:
  one: { outputs: { value: hidden } }
  two: { outputs: { value: seen } }
extensions:
  agent: { outputs: {} }
expect: { status: completed }
"""


def test_an_extension_sees_no_more_than_templates_do(tmp_path: Path) -> None:
    case = Case(_written(tmp_path))
    setup = setup_of(case)
    views: list[dict[str, Any]] = []

    class Watching(Scripted):
        def immediate(self, ask: Request[Any]) -> AnyAnswer | None:
            if isinstance(ask, CallExtension):
                views.append(ask.view)
            return super().immediate(ask)

    _, lines, _ = execute(setup, Watching(case, setup.program))
    (view,) = views
    assert "hidden" not in str(view)
    assert view["two"]["value"] == view["scope"]["t"]["value"] == "seen"
    (applied,) = [each for each in events_of(lines) if each.type == "visibility_applied"]
    assert applied.data["view_hash"] == digest_value(view)


def _written(folder: Path) -> Path:
    file = folder / "case.yaml"
    file.write_text(CASE)
    return file
