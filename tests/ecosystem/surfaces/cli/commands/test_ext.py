"""`gert ext check`: a runner that keeps the protocol passes, and every other one is told why not."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.ecosystem.rpc.test_faults import PEER
from tests.ecosystem.surfaces.cli.runners import program
from tests.ecosystem.surfaces.cli.workbench import Project

EXTENSIONS = Path(__file__).resolve().parents[5] / "examples" / "extensions"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path / "project")


def checked(project: Project, *words: str | Path, code: int = 0, **environ: str) -> dict[str, dict[str, Any]]:
    said = project.gert("ext", "check", *words, "--json", **environ).ended(code).said
    assert said["passed"] is (code == 0)
    return {each["check"]: each for each in said["checks"]}


@pytest.mark.parametrize(
    ("name", "inputs"),
    [
        pytest.param("gert-ext-word-count", {"text": "one two"}, id="Python"),
        pytest.param("gert-ext-disk-free", {"path": "/"}, marks=pytest.mark.needs("jq"), id="shell"),
        pytest.param("gert-ext-semver", {"a": "1.2.0", "b": "1.10.0"}, marks=pytest.mark.needs("node"), id="Node"),
    ],
)
def test_the_examples_in_three_languages_pass(project: Project, name: str, inputs: Any) -> None:
    path = f"{EXTENSIONS}:{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin"
    results = checked(project, name, "--inputs", json.dumps(inputs), PATH=path)
    assert {each["status"] for name, each in results.items() if name != "equal inputs"} == {"passed"}


FAULTS = [
    pytest.param("exits-at-once", "initialize", "exited with 0", id="it exits"),
    pytest.param("refuses-initialize", "initialize", "was refused (-32000): not today", id="it refuses to begin"),
    pytest.param("greets-without-capabilities", "initialize", "expected `capabilities`", id="no capabilities"),
    pytest.param("nobody", "initialize", "kind of a principal", id="a principal that is none"),
    pytest.param("silent", "unknown method", "did not answer `gert/unknown` within 500ms", id="it answers half"),
    pytest.param("garbage", "execute", "the text is not JSON", id="it prints on standard output"),
    pytest.param("result-is-a-list", "execute", "expected an object with `outputs`", id="a result that is none"),
    pytest.param("exit-code-is-text", "execute", "expected `exit_code` to be a whole number", id="a wrong exit code"),
    pytest.param("ignores-shutdown", "shutdown", "did not answer `shutdown`", id="it does not shut down"),
]


@pytest.mark.parametrize(("fault", "check", "message"), FAULTS)
def test_each_failure_is_explained(project: Project, fault: str, check: str, message: str) -> None:
    (project.root / "pids").mkdir()
    source = PEER.read_text().replace("#!/usr/bin/env -S python3 -I -S", f"#!{sys.executable} -IS")
    if fault != "silent":  # the peer of the fault tests does not answer unknown methods
        refused = 'message(id=request["id"], error={"code": -32601, "message": "no"})'
        source = source.replace(
            'if request["method"] == "execute":',
            f'if request["method"] == "gert/unknown" and "id" in request:\n            {refused}\n'
            '        if request["method"] == "execute":',
        )
    program(project.root / fault, "")
    (project.root / fault).write_text(source)
    inputs = ("--inputs", "{}") if check == "execute" else ()
    results = checked(project, f"./{fault}", *inputs, "--timeout", "0.5", code=1)
    assert (results[check]["status"], message in results[check]["message"]) == ("failed", True), results
    assert results[check]["hint"]


def test_execute_is_called_only_when_inputs_are_given(project: Project) -> None:
    note = f"open({str(project.effects)!r}, 'a').write('ran\\n')"
    program(project.root / "r", f"serve(lambda p: {{'outputs': {{'n': {note}}}}})")
    assert checked(project, "./r")["execute"]["status"] == "skipped"
    assert project.noted() == []
    assert checked(project, "./r", "--inputs", "{}")["equal inputs"]["status"] == "passed"
    assert project.noted() == ["ran", "ran"]


def test_hidden_state_and_an_exit_code_are_warnings(project: Project) -> None:
    program(project.root / "r", "serve(lambda p: {'outputs': {'n': time.monotonic_ns()}}); sys.exit(3)")
    results = checked(project, "./r", "--inputs", "{}")
    assert {name for name, each in results.items() if each["status"] == "warning"} == {"equal inputs", "exit"}


def test_a_program_that_is_not_there_fails_and_bad_inputs_are_usage_errors(project: Project) -> None:
    results = checked(project, "nowhere-at-all", code=1)
    assert "`gert-ext-nowhere-at-all` was not found on PATH" in results["start"]["message"]
    assert {each["status"] for name, each in results.items() if name != "start"} == {"skipped"}
    assert "JSON object" in project.gert("ext", "check", "x", "--inputs", "[]").ended(2).err
    assert "--inputs" in project.gert("ext", "check", "x", "--inputs", "{").ended(2).err


def test_people_see_signs_hints_and_the_last_words(project: Project) -> None:
    program(project.root / "r", "print('cannot load the model', file=sys.stderr); sys.exit(4)")
    said = project.gert("ext", "check", "./r").ended(1)
    assert "✗ initialize: `./r` exited with 4: cannot load the model" in said.out
    assert "the last lines of its standard error:\n  cannot load the model" in said.out
