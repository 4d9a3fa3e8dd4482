"""A runner that misbehaves makes its step fail with a reason, in bounded time, and leaves no process and no descriptor.

One run calls all of them at the same time; each row says what became of one step.
"""

import asyncio
import gc
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.ecosystem.rpc.children import runs

from gert.ecosystem.host.run.execute import execute
from gert.ecosystem.host.run.options import RunOptions

PEER = Path(__file__).with_name("fault_peer.py")
BROKE = "broke the protocol: "
TIMEOUT = "no answer within 1s"

FAULTS: dict[str, tuple[str, str]] = {
    # At the start.
    "exits-at-once": ("error", "exited with 0"),
    "greets-unasked": ("error", BROKE + "it answered a request that was not made (id `5`)"),
    "silent-at-initialize": ("error", TIMEOUT),
    "refuses-initialize": ("error", "refused `initialize` (-32000): not today"),
    "greets-with-a-list": ("error", BROKE + "`initialize`: expected an object"),
    "greets-without-capabilities": ("error", BROKE + "`initialize`: expected `capabilities` to be an object"),
    "another-version": ("error", "expected `protocol_version` to be `1`, found `2`"),
    "nobody": ("error", "expected the kind of a principal to be system | human | agent, found `robot`"),
    # Lines that are no messages.
    "garbage": ("error", BROKE + "the text is not JSON at character 0"),
    "not-utf8": ("error", BROKE + "the line is not UTF-8"),
    "a-batch": ("error", BROKE + "the line is a batch"),
    "no-version": ("error", BROKE + 'the message has no `"jsonrpc": "2.0"`'),
    "duplicate-keys": ("error", BROKE + "the key `id` occurs twice"),
    "nan": ("error", BROKE + "`NaN` is not a JSON number"),
    "deep-nesting": ("error", "nested too deeply"),
    "a-giant-line": ("error", BROKE + "a line is longer than 16777216 bytes"),
    "half-a-line": ("error", TIMEOUT),
    "half-a-line-and-exits": ("error", "exited with 0"),
    # Answers that are none.
    "no-id": ("error", BROKE + "the answer has no valid `id`"),
    "null-id": ("error", BROKE + "it answered no request: cannot read that"),
    "wrong-id": ("error", BROKE + "it answered a request that was not made (id `992`)"),
    "text-id": ("error", BROKE + "it answered a request that was not made (id `2`)"),
    "another-answer-first": ("error", BROKE + "it answered a request that was not made (id `772`)"),
    "result-and-error": ("error", BROKE + "an answer has either `result` or `error`"),
    "neither-result-nor-error": ("error", BROKE + "an answer has either `result` or `error`"),
    "error-is-text": ("error", BROKE + "`error` is not an object"),
    "error-without-code": ("error", BROKE + "`error` has no `code`"),
    "error-code-is-true": ("error", BROKE + "`error` has no `code`"),
    "result-is-a-list": ("error", BROKE + "`execute`: expected an object with `outputs`"),
    "result-is-null": ("error", BROKE + "`execute`: expected an object with `outputs`"),
    "outputs-are-a-list": ("error", BROKE + "`execute`: expected `outputs` to be an object"),
    "outputs-without-end": ("error", BROKE + "`execute`: expected at most 1000 outputs, found 1001"),
    "exit-code-is-huge": ("error", BROKE + "`execute`: expected `exit_code` to be a whole number"),
    "exit-code-is-text": ("error", BROKE + "`execute`: expected `exit_code` to be a whole number"),
    "stderr-is-a-number": ("error", BROKE + "`execute`: expected `stderr` to be text"),
    "a-lone-surrogate": ("error", "the answer is not plain data"),
    "more-than-fits-an-event": ("error", "the answer is too large"),
    # Processes.
    "silent": ("error", TIMEOUT),
    "ignores-sigterm": ("error", TIMEOUT),
    "floods": ("error", BROKE + "it sent 100000 messages without an answer"),
    "floods-stderr": ("error", TIMEOUT),
    "exits": ("error", "exited with 1: the disk is full"),
    "kills-itself": ("error", "was killed by signal 9"),
    "closes-stdout": ("error", "closed its standard output"),
    "closes-stdin": ("error", "closed its standard input"),
    "leaves-the-pipe-to-a-grandchild": ("error", "exited with 4"),
    # What a runner may do.
    "an-error-object": ("failed", "answered with an error (7): no \N{REPLACEMENT CHARACTER}[31mway"),
    "reports-a-failure": ("failed", "exited with 3: the disk is full"),
    "asks-back": ("success", "-32601"),
    "empty-lines": ("success", "hello"),
    "answers-twice": ("success", "hello"),
    "leaves-a-grandchild": ("success", "hello"),
    "ignores-shutdown": ("success", "hello"),
    "writes-after-shutdown": ("success", "hello"),
}


def step(fault: str) -> dict[str, Any]:
    return {
        "id": fault,
        "type": "extension",
        "extension": f"./{fault}",
        "scope": fault,
        "timeout": "1s" if FAULTS[fault][1] == TIMEOUT else "30s",
        "continue_on_fail": True,
        "contract": {"effects": [], "outputs": {"said": {"type": "string"}}},
    }


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What became of every step, and what was left behind."""
    folder = tmp_path_factory.mktemp("faults")
    (folder / "pids").mkdir()
    source = PEER.read_text().replace("#!/usr/bin/env -S python3 -I -S", f"#!{sys.executable} -IS")
    (folder / "peer").write_text(source)
    (folder / "peer").chmod(0o755)
    for fault in FAULTS:
        (folder / fault).symlink_to("peer")
    lanes = [{"steps": [step(fault)]} for fault in FAULTS]
    end = {"type": "end", "outcome": {"category": "resolved", "code": "done"}}
    book = {
        "apiVersion": "kernel/v0",
        "meta": {"name": "faults", "governance": {"rules": [{"default": "allow"}]}},
        "steps": [{"id": "all", "type": "parallel", "branches": lanes}, end],
    }
    (folder / "book.yaml").write_text(json.dumps(book))
    before = descriptors()
    asyncio.run(drive(folder))
    gc.collect()
    after = descriptors()
    events = [json.loads(line) for line in (folder / "trace.jsonl").read_text().splitlines()]
    steps = {each["data"]["step_id"]: each["data"] for each in events if each["type"] == "step_complete"}
    pids = [int(name) for name in os.listdir(folder / "pids")]
    return {"steps": steps, "pids": pids, "fds": {fd: after[fd] for fd in after.keys() - before.keys()}}


async def drive(folder: Path) -> None:
    options = RunOptions(
        file=str(folder / "book.yaml"),
        trace=str(folder / "trace.jsonl"),
        state_dir=str(folder / "state"),
        max_parallel=len(FAULTS),
    )
    async with asyncio.timeout(60):
        await execute(options, environ={"PATH": os.environ["PATH"]})


def descriptors() -> dict[int, str]:
    found = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            found[int(name)] = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            continue
    return {fd: target for fd, target in found.items() if "pipe:" in target or "pidfd" in target}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_gives_the_right_result(ran: dict[str, Any], fault: str) -> None:
    status, said = FAULTS[fault]
    found = ran["steps"][fault]
    assert found["status"] == status, found
    if status == "success":
        assert found["outputs"] == {"said": said}
    else:
        assert said in found["failure"]["message"]
        assert found["failure"]["message"].isprintable()


def test_no_process_survives(ran: dict[str, Any]) -> None:
    assert len(ran["pids"]) >= len(FAULTS)
    assert [pid for pid in ran["pids"] if runs(pid)] == []


def test_no_descriptor_is_left_open(ran: dict[str, Any]) -> None:
    assert ran["fds"] == {}
