"""What the runner for agents gets of gert's variables: with its call, never in its environment."""

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from gert.ecosystem.host.run.options import RunOptions
from gert.ecosystem.host.run.prepare import Prepared
from gert.ecosystem.host.run.world.agent_variables import agent_variables
from gert.ecosystem.host.run.world.callers import Callers
from gert.ecosystem.process.environment import PARENT_RUN
from gert.ecosystem.rpc import Server
from gert.kernel.engine.inputs import ResolvedInputs
from gert.kernel.foundation.redaction import Redactor
from gert.kernel.foundation.signature import parse_key

PAIR = "ed25519:cGxhbi1rZXktb2YtdGhlLWJlbmNoLTAxMjM0NTY3ODk="
SHARED = "a-key-of-thirty-two-characters-ok"
BOOK = """
apiVersion: kernel/v0
meta: { name: book }
steps:
  - { type: end, outcome: { category: resolved, code: done } }
"""


def prepared(folder: Path, environ: Mapping[str, str]) -> Prepared:
    (folder / "book.yaml").write_text(BOOK)
    return Prepared(RunOptions(file=str(folder / "book.yaml"), state_dir=str(folder)), environ)


def test_no_variable_of_gert_is_in_the_environment_of_the_runner_for_agents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GERT_TRACE_SIGNING_KEY", SHARED)
    monkeypatch.setenv("GERT_DEPTH", "1")
    made = prepared(tmp_path, os.environ)
    callers = Callers(made, "run-1", ResolvedInputs({}, {}), Redactor(), (), str(tmp_path))
    server = callers.extensions._server("agent")
    assert isinstance(server, Server)
    names = {os.fsdecode(name) for name in server.command.environment}
    assert {name for name in names if name.startswith("GERT_")} == {PARENT_RUN}


@pytest.mark.parametrize(
    ("name", "value", "passed"),
    [
        pytest.param("GERT_TRACE_SIGNING_KEY", SHARED, {"GERT_TRACE_SIGNING_KEY": SHARED}, id="the key that seals"),
        pytest.param("GERT_TRACE_KEY_OLD", SHARED, {"GERT_TRACE_KEY_OLD": SHARED}, id="a key that verifies seals"),
        pytest.param("GERT_PLAN_SIGNING_KEY", PAIR, {"GERT_PLAN_SIGNING_KEY": PAIR}, id="the key of plans"),
        pytest.param("GERT_DEPTH", "2", {"GERT_DEPTH": "2"}, id="how deep runs have started each other"),
        pytest.param("GERT_APPROVAL_OWNER_ANN", "ann", {"GERT_APPROVAL_OWNER_ANN": "ann"}, id="the owner of a key"),
        pytest.param(
            "GERT_APPROVAL_SIGNING_KEY",
            PAIR,
            {"GERT_APPROVAL_VERIFY_KEY": parse_key(PAIR).public_text},
            id="of the key that signs approvals, the public half",
        ),
        pytest.param(
            "GERT_APPROVAL_KEY_ANN",
            PAIR,
            {"GERT_APPROVAL_KEY_ANN": parse_key(PAIR).public_text},
            id="of the key of an approver, the public half",
        ),
        pytest.param(
            "GERT_APPROVAL_SIGNING_KEY", SHARED, {"GERT_APPROVAL_VERIFY_KEY": SHARED}, id="a shared key, to verify with"
        ),
        pytest.param("GERT_MCP_TOKEN", "t" * 40, {}, id="no token of a server"),
        pytest.param("GERT_DEBUG", "1", {}, id="no switch of a command"),
        pytest.param("GERT_WHATEVER", "x", {}, id="nothing that is not listed"),
        pytest.param("HOME", "/home/ann", {}, id="nothing that it inherits"),
    ],
)
def test_what_the_runner_for_agents_is_given(tmp_path: Path, name: str, value: str, passed: dict[str, str]) -> None:
    always = {"GERT_STATE_DIR": str(tmp_path), "GERT_LEDGER": str(tmp_path / "runs" / "ledger.db"), "GERT_OTEL": "0"}
    assert agent_variables(prepared(tmp_path, {name: value})) == {**always, **passed}


def test_an_agent_exports_as_its_run_does(tmp_path: Path) -> None:
    (tmp_path / "gert-project.yaml").write_text("name: p\ntelemetry: {export: true, capture_content: true}\n")
    headers = {"OTEL_EXPORTER_OTLP_HEADERS": "authorization=Bearer x"}
    found = agent_variables(prepared(tmp_path, headers))
    content = {"OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "true"}
    assert {name: value for name, value in found.items() if "OTEL" in name} == {"GERT_OTEL": "1", **content, **headers}
