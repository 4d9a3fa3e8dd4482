"""Calls to a child over its pipes: correlated, concurrent, cancelled, limited in time and size."""

import asyncio
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from tests.ecosystem.rpc.children import ECHO, runs, server, with_servers

from gert.ecosystem.rpc import Peer, Servers
from gert.errors import InputError, RpcFault, RpcLost, RpcTimeout

REVERSED = (
    """
asked = [read() for _ in range(3)]
for m in reversed(asked): answer(m, m['params'])
"""
    + ECHO
)


def test_answers_reach_their_calls_in_any_order() -> None:
    async def work(servers: Servers) -> list[Any]:
        one = server(REVERSED)
        return [each.result for each in await asyncio.gather(*(servers.call(one, "m", {"n": n}) for n in range(3)))]

    assert with_servers(work) == [{"n": 0}, {"n": 1}, {"n": 2}]


def test_a_server_is_started_once_and_greeted_once() -> None:
    async def work(servers: Servers) -> None:
        one = server(
            "while True:\n    m = read()\n    answer(m, [os.getpid(), m['method']])\n",
            greet=lambda peer: peer.call("initialize", {"protocol_version": "1"}),
        )
        first, second = await servers.call(one, "a"), await servers.call(one, "b")
        assert first.greeting == second.greeting == [first.result[0], "initialize"]
        assert (first.result[0], second.result[1]) == (second.result[0], "b")

    with_servers(work)


def test_another_program_of_the_same_name_does_not_serve_the_call(tmp_path: Path) -> None:
    # An approval binds the program: the one that runs already must not answer for it.
    (tmp_path / "python").symlink_to(sys.executable)
    first = server("while True:\n    m = read()\n    answer(m, os.getpid())\n")
    second = replace(first, command=replace(first.command, program=str(tmp_path / "python")))

    async def work(servers: Servers) -> list[Any]:
        return [(await servers.call(each, "pid")).result for each in (first, first, second)]

    one, again, other = with_servers(work)
    assert one == again != other


def test_an_error_object_is_a_fault_with_its_code_and_data() -> None:
    async def work(servers: Servers) -> None:
        one = server(
            "m = read(); write(id=m['id'], error={'code': 7, 'message': 'no\\n\\x1b[31m', 'data': {'a': 1}})\n" + ECHO
        )
        with pytest.raises(RpcFault) as fault:
            await servers.call(one, "m")
        assert (fault.value.code, fault.value.data) == (7, {"a": 1})
        assert fault.value.message.isprintable()
        assert (await servers.call(one, "m", {"still": "alive"})).result == {"still": "alive"}

    with_servers(work)


def test_large_messages_pass_both_ways_and_too_large_ones_are_refused() -> None:
    async def work(servers: Servers) -> None:
        one = server(ECHO, limit=4 * 1024 * 1024)
        text = "ä" * 512 * 1024
        assert (await servers.call(one, "m", [text])).result == [text]
        with pytest.raises(InputError, match="more than the limit"):
            await servers.call(one, "m", ["x" * 5 * 1024 * 1024])
        assert (await servers.call(one, "m", [1])).result == [1]

    with_servers(work)


def test_a_late_answer_is_dropped_and_the_server_is_used_again() -> None:
    async def work(servers: Servers) -> None:
        one = server(
            "m = read(); c = read(); answer(m, [c['method'], c['params']['id'] == m['id']])\n"
            "m = read(); answer(m, os.getpid())\n" + ECHO,
            grace=5.0,
        )
        with pytest.raises(RpcTimeout, match=r"did not answer `m` within 100ms"):
            await servers.call(one, "m", timeout=0.1)
        assert isinstance((await servers.call(one, "m")).result, int)

    with_servers(work)


def test_a_server_that_ignores_a_cancellation_is_ended_after_its_other_calls() -> None:
    async def work(servers: Servers) -> None:
        one = server(
            "a = read()\nif a['method'] == 'm': answer(a, [1])\n"
            "b = read(); c = read(); time.sleep(0.4); answer(b, os.getpid())\n" + ECHO,
            grace=0.1,
        )
        stuck = asyncio.create_task(servers.call(one, "a"))
        other = asyncio.create_task(servers.call(one, "b"))
        await asyncio.sleep(0.05)
        stuck.cancel()
        with pytest.raises(asyncio.CancelledError):
            await stuck
        pid = (await other).result
        assert not runs(pid)
        assert (await servers.call(one, "m", [1])).result == [1]

    with_servers(work)


def test_a_crash_is_reported_with_its_last_words_and_the_server_is_started_again_once() -> None:
    async def work(servers: Servers) -> None:
        one = server("read(); print('token hunter2', file=sys.stderr); sys.exit(3)", hides=("hunter2",))
        for _ in range(2):
            with pytest.raises(RpcLost, match=r"the server `s` exited with 3: token \[REDACTED\]$") as lost:
                await servers.call(one, "m")
            assert lost.value.sent
        with pytest.raises(RpcLost, match="crashed twice in a row") as refused:
            await servers.call(one, "m")
        assert not refused.value.sent

    with_servers(work)


def test_an_answer_between_two_crashes_allows_another_start(tmp_path: Any) -> None:
    async def work(servers: Servers) -> None:
        one = server("m = read(); answer(m, 1); read(); sys.exit(1)")
        for _ in range(3):
            assert (await servers.call(one, "m")).result == 1
            with pytest.raises(RpcLost):
                await servers.call(one, "m")

    with_servers(work)


@pytest.mark.parametrize("retries", [pytest.param(True, id="idempotent"), pytest.param(False, id="not idempotent")])
def test_only_a_call_that_may_happen_twice_is_retried(tmp_path: Any, retries: bool) -> None:
    log = tmp_path / "calls"

    async def work(servers: Servers) -> None:
        code = f"m = read(); n = len(open({str(log)!r}, 'a+b').read()); open({str(log)!r}, 'a').write('x')\n"
        one = server(code + f"if os.path.getsize({str(log)!r}) == 1: sys.exit(1)\nanswer(m, 'second')\n" + ECHO)
        if retries:
            assert (await servers.call(one, "m", retries=True)).result == "second"
        else:
            with pytest.raises(RpcLost, match="exited with 1"):
                await servers.call(one, "m", retries=False)

    with_servers(work)
    assert log.read_text() == ("xx" if retries else "x")


def test_standard_error_belongs_to_the_call_that_it_came_with_and_is_redacted() -> None:
    async def work(servers: Servers) -> None:
        shown: list[str] = []
        code = (
            "while True:\n"
            "    m = read(); print(m['params'][0], file=sys.stderr, flush=True); time.sleep(0.05); answer(m, 1)\n"
        )
        one = server(code, hides=("hunter2",), on_stderr=shown.append)
        assert (await servers.call(one, "m", ["first"])).stderr.strip() == "first"
        assert (await servers.call(one, "m", ["pass hunter2"])).stderr.strip() == "pass [REDACTED]"
        await servers.close()
        assert "".join(shown).split("\n") == ["first", "pass [REDACTED]", ""]

    with_servers(work)


def test_requests_and_notifications_of_the_server_are_handled() -> None:
    async def work(servers: Servers) -> None:
        heard: list[Any] = []
        code = (
            "m = read(); write(method='progress', params={'done': 1}); write(id='q', method='ask', params=[1])\n"
            "a = read(); write(id='r', method='other'); b = read(); answer(m, [a['result'], b['error']['code']])\n"
        )

        async def ask(params: Any) -> Any:
            return {"asked": params}

        one = server(code, handlers={"ask": ask}, on_notification=lambda method, params: heard.append((method, params)))
        assert (await servers.call(one, "m")).result == [{"asked": [1]}, -32601]
        assert heard == [("progress", {"done": 1})]

    with_servers(work)


def test_a_server_is_told_to_shut_down_and_its_descendants_are_ended(tmp_path: Any) -> None:
    told = tmp_path / "told"

    async def work(servers: Servers) -> int:
        code = (
            "import subprocess\n"
            "child = subprocess.Popen(['sleep', '60'], start_new_session=True)\n"
            "m = read(); answer(m, child.pid)\n"
            f"m = read(); open({str(told)!r}, 'w').write(m['method']); answer(m, None)\n"
        )
        return int((await servers.call(server(code, farewell="shutdown"), "m")).result)

    pid = with_servers(work)
    assert told.read_text() == "shutdown"
    assert not runs(pid)


def test_a_program_that_cannot_be_started_was_not_called() -> None:
    async def work(servers: Servers) -> None:
        one = server(ECHO)
        command = msgspec.structs.replace(one.command, program="/nowhere/at/all")
        with pytest.raises(RpcLost, match="cannot be started: `server`: no such file") as lost:
            await servers.call(msgspec.structs.replace(one, command=command), "m")
        assert not lost.value.sent

    with_servers(work)


def test_a_closed_pool_starts_nothing() -> None:
    async def work(servers: Servers) -> None:
        await servers.close()
        with pytest.raises(RpcLost, match="was stopped"):
            await servers.call(server(ECHO), "m")

    with_servers(work)


LENIENT = [
    pytest.param(b"garbage\n", -32700, id="a line that is not JSON"),
    pytest.param(b'{"jsonrpc":"2.0","id":1,"method":"m","id":2}\n', -32700, id="a duplicate key"),
    pytest.param(b'{"jsonrpc":"2.0","id":1,"method":"m","params":[NaN]}\n', -32700, id="NaN"),
    pytest.param(b"\xff\xfe\n", -32700, id="a line that is not UTF-8"),
    pytest.param(b"[" * 5000 + b"]" * 5000 + b"\n", -32700, id="deep nesting"),
    pytest.param(b"[]\n", -32600, id="a batch"),
    pytest.param(b'{"id":1,"method":"m"}\n', -32600, id="no version"),
    pytest.param(b'{"jsonrpc":"2.0","id":1,"method":7}\n', -32600, id="a method that is no text"),
    pytest.param(b'{"jsonrpc":"2.0","id":1.5,"method":"m"}\n', -32600, id="an id with a fraction"),
    pytest.param(b'{"jsonrpc":"2.0","id":1,"method":"m","params":"x"}\n', -32600, id="params that are text"),
    pytest.param(b'{"jsonrpc":"2.0","id":1,"method":"nope"}\n', -32601, id="an unknown method"),
    pytest.param(b'{"jsonrpc":"2.0","id":1,"method":"bug"}\n', -32603, id="a handler with a bug"),
    pytest.param(b'{"jsonrpc":"2.0","id":1,"method":"refuse"}\n', 9, id="a handler that refuses"),
    pytest.param(b"x" * 200_000 + b"\n", -32600, id="a line that is too long"),
]


@pytest.mark.parametrize(("line", "code"), LENIENT)
def test_a_serving_peer_answers_bad_lines_with_an_error(line: bytes, code: int, capsys: Any) -> None:
    def bug(params: Any) -> Any:
        raise KeyError("x")

    def refuse(params: Any) -> Any:
        raise RpcFault("no", code=9)

    async def work() -> list[bytes]:
        sent: list[bytes] = []
        handlers = {"bug": bug, "refuse": refuse}

        def send(data: bytes) -> bool:
            sent.append(data)
            return True

        peer = Peer("the client", send, handlers=handlers, is_strict=False, limit=100_000)
        for at in range(0, len(line), 7000):
            peer.feed(line[at : at + 7000])
        await asyncio.sleep(0.01)
        return sent

    (reply,) = asyncio.run(work())
    assert msgspec.json.decode(reply)["error"]["code"] == code


def test_a_bad_line_is_masked_before_it_is_cut() -> None:
    async def work() -> None:
        peer = Peer("the server", lambda _: True, mask=lambda text: text.replace("hunter2hunter2", "[REDACTED]"))
        peer.feed(b"n" * 67 + b"hunter2hunter2\n")
        assert peer.lost is not None
        assert "hunter" not in peer.lost.message

    asyncio.run(work())
