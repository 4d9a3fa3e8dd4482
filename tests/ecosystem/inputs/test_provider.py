"""Providers: one call for all inputs, plain values back, and nothing left of a program that misbehaves."""

import asyncio
import json
import os
import sys
import tomllib
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.ecosystem.rpc.children import PRELUDE, runs

from gert.ecosystem.host.config.providers import Provider, provider_resolver
from gert.ecosystem.host.embedding.promises import Promise
from gert.ecosystem.host.embedding.promises.inputs import ResolverCase, resolver_promises
from gert.ecosystem.inputs.provider import MAX_ANSWER, ProviderResolver
from gert.ecosystem.process.descendants import MARK
from gert.kernel.engine.inputs import BatchAnswer, InputBinding
from gert.kernel.foundation.redaction import Redactor
from gert.kernel.governance.parameter import Parameter
from gert.kernel.runbook.documents.project import ProviderBlock

SECRET = "correct-horse-battery"


def binding(name: str, path: str = "", **parameter: Any) -> InputBinding:
    path = path or f"server.{name}"
    return InputBinding(name=name, source=f"provider/cmdb.{path}", path=path, parameter=Parameter(**parameter))


HOST = binding("host", type="string")


class Shop:
    """Makes providers of a few lines of Python."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.noted = folder / "noted"

    def provider(self, code: str, *, timeout: str | None = "10s", **block: Any) -> Provider:
        program = self.folder / "provider.py"
        program.write_text(f"#!{sys.executable} -SE\n{PRELUDE}\nnoted = {str(self.noted)!r}\n{code}\n")
        program.chmod(0o755)
        fields: dict[str, Any] = {"binary": "./provider.py", "timeout": timeout, **block}
        return Provider("cmdb", ProviderBlock(**fields), str(self.folder / "gert-project.yaml"))

    def resolver(self, code: str, environ: dict[str, str] | None = None, **block: Any) -> ProviderResolver:
        provider = self.provider(code, **block)
        hidden = Redactor([SECRET])
        return provider_resolver(provider, {**os.environ, **(environ or {})}, ["OTHER_TOKEN"], lambda: hidden)

    def ask(self, code: str, *bindings: InputBinding, **options: Any) -> BatchAnswer:
        return asyncio.run(self.resolver(code, **options).resolve(bindings or (HOST,)))

    def notes(self) -> list[Any]:
        return [json.loads(line) for line in self.noted.read_text().splitlines()] if self.noted.exists() else []


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


NOTE = "def note(value):\n    with open(noted, 'a') as file: file.write(json.dumps(value) + chr(10))\n"
ANSWER = "m = read(); answer(m, {'host': 'srv1'})\n"


def test_all_inputs_arrive_in_one_call_with_the_settings(shop: Shop) -> None:
    code = NOTE + (
        "while True:\n"
        "    m = read()\n"
        "    note(m)\n"
        "    answer(m, {b['input']: b['path'].upper() for b in m['params']['bindings']})\n"
    )
    bindings = [binding("host", type="string"), binding("port", "server.port", type="int"), binding("zone")]
    answer = shop.ask(code, *bindings, config={"endpoint": "https://cmdb", "deep": {"list": [1, None]}})
    assert answer == BatchAnswer({"host": "SERVER.HOST", "port": "SERVER.PORT", "zone": "SERVER.ZONE"})
    assert shop.notes() == [
        {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "resolve",
            "params": {
                "bindings": [
                    {"input": "host", "path": "server.host", "type": "string"},
                    {"input": "port", "path": "server.port", "type": "int"},
                    {"input": "zone", "path": "server.zone", "type": "any"},
                ],
                "config": {"endpoint": "https://cmdb", "deep": {"list": [1, None]}},
            },
        }
    ]


@pytest.mark.parametrize(
    ("result", "values"),
    [
        pytest.param("{'host': 'srv1'}", {"host": "srv1"}, id="text"),
        pytest.param("{'host': 8080}", {"host": 8080}, id="a number"),
        pytest.param("{'host': [1, {'a': None}]}", {"host": [1, {"a": None}]}, id="nested data"),
        pytest.param("{'host': 'ünï ✓ \\u202e'}", {"host": "ünï ✓ \u202e"}, id="any script"),
        pytest.param("{'host': ''}", {"host": ""}, id="empty text is a value"),
        pytest.param("{'host': None}", {}, id="null is no value"),
        pytest.param("{}", {}, id="an input that is left out has no value"),
        pytest.param("{'host': 'a', 'other': 'b'}", {"host": "a"}, id="an input that was not asked for is ignored"),
        pytest.param("{'host': 'x' * 1_000_000}", {"host": "x" * 1_000_000}, id="almost a mebibyte"),
    ],
)
def test_values(shop: Shop, result: str, values: dict[str, Any]) -> None:
    assert shop.ask(f"m = read(); answer(m, {result})") == BatchAnswer(values)


NAN = '{"jsonrpc": "2.0", "id": 1, "result": {"host": NaN}}'
BROKE = "broke the protocol"
SHAPE = "expected values by input"


def fault(message: str, code: int = 1, **data: Any) -> str:
    """A provider that answers with an error."""
    error = {"code": code, "message": message, **({"data": data} if data else {})}
    return f"m = read(); write(id=m['id'], error={error!r})"


HOSTILE = {
    "it exits at once": ("sys.exit(3)", "transport", "exited with 3"),
    "it exits with a reason": (
        "read(); print('no such host', file=sys.stderr); sys.exit(1)",
        "transport",
        "exited with 1: no such host",
    ),
    "it prints a secret": (f"read(); print('{SECRET}', file=sys.stderr); sys.exit(1)", "transport", "[REDACTED]"),
    "it is killed": ("read(); os.kill(os.getpid(), 9)", "transport", "killed by signal 9"),
    "it prints text": ("read(); print('hello', flush=True); read()", "transport", BROKE),
    "it prints an empty object": ("read(); print('{}', flush=True); read()", "transport", BROKE),
    "it prints bytes": ("read(); os.write(1, b'\\xff\\n'); read()", "transport", "not UTF-8"),
    "it answers another id": ("m = read(); write(id=m['id'] + 7, result={}); read()", "transport", "was not made"),
    "it answers both ways": ("m = read(); write(id=m['id'], result={}, error={}); read()", "transport", BROKE),
    "a list": ("m = read(); answer(m, ['srv1'])", "transport", SHAPE),
    "text": ("m = read(); answer(m, 'srv1')", "transport", SHAPE),
    "null": ("m = read(); answer(m, None)", "transport", SHAPE),
    "not a number": (f"read(); print({NAN!r}, flush=True); read()", "transport", BROKE),
    "too large a value": ("m = read(); answer(m, {'host': 'x' * 1_100_000})", "invalid_input", "at most 1048576"),
    "an endless line": (
        "read(); sys.stdout.write('x' * 5_000_000); sys.stdout.flush(); time.sleep(60)",
        "transport",
        f"longer than {MAX_ANSWER}",
    ),
    "a flood": ("read()\nwhile True: write(method='log', params={})", "transport", "messages without an answer"),
    "it closes its output": ("read(); os.close(1); time.sleep(60)", "transport", "closed its standard output"),
    "it never answers": ("read(); read()", "timeout", "did not answer `resolve` within"),
    "an error": (fault("no such server", -32001), "tool_error", "no such server (code -32001)"),
    "an error with a hint": (fault("unknown", hint="update it"), "tool_error", "unknown (update it) (code 1)"),
    "an error that would control a terminal": (fault("\x1b[2J" + "x" * 5000), "tool_error", "\ufffd[2J"),
    "an error about one input": (
        fault("m", inputs={"host": "there is no srv9", "x": 1}),
        "tool_error",
        "answered: there is no srv9",
    ),
}


@pytest.mark.parametrize(("code", "kind", "message"), HOSTILE.values(), ids=HOSTILE)
def test_a_provider_that_misbehaves_fails_every_input(shop: Shop, code: str, kind: str, message: str) -> None:
    note = NOTE + "note(os.getpid())\n"
    answer = shop.ask(note + code, HOST, timeout="300ms" if kind == "timeout" else "10s")
    assert answer.values == {}
    failure = answer.failures["host"]
    assert (failure.kind, message in failure.message) == (kind, True), failure
    assert len(failure.message) <= 500
    assert failure.message.isprintable()
    assert [pid for pid in shop.notes() if runs(pid)] == []


def test_one_that_exits_is_asked_once_more(shop: Shop) -> None:
    code = "m = read()\nif not os.path.exists(noted):\n    open(noted, 'w').close()\n    sys.exit(1)\n"
    assert shop.ask(code + "answer(m, {'host': 'srv1'})") == BatchAnswer({"host": "srv1"})


@pytest.mark.parametrize(
    "code",
    [
        pytest.param("import signal; signal.signal(15, signal.SIG_IGN)\n" + ANSWER + "time.sleep(60)", id="it stays"),
        pytest.param(ANSWER + "note([os.fork() or time.sleep(60)])\ntime.sleep(60)", id="its child stays"),
        pytest.param(
            ANSWER + "os.setsid() if os.fork() == 0 else None\nnote(os.getpid())\ntime.sleep(60)", id="a daemon"
        ),
    ],
)
def test_nothing_is_left_after_the_answer(shop: Shop, code: str) -> None:
    resolver = shop.resolver(NOTE + "note(os.getpid())\n" + code)
    assert asyncio.run(resolver.resolve([HOST])) == BatchAnswer({"host": "srv1"})
    pids = [pid for noted in shop.notes() for pid in (noted if isinstance(noted, list) else [noted])]
    assert pids
    assert [pid for pid in pids if pid and runs(pid)] == []


def test_a_call_that_is_cancelled_ends_the_program(shop: Shop) -> None:
    resolver = shop.resolver(NOTE + "read(); note(os.getpid()); time.sleep(60)")

    async def cancelled() -> None:
        task = asyncio.create_task(resolver.resolve([HOST]))
        while not shop.notes():
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    assert [pid for pid in shop.notes() if runs(pid)] == []


def test_the_environment_of_a_provider(shop: Shop) -> None:
    given = {"CMDB_KEY": "k", "OTHER_TOKEN": "t", "GERT_TRACE_SIGNING_KEY": "s", "PLAIN": "p", MARK: "outer/1"}
    answer = shop.ask(
        "m = read(); answer(m, {'host': dict(os.environ)})", environ=given, config={"api_key_env": "CMDB_KEY"}
    )
    seen = answer.values["host"]
    assert {name: seen[name] for name in given if name in seen and name != MARK} == {"CMDB_KEY": "k", "PLAIN": "p"}
    assert seen[MARK].startswith("outer/1 ")
    named = shop.ask(
        "m = read(); answer(m, {'host': os.environ.get('OTHER_TOKEN')})", environ=given, config={"a_env": "OTHER_TOKEN"}
    )
    assert named.values == {"host": "t"}


def test_what_a_secret_input_is_asked_with_is_not_told(shop: Shop) -> None:
    error = "{'code': 1, 'message': 'm: token abc is old', 'data': {'inputs': {'key': 'token abc is old'}}}"
    answer = shop.ask(f"m = read(); write(id=m['id'], error={error})", HOST, binding("key", secret=True))
    for failure in answer.failures.values():
        assert "abc" not in failure.message
        assert "withheld" in failure.message


@pytest.mark.parametrize(
    ("binary", "make", "message"),
    [
        pytest.param("gert-never-installed", None, "`gert-never-installed` was not found on PATH", id="not on PATH"),
        pytest.param("./absent", None, "`./absent` was not found in", id="no file"),
        pytest.param("./folder", lambda path: path.mkdir(), "is a folder", id="a folder"),
        pytest.param("./plain", lambda path: path.write_text("x"), "is not executable", id="not executable"),
    ],
)
def test_a_program_that_cannot_be_started(shop: Shop, binary: str, make: Any, message: str) -> None:
    if make is not None:
        make(shop.folder / binary)
    answer = shop.ask("", binary=binary)
    assert answer.failures["host"].kind == "not_found"
    told = answer.failures["host"].message
    assert told.startswith("the provider `cmdb` cannot be started: ")
    assert message in told


def test_an_interpreter_that_is_missing(shop: Shop) -> None:
    provider = shop.provider("")
    (shop.folder / "provider.py").write_text("#!/never/installed\n")
    resolver = provider_resolver(provider, os.environ, [], Redactor)
    failure = asyncio.run(resolver.resolve([HOST])).failures["host"]
    assert (failure.kind, "cannot be started" in failure.message) == ("transport", True)


@pytest.mark.parametrize("vendor", ["pagerduty", "servicenow"])
def test_shipped_providers_are_programs(vendor: str) -> None:
    scripts = tomllib.loads((EXAMPLES.parents[1] / "pyproject.toml").read_text())["project"]["scripts"]
    module, function = scripts[f"gert-input-{vendor}"].split(":")
    assert callable(getattr(import_module(module), function))


# --- the examples

EXAMPLES = Path(__file__).resolve().parents[3] / "examples" / "inputs"


@pytest.mark.parametrize(
    ("name", "paths", "values"),
    [
        pytest.param("inventory", ["web-1.address", "web-1.zone", "web-9.address"], {"a": "10.0.0.7"}, id="in Python"),
        pytest.param(
            "hosts",
            ["127.0.0.1", "nowhere.invalid"],
            {"a": "127.0.0.1"},
            id="in shell",
            marks=pytest.mark.needs("jq", "getent"),
        ),
    ],
)
def test_the_examples_are_providers(shop: Shop, name: str, paths: list[str], values: dict[str, Any]) -> None:
    (shop.folder / "servers.json").write_text('{"web-1": {"address": "10.0.0.7", "zone": null}}')
    bindings = [binding(letter, path) for letter, path in zip("abc", paths, strict=False)]
    config = {"file": str(shop.folder / "servers.json")}
    assert shop.ask("", *bindings, binary=str(EXAMPLES / name), config=config) == BatchAnswer(values)


# --- the promises of every resolver

INVENTORY = """
known = {"web-1.address": "10.0.0.7", "web-1.tags": ["a", {"b": None}], "web-1.port": 443}
while True:
    m = read()
    if m["method"] != "resolve":
        continue
    found, failed = {}, {}
    for b in m["params"]["bindings"]:
        if b["path"] == "slow": time.sleep(60)
        if b["path"].startswith("web-9"): failed[b["input"]] = "there is no such server"
        elif b["path"] in known: found[b["input"]] = known[b["path"]]
    if failed: write(id=m["id"], error={"code": 1, "message": "failed", "data": {"inputs": failed}})
    else: answer(m, found)
"""
KNOWN = {"web-1.address": "10.0.0.7", "web-1.tags": ["a", {"b": None}], "web-1.port": 443}
CASE = ResolverCase(resolver=None, known=KNOWN, missing="web-1.zone", failing="web-9.address", slow="slow")


@pytest.mark.parametrize("number", range(len(resolver_promises(dict))), ids=map(str, resolver_promises(dict)))
def test_a_provider_keeps_the_promises(shop: Shop, number: int) -> None:
    suite: list[Promise] = resolver_promises(lambda: replace(CASE, resolver=shop.resolver(INVENTORY)))
    suite[number]()
