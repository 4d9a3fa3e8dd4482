"""Documents: what authors write becomes typed models, and what does not fit is said at its place."""

import pytest

from gert.kernel.runbook.document import DOCUMENT_KINDS, Document, detect, load
from gert.kernel.runbook.documents.steps import STEP_KINDS, RepeatStep, ToolStep
from gert.kernel.runbook.finding import Finding, Severity, in_order, path_text
from gert.kernel.runbook.reader import read
from gert.kernel.template import Template

HEAD = "apiVersion: kernel/v0\nmeta: {name: t}\n"


def runbook(steps: str) -> Document:
    return load((HEAD + "steps:\n" + steps).encode())


def said(document: Document) -> list[tuple[str, str]]:
    return [(finding.rule, finding.where) for finding in document.findings]


class TestLiteralText:
    """DECISIONS 5: a string field takes any scalar's literal source text."""

    @pytest.mark.parametrize("written", ["200", "1.10", "0x10", "true", "No", "null", "~", "007", "1e3"])
    def test_text_fields_take_what_is_written(self, written: str) -> None:
        document = runbook(
            f"  - {{id: a, type: assert, assert: [{{type: equals, value: '{{{{ .x }}}}', expected: {written}}}]}}\n"
        )
        assert document.findings == []
        [step] = document.model.steps
        assert step.assert_[0].expected.source == written

    def test_an_empty_value_is_not_text(self) -> None:
        document = load(b"apiVersion: kernel/v0\nmeta: {name: t, description: }\nsteps: []\n")
        assert said(document) == [("S01", "meta.description")]

    def test_free_values_keep_their_native_type(self) -> None:
        document = runbook("  - {id: a, type: tool, tool: t, inputs: {n: 200, f: 1.5, b: true, z: null, l: [1]}}\n")
        [step] = document.model.steps
        assert dict(step.inputs) == {"n": 200, "f": 1.5, "b": True, "z": None, "l": [1]}


class TestUnknownKeys:
    """DECISIONS 6: unknown keys are errors everywhere except inside `extensions`."""

    @pytest.mark.parametrize(
        ("text", "rule", "path", "hint"),
        [
            pytest.param("metaa: {}", "S02", "metaa", "did you mean `meta`?", id="at the top"),
            pytest.param("meta: {name: t, tilte: x}", "S02", "meta.tilte", "known keys", id="in meta"),
        ],
    )
    def test_a_misspelt_key_is_an_error_with_a_guess(self, text: str, rule: str, path: str, hint: str) -> None:
        document = load(f"apiVersion: kernel/v0\nsteps: []\n{text}\n".encode())
        finding = next(f for f in document.findings if f.rule == rule)
        assert finding.where == path
        assert hint in (finding.hint or "")

    def test_extensions_take_anything(self) -> None:
        document = runbook(
            "  - {type: end, outcome: {category: resolved, code: x}, extensions: {x-any: [1, {deep: true}]}}\n"
        )
        assert document.findings == []
        assert document.model.steps[0].extensions == {"x-any": [1, {"deep": True}]}

    @pytest.mark.parametrize("kind", sorted(STEP_KINDS))
    def test_every_step_type_refuses_a_key_of_no_step_type(self, kind: str) -> None:
        document = runbook(f"  - {{id: a, type: {kind}, colour: red}}\n")
        assert ("S02", "steps[0].colour") in said(document)

    def test_a_key_of_another_step_type_says_whose_it_is(self) -> None:
        document = runbook("  - {id: a, type: tool, tool: t, instructions: do it}\n")
        [finding] = document.findings
        assert finding.rule == "S04"
        assert finding.hint == "`instructions` belongs to `manual` steps"


class TestSteps:
    def test_an_unknown_type_is_guessed_at(self) -> None:
        [finding] = runbook("  - {id: a, type: tol}\n").findings
        assert (finding.rule, finding.hint) == ("S05", "did you mean `tool`?")

    def test_all_findings_of_the_phase_are_reported(self) -> None:
        document = runbook(
            "  - {id: a, type: tool}\n  - {type: nonsense}\n  - 5\n  - {id: b, type: assert, assert: {}}\n"
        )
        assert said(document) == [
            ("S03", "steps[0]"),
            ("S05", "steps[1].type"),
            ("S01", "steps[2]"),
            ("S01", "steps[3].assert"),
        ]

    def test_a_broken_document_has_no_model(self) -> None:
        assert runbook("  - {id: a, type: tool}\n").model is None

    def test_repeat_is_accepted_in_both_spellings(self) -> None:
        """DECISIONS 9."""
        end = "{type: end, outcome: {category: resolved, code: x}}"
        document = runbook(
            f"  - {{id: a, type: repeat, repeat: {{max: 2}}, steps: [{end}]}}\n"
            f"  - {{id: b, repeat: {{max: 2, steps: [{end}]}}}}\n"
        )
        assert document.findings == []
        first, second = document.model.steps
        assert isinstance(first, RepeatStep)
        assert isinstance(second, RepeatStep)
        assert len(first.body) == len(second.body) == 1
        assert path_text(second.body[0].path) == "steps[1].repeat.steps[0]"

    def test_next_is_accepted_in_both_spellings(self) -> None:
        document = runbook(
            "  - {id: a, type: tool, tool: t, next: b}\n  - {id: b, type: tool, tool: t, next: {step: a, max: 3}}\n"
        )
        first, second = document.model.steps
        assert (first.next.step, first.next.max) == ("b", None)
        assert (second.next.step, second.next.max) == ("a", 3)

    def test_for_each_takes_a_template_a_list_or_text(self) -> None:
        document = runbook(
            "  - {id: a, type: tool, tool: t, for_each: {as: x, over: '{{ .xs }}'}}\n"
            "  - {id: b, type: tool, tool: t, for_each: {as: x, over: [1, '{{ .y }}']}}\n"
            "  - {id: c, type: tool, tool: t, for_each: {as: x, over: 'a,b'}}\n"
        )
        assert document.findings == []
        overs = [step.for_each.over for step in document.model.steps]
        assert isinstance(overs[0], Template)
        assert overs[1][0] == 1
        assert isinstance(overs[1][1], Template)
        assert overs[2].source == "a,b"

    def test_templates_are_parsed_at_every_depth(self) -> None:
        document = runbook("  - {id: a, type: tool, tool: t, inputs: {m: {l: [1, '{{ .x }}']}}}\n")
        step = document.model.steps[0]
        assert isinstance(step, ToolStep)
        assert isinstance(step.inputs["m"]["l"][1], Template)

    def test_a_broken_template_is_reported_where_it_breaks(self) -> None:
        document = runbook("  - id: a\n    type: tool\n    tool: t\n    inputs:\n      x: [1, 'ok {{ .a | nope }}']\n")
        [finding] = document.findings
        assert finding.rule == "S06"
        assert finding.where == "steps[0].inputs.x[1]"
        line = document.tree.source_line(finding.line)
        assert line[finding.column - 1 :].startswith("nope")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        pytest.param("9007199254740993", "too large", id="an integer JSON cannot hold"),
        pytest.param(".nan", "not finite", id="not a number"),
        pytest.param("[{deep: .inf}]", "not finite", id="infinity, deep down"),
    ],
)
def test_numbers_that_would_change_are_refused(value: str, message: str) -> None:
    [finding] = runbook(f"  - {{id: a, type: tool, tool: t, inputs: {{x: {value}}}}}\n").findings
    assert finding.rule == "S07"
    assert message in finding.message


@pytest.mark.parametrize(
    ("text", "name", "kind"),
    [
        pytest.param("apiVersion: kernel/v0", "x.yaml", "runbook", id="a runbook by its version"),
        pytest.param("apiVersion: tool/v0", "scenario.yaml", "tool", id="the version wins over the name"),
        pytest.param("apiVersion: policy/v0", "", "policy", id="a policy by its version"),
        pytest.param("name: p", "a/b/gert-project.yaml", "project", id="a project by its name"),
        pytest.param("traces: {}", "gert-config.yaml", "config", id="a configuration by its name"),
        pytest.param("traces: {}", "home\\.gert\\config.yaml", "config", id="a configuration on Windows"),
        pytest.param("inputs: {}", "s/scenario.yaml", "scenario", id="a scenario by its name"),
        pytest.param("tool_responses: {}", "other.yaml", "scenario", id="a scenario by its keys"),
        pytest.param("must_reach: []", "other.yaml", "test", id="a test by its keys"),
        pytest.param("on: push", "ci.yaml", None, id="something else entirely"),
        pytest.param("apiVersion: v1", "scenario.yaml", None, id="a document of another system"),
        pytest.param("apiVersion: project/v0", "gert-project.yaml", "project", id="a name that only gert uses"),
        pytest.param("[1]", "x.yaml", None, id="a list"),
    ],
)
def test_the_kind_of_a_document_is_detected(text: str, name: str, kind: str | None) -> None:
    assert detect(read(text.encode()).tree.root, name) == kind


def test_a_version_gert_does_not_speak_is_one_finding() -> None:
    document = load(b"apiVersion: kernel/v9\nmeta: 5\nstuff: []\n", kind="runbook")
    assert said(document) == [("S08", "apiVersion")]


@pytest.mark.parametrize("kind", sorted(DOCUMENT_KINDS))
@pytest.mark.parametrize("text", ["5", "[]", "text", "~", "{}"])
def test_no_kind_of_document_minds_nonsense(kind: str, text: str) -> None:
    document = load(text.encode(), kind=kind)
    assert document.model is None or not any(f.severity is Severity.ERROR for f in document.findings)


def test_findings_are_ordered_by_place_and_said_once() -> None:
    def finding(line: int, rule: str, severity: Severity = Severity.ERROR) -> Finding:
        return Finding(rule=rule, severity=severity, path=(), message=rule, line=line, column=1)

    jumbled = [finding(2, "B"), finding(1, "C", Severity.WARNING), finding(1, "D"), finding(2, "B")]
    assert [f.rule for f in in_order(jumbled)] == ["D", "C", "B"]
