"""`gert diagram`: runbooks and runs as pictures in text."""

import subprocess
from xml.etree import ElementTree

import pytest
from tests.ecosystem.surfaces.cli.workbench import Project

TOOL = """
apiVersion: tool/v0
meta: {name: sh, binary: sh}
contract: {effects: [], writes: [], inputs: {script: {type: string}}}
actions:
  run: {argv: [sh, -c, "{{ .script }}"]}
  change: {argv: [sh, -c, "{{ .script }}"], contract: {effects: [filesystem], writes: [files]}}
"""

BOOK = """
apiVersion: kernel/v0
meta:
  name: picture
  governance: {rules: [{writes: [files], action: require-approval}]}
  inputs: {names: {type: list, default: [a, b]}}
tools: [sh]
steps:
  - id: both
    type: parallel
    branches:
      - {label: left, steps: [{id: l, type: tool, tool: sh, action: run, inputs: {script: "true"}}]}
      - {label: right, steps: [{id: r, type: tool, tool: sh, action: run, inputs: {script: "true"}}]}
  - {id: each, type: tool, tool: sh, action: run, for_each: {over: "{{ .names }}", as: n}, inputs: {script: "true"}}
  - id: choose
    type: branch
    branches:
      - condition: "{{ eq (len .names) 9 }}"
        label: never
        steps:
          - {id: change, type: tool, title: 'a]b "& <c>', tool: sh, action: change, inputs: {script: "true"}}
          - {id: again, type: tool, tool: sh, action: run, inputs: {script: "true"}, next: {step: change, max: 2}}
          - {id: n, type: end, outcome: {category: resolved, code: changed}}
      - {condition: default, label: always, steps: [{id: y, type: end, outcome: {category: no_action, code: fine}}]}
"""


@pytest.fixture
def drawn(project: Project) -> Project:
    project.write("tools/sh.tool.yaml", TOOL)
    project.write("book.yaml", BOOK)
    return project


@pytest.mark.parametrize(
    ("form", "wanted"),
    [
        ("mermaid", ["flowchart TD", "⚠ approval", "-.->", '|"never"|', "for each item", "no_action: fine"]),
        ("dot", ["digraph runbook {", "⚠ approval", "style=dashed", 'label="never"', "penwidth=2"]),
        ("svg", ["<svg", "⚠ approval", 'class="jump"', "never", "no_action: fine"]),
    ],
)
def test_steps_arms_lanes_loops_approvals_and_jumps_are_drawn(drawn: Project, form: str, wanted: list[str]) -> None:
    done = drawn.gert("diagram", "book.yaml", "--format", form)
    assert done.code == 0
    assert [text for text in wanted if text not in done.out] == []


def test_no_text_of_a_runbook_ends_a_label(drawn: Project) -> None:
    mermaid = drawn.gert("diagram", "book.yaml").out
    assert "a]b" not in mermaid
    assert "a#93;b #34;#38; #60;c#62;" in mermaid
    dot = drawn.gert("diagram", "book.yaml", "--format", "dot").out
    assert 'a]b \\"& <c>' in dot
    root = ElementTree.fromstring(drawn.gert("diagram", "book.yaml", "--format", "svg").out)
    assert 'a]b "& <c>' in "".join(root.itertext())


def test_a_run_is_drawn_with_the_way_it_took(drawn: Project) -> None:
    ran = drawn.gert("exec", "book.yaml", "--state-dir", "state", "--json")
    assert ran.code == 0
    run_id = ran.said["run_id"]
    drawn.gert("diagram", "--run", run_id, "--state-dir", "state", "--format", "svg", "-o", "run.svg")
    text = (drawn.root / "run.svg").read_text()
    assert "✓ each" in text
    assert "✓ change" not in text
    assert 'class="line quiet"' in text
    assert run_id in text


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["diagram"], "expected a runbook or a run"),
        (["diagram", "book.yaml", "--run", "x"], "expected a runbook or a run"),
        (["diagram", "missing.yaml"], "there is no file"),
        (["diagram", "--run", "nope", "--state-dir", "state"], "no run `nope`"),
        (["diagram", "book.yaml", "-o", "missing/x.svg"], "cannot write"),
    ],
)
def test_what_cannot_be_drawn(drawn: Project, arguments: list[str], why: str) -> None:
    done = drawn.gert(*arguments)
    assert done.code == 2
    assert why in done.err


WHOLE = """
apiVersion: kernel/v0
meta:
  name: whole
  governance: {rules: [{writes: [files], action: require-approval}, {default: allow}]}
tools: [sh]
steps:
  - {id: first, type: tool, tool: sh, action: run, inputs: {script: "true"}}
  - id: block
    type: group
    steps: [{id: inside, type: tool, title: Change it, tool: sh, action: change, inputs: {script: "true"}}]
  - id: poll
    type: repeat
    repeat:
      max: 2
      until: "{{ false }}"
      steps:
        - {id: ask, type: tool, tool: sh, action: run, continue_on_fail: true,
           inputs: {script: "[ -e x ] && exit 1; : > x"}}
  - {id: again, type: tool, tool: sh, action: run, inputs: {script: "true"}, next: {step: first, max: 1}}
  - {id: y, type: end, outcome: {category: no_action, code: fine}}
finally:
  - {id: clean, type: tool, title: Clean up, tool: sh, action: run, inputs: {script: "true"}}
"""


class TestEverythingIsDrawn:
    def test_groups_repeats_jumps_and_finally(self, drawn: Project) -> None:
        drawn.write("whole.yaml", WHOLE)
        mermaid = drawn.gert("diagram", "whole.yaml").ended(0).out
        for part in ("block<br/>group", "repeat, at most 2 times", "⚠ approval", '-.->|"retry"|', '-->|"finally"|'):
            assert part in mermaid
        svg = drawn.gert("diagram", "whole.yaml", "--format", "svg").ended(0).out
        for part in ("finally", "retry", 'class="frame"', "Clean up"):
            assert part in svg
        # The frame of a loop stands behind its heading, not across it.
        assert svg.index('class="frame"') < svg.index(">block<")

    def test_a_run_shows_recorded_approvals_every_iteration_and_finally(self, drawn: Project) -> None:
        drawn.write("whole.yaml", WHOLE)
        drawn.gert("exec", "whole.yaml", "--state-dir", "state", stdin="y\ny\n").ended(0)
        text = drawn.gert("diagram", "last", "--state-dir", "state").ended(0).out
        assert "✓ Change it<br/>sh:change<br/>⚠ approval" in text
        assert "✓ Clean up" in text
        # The second iteration failed.
        assert "✗ ask" in text

    @pytest.mark.parametrize("name", [["last"], ["--run", "last"], ["{prefix}"]])
    def test_a_run_is_named_as_everywhere(self, drawn: Project, name: list[str]) -> None:
        run_id = drawn.gert("exec", "book.yaml", "--state-dir", "state", "--json").ended(0).said["run_id"]
        words = [word.format(prefix=run_id[:18]) for word in name]
        assert run_id in drawn.gert("diagram", *words, "--state-dir", "state", "--format", "svg").ended(0).out

    @pytest.mark.needs("dot")
    def test_graphviz_accepts_it(self, drawn: Project) -> None:
        drawn.write("whole.yaml", WHOLE)
        text = drawn.gert("diagram", "whole.yaml", "--format", "dot").ended(0).out
        done = subprocess.run(["dot", "-Tsvg"], input=text, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0
        assert done.stderr == ""


TITLES = """
apiVersion: kernel/v0
meta: {name: titles, inputs: {pod: {type: string, default: web-1}, n: {type: int, default: 2}}}
tools: [sh]
steps:
  - {id: a, type: tool, title: "Restart {{ .pod }} at {{ add .n 1 }}%", tool: sh, action: run, inputs: {script: "true"}}
  - id: each
    type: tool
    title: "Look at {{ .item }}"
    tool: sh
    action: run
    for_each: {over: [x, y], as: item}
    inputs: {script: "true"}
  - {id: skipped, type: tool, when: "{{ false }}", title: "Is {{ .pod }} well?", tool: sh, action: run,
     inputs: {script: "true"}}
  - {id: end, type: end, outcome: {category: resolved, code: "done_{{ .pod }}"}}
"""


@pytest.mark.parametrize("form", ["mermaid", "dot", "svg"])
def test_titles_name_what_templates_stand_for(drawn: Project, form: str) -> None:
    drawn.write("titles.yaml", TITLES)
    said = drawn.gert("diagram", "titles.yaml", "--format", form).ended(0).out
    for wanted in ("Restart ‹pod› at ‹n›%", "Look at ‹item›", "Is ‹pod› well?", "resolved: done_‹pod›"):
        assert wanted in said
    assert "{{" not in said


@pytest.mark.parametrize("form", ["mermaid", "dot", "svg"])
def test_titles_of_a_run_are_those_that_it_showed(drawn: Project, form: str) -> None:
    drawn.write("titles.yaml", TITLES)
    drawn.exec("titles.yaml").ended(0)
    said = drawn.gert("diagram", "last", "--format", form).ended(0).out
    assert "Restart web-1 at 3%" in said
    assert "Look at ‹item›" in said, "the items of a loop are one block, and each had its own title"
    assert "Is ‹pod› well?" in said, "a step that did not run had none"
