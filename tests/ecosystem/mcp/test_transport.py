"""Calls of MCP tools over stdio: sessions, restarts, arguments, approvals, previews and cancellation."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.ecosystem.mcp.calls import (
    SDK,
    answer,
    asked,
    call,
    finished,
    lines,
    mcp_tool,
    raw,
    survivors,
    transport,
)

from gert.ecosystem.tools.mcp import session as session_module
from gert.ecosystem.tools.outputs import Interrupted
from gert.kernel.engine.requests import ToolAnswer
from gert.kernel.foundation.secret_refs import secret_ref
from gert.kernel.governance.approval import ApprovalRequest
from gert.kernel.runbook.documents.tool import Tool

ANY = {"arguments": {"type": "any"}, "done": {"type": "int"}}
NOT_IDEMPOTENT = {"idempotent": False, "effects": ["x"], "writes": ["x"]}


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


def failed(found: ToolAnswer, kind: str, *words: str) -> None:
    assert found.failure is not None
    assert (found.failure.kind, [word for word in words if word not in found.failure.message]) == (kind, []), found


# --- sessions


def test_a_server_is_started_once_reused_and_stopped(log: Path) -> None:
    async def work() -> list[ToolAnswer]:
        async with transport() as made:
            tool = raw(log=log, outputs=ANY)
            first = await call(made, tool, {"text": "a"})
            return [first, *await asyncio.gather(*(call(made, tool, {"text": str(n)}) for n in range(20)))]

    found = finished(work)
    assert [each.failure for each in found] == [None] * 21
    assert [each.outputs["arguments"]["text"] for each in found] == ["a", *map(str, range(20))]
    assert (len(lines(log, "start")), list(survivors(log))) == (1, [])


def test_many_first_calls_start_one_server(log: Path) -> None:
    async def work() -> None:
        async with transport() as made:
            tool = raw(log=log)
            await asyncio.gather(*(call(made, tool) for _ in range(10)))

    finished(work)
    assert len(lines(log, "start")) == 1


@pytest.mark.parametrize("mode", ["good", "stubborn", "deaf", "family", "close-stdout"])
def test_nothing_of_a_server_survives(mode: str, log: Path) -> None:
    answer(raw(mode, log))
    assert list(survivors(log)) == []


def test_a_server_with_a_banner_works_and_the_banner_is_in_the_log() -> None:
    found = answer(raw("banner"))
    assert (found.failure, "Welcome" in found.stderr) == (None, True)


def test_the_sdk_speaks_the_current_protocol_with_a_server_of_the_sdk(tmp_path: Path) -> None:
    file = tmp_path / "notes"
    tool = mcp_tool(
        SDK,
        action={"mcp_tool": "note"},
        outputs={"result": {"type": "string"}},
        contract={"inputs": {"word": {}, "file": {}}},
    )

    async def work() -> tuple[ToolAnswer, str]:
        async with transport() as made:
            found = await call(made, tool, {"word": "日本 😀", "file": str(file)})
            [session] = made._sessions
            return found, session.protocol

    found, protocol = finished(work)
    assert (found.outputs, protocol) == ({"result": "noted 日本 😀"}, "2026-07-28")
    assert file.read_text() == "日本 😀\n"


# --- restarts


@pytest.mark.parametrize(
    ("mode", "contract", "kind", "calls", "starts"),
    [
        pytest.param("die-once", {}, None, 2, 2, id="an idempotent call is made again, once"),
        pytest.param("die", {}, "transport", 2, 2, id="and only once"),
        pytest.param("die-once", NOT_IDEMPOTENT, "unknown_outcome", 1, 1, id="a call that may have happened is not"),
        pytest.param("exit", {}, "transport", 0, 2, id="a server that does not start is tried twice"),
        pytest.param("exit", NOT_IDEMPOTENT, "transport", 0, 2, id="also for a call that was never made"),
    ],
)
def test_restarts(mode: str, contract: Any, kind: str | None, calls: int, starts: int, log: Path) -> None:
    found = answer(raw(mode, log, contract=contract))
    assert (found.failure.kind if found.failure else None) == kind
    assert (len(lines(log, "call")), len(lines(log, "start"))) == (calls, starts)
    assert list(survivors(log)) == []


def test_a_server_that_died_between_calls_is_started_again(log: Path) -> None:
    async def work() -> ToolAnswer:
        async with transport() as made:
            tool = raw(log=log, contract=NOT_IDEMPOTENT)
            await call(made, tool)
            os.kill(int(lines(log, "start")[0]), 9)
            while next(iter(made._sessions)).is_usable:
                await asyncio.sleep(0.005)
            return await call(made, tool)

    found = finished(work)
    assert (found.failure, len(lines(log, "start")), len(lines(log, "call"))) == (None, 2, 2)


def test_the_reason_of_an_exit_is_what_the_server_printed_last(log: Path) -> None:
    found = answer(raw("exit", log))
    failed(found, "transport", "the server of `t` exited with 3: no configuration found")
    assert "no configuration found" in found.stderr


# --- changes since the import


def imported(tool: str = "do", **parts: str) -> dict[str, Any]:
    return {"tools": {tool: dict.fromkeys(("inputs", "outputs", "annotations"), f"sha256:{'0' * 64}") | parts}}


def digests() -> dict[str, str]:
    """What the raw server lists, as an import records it."""

    async def work() -> dict[str, str]:
        async with transport() as made:
            await call(made, raw())
            [session] = made._sessions
            found: dict[str, str] = session.tools["do"].digests()
            return found

    return finished(work)


def test_a_tool_that_differs_from_its_import_is_refused(log: Path) -> None:
    found = answer(raw(log=log, imported=imported()))
    failed(
        found, "contract_violation", "`do` changed since it was imported: its input schema", "gert tool import --mcp"
    )
    assert lines(log, "call") == []


def test_a_tool_that_is_gone_is_refused() -> None:
    found = answer(raw(action={"mcp_tool": "gone"}, imported=imported("gone")))
    failed(found, "contract_violation", "the server no longer has the tool `gone`")


def test_a_tool_that_was_never_there_is_an_error() -> None:
    failed(answer(raw(action={"mcp_tool": "gone"})), "transport", "the server of `t` has no tool `gone`")


@pytest.mark.parametrize("mode", ["changing", "changing-silently"])
def test_a_list_that_changes_is_noticed(mode: str, log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = raw(mode, log, imported=imported(**digests()))

    async def work() -> list[ToolAnswer]:
        async with transport() as made:
            first = await call(made, tool)
            if mode == "changing-silently":
                monkeypatch.setattr(session_module, "LIST_SECONDS", -1.0)
            else:
                await asyncio.sleep(0.05)
            return [first, await call(made, tool)]

    first, second = finished(work)
    assert first.failure is None
    failed(second, "contract_violation", "its annotations")
    assert len(lines(log, "call")) == 1


# --- arguments and secrets


def test_arguments_have_the_names_of_the_server() -> None:
    tool = raw(action={"mcp_arguments": {"file_path": "file-path"}}, outputs=ANY)
    found = answer(tool, {"file_path": "/tmp", "text": ["a", {"b": 1.5}], "none": None})
    assert found.outputs["arguments"] == {"file-path": "/tmp", "text": ["a", {"b": 1.5}], "none": None}


def test_a_secret_input_reaches_the_server_and_nothing_else() -> None:
    shown: list[str] = []
    found = answer(
        raw(outputs=ANY),
        {"text": f"Bearer {secret_ref('token')}"},
        secrets={"token": "s3cr3t-value"},
        shown=lambda path, stream, text: shown.append(f"{path} {stream} {text}"),
    )
    assert found.outputs["arguments"] == {"text": "Bearer [REDACTED]"}
    assert "s3cr3t" not in repr(found) + repr(shown)
    assert found.redacted > 0
    assert "steps/0 stderr called with" in "".join(shown)


def test_a_secret_that_was_cut_is_refused() -> None:
    found = answer(raw(), {"text": secret_ref("token")[:-1]}, secrets={"token": "s3cr3t"})
    failed(found, "invalid_input", "a secret can only be passed whole")


def test_a_server_gets_neither_keys_of_gert_nor_secrets_of_others() -> None:
    tool = raw("env", secrets=[{"env": "MINE"}], outputs={"env": {"type": "string"}})
    environment = {"MINE": "m1ne-value", "THEIRS": "th31rs", "GERT_TRACE_SIGNING_KEY": "k3y", "OTHER": "fine"}
    found = answer(tool, environment=environment, withheld=frozenset({"MINE", "THEIRS"}))
    names = set(json.loads(found.outputs["env"]))
    assert {"MINE", "OTHER"} <= names
    assert not names & {"THEIRS", "GERT_TRACE_SIGNING_KEY"}


def test_a_missing_secret_starts_nothing(log: Path) -> None:
    failed(answer(raw(log=log, secrets=[{"env": "MISSING"}])), "missing_secret", "requires secret `MISSING`")
    assert not log.exists()


def test_a_program_that_is_not_there_is_named() -> None:
    failed(answer(mcp_tool(["no-such-server"])), "not_found", "`no-such-server` was not found on PATH")


def test_a_call_that_is_too_large_is_refused_before_it_is_sent(log: Path) -> None:
    failed(answer(raw(log=log), {"text": "x" * 2_000_000}), "invalid_input", "more than the limit of 1048576")
    assert lines(log, "call") == []


# --- approvals


def approved(tool: Tool, program: str) -> Any:
    request: dict[str, Any] = dict.fromkeys(ApprovalRequest.__struct_fields__)
    request |= {"program": program, "target": "t:do"}
    return asked(tool, approval=ApprovalRequest(**request)).approval


def test_an_approval_covers_the_program_of_the_server(log: Path) -> None:
    tool = raw(log=log)

    async def work() -> list[ToolAnswer]:
        async with transport() as made:
            here = made.locate(tool, tool.actions["do"], {})
            assert here is not None
            return [
                await call(made, tool, approval=approved(tool, program)) for program in (here.program, "/bin/other")
            ]

    right, wrong = finished(work)
    assert right.failure is None
    failed(wrong, "approval_outdated", "was found at `/bin/other` when approval was requested")
    assert len(lines(log, "call")) == 1


# --- previews


def test_a_preview_calls_its_own_tool_with_the_arguments_it_takes(log: Path) -> None:
    tool = raw(
        log=log,
        action={"preview": {"mcp_tool": "plan"}, "mcp_arguments": {"path": "file-path"}},
        contract={**NOT_IDEMPOTENT, "inputs": {"path": {}, "text": {}, "force": {}}},
    )

    async def work() -> ToolAnswer:
        async with transport() as made:
            return await call(made, tool, {"path": "/x", "force": True}, preview=True)

    found = finished(work)
    assert (found.failure, json.loads(found.stdout)) == (None, {"file-path": "/x"})


# --- cancellation


def test_a_cancelled_call_says_what_the_server_printed_and_the_server_goes_on(log: Path) -> None:
    async def work() -> tuple[ToolAnswer, ToolAnswer]:
        async with transport() as made:
            silent = raw("silent-once", log)
            pending = asyncio.create_task(call(made, silent))
            while not lines(log, "call"):
                await asyncio.sleep(0.01)
            pending.cancel()
            with pytest.raises(Interrupted) as cut:
                await pending
            return cut.value.answer, await call(made, silent)

    cut, after = finished(work)
    assert cut.failure is not None
    assert (cut.failure.kind, after.failure, len(lines(log, "start"))) == ("cancelled", None, 1)
    assert list(survivors(log)) == []


def test_cancelling_a_connection_attempt_leaves_no_process(log: Path) -> None:
    async def work() -> None:
        async with transport() as made:
            pending = asyncio.create_task(call(made, raw("silent", log)))
            while not lines(log, "start"):
                await asyncio.sleep(0.01)
            pending.cancel()
            with pytest.raises(Interrupted):
                await pending

    finished(work)
    assert list(survivors(log)) == []


def test_killing_all_fails_what_is_under_way(log: Path) -> None:
    async def work() -> ToolAnswer:
        async with transport() as made:
            pending = asyncio.create_task(call(made, raw("silent-call", log, contract=NOT_IDEMPOTENT)))
            while not lines(log, "call"):
                await asyncio.sleep(0.01)
            made.kill_all()
            return await pending

    failed(finished(work), "unknown_outcome", "was killed by signal 9")
    assert list(survivors(log)) == []


def test_no_call_is_made_after_the_end_of_the_run(log: Path) -> None:
    async def work() -> ToolAnswer:
        async with transport() as made:
            await made.close()
            return await call(made, raw(log=log))

    failed(finished(work), "transport", "was stopped")
    assert not log.exists()


def test_the_sdk_is_loaded_only_with_a_server() -> None:
    code = (
        "import sys, gert.ecosystem.host.run.execute, gert.ecosystem.host.tools.check_tools;"
        "import gert.ecosystem.surfaces.cli.commands.tools.tool; print(sorted({'mcp', 'anyio'} & set(sys.modules)))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"
