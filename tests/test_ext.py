"""`gert.ext`: a runner in ten lines, and what it does with what the lines do."""

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.ecosystem.rpc.children import ECHO, runs, server, with_servers

from gert.ecosystem.rpc import Servers
from gert.ecosystem.tools.extension import initialize
from gert.errors import InputError, RpcFault, RpcLost, RpcTimeout
from gert.ext import run

RUNNER = """
import os, sys, subprocess, time
from gert.ext import Failed, Step, run

def execute(step: Step) -> dict:
    do = step.inputs["do"]
    if do == "echo": return {"said": [step.inputs, step.vars, step.contract]}
    if do == "print": print("to people"); return None
    if do == "child": subprocess.run(["sh", "-c", "echo from a child; cat"], check=True); return {}
    if do == "fail": raise Failed("no disk", exit_code=3, outputs={"said": "partly"})
    if do == "bug": raise KeyError("x")
    if do == "list": return [1]
    if do == "nan": return {"said": float("nan")}
    if do == "pid": return {"said": os.getpid()}
    if do == "long":
        while not step.is_cancelled: time.sleep(0.01)
        return {"said": "stopped"}
    time.sleep(60)

run(execute, principal={"kind": "agent", "id": "tester", "model": "m"})
"""


def runner(tmp_path: Path, source: str = RUNNER, **options: Any) -> Any:
    file = tmp_path / "runner.py"
    file.write_text(source)
    one = server(ECHO, greet=lambda peer: initialize(peer, "the runner"), farewell="shutdown", **options)
    # By the name of a program, Python finds the environment it belongs to.
    command = msgspec.structs.replace(one.command, name=sys.executable, arguments=(str(file),))
    return msgspec.structs.replace(one, command=command)


def test_a_runner_answers_and_its_output_stays_out_of_the_protocol(tmp_path: Path) -> None:
    async def work(servers: Servers) -> None:
        one = runner(tmp_path)

        async def execute(do: str) -> Any:
            return await servers.call(one, "execute", {"inputs": {"do": do}, "vars": {"a": 1}, "contract": {"b": 2}})

        echoed = await execute("echo")
        assert echoed.result == {
            "outputs": {"said": [{"do": "echo"}, {"a": 1}, {"b": 2}]}, "exit_code": 0, "stderr": ""
        }  # fmt: skip
        assert (echoed.greeting.id, echoed.greeting.model) == ("tester", "m")
        printed = await execute("print")
        assert printed.result == {"outputs": {}, "exit_code": 0, "stderr": ""}
        assert (await execute("child")).result["exit_code"] == 0
        failed = await execute("fail")
        assert failed.result == {"outputs": {"said": "partly"}, "exit_code": 3, "stderr": "no disk\n"}
        for do, code, message in (
            ("bug", -32603, "KeyError: 'x'"),
            ("list", -32000, "expected the runner to return a dictionary of outputs, not a `list`"),
            ("nan", -32000, "an output is not plain data"),
        ):
            with pytest.raises(RpcFault) as fault:
                await execute(do)
            assert (fault.value.code, message in fault.value.message) == (code, True)
        said = servers.stderr(one.name)
        await execute("pid")
        assert said() == ""

    with_servers(work)


def test_what_it_prints_is_on_its_standard_error(tmp_path: Path) -> None:
    async def work(servers: Servers) -> str:
        one, printed = runner(tmp_path), servers.stderr("s")
        for do in ("print", "child"):
            await servers.call(one, "execute", {"inputs": {"do": do}})
        await servers.close()
        return printed()

    assert with_servers(work) == "to people\nfrom a child\n"


def test_a_cancelled_function_can_return_and_the_runner_goes_on(tmp_path: Path) -> None:
    async def work(servers: Servers) -> None:
        one = runner(tmp_path, grace=10.0)
        pid = (await servers.call(one, "execute", {"inputs": {"do": "pid"}})).result["outputs"]["said"]
        with pytest.raises(RpcTimeout):
            await servers.call(one, "execute", {"inputs": {"do": "long"}}, timeout=0.1)
        assert (await servers.call(one, "execute", {"inputs": {"do": "pid"}})).result["outputs"]["said"] == pid

    with_servers(work)


def test_a_function_that_does_not_return_is_not_taken_for_ended(tmp_path: Path) -> None:
    async def work(servers: Servers) -> int:
        one = runner(tmp_path, grace=0.2)
        pid = int((await servers.call(one, "execute", {"inputs": {"do": "pid"}})).result["outputs"]["said"])
        with pytest.raises(RpcTimeout):
            await servers.call(one, "execute", {"inputs": {"do": "sleep"}}, timeout=0.1)
        assert not runs(pid)
        return pid

    with_servers(work)


def test_another_version_of_the_protocol_is_refused(tmp_path: Path) -> None:
    async def work(servers: Servers) -> None:
        one = msgspec.structs.replace(
            runner(tmp_path), greet=lambda peer: peer.call("initialize", {"protocol_version": "2"})
        )
        with pytest.raises(RpcFault, match="speaks protocol version `1`, not `2`"):
            await servers.call(one, "execute", {})

    with_servers(work)


def test_an_asynchronous_function_runs_many_steps_at_once(tmp_path: Path) -> None:
    source = """
import asyncio
from gert.ext import run
waiting = []
async def execute(step):
    waiting.append(asyncio.get_running_loop().create_future())
    if len(waiting) == 3:
        for each in waiting: each.set_result(None)
    await waiting[-1] if len(waiting) < 3 else None
    return {"n": len(waiting)}
run(execute)
"""

    async def work(servers: Servers) -> None:
        one = runner(tmp_path, source)
        answers = await asyncio.gather(*(servers.call(one, "execute", {"inputs": {}}) for _ in range(3)))
        assert [each.result["outputs"] for each in answers] == [{"n": 3}] * 3

    with_servers(work)


def test_an_invalid_principal_is_an_error_of_the_author() -> None:
    with pytest.raises(InputError, match="kind of a principal"):
        run(lambda step: {}, principal={"kind": "robot", "id": "x"})


def test_a_client_that_closes_the_connection_still_gets_its_answers(tmp_path: Path) -> None:
    file = tmp_path / "runner.py"
    file.write_text(RUNNER)
    call = '{"jsonrpc":"2.0","id":1,"method":"execute","params":{"inputs":{"do":"echo"}}}\n'

    async def work() -> tuple[bytes, int | None]:
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            sys.executable, str(file), stdin=pipe, stdout=pipe, env={"PATH": os.environ["PATH"]}
        )
        out, _ = await asyncio.wait_for(process.communicate(call.encode()), 30)
        return out, process.returncode

    out, code = asyncio.run(work())
    assert (b'"id":1' in out, code) == (True, 0)


def test_a_refused_greeting_is_a_lost_runner(tmp_path: Path) -> None:
    async def work(servers: Servers) -> None:
        one = server("m = read(); write(id=m['id'], error={'code': 1, 'message': 'no'})\n" + ECHO)
        one = msgspec.structs.replace(one, greet=lambda peer: initialize(peer, "the runner"))
        with pytest.raises(RpcLost, match=r"the runner refused `initialize` \(1\): no"):
            await servers.call(one, "execute", {})

    with_servers(work)
