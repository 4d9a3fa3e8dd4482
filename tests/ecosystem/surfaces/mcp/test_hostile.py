"""What an agent must not be able to do through gert-mcp: one row an attempt."""

import json
import os
from typing import Any

import pytest
from mcp.shared.exceptions import MCPError
from mcp_types import ElicitResult
from tests.ecosystem.surfaces.mcp.conftest import QUICK, Served, drive

from gert.ecosystem.host.operations.table import EDITOR_OPERATIONS, OPERATIONS


@pytest.fixture
def outside(served: Served) -> Served:
    """A served folder with links that lead out of it, and a runbook beside it."""
    root = served.root
    (root.parent / "other.yaml").write_text(QUICK)
    (root / "link.yaml").symlink_to(root.parent / "other.yaml")
    (root / "out").symlink_to(root.parent)
    served.write(
        "runbooks/hidden.yaml", QUICK.replace("name: quick", "name: hidden").replace("Says", "Says\u200b \U000e0041")
    )
    served.write(
        "runbooks/broken.yaml", QUICK.replace("name: quick", "name: broken").replace("tools: [sh]", "tools: [nope]")
    )
    return served


REFUSALS = [
    pytest.param("gert_validate", {"path": "../other.yaml"}, "outside_root", id="path traversal"),
    pytest.param("gert_validate", {"path": "/etc/passwd"}, "outside_root", id="an absolute path"),
    pytest.param("gert_validate", {"path": "link.yaml"}, "outside_root", id="a link that leads out"),
    pytest.param("gert_validate", {"path": "out/other.yaml"}, "outside_root", id="a linked folder that leads out"),
    pytest.param("gert_validate", {"path": "a\x00b"}, "unknown_path", id="NUL in a path"),
    pytest.param("gert_validate", {"path": "x" * 100_000}, "unknown_path", id="a huge path"),
    pytest.param("gert_validate", {"path": "../new.yaml", "text": "a: b"}, "outside_root", id="text outside the root"),
    pytest.param("gert_exec", {"path": "../other.yaml"}, "outside_root", id="exec outside the root"),
    pytest.param("gert_exec", {"path": "link.yaml"}, "outside_root", id="exec behind a link"),
    pytest.param("gert_exec", {"path": "nope"}, "unknown_runbook", id="exec of no runbook"),
    pytest.param("gert_exec", {"path": "broken"}, "invalid_runbook", id="exec of an invalid runbook"),
    pytest.param("gert_exec", {"path": "quick", "mode": "probe"}, "invalid_arguments", id="a mode that runs tools"),
    pytest.param("gert_exec", {"path": "quick", "vars": {"nope": 1}}, "invalid_inputs", id="an unknown input"),
    pytest.param("gert_exec", {"path": "quick", "vars": {"word": {"a": 1}}}, "invalid_inputs", id="a wrong type"),
    pytest.param("gert_exec", {"path": "quick", "vars": "x"}, "invalid_arguments", id="inputs that are text"),
    pytest.param("gert_exec", {"path": "quick", "break_glass": "now"}, "invalid_arguments", id="break glass"),
    pytest.param("gert_exec", {"path": "quick", "actor": "root"}, "invalid_arguments", id="another actor"),
    pytest.param("gert_exec", {"path": "quick", "policies": []}, "invalid_arguments", id="other policies"),
    pytest.param("gert_exec", {"path": "quick", "confirm": True}, "invalid_arguments", id="confirm: true"),
    pytest.param("gert_exec", {"path": "quick", "wait_seconds": 1e9}, "invalid_arguments", id="an endless wait"),
    pytest.param("gert_exec", {"path": "quick", "request_id": "\u200b"}, "invalid_call", id="an invisible request id"),
    pytest.param("gert_exec", {"path": "quick", "request_id": "x" * 500}, "invalid_arguments", id="a long request id"),
    pytest.param(
        "gert_exec",
        {"path": "writes", "vars": {"text": "a", "secret": "b"}},
        "invalid_inputs",
        id="a secret as argument",
    ),
    pytest.param("gert_exec", {"path": "writes"}, "invalid_inputs", id="a missing input, and no form"),
    pytest.param("gert_exec", {"path": "quick", "mode": "replay"}, "invalid_call", id="a replay without a scenario"),
    pytest.param(
        "gert_exec", {"path": "quick", "mode": "replay", "scenario": "../../x"}, "invalid_call", id="a scenario outside"
    ),
    pytest.param("gert_run_status", {"run_id": "../../etc"}, "unknown_run", id="a run id that is a path"),
    pytest.param("gert_run_status", {"run_id": "nope"}, "unknown_run", id="a run that is not there"),
    pytest.param("gert_run_log", {"run_id": "nope"}, "unknown_run", id="output of no run"),
    pytest.param("gert_run_log", {"run_id": "nope", "cursor": -1}, "invalid_arguments", id="a negative cursor"),
    pytest.param("gert_resume", {"run_id": "nope"}, "unknown_run", id="resume of no run"),
    pytest.param("gert_resume", {"run_id": "x", "reconcile": "success"}, "invalid_arguments", id="reconcile"),
    pytest.param("gert_cancel", {"run_id": "nope"}, "unknown_run", id="cancel of no run"),
    pytest.param("gert_test", {"path": "../"}, "outside_root", id="tests outside the root"),
    pytest.param("gert_list_tools", {"dir": "/"}, "outside_root", id="tools of the whole machine"),
    pytest.param("gert_list_runbooks", {"cursor": "9999"}, "invalid_cursor", id="a cursor after the end"),
    pytest.param("gert_list_runbooks", {"cursor": "x"}, "invalid_cursor", id="a cursor that is no number"),
    pytest.param("gert_list_runbooks", {"limit": 10**9}, "invalid_arguments", id="everything at once"),
    pytest.param("gert_schema", {"type": "../secrets"}, "unknown_type", id="a schema that is a path"),
    pytest.param("gert_step_contract", {"path": "quick", "step_id": "nope"}, "invalid_call", id="an unknown step"),
]


@pytest.mark.parametrize(("tool", "arguments", "code"), REFUSALS)
def test_what_is_refused_and_why(outside: Served, tool: str, arguments: dict[str, Any], code: str) -> None:
    async def work() -> None:
        async with outside.client() as client:
            result = await client.call_tool(tool, arguments)
            assert result.is_error
            said = json.loads(result.content[0].text)  # type: ignore[union-attr]
            assert said["code"] == code, said
            assert result.structured_content is None
            assert len(said["message"]) < 1000

    drive(work)


def test_no_tool_approves_breaks_glass_reconciles_or_manages_keys() -> None:
    words = ("approve", "answer", "reject", "glass", "reconcile", "key", "evidence", "advance", "sign")
    assert not [name for name in OPERATIONS if any(word in name for word in words)]
    assert "answer_approval" in EDITOR_OPERATIONS
    for operation in OPERATIONS.values():
        properties = operation.input_schema["properties"]
        assert not [name for name in properties if any(word in name for word in words)], operation.name


@pytest.mark.parametrize("name", ["gert_approve", "gert_answer_approval", "gert_evidence", "x" * 5000])
def test_tools_that_are_not_offered_are_unknown(served: Served, name: str) -> None:
    async def work() -> None:
        async with served.client() as client:
            with pytest.raises(MCPError, match="unknown tool"):
                await client.call_tool(name, {})

    drive(work)


def test_an_elicited_answer_approves_nothing(served: Served) -> None:
    """A client that accepts every form gets its inputs in, and still waits for a person."""

    async def accept(context: Any, params: Any) -> ElicitResult:
        return ElicitResult(action="accept", content={"text": "x", "approved": "yes", "secret": "y"})

    async def work() -> None:
        async with served.client(elicitation_callback=accept) as client:
            waiting = (await client.call_tool("gert_exec", {"path": "writes", "wait_seconds": 20})).structured_content
            assert waiting["status"] == "waiting_for_approval"
            resumed = await client.call_tool("gert_resume", {"run_id": waiting["run_id"]})
            assert resumed.is_error  # its own process drives it
            await client.call_tool("gert_cancel", {"run_id": waiting["run_id"]})

    drive(work)


def test_an_agent_is_no_approver_of_its_own_run(served: Served) -> None:
    from gert.ecosystem.host.approvals.respond import Verdict, respond
    from gert.ecosystem.host.runs.place import place_for

    async def work() -> None:
        async with served.client() as client:
            said = {"path": "writes", "vars": {"text": "x"}, "wait_seconds": 20}
            waiting = (await client.call_tool("gert_exec", said)).structured_content
            place = place_for(served.access().state_dir, None, {})
            ticket = waiting["waiting"]["ticket_id"]
            given = await respond(Verdict(ticket=ticket, approved=True, approver="mcp"), place, served.access().environ)
            assert given.answered.objection is not None
            await client.call_tool("gert_cancel", {"run_id": waiting["run_id"]})

    drive(work)


def test_runs_of_another_folder_are_unknown(served: Served, tmp_path: Any) -> None:
    async def work() -> None:
        async with served.client() as client:
            done = (await client.call_tool("gert_exec", {"path": "quick", "wait_seconds": 20})).structured_content
        other = Served(tmp_path / "elsewhere")
        other.write("runbooks/quick.yaml", QUICK)
        other.options["state_dir"] = served.access().state_dir
        async with other.client() as client:
            for tool in ("gert_run_status", "gert_run_log", "gert_resume", "gert_cancel"):
                result = await client.call_tool(tool, {"run_id": done["run_id"]})
                assert result.is_error
                assert json.loads(result.content[0].text)["code"] == "unknown_run"  # type: ignore[union-attr]
            with pytest.raises(MCPError):
                await client.read_resource(f"gert://traces/{done['run_id']}")

    drive(work)


def test_an_agent_does_not_cancel_the_run_of_a_person(served: Served) -> None:
    from gert.ecosystem.host.background.launch import start_run
    from gert.ecosystem.host.run.options import RunOptions

    async def work() -> None:
        access = served.access()
        file = os.path.join(access.root, "runbooks", "long.yaml")
        launched = await start_run(RunOptions(file=file, state_dir=access.state_dir), access.environ)
        async with served.client() as client:
            result = await client.call_tool("gert_cancel", {"run_id": launched.run_id})
            assert json.loads(result.content[0].text)["code"] == "not_yours"  # type: ignore[union-attr]
        from gert.ecosystem.host.background.messages import Sender, cancel_run

        await cancel_run(Sender(database=launched.database, by="kim"), launched.run_id, access.environ)

    drive(work)


def test_only_allowed_runbooks_are_started(served: Served) -> None:
    async def work() -> None:
        served.options["allow"] = frozenset({os.path.join(os.path.realpath(served.root), "runbooks", "quick.yaml")})
        async with served.client() as client:
            result = await client.call_tool("gert_exec", {"path": "long"})
            assert json.loads(result.content[0].text)["code"] == "not_allowed"  # type: ignore[union-attr]
            allowed = await client.call_tool("gert_exec", {"path": "quick", "wait_seconds": 20})
            assert allowed.structured_content["status"] == "completed"

    drive(work)


def test_hidden_characters_do_not_reach_the_model(outside: Served) -> None:
    async def work() -> None:
        async with outside.client() as client:
            result = await client.call_tool("gert_list_runbooks", {"filter": "hidden"})
            text = result.content[0].text  # type: ignore[union-attr]
            assert "hidden" in text
            assert not set(text) & {"\u200b", "\U000e0041"}

    drive(work)


@pytest.mark.parametrize(
    "uri", ["gert://runbooks/..%2f..%2fetc", "gert://traces/../x", "gert://x", "file:///etc/passwd"]
)
def test_resources_outside_are_not_there(served: Served, uri: str) -> None:
    async def work() -> None:
        async with served.client() as client:
            with pytest.raises(MCPError):
                await client.read_resource(uri)

    drive(work)


def test_a_huge_argument_does_not_hide_the_run_that_it_started(served: Served) -> None:
    async def work() -> None:
        async with served.client() as client:
            said = {"path": "writes", "vars": {"text": "x" * 100_000}, "wait_seconds": 20}
            waiting = (await client.call_tool("gert_exec", said)).structured_content
            assert waiting["status"] == "waiting_for_approval"
            assert waiting["waiting"]["inputs"]["characters"] > 100_000
            await client.call_tool("gert_cancel", {"run_id": waiting["run_id"]})

    drive(work)


def test_hidden_characters_do_not_reach_the_description_of_a_published_runbook(outside: Served) -> None:
    async def work() -> None:
        async with outside.client(published=("runbooks/hidden.yaml",)) as client:
            [tool] = [each for each in (await client.list_tools()).tools if each.name == "runbook_hidden"]
            assert not set(tool.description or "") & {"\u200b", "\U000e0041"}

    drive(work)
