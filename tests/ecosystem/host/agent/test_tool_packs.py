"""A tool file as tools of an agent: the verdicts, approvals, redaction and transports of runbooks."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from tests.ecosystem.host.agent.places import TENANT, in_loop

from gert.agent import (
    ApprovalRequiredError,
    ArtanaKernel,
    GertError,
    MockModelPort,
    PolicyViolationError,
    SQLiteStore,
    runbook_tool,
    tool_pack,
)
from gert.ecosystem.approvals.request_text import summary
from gert.ecosystem.approvals.tickets import Tickets
from gert.errors import InputError
from gert.kernel.events.envelope import format_timestamp
from gert.kernel.governance.approval import Response

TOOL = """
apiVersion: tool/v0
meta: { name: pods }
secrets: [{ env: POD_TOKEN, required: false }]
contract:
  effects: [kubernetes]
  reads: [pod]
  writes: []
  idempotent: true
  inputs: { pod: { type: string, required: true, pattern: "^[a-z0-9-]+$" } }
  outputs: { said: { type: string } }
actions:
  look:
    description: Look at a pod
    argv: [sh, -c, 'echo "$1 is up, token $POD_TOKEN"', sh, "{{ .pod }}"]
    extract: { said: { from: stdout } }
  restart:
    argv: [sh, -c, 'echo "$1" >> restarted; echo done', sh, "{{ .pod }}"]
    extract: { said: { from: stdout } }
    contract: { writes: [pod] }
  fail:
    argv: [sh, -c, "echo no such pod >&2; exit 3"]
  log_in:
    argv: [sh, -c, 'test "$1" = "s3cret-key-1" && echo "key $1 fits"', sh, "{{ .key }}"]
    extract: { said: { from: stdout } }
    contract: { inputs: { key: { type: string, required: true, secret: true } } }
"""
ASKS = """
apiVersion: policy/v0
meta: { name: ops }
governance:
  rules:
    - { writes: [pod], action: require-approval, min_approvers: 1, approvers: [bob] }
    - { default: allow }
"""
DENIES = """
apiVersion: policy/v0
meta: { name: frozen }
governance:
  rules:
    - { writes: [pod], action: deny }
    - { default: allow }
"""
TOKEN = "token-that-no-one-may-see"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a tool and policies, in which tools run."""
    for name, text in {"pods.tool.yaml": TOOL, "asks.policy.yaml": ASKS, "denies.policy.yaml": DENIES}.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("POD_TOKEN", TOKEN)
    monkeypatch.setenv("POD_KEY", "s3cret-key-1")
    monkeypatch.setenv("GERT_STATE_DIR", str(tmp_path / "state"))
    return tmp_path


def kernel_of(folder: Path, **options: Any) -> ArtanaKernel:
    """A kernel with the pods' tools."""
    options = {"secrets": {"key": "POD_KEY"}, **options}
    pack = tool_pack(str(folder / "pods.tool.yaml"), **options)
    return ArtanaKernel(store=SQLiteStore(str(folder / "runs.db")), model_port=MockModelPort(output={}), packs=[pack])


async def step(kernel: ArtanaKernel, tool: str, key: str = "one", **arguments: Any) -> Any:
    """Take a tool step, and return its result."""
    if not await kernel.ledger.lines("r", limit=1):
        await kernel.start_run(tenant=TENANT, run_id="r")
    given = json.dumps(arguments)
    done = await kernel.step_tool(run_id="r", tenant=TENANT, tool_name=tool, arguments=given, step_key=key)
    return json.loads(done.result_json)


async def record(kernel: ArtanaKernel) -> str:
    """Everything that is on record about the run."""
    return b"\n".join(await kernel.ledger.lines("r")).decode()


@in_loop
async def test_an_action_is_a_tool_and_its_secrets_stay_hidden(folder: Path) -> None:
    async with kernel_of(folder) as kernel:
        said = (await step(kernel, "pods_look", pod="web-1"))["said"]
        assert said.startswith("web-1 is up, token ")
        assert TOKEN not in said
        assert (await step(kernel, "pods_log_in", "two", pod="web-1"))["said"].startswith("key ")
        kept = await record(kernel)
        assert TOKEN not in kept
        assert "s3cret-key-1" not in kept
        assert '\\"outcome\\":\\"allow\\"' in kept


SPY = """
apiVersion: tool/v0
meta: { name: spy }
contract: { effects: [], writes: [], outputs: { said: { type: string } } }
actions:
  go: { argv: [sh, -c, 'env; cat hints'], extract: { said: { from: stdout } } }
"""
BOOK = """
apiVersion: kernel/v0
meta:
  name: books
  inputs: { pin: { type: string, secret: true, from: env/BOOK_PIN } }
tools: [./spy.tool.yaml]
steps:
  - { id: go, type: tool, tool: spy, action: go }
  - { id: end, type: end, outcome: { category: resolved, code: done, meta: { said: "{{ .said }}" } } }
"""
SECRETS = {
    "POD_TOKEN": TOKEN,
    "POD_KEY": "s3cret-key-1",
    "BOOK_PIN": "pin-of-a-runbook-4711",
    "OPENAI_API_KEY": "sk-canary-1234567890",
}
"""A secret that a pack declares, one that it binds an input to, one of a runbook, and the key of a model."""


@in_loop
async def test_a_pack_gets_and_shows_no_secret_of_another_pack_or_of_the_model(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    (folder / "spy.tool.yaml").write_text(SPY)
    (folder / "books.yaml").write_text(BOOK)
    # As if another program had written them down.
    (folder / "hints").write_text(" ".join(SECRETS.values()))
    pods = tool_pack(str(folder / "pods.tool.yaml"), secrets={"key": "POD_KEY"})
    packs: list[Any] = [tool_pack(str(folder / "spy.tool.yaml")), runbook_tool(str(folder / "books.yaml")), pods]
    store = SQLiteStore(str(folder / "runs.db"))
    async with ArtanaKernel(store=store, model_port=MockModelPort(output={}), packs=packs) as kernel:
        said = (await step(kernel, "spy_go"))["said"]
        assert "PATH=" in said
        for name, value in SECRETS.items():
            assert f"{name}=" not in said
            assert value not in said
        of_book = (await step(kernel, "books", "two"))["outcome"]["meta"]["said"]
        assert not [name for name in ("POD_TOKEN", "POD_KEY", "BOOK_PIN") if f"{name}=" in of_book]
        assert "token " in (await step(kernel, "pods_look", "three", pod="web-1"))["said"]
        kept = await record(kernel)
        assert "sk-canary" not in kept.split("books")[0]


@in_loop
async def test_the_schema_is_the_contract_without_secret_inputs(folder: Path) -> None:
    async with kernel_of(folder) as kernel:
        schema = json.loads(kernel.tools.definition("pods_log_in").arguments_schema_json)
        assert schema["required"] == ["pod"]
        assert set(schema["properties"]) == {"pod"}
        with pytest.raises(InputError, match="do not fit"):
            await step(kernel, "pods_look", pod="web 1; rm")
        assert [kernel.tool_fingerprint(tool_name=f"pods_{each}").risk_level for each in ("look", "restart")] == [
            "low",
            "medium",
        ]


@in_loop
async def test_what_a_policy_denies_never_starts(folder: Path) -> None:
    async with kernel_of(folder, policies=["denies.policy.yaml"]) as kernel:
        with pytest.raises(PolicyViolationError, match="frozen rule 1") as caught:
            await step(kernel, "pods_restart", pod="web-1")
        assert caught.value.code == "policy_denied"
        assert not (folder / "restarted").exists()
        kept = await record(kernel)
        assert '\\"outcome\\":\\"deny\\"' in kept
        assert "tool_requested" not in kept


@in_loop
async def test_an_approval_is_an_ordinary_ticket_and_the_call_happens_once(folder: Path) -> None:
    async with kernel_of(folder, policies=["asks.policy.yaml"]) as kernel:
        with pytest.raises(ApprovalRequiredError):
            await step(kernel, "pods_restart", pod="web-1")
        tickets = Tickets(kernel.ledger)
        [view] = await tickets.all("pending")
        shown = "\n".join(summary(view.ticket.request))
        assert """sh -c 'echo "$1" >> restarted; echo done' sh web-1""" in shown
        assert '["kubernetes"]' in shown
        now = format_timestamp(await tickets.time())
        stranger = await tickets.answer(view.id, Response(approver="eve", approved=True, timestamp=now))
        assert stranger.objection is not None
        await tickets.answer(view.id, Response(approver="bob", approved=True, timestamp=now))
        for _ in range(2):
            assert await step(kernel, "pods_restart", pod="web-1") == {"said": "done"}
        assert (folder / "restarted").read_text() == "web-1\n"


@in_loop
async def test_a_call_that_fails_says_why(folder: Path) -> None:
    async with kernel_of(folder) as kernel:
        with pytest.raises(GertError, match=r"no such pod|exited with 3"):
            await step(kernel, "pods_fail", pod="web-1")


@pytest.mark.parametrize(
    ("options", "why"),
    [
        pytest.param({"secrets": {}}, "has no source", id="a secret input without a source"),
        pytest.param({"secrets": {"key": "NOT_SET"}}, "is not set", id="a variable that is not set"),
        pytest.param({"actions": ["fly"]}, "no action `fly`", id="an action that is not there"),
        pytest.param({"policies": ["none.policy.yaml"]}, "none.policy.yaml", id="a policy that is not there"),
    ],
)
@in_loop
async def test_a_pack_that_could_not_be_governed_is_refused(folder: Path, options: dict[str, Any], why: str) -> None:
    with pytest.raises(GertError, match=why):
        kernel_of(folder, **options)


LIMITED = """
apiVersion: policy/v0
meta: { name: hourly }
governance:
  rules:
    - { writes: [pod], action: allow, limits: { max_per_hour: 1 } }
    - { default: allow }
"""


@in_loop
async def test_of_five_calls_at_once_a_limit_of_one_admits_one_and_a_replay_calls_nothing(folder: Path) -> None:
    (folder / "hourly.policy.yaml").write_text(LIMITED)
    async with kernel_of(folder, policies=["hourly.policy.yaml"]) as kernel:
        await kernel.start_run(tenant=TENANT, run_id="r")
        calls = [step(kernel, "pods_restart", f"s{n}", pod="web-1") for n in range(5)]
        ended = await asyncio.gather(*calls, return_exceptions=True)
        assert sum(isinstance(each, PolicyViolationError) for each in ended) == 4, ended
        made = next(n for n, each in enumerate(ended) if isinstance(each, dict))
        events = len(await kernel.ledger.lines("r"))
        assert await step(kernel, "pods_restart", f"s{made}", pod="web-1") == ended[made]
        assert len(await kernel.ledger.lines("r")) == events
    assert (folder / "restarted").read_text().splitlines() == ["web-1"]
