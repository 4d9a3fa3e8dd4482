"""Programs: the contract of any step, resolved from tool, action and step; tools by name and by path."""

import pytest

from gert.kernel.governance.risk import risk_of
from gert.kernel.governance.verdict import Verdict
from gert.kernel.runbook.document import load
from gert.kernel.runbook.documents.steps import ToolStep
from gert.kernel.runbook.program import Program, ToolLookup, policy_file, policy_of
from gert.kernel.runbook.tools import name_of, places

TOOL = b"""
apiVersion: tool/v0
meta: {name: k}
contract:
  effects: [kubernetes]
  deterministic: false
  idempotent: true
  inputs: {name: {type: string, required: true}}
actions:
  get: {argv: [k, get]}
  delete:
    argv: [k, delete]
    contract: {writes: [pods], idempotent: false}
"""

RUNBOOK = """
apiVersion: kernel/v0
meta:
  name: t
  governance:
    approval_timeout: 5m
    rules:
      - {risk: [high, critical], action: require-approval, min_approvers: 2, name: two}
      - {default: allow}
tools: [k]
steps:
  - {id: get, type: tool, tool: k, action: get, inputs: {name: x}}
  - {id: delete, type: tool, tool: k, action: delete, inputs: {name: x}}
  - {id: tight, type: tool, tool: k, action: get, contract: {writes: [quota]}, inputs: {name: x}}
  - {id: look, type: manual, instructions: look, contract: {effects: []}, required_evidence: [{kind: text, name: note}]}
  - {id: act, type: manual, instructions: act}
  - {id: ok, type: assert, assert: [{type: exists, value: "{{ .get }}"}]}
  - {id: ext, type: extension, extension: judge, contract: {effects: [network], outputs: {verdict: {type: string}}}}
  - {type: branch, branches: [{condition: default, steps: [{type: end, outcome: {category: resolved, code: x}}]}]}
"""


@pytest.fixture
def program() -> Program:
    runbook = load(RUNBOOK.encode())
    tool = load(TOOL)
    assert runbook.findings == tool.findings == []
    return Program(runbook.model, {"k": ToolLookup("k", (), "k.tool.yaml", tool)})


@pytest.mark.parametrize(
    ("step", "effects", "writes", "risk"),
    [
        pytest.param("get", ["kubernetes"], [], "low", id="reading is low"),
        pytest.param("delete", ["kubernetes"], ["pods"], "critical", id="the action tightens the tool"),
        pytest.param("tight", ["kubernetes"], ["quota"], "medium", id="the step tightens the action"),
        pytest.param("look", [], [], "low", id="a manual step's author may say anything"),
        pytest.param("act", ["unknown"], [], "critical", id="a manual step that says nothing may do anything"),
        pytest.param("ok", [], [], "low", id="an assertion only looks"),
        pytest.param("ext", ["network"], [], "low", id="an extension is what it declares"),
    ],
)
def test_the_contract_of_a_step(program: Program, step: str, effects: list[str], writes: list[str], risk: str) -> None:
    contract = program.contract_of(program.by_id[step])
    assert contract is not None
    assert sorted(contract.effects or ()) == effects
    assert sorted(contract.writes) == writes
    assert risk_of(contract).word == risk


def test_steps_that_only_direct_flow_have_no_contract(program: Program) -> None:
    flow = [step for step in program.steps if step.type in {"branch", "end"}]
    assert len(flow) == 2
    assert [program.contract_of(step) for step in flow] == [None, None]


def test_evidence_is_an_output(program: Program) -> None:
    contract = program.contract_of(program.by_id["look"])
    assert contract is not None
    assert list(contract.outputs) == ["note"]


def test_an_input_declared_as_text_is_what_its_author_wrote() -> None:
    """DECISIONS 5: `1.10` stays `1.10`."""
    runbook = load(RUNBOOK.replace("action: get, inputs: {name: x}", "action: get, inputs: {name: 1.10}", 1).encode())
    program = Program(runbook.model, {"k": ToolLookup("k", (), "k.tool.yaml", load(TOOL))})
    step = program.by_id["get"]
    assert isinstance(step, ToolStep)
    assert step.inputs == {"name": 1.1}
    assert program.inputs_of(step) == {"name": "1.10"}


def test_walking_finds_every_step_in_order(program: Program) -> None:
    assert [step.type for step in program.steps][-2:] == ["branch", "end"]
    assert {lst.role for lst in program.lists} == {"steps", "arm"}


def test_a_governance_block_is_a_policy(program: Program) -> None:
    policy = policy_of(program.runbook.meta.governance)
    assert policy.approval_timeout == 300
    assert [rule.verdict for rule in policy.rules] == [Verdict.REQUIRE_APPROVAL, Verdict.ALLOW]
    assert policy.rules[0].min_approvers == 2
    assert policy_of(None).rules == ()


def test_a_policy_file_brings_its_groups() -> None:
    document = load(
        b"apiVersion: policy/v0\nmeta: {name: p}\ngroups: {sre: [a, b]}\n"
        b"governance: {separation_of_duties: true, rules: [{default: require-approval}]}\n"
    )
    policy = policy_file(document.model)
    assert (policy.name, policy.groups) == ("p", {"sre": frozenset({"a", "b"})})
    assert policy.separation_of_duties


@pytest.mark.parametrize(
    ("entry", "name", "below"),
    [
        pytest.param("curl", "curl", "tools/curl.tool.yaml", id="a bare name"),
        pytest.param("../shared/x.tool.yaml", "x", "../shared/x.tool.yaml", id="a path"),
        pytest.param("packs\\y.tool.yaml", "y", "packs/y.tool.yaml", id="a path written on Windows"),
        pytest.param("./z.yaml", "z", "./z.yaml", id="a path without the suffix"),
    ],
)
def test_tools_are_looked_up_in_the_documented_order(entry: str, name: str, below: str) -> None:
    """DECISIONS 10: beside the runbook, in the project, in the working folder."""
    assert name_of(entry) == name
    assert list(places(entry)) == [("runbook", below), ("project", below), ("working", below)]
