"""The machine-readable index of the agent kernel, and the page of versions: generated, complete and true."""

import inspect
import json
import runpy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import gert.agent
from gert._version import __version__
from gert.ecosystem.ledger import sql
from gert.kernel.agent.types.payload_models import EventType

ROOT = Path(__file__).resolve().parents[1]
INDEX: dict[str, Any] = json.loads((ROOT / "docs" / "kernel_behavior_index.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    "syscall",
    [
        "get_run_status", "get_run_progress", "stream_run_progress", "list_active_runs", "resume_point", "block_run",
        "unblock_run", "checkpoint", "set_artifact", "get_artifact", "list_artifacts", "canonicalize_tool_args",
        "tool_fingerprint", "describe_capabilities", "list_tools_for_tenant", "acquire_run_lease", "renew_run_lease",
        "release_run_lease", "get_run_lease", "stream_events", "step_model", "step_tool", "reconcile_tool",
        "default_middleware_stack",
    ],
)  # fmt: skip
def test_the_contract_of_each_syscall_is_in_it(syscall: str) -> None:
    said = INDEX["syscalls"][syscall]
    parameters = inspect.signature(getattr(gert.agent.ArtanaKernel, syscall)).parameters
    assert all(name in said["signature"] for name in parameters)
    assert said["about"]


def test_every_event_error_and_command_is_in_it() -> None:
    assert set(INDEX["event_types"]) == {kind.value for kind in EventType}
    assert {"BudgetExceededError", "CapabilityDeniedError", "ReplayConsistencyError"} <= set(INDEX["errors"])
    assert INDEX["replay_policies"] == ["strict", "allow_prompt_drift", "fork_on_drift"]
    assert INDEX["policy_modes"]["enforced_v2"][-1] == "SafetyPolicyMiddleware"
    for word in ("list", "tail", "verify-ledger", "status", "summaries", "artifacts"):
        assert "--json" in INDEX["commands"][f"artana run {word}"]["options"]
        assert {"--db", "--dsn", "--json"} <= set(INDEX["commands"][f"gert run {word}"]["options"])
    assert INDEX["public_names"] == sorted(gert.agent.__all__)


def test_no_place_in_the_source_is_named() -> None:
    text = json.dumps({name: INDEX[name] for name in ("syscalls", "event_types", "errors")})
    assert "gert.kernel" not in text
    assert "gert.ecosystem" not in text


def test_the_page_of_versions_names_this_one_and_its_schema() -> None:
    page = (ROOT / "docs" / "compatibility_matrix.md").read_text(encoding="utf-8")
    [row] = [line for line in page.splitlines() if line.startswith(f"| {__version__} |")]
    assert row.count(f" {sql.SCHEMA_VERSION}") >= 2


@pytest.mark.parametrize(
    ("name", "value"),
    [
        pytest.param("__version__", "9.9.9", id="another version"),
        pytest.param("sql", SimpleNamespace(SCHEMA_VERSION=99), id="another schema"),
    ],
)
def test_a_page_that_is_not_true_any_more_is_not_made(
    name: str, value: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = runpy.run_path(str(ROOT / "scripts" / "compatibility_doc.py"))
    page = names["page"]
    assert page() == (ROOT / "docs" / "compatibility_matrix.md").read_text(encoding="utf-8")
    monkeypatch.setitem(page.__globals__, name, value)
    with pytest.raises(SystemExit):
        page()
