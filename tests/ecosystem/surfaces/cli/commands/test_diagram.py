"""`gert diagram`: runbooks and runs as pictures in text."""

import re
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
        for part in ('["block, group"]', "repeat, at most 2 times", "⚠ approval", '-.->|"retry"|', '-->|"finally"|'):
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


ARMS = """
apiVersion: kernel/v0
meta: {name: arms}
tools: [sh]
steps:
  - id: plain
    type: branch
    branches:
      - {condition: "{{ false }}", label: "no/t", steps: [{id: never, type: tool, tool: sh, action: run,
         inputs: {script: "true"}}]}
      - {condition: default, label: plain, steps: []}
  - id: each
    type: group
    for_each: {over: [a, b], as: n}
    steps:
      - {id: look, type: tool, tool: sh, action: run, continue_on_fail: true, inputs: {script: '[ {{ .n }} = a ]'}}
      - id: choose
        type: branch
        branches:
          - {condition: '{{ eq .n "a" }}', label: once, steps: []}
          - {condition: '{{ eq .n "z" }}', label: nowhere, steps: []}
          - {condition: default, label: rest, steps: [{id: o, type: tool, tool: sh, action: run,
             inputs: {script: "true"}}]}
  - id: both
    type: parallel
    branches:
      - {label: left, steps: [{id: l, type: tool, tool: sh, action: run, inputs: {script: "true"}}]}
      - {label: right, steps: [{id: r, type: tool, tool: sh, action: run, inputs: {script: "true"}}]}
  - id: looped
    type: branch
    for_each: {over: [a, b], as: n}
    branches: [{condition: default, label: inner, steps: [{id: i, type: tool, tool: sh, action: run,
                inputs: {script: "true"}}]}]
  - {id: many, type: tool, tool: sh, action: run, for_each: {over: [a, b, c], as: n},
     inputs: {script: '[ {{ .n }} = a ]'}}
  - {id: y, type: end, outcome: {category: no_action, code: fine}}
finally:
  - {id: clean, type: tool, tool: sh, action: run, inputs: {script: "true"}}
"""


@pytest.fixture
def arms(drawn: Project) -> Project:
    """A run that failed in the second of three items of `many`."""
    drawn.write("arms.yaml", ARMS)
    drawn.exec("arms.yaml").ended(3)
    return drawn


def labelled(svg: str) -> dict[str, bool]:
    """The labels of arms, and whether they are drawn as taken."""
    texts = [each for each in ElementTree.fromstring(svg).iter() if each.get("class", "").startswith("label")]
    return {each.text or "": each.get("class") == "label" for each in texts}


class TestThePathOfARun:
    def test_svg_draws_arms_that_were_taken_dark(self, arms: Project) -> None:
        svg = arms.gert("diagram", "last", "--format", "svg").ended(0).out
        found = labelled(svg)
        wanted = {
            "plain": True,
            "no/t": False,
            "once": True,
            "rest": True,
            "nowhere": False,
            "left": True,
            "inner": True,
        }
        assert {label: found[label] for label in wanted} == wanted
        lines = [each for each in ElementTree.fromstring(svg).iter() if each.get("class", "").startswith("line")]
        # Into and out of two arms, and between the step that failed and the end.
        assert sum(each.get("class") == "line quiet" for each in lines) == 5
        assert {each.get("class") for each in lines} == {"line quiet", "line taken"}

    def test_svg_of_a_runbook_has_no_path(self, arms: Project) -> None:
        svg = arms.gert("diagram", "arms.yaml", "--format", "svg").ended(0).out
        assert all(labelled(svg).values())
        assert 'class="line taken"' not in svg
        assert 'class="line quiet"' not in svg

    @pytest.mark.parametrize(
        ("line", "is_taken"),
        [
            pytest.param(r's1 (\S+)\|"plain"\| s3', True, id="an arm without steps"),
            pytest.param(r's1 (\S+)\|"no/t"\| s2', False, id="an arm that was not taken"),
            pytest.param(r"s2 (\S+) s3", False, id="what follows it"),
            pytest.param(r's5 (\S+)\|"once"\| s3_1_end', True, id="an arm without steps at the end of a loop"),
            pytest.param(r's5 (\S+)\|"nowhere"\| s3_1_end', False, id="an arm that no item took"),
            pytest.param(r's5 (\S+)\|"rest"\| s6', True, id="an arm that one item took"),
            pytest.param(r"s13 (\S+) s14", False, id="from a step that failed to the next"),
            pytest.param(r's13 (\S+)\|"finally"\| s15', True, id="from a step that failed to finally"),
            pytest.param(r's14 (\S+)\|"finally"\| s15', False, id="from an end that was not reached"),
        ],
    )
    def test_mermaid_dots_what_was_not_taken(self, arms: Project, line: str, is_taken: bool) -> None:
        found = re.search(rf"^  {line}$", arms.gert("diagram", "last").ended(0).out, re.MULTILINE)
        assert found is not None
        assert found.group(1) == ("-->" if is_taken else "-.->")

    def test_graphviz_dots_what_was_not_taken(self, arms: Project) -> None:
        said = arms.gert("diagram", "last", "--format", "dot").ended(0).out
        assert 's1 -> s2 [label="no/t", style=dotted' in said
        assert 's1 -> s4 [label="plain", lhead=cluster_s3];' in said

    def test_steps_have_the_class_of_their_result(self, arms: Project) -> None:
        said = arms.gert("diagram", "last").ended(0).out
        assert re.search(r"^  class s4,s13 failed$", said, re.MULTILINE)
        assert re.search(r"^  class s2,s14 notReached$", said, re.MULTILINE)

    @pytest.mark.parametrize("form", ["mermaid", "dot", "svg"])
    def test_items_that_failed_are_counted(self, arms: Project, form: str) -> None:
        said = arms.gert("diagram", "last", "--format", form).ended(0).out
        assert said.count("1 of 2 failed") == 1, "`look` failed for one of two items"
        assert said.count("1 of 3 failed, 1 not run") == 1, "`many` stopped at the second of three items"


@pytest.mark.parametrize("name", ["arms.yaml", "last"])
class TestLoopsAndLanesAreBoxes:
    def test_mermaid(self, arms: Project, name: str) -> None:
        lines = [re.sub("[✓✗] ", "", line) for line in arms.gert("diagram", name).ended(0).out.splitlines()]
        at = lines.index('  subgraph s3["each, for each item"]')
        box = lines[at : lines.index("  end", at)]
        assert [line.split()[0][:2] for line in box[2:]] == ["s4", "s5", "s6", "s3"]
        for opened in (
            '  subgraph s7["both, in parallel"]',
            '    subgraph s7_1["left"]',
            '  subgraph s10["for each item"]',
        ):
            assert opened in lines
        # The box is entered and left as a whole.
        arrows = [line.split() for line in lines if "->" in line]
        assert [words[-1] for words in arrows if words[0] == "s3"] == ["s7"]

    def test_graphviz(self, arms: Project, name: str) -> None:
        said = re.sub("[✓✗] ", "", arms.gert("diagram", name, "--format", "dot").ended(0).out)
        for part in ('label="each\\nfor each item"', "subgraph cluster_s7_1 {", "ltail=cluster_s3, lhead=cluster_s7"):
            assert part in said

    @pytest.mark.needs("dot")
    def test_graphviz_accepts_it(self, arms: Project, name: str) -> None:
        text = arms.gert("diagram", name, "--format", "dot").ended(0).out
        done = subprocess.run(["dot", "-Tsvg"], input=text, capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode, done.stderr) == (0, "")


def test_a_run_that_waits_shows_where(drawn: Project) -> None:
    drawn.write("whole.yaml", WHOLE)
    drawn.exec("whole.yaml", "--detach").ended(0)
    said = drawn.gert("diagram", "last").ended(0).out
    assert "→ Change it" in said
    assert '["→ block, group"]' in said
    assert '["repeat, at most 2 times"]' not in said


@pytest.mark.parametrize("target", ["book.yaml", "gert-project.yaml", "notes.txt"])
def test_no_file_but_a_diagram_is_overwritten(drawn: Project, target: str) -> None:
    drawn.write("notes.txt", "mine")
    before = (drawn.root / target).read_text()
    assert "exists already, and is not a diagram" in drawn.gert("diagram", "book.yaml", "-o", target).ended(2).err
    assert (drawn.root / target).read_text() == before


@pytest.mark.parametrize("form", ["mermaid", "dot", "svg"])
def test_a_diagram_is_drawn_again(drawn: Project, form: str) -> None:
    (drawn.root / "picture").touch()
    for _ in range(2):
        drawn.gert("diagram", "book.yaml", "--format", form, "-o", "picture").ended(0)
    drawn.gert("diagram", "book.yaml", "-o", "/dev/null").ended(0)


@pytest.mark.parametrize(
    ("file", "begin"),
    [
        ("d.svg", "<svg "),
        ("d.SVG", "<svg "),
        ("d.dot", "digraph "),
        ("d.gv", "digraph "),
        ("d.mmd", "flowchart "),
        ("d.mermaid", "flowchart "),
        ("d.md", "```mermaid\nflowchart "),
        ("d.txt", "flowchart "),
        ("svg", "flowchart "),
    ],
)
def test_the_ending_of_a_file_says_its_format(drawn: Project, file: str, begin: str) -> None:
    for _ in range(2):
        drawn.gert("diagram", "book.yaml", "-o", file).ended(0)
    text = (drawn.root / file).read_text()
    assert text.startswith(begin)
    assert text.endswith("\n```\n") == file.endswith(".md")


def test_the_file_that_was_written_is_named_on_standard_error(drawn: Project) -> None:
    ran = drawn.gert("diagram", "book.yaml", "-o", "d.svg").ended(0)
    assert (ran.out, ran.err) == ("", "✓ wrote d.svg\n")
    assert drawn.gert("diagram", "book.yaml").ended(0).err == ""


def test_a_format_that_the_ending_contradicts_is_refused(drawn: Project) -> None:
    drawn.gert("diagram", "book.yaml", "--format", "dot", "-o", "d.gv").ended(0)
    refused = drawn.gert("diagram", "book.yaml", "--format", "mermaid", "-o", "d.svg").ended(2).err
    assert "`d.svg` is the name of a file of format `svg`, and `--format` is `mermaid`" in refused
    assert not (drawn.root / "d.svg").exists()


@pytest.mark.parametrize(
    ("step", "falls_through"),
    [
        pytest.param("next: c", False, id="a jump that is always taken"),
        pytest.param("next: {step: c, max: 2}", True, id="a bounded jump"),
        pytest.param('when: "{{ eq .x 1 }}", next: c', True, id="a step that may be left out"),
    ],
)
def test_a_jump_forward_leaves_out_what_is_between(project: Project, step: str, falls_through: bool) -> None:
    project.write(
        "jump.yaml",
        f"""
apiVersion: kernel/v0
meta: {{name: jump, inputs: {{x: {{type: int, default: 1}}}}}}
steps:
  - {{id: a, type: assert, assert: [{{type: equals, value: "1", expected: "1"}}], {step}}}
  - {{id: b, type: assert, assert: [{{type: equals, value: "1", expected: "1"}}]}}
  - {{id: c, type: end, outcome: {{category: resolved, code: ok}}}}
""",
    )
    said = project.gert("diagram", "jump.yaml").ended(0).out
    assert ("s1 --> s2" in said) is falls_through
    assert '|"next"| s3' in said
    drawn = project.gert("diagram", "jump.yaml", "--format", "svg").ended(0).out
    bounded = project.gert("diagram", "jump.yaml", "--format", "dot").ended(0).out
    assert ("s1 -> s2" in bounded) is falls_through
    assert drawn.count('class="jump"') == 1


def test_items_that_were_refused_are_counted_as_such_and_give_the_step_no_title(project: Project) -> None:
    project.runbook(
        {
            "id": "each",
            "type": "tool",
            "tool": "note",
            "title": "Note {{ .item }}",
            "inputs": {"word": "{{ .item }}"},
            "for_each": {"as": "item", "over": ["a", "b"]},
            "continue_on_fail": True,
        },
        governance={"rules": [{"default": "require-approval"}]},
    )
    project.exec(stdin="y\nn\n")
    said = project.gert("diagram", "last").ended(0).out
    assert "1 of 2 refused" in said
    assert "Note ‹item›" in said
