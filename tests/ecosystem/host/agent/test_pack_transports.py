"""Tool packs on every transport: each is called, governed, approved and recorded alike."""

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.ecosystem.host.agent.places import TENANT, in_loop
from tests.ecosystem.mcp.calls import RAW
from tests.ecosystem.mcp.http_server import http_server
from tests.ecosystem.runners.bench import KEYS, Bench, bench, holds_canary
from tests.ecosystem.runners.vendors import Vendor

from gert.agent import (
    ApprovalRequiredError,
    ArtanaKernel,
    MockModelPort,
    PolicyViolationError,
    SQLiteStore,
    tool_pack,
)
from gert.ecosystem.approvals.tickets import Tickets
from gert.kernel.events.envelope import decode, format_timestamp
from gert.kernel.governance.approval import Response
from gert.kernel.ledger.record import RunFilter

SERVER = """#!/usr/bin/env python3
import json, os, sys
with open(os.environ["STARTS"], "a") as file:
    file.write(sys.argv[0] + "\\n")
for line in sys.stdin:
    call = json.loads(line)
    if "id" in call:
        said = {"said": call["params"]["text"] + " " + os.environ.get("STORE_TOKEN", "")}
        print(json.dumps({"jsonrpc": "2.0", "id": call["id"], "result": said}), flush=True)
"""
ASKS = """
apiVersion: policy/v0
meta: { name: ops }
governance:
  rules:
    - { writes: [store], action: require-approval, approvers: [bob] }
    - { default: allow }
"""
DENIES = ASKS.replace("name: ops", "name: frozen").replace("action: require-approval, approvers: [bob]", "action: deny")
TOKEN = "token-that-no-one-may-see"
TEXT = {"type": "string", "required": True}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in {"asks.policy.yaml": ASKS, "denies.policy.yaml": DENIES}.items():
        (tmp_path / name).write_text(text)
    _program(tmp_path / "bin" / "store-server", SERVER)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STARTS", str(tmp_path / "starts"))
    monkeypatch.setenv("STORE_TOKEN", TOKEN)
    monkeypatch.setenv("GERT_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("PATH", f"{tmp_path / 'first'}:{tmp_path / 'bin'}:{os.environ['PATH']}")
    return tmp_path


def _program(path: Path, source: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(source)
    path.chmod(0o755)


def store(folder: Path, meta: dict[str, Any], outputs: dict[str, Any], **action: Any) -> str:
    """Write the tool `store` with one action that writes."""
    contract = {"effects": ["store"], "writes": ["store"], "inputs": {"text": TEXT}, "outputs": outputs}
    document = {
        "apiVersion": "tool/v0",
        "meta": {"name": "store", **meta},
        "secrets": [{"env": "STORE_TOKEN", "required": False}],
        "contract": contract,
        "actions": {"put": action},
    }
    file = folder / "store.tool.yaml"
    file.write_text(json.dumps(document))
    return str(file)


def jsonrpc(folder: Path) -> str:
    return store(folder, {"transport": "jsonrpc", "binary": "store-server"}, {"said": {"type": "string"}})


def mcp_stdio(folder: Path) -> str:
    meta = {"transport": "mcp", "connect": "stdio", "binary": RAW[0], "args": [*RAW[1:], "good", os.devnull]}
    return store(folder, meta, {"arguments": {"type": "object"}}, mcp_tool="do")


def kernel_of(folder: Path, file: str, **options: Any) -> ArtanaKernel:
    pack = tool_pack(file, **options)
    return ArtanaKernel(store=SQLiteStore(str(folder / "runs.db")), model_port=MockModelPort(output={}), packs=[pack])


async def put(kernel: ArtanaKernel, tool: str = "store_put", key: str = "one", **arguments: Any) -> Any:
    if not await kernel.ledger.lines("r", limit=1):
        await kernel.start_run(tenant=TENANT, run_id="r")
    given = json.dumps(arguments or {"text": "hello"})
    done = await kernel.step_tool(run_id="r", tenant=TENANT, tool_name=tool, arguments=given, step_key=key)
    return json.loads(done.result_json)


async def approve(kernel: ArtanaKernel) -> Any:
    tickets = Tickets(kernel.ledger)
    [view] = await tickets.all("pending")
    now = format_timestamp(await tickets.time())
    await tickets.answer(view.id, Response(approver="bob", approved=True, timestamp=now))
    return view.ticket.request


@pytest.mark.parametrize(
    ("write", "output"),
    [
        pytest.param(jsonrpc, "said", id="jsonrpc"),
        pytest.param(mcp_stdio, "arguments", id="mcp over stdio"),
    ],
)
@in_loop
async def test_a_pack_is_called_denied_and_approved(folder: Path, write: Any, output: str) -> None:
    file = write(folder)
    async with kernel_of(folder, file, policies=["asks.policy.yaml"]) as kernel:
        with pytest.raises(ApprovalRequiredError):
            await put(kernel)
        request = await approve(kernel)
        assert os.path.isabs(request.program)
        for _ in range(2):
            found = await put(kernel)
            assert TOKEN not in json.dumps(found)
            assert "hello" in str(found[output])
        kept = b"".join(await kernel.ledger.lines("r"))
        assert TOKEN.encode() not in kept
    async with kernel_of(folder, file, policies=["denies.policy.yaml"]) as kernel:
        with pytest.raises(PolicyViolationError, match="frozen rule 1"):
            await put(kernel, key="two")


@in_loop
async def test_a_pack_on_mcp_over_http_is_called_denied_and_approved(folder: Path) -> None:
    async with http_server() as server:
        file = store(folder, {"transport": "mcp", "connect": server.url}, {"out": {"type": "string"}}, mcp_tool="do")
        async with kernel_of(folder, file, policies=["asks.policy.yaml"]) as kernel:
            with pytest.raises(ApprovalRequiredError):
                await put(kernel)
            assert server.calls == []
            await approve(kernel)
            assert [await put(kernel) for _ in range(2)] == [{"out": "fine"}] * 2
            assert len(server.calls) == 1
        async with kernel_of(folder, file, policies=["denies.policy.yaml"]) as kernel:
            with pytest.raises(PolicyViolationError):
                await put(kernel, key="two")
            assert len(server.calls) == 1


@in_loop
async def test_an_approval_does_not_cover_a_program_found_elsewhere(folder: Path) -> None:
    async with kernel_of(folder, jsonrpc(folder), policies=["asks.policy.yaml"]) as kernel:
        with pytest.raises(ApprovalRequiredError):
            await put(kernel)
        request = await approve(kernel)
        assert request.program == str(folder / "bin" / "store-server")
    shutil.copytree(folder / "bin", folder / "first")
    async with kernel_of(folder, jsonrpc(folder), policies=["asks.policy.yaml"]) as kernel:
        with pytest.raises(ApprovalRequiredError):
            await put(kernel)
        assert not (folder / "starts").exists()
        said = [decode(line).type for line in await kernel.ledger.lines("r")]
        assert "approval_outdated" in said
        request = await approve(kernel)
        assert request.program == str(folder / "first" / "store-server")
        await put(kernel)
        assert (folder / "starts").read_text() == f"{folder / 'first' / 'store-server'}\n"


@pytest.fixture
def skills(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Bench, Vendor]]:
    with bench(tmp_path / "project") as (made, served):
        for name, value in {**KEYS, "GERT_STATE_DIR": str(made.root / "_state")}.items():
            monkeypatch.setenv(name, value)
        monkeypatch.chdir(made.root)
        made.runner_tool()
        yield made, served


@in_loop
async def test_a_skill_of_a_runner_is_called_once_and_its_secret_stays_in_the_runner(
    skills: tuple[Bench, Vendor],
) -> None:
    made, served = skills
    async with kernel_of(made.root, str(made.root / "tools" / "ping.tool.yaml")) as kernel:
        schema = json.loads(kernel.tools.definition("ping_go").arguments_schema_json)
        assert schema["required"] == ["word"]
        assert [await put(kernel, "ping_go", word="hi") for _ in range(2)] == [{"path": "/ping/hi"}] * 2
        assert len(served.asked) == 1
        [execution] = await kernel.ledger.runs(RunFilter(kind="runner"))
        assert execution.runner is not None
        assert execution.runner.parent_run_id == "r"
    assert holds_canary(made.root, but=[made.secret]) == []


@in_loop
async def test_policy_denies_a_skill_by_its_contract(skills: tuple[Bench, Vendor]) -> None:
    made, served = skills
    rules = {"rules": [{"writes": ["vendor"], "action": "deny"}, {"default": "allow"}]}
    made.write("p.policy.yaml", {"apiVersion": "policy/v0", "meta": {"name": "floor"}, "governance": rules})
    with pytest.raises(PolicyViolationError, match="floor rule 1"):
        async with kernel_of(
            made.root, str(made.root / "tools" / "ping.tool.yaml"), policies=["p.policy.yaml"]
        ) as kernel:
            await put(kernel, "ping_go", word="hi")
    assert served.asked == []
