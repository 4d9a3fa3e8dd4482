"""The public API: every name it promises is there, and importing it costs nothing."""

import subprocess
import sys
from pathlib import Path

import pytest

import gert
from gert.errors import InputError

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize("name", gert.__all__)
def test_every_promised_name_is_there(name: str) -> None:
    assert getattr(gert, name) is not None


def test_other_names_are_not() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        gert.nonsense  # noqa: B018


def test_validating_and_explaining() -> None:
    file = str(ROOT / "examples" / "runbooks" / "restart-pod.yaml")
    assert gert.validate(file).findings == []
    program, steps = gert.explain(file)
    assert program.runbook.meta.name == "restart-pod"
    assert [step.name for step in steps] == ["pods", "delete_pod"]
    assert gert.schema("runbook")["title"] == "gert runbook"


def test_importing_gert_imports_nothing_else() -> None:
    script = "import sys; before = set(sys.modules); import gert; print(sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['gert', 'gert._version']"


def test_a_runbook_is_run_and_recorded(tmp_path: Path) -> None:
    runbook = tmp_path / "quiet.yaml"
    runbook.write_text(
        "apiVersion: kernel/v0\n"
        "meta: { name: quiet, inputs: { who: { type: string, required: true } } }\n"
        "steps: [{ type: end, outcome: { category: no_action, code: all_quiet, meta: { who: '{{ .who }}' } } }]\n"
    )
    executed = gert.run(str(runbook), {"who": "all"}, actor="alice", state_dir=str(tmp_path))
    assert executed.status == "completed"
    assert executed.outcome is not None
    assert executed.outcome.meta == {"who": "all"}
    assert executed.trace is not None
    assert Path(executed.trace).is_relative_to(tmp_path)


def test_a_run_without_its_inputs_does_not_begin(tmp_path: Path) -> None:
    runbook = tmp_path / "quiet.yaml"
    runbook.write_text(
        "apiVersion: kernel/v0\n"
        "meta: { name: quiet, inputs: { who: { type: string, required: true } } }\n"
        "steps: [{ type: end, outcome: { category: no_action, code: all_quiet } }]\n"
    )
    with pytest.raises(InputError, match="no value for required input `who`"):
        gert.run(str(runbook), state_dir=str(tmp_path))
    assert not (tmp_path / "runs").exists()
