"""Extension runners and `jsonrpc` tools as small programs that need nothing but Python."""

import sys
from pathlib import Path
from typing import Any

PROTOCOL = """\
import json, os, sys, time

def serve(execute, greeting=None):
    for line in sys.stdin:
        call = json.loads(line)
        if "id" not in call:
            continue
        answer = {"result": {}}
        if call["method"] == "initialize":
            answer = {"result": greeting or {"capabilities": {}}}
        elif call["method"] == "execute":
            answer = {"result": execute(call["params"])}
        elif call["method"] != "shutdown":
            answer = {"error": {"code": -32601, "message": "unknown method"}}
        print(json.dumps({"jsonrpc": "2.0", "id": call["id"], **answer}), flush=True)
        if call["method"] == "shutdown":
            return
"""


def runner(path: Path, body: str, greeting: dict[str, Any] | None = None) -> Path:
    """A runner whose outputs are what the body returns; it sees `inputs`, `vars`, `contract`."""
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    return program(
        path,
        "def outputs(inputs, vars, contract):\n"
        f"{lines}"
        "def execute(params):\n    return {'outputs': outputs(**params)}\n"
        f"serve(execute, {greeting!r})\n",
    )


def program(path: Path, source: str) -> Path:
    """A program that begins with the protocol."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!{sys.executable} -IS\n{PROTOCOL}{source}")
    path.chmod(0o755)
    return path


def extension(step: str, name: str, **more: Any) -> dict[str, Any]:
    """A step of an extension that has no effects and one output."""
    contract = {"effects": [], "idempotent": True, "outputs": {"said": {"type": "any"}}, **more.pop("contract", {})}
    return {"id": step, "type": "extension", "extension": name, "contract": contract, **more}
