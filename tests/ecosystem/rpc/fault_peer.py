#!/usr/bin/env -S python3 -I -S
"""An extension runner that misbehaves in the way that its file name says; without a fault, it answers properly.

Every process it starts writes its id into the folder `pids` beside it.
"""

import json
import os
import signal
import sys
import time
from typing import Any

FAULT = os.path.basename(sys.argv[0])
PIDS = os.path.join(os.path.dirname(os.path.abspath(sys.argv[0])), "pids")


def note_pid() -> None:
    open(os.path.join(PIDS, str(os.getpid())), "w").close()


def write(data: "bytes | str") -> None:
    data = data.encode() if isinstance(data, str) else data
    while data:
        data = data[os.write(1, data) :]


def message(**fields: object) -> None:
    write(json.dumps({"jsonrpc": "2.0", **fields}) + "\n")


def read() -> Any:
    line = sys.stdin.readline()
    if not line:
        sys.exit(0)
    return json.loads(line)


def forever() -> None:
    while True:
        time.sleep(60)


def grandchild() -> None:
    """Fork a process in a session of its own that holds the pipes."""
    if os.fork() == 0:
        os.setsid()
        note_pid()
        forever()


GREETING: Any = {"capabilities": {}}
GREETINGS: Any = {
    "greets-with-a-list": {"result": []},
    "greets-without-capabilities": {"result": {}},
    "another-version": {"result": {"capabilities": {}, "protocol_version": "2"}},
    "nobody": {"result": {"capabilities": {}, "principal": {"kind": "robot", "id": "x"}}},
    "refuses-initialize": {"error": {"code": -32000, "message": "not today"}},
}
RESULTS: Any = {
    "result-is-a-list": [],
    "result-is-null": None,
    "outputs-are-a-list": {"outputs": []},
    "exit-code-is-text": {"outputs": {}, "exit_code": "0"},
    "exit-code-is-huge": {"outputs": {}, "exit_code": 10**400},
    "outputs-without-end": {"outputs": {f"o{number}": 1 for number in range(1001)}},
    "stderr-is-a-number": {"outputs": {}, "stderr": 7},
    "a-lone-surrogate": {"outputs": {"said": "\ud800"}},
    "more-than-fits-an-event": {"outputs": {"said": "x" * 5_000_000}},
    "reports-a-failure": {"outputs": {}, "exit_code": 3, "stderr": "first\nthe disk is full\n"},
}
ERRORS: Any = {
    "error-is-text": "no",
    "error-without-code": {"message": "no"},
    "error-code-is-true": {"code": True, "message": "no"},
    "an-error-object": {"code": 7, "message": "no \x1b[31mway"},
}
OK = '{"jsonrpc":"2.0","id":%d,"result":{"outputs":{"said":"hello"}}}\n'
LINES: Any = {
    "garbage": "hello there\n",
    "not-utf8": b'{"jsonrpc":"2.0","id":%d,"result":{"outputs":{"said":"\xff"}}}\n',
    "a-batch": "[" + OK.strip() + "]\n",
    "no-version": '{"id":%d,"result":{"outputs":{}}}\n',
    "no-id": '{"jsonrpc":"2.0","result":{"outputs":{}}}\n',
    "null-id": '{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"cannot read that"}}\n',
    "wrong-id": OK.replace("%d", "99%d"),
    "text-id": OK.replace("%d", '"%d"'),
    "another-answer-first": OK.replace("%d", "77%d") + OK,
    "duplicate-keys": '{"jsonrpc":"2.0","id":%d,"result":{"outputs":{}},"id":1}\n',
    "nan": '{"jsonrpc":"2.0","id":%d,"result":{"outputs":{"said":NaN}}}\n',
    "deep-nesting": '{"jsonrpc":"2.0","id":%d,"result":' + "[" * 100_000 + "]" * 100_000 + "}\n",
    "result-and-error": '{"jsonrpc":"2.0","id":%d,"result":{},"error":{"code":1,"message":"x"}}\n',
    "neither-result-nor-error": '{"jsonrpc":"2.0","id":%d}\n',
    "a-giant-line": "x" * (17 * 1024 * 1024),
    "half-a-line": '{"jsonrpc":"2.0","id":%d,"resu',
    "answers-twice": OK + OK,
    "empty-lines": "\n\r\n  \n" + OK,
}


def misbehave(number: int) -> None:
    """Answer `execute`."""
    if FAULT in RESULTS:
        message(id=number, result=RESULTS[FAULT])
    elif FAULT in ERRORS:
        message(id=number, error=ERRORS[FAULT])
    elif FAULT in LINES:
        line = LINES[FAULT]
        data = line if isinstance(line, bytes) else line.encode()
        write(data.replace(b"%d", str(number).encode()))
    elif FAULT == "exits":
        sys.stderr.write("the disk is full\n")
        sys.exit(1)
    elif FAULT == "half-a-line-and-exits":
        write('{"jsonrpc":"2.0"')
        sys.exit(0)
    elif FAULT == "kills-itself":
        os.kill(os.getpid(), signal.SIGKILL)
    elif FAULT == "floods":
        while True:
            write(b'{"jsonrpc":"2.0","method":"x"}\n' * 1000)
    elif FAULT == "floods-stderr":
        while True:
            os.write(2, b"noise " * 10_000 + b"\n")
            time.sleep(0.005)
    elif FAULT == "closes-stdout":
        os.close(1)
        forever()
    elif FAULT == "leaves-the-pipe-to-a-grandchild":
        grandchild()
        os._exit(4)
    elif FAULT == "asks-back":
        message(id="q", method="sampling", params={})
        refusal = read()
        message(id=number, result={"outputs": {"said": str(refusal["error"]["code"])}})
    elif FAULT in ("silent", "ignores-sigterm"):
        forever()
    else:
        message(id=number, result={"outputs": {"said": "hello"}})


def main() -> None:
    note_pid()
    if FAULT == "exits-at-once":
        sys.exit(0)
    if FAULT == "ignores-sigterm":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if FAULT == "leaves-a-grandchild":
        grandchild()
    if FAULT == "greets-unasked":
        message(id=5, result=GREETING)
    request = read()
    if FAULT == "silent-at-initialize":
        forever()
    message(id=request["id"], **GREETINGS.get(FAULT, {"result": GREETING}))
    if FAULT == "closes-stdin":
        os.close(0)
        forever()
    while True:
        request = read()
        if request["method"] == "shutdown":
            break
        if request["method"] == "execute":
            misbehave(request["id"])
    if FAULT == "ignores-shutdown":
        forever()
    message(id=request["id"], result={})
    if FAULT == "writes-after-shutdown":
        for _ in range(2000):
            write("more\n" * 100)


main()
