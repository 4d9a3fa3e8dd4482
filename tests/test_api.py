"""The public API: every name it promises is there, and importing it costs nothing."""

import subprocess
import sys
from pathlib import Path

import pytest

import gert

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
