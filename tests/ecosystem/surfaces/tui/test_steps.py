"""The tree of steps that the screen shows, folded from real events."""

from pathlib import Path

import pytest

from gert import run
from gert.ecosystem.host.config.workspace import Workspace
from gert.ecosystem.surfaces.tui.status_line import RunState
from gert.ecosystem.surfaces.tui.steps import StepTree
from gert.kernel.events import runbook as says
from gert.kernel.events.envelope import Envelope, decode
from gert.kernel.events.payload import to_data


def test_lanes_loops_and_arms_are_nested_as_they_ran(tmp_path: Path) -> None:
    book = tmp_path / "book.yaml"
    book.write_text("""
apiVersion: kernel/v0
meta: {name: shapes, inputs: {names: {type: list, default: [a, b]}}}
steps:
  - id: both
    type: parallel
    branches:
      - {label: left, steps: [{id: l, type: assert, assert: [{type: equals, value: "1", expected: "1"}]}]}
      - {label: right, steps: [{id: r, type: assert, assert: [{type: equals, value: "1", expected: "1"}]}]}
  - id: each
    type: assert
    for_each: {over: "{{ .names }}", as: name}
    assert: [{type: equals, value: "{{ .name }}", expected: "{{ .name }}"}]
  - id: choose
    type: branch
    branches:
      - condition: "{{ eq (len .names) 9 }}"
        label: never
        steps: [{id: n, type: end, outcome: {category: resolved, code: a}}]
      - {condition: default, label: always, steps: [{id: y, type: end, outcome: {category: resolved, code: b}}]}
""")
    trace = tmp_path / "run.jsonl"
    executed = run(str(book), trace=str(trace), state_dir=str(tmp_path / "state"))
    tree = StepTree()
    for line in trace.read_bytes().splitlines():
        event = decode(line)
        tree.fold(event, event.payload)
    shown = {node.path: node.status for node in tree.walk()}
    assert shown["both/left/l"] == "success"
    assert shown["each[0]"] == "success"
    assert tree.nodes["each"].total == 2
    assert tree.nodes["each[1]"].parent is tree.nodes["each"]
    assert "choose/never/n" not in shown
    assert tree.status == executed.status == "completed"
    assert tree.outcome.startswith("resolved")


@pytest.mark.parametrize(("explored", "total"), [(False, 1), (True, None)], ids=["known", "unknown"])
def test_the_length_of_a_loop_is_shown_where_it_is_known(explored: bool, total: int | None) -> None:
    loop = says.ForEachStart(step_id="a", over="x", item_count=1, parallel=False, variable="v", explored=explored)
    event = Envelope(
        seq=1,
        run_id="r",
        type=loop.type,
        timestamp="2026-02-28T14:30:00.000000Z",
        path="a",
        prev_hash="0" * 64,
        data=to_data(loop),
    )
    tree = StepTree()
    tree.fold(event, loop)
    assert tree.nodes["a"].total == total


def test_a_title_is_readable_before_a_step_runs_and_rendered_once_it_does(tmp_path: Path) -> None:
    book = tmp_path / "book.yaml"
    book.write_text("""
apiVersion: kernel/v0
meta: {name: titles, inputs: {pod: {type: string, default: web-1}}}
steps:
  - {id: a, type: assert, title: "Is {{ .pod }} there?", assert: [{type: equals, value: "1", expected: "1"}]}
  - {id: end, type: end, outcome: {category: resolved, code: a}}
""")
    trace = tmp_path / "run.jsonl"
    run(str(book), trace=str(trace), state_dir=str(tmp_path / "state"))
    tree = StepTree(Workspace().program(str(book)).program)
    assert tree.nodes["a"].title == "Is ‹pod› there?"
    for line in trace.read_bytes().splitlines():
        event = decode(line)
        tree.fold(event, event.payload)
    assert tree.nodes["a"].title == "Is web-1 there?"


@pytest.mark.parametrize(
    ("status", "is_trial", "possible"),
    [
        ("running", False, set()),
        ("cut-off", False, {"advance"}),
        ("failed", False, {"rerun"}),
        ("completed", False, {"rerun"}),
        ("failed", True, set()),
    ],
)
def test_what_the_keys_of_a_run_can_do(status: str, is_trial: bool, possible: set[str]) -> None:
    assert RunState(status, StepTree(), is_trial=is_trial).possible == possible
