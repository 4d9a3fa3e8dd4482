"""Secrets: whatever a tool prints, however it prints it, no part of an answer or of what is heard holds one."""

import base64
import json
import os
import subprocess
import sys
import urllib.parse
from typing import Any

import msgspec
import pytest
from tests.ecosystem.process.calls import PYTHON, SH, failed, run

from gert.kernel.engine.requests import ToolAnswer
from gert.kernel.foundation.secret_refs import secret_ref

CANARY = 'c4nary/"päss&word"+7'
PIN = "83920175"
TEXT = {"it": {"from": "stdout", "trim": False}}
JSON = {"it": {"from": "json"}}


def leaks(answer: ToolAnswer, heard: list[str], secret: str = CANARY) -> list[str]:
    """The forms of a secret that can be found in an answer or in what was heard."""
    raw = secret.encode()
    forms = [
        secret,
        json.dumps(secret)[1:-1],
        json.dumps(secret, ensure_ascii=False)[1:-1],
        urllib.parse.quote(secret, safe=""),
        urllib.parse.quote_plus(secret),
        base64.b64encode(raw).decode().rstrip("="),
        base64.urlsafe_b64encode(raw).decode().rstrip("="),
        raw.hex(),
    ]
    seen = [msgspec.json.encode(answer).decode(), repr(answer), "".join(heard)]
    return [form for form in forms for text in seen if form in text]


def told(argv: list[str], secret: str = CANARY, **options: Any) -> tuple[ToolAnswer, list[str]]:
    """Run a tool that has the secret in its environment, and listen."""
    heard: list[str] = []
    answer = run(
        argv,
        environment={"PATH": os.environ["PATH"], "TOKEN": secret},
        withheld=frozenset({"TOKEN"}),
        tool={"secrets": [{"env": "TOKEN"}]},
        hides=[secret],
        on_output=lambda path, stream, text: heard.append(text),
        **options,
    )
    return answer, heard


IMPORTS = "import os, sys, json, base64, urllib.parse as u, time; t = os.environ['TOKEN']; "


@pytest.mark.parametrize(
    "code",
    [
        pytest.param("print(t)", id="as it is"),
        pytest.param("print('a' + t + 'b')", id="inside a word"),
        pytest.param("print(t, file=sys.stderr)", id="on stderr"),
        pytest.param("print(json.dumps({'k': t}))", id="in JSON"),
        pytest.param("print(json.dumps({t: 1}))", id="as a key in JSON"),
        pytest.param("print(json.dumps({'k': json.dumps({'k': t})}))", id="in JSON in JSON"),
        pytest.param("print(base64.b64encode(t.encode()).decode())", id="in base64"),
        pytest.param("print(base64.b64encode(('user:' + t).encode()).decode())", id="in basic authentication"),
        pytest.param("print(u.quote(t, safe=''))", id="in a URL"),
        pytest.param("print(u.urlencode({'t': t}))", id="in a form"),
        pytest.param("print(t.encode().hex())", id="in hex"),
        pytest.param("sys.exit(t)", id="as the reason of a failure"),
        pytest.param("[(os.write(1, b.to_bytes(1, 'big')), time.sleep(.002)) for b in t.encode()]", id="byte by byte"),
        pytest.param("os.write(1, t[:9].encode()); time.sleep(.05); os.write(1, t[9:].encode())", id="in two parts"),
        pytest.param("print('x' * 70_000 + t + 'x' * 70_000)", id="in a long line"),
        pytest.param("print('x' * 16_380 + t)", id="where the last part is cut"),
        pytest.param("raise ValueError(t)", id="in a traceback"),
        pytest.param("print('[' + t + ']\\n' * 3)", id="several times"),
    ],
)
@pytest.mark.parametrize("extract", [TEXT, JSON, {"it": {"from": "stderr"}}], ids=["text", "json", "stderr"])
def test_a_secret_a_tool_prints_is_masked(code: str, extract: dict[str, Any]) -> None:
    answer, heard = told([*PYTHON, IMPORTS + code], extract=extract)
    assert leaks(answer, heard) == []
    assert answer.redacted > 0
    assert "[REDACTED]" in "".join(heard)


def test_a_masked_answer_still_says_the_rest() -> None:
    answer, _ = told([*PYTHON, IMPORTS + "print(json.dumps({'user': 'ann', 'token': t, 'n': [1, t]}))"], extract=JSON)
    assert answer.failure is None
    assert answer.outputs == {"it": {"user": "ann", "token": "[REDACTED]", "n": [1, "[REDACTED]"]}}
    assert answer.redacted == 2


def test_a_secret_number_does_not_break_json() -> None:
    code = IMPORTS + 'print(\'{"pin": %s, "s": "%s", "n": [%s.0], "more": %s1}\' % (t, t, t, t))'
    answer, heard = told([*PYTHON, code], secret=PIN, extract=JSON)
    assert answer.failure is None
    assert answer.outputs["it"]["pin"] == "[REDACTED]"
    assert answer.outputs["it"]["s"] == "[REDACTED]"
    assert answer.outputs["it"]["n"] == ["[REDACTED]"]
    assert PIN not in "".join(heard)
    assert PIN not in answer.stdout


def test_a_secret_number_where_a_number_is_declared_is_a_failure_that_tells_nothing() -> None:
    extract, outputs = {"it": {"from": "json", "path": "pin"}}, {"it": {"type": "int"}}
    answer, heard = told(
        [*PYTHON, IMPORTS + "print('{\"pin\": %s}' % t)"], secret=PIN, extract=extract, outputs=outputs
    )
    failed(answer, "extraction", "expected an int, found `[REDACTED]`")
    assert leaks(answer, heard, PIN) == []


@pytest.mark.parametrize("pattern", ["c4nary", "(?s)(.{9})$", "^(.)", "pin=(.*)"])
def test_a_pattern_never_sees_part_of_a_secret(pattern: str) -> None:
    answer, heard = told(
        [*PYTHON, IMPORTS + "print(t, end='')"], extract={"it": {"from": "stdout", "pattern": pattern}}
    )
    assert leaks(answer, heard) == []
    assert answer.outputs.get("it", "")[:3] not in ("c4n", 'd"+')
    assert not str(answer.outputs.get("it", "")).startswith("c")


def test_json_that_is_none_is_shown_without_its_secret() -> None:
    answer, heard = told([*PYTHON, IMPORTS + "print('oops', t)"], extract=JSON)
    failed(answer, "extraction", "expected JSON on stdout, found `oops [REDACTED]\\n`")
    assert leaks(answer, heard) == []


def test_a_secret_cut_by_the_limit_is_not_half_kept() -> None:
    for cut in range(1, len(CANARY)):
        answer, heard = told(["sh", "-c", 'printf "0123456789%s" "$TOKEN"'], extract=TEXT, limit=10 + cut)
        assert "c4n" not in repr(answer) + "".join(heard)
        assert answer.outputs["it"].startswith("0123456789\n[output was longer")


@pytest.mark.parametrize(
    ("extract", "outputs"),
    [
        pytest.param(TEXT, {"it": {"type": "string"}}, id="all of a text"),
        pytest.param({"it": {"from": "stdout", "pattern": "\\S+"}}, {"it": {}}, id="what a pattern finds"),
        pytest.param(JSON, {"it": {}}, id="a number in JSON"),
        pytest.param(TEXT, {"it": {"type": "int"}}, id="a number in text"),
    ],
)
def test_a_short_secret_is_masked_where_it_is_a_whole_value(extract: Any, outputs: Any) -> None:
    answer, _ = told(["sh", "-c", 'echo "$TOKEN"'], secret="739", extract=extract, outputs=outputs)
    assert answer.outputs == {"it": "[REDACTED]"}
    assert "739" not in repr(answer)
    assert answer.redacted >= 1


def test_a_short_secret_is_masked_where_it_is_the_reason_of_a_failure() -> None:
    answer, _ = told(["sh", "-c", 'echo "$TOKEN" >&2; exit 1'], secret="739")
    failed(answer, "exit_code", "exited with 1: [REDACTED]")


def test_a_secret_input_is_masked_when_a_tool_prints_it() -> None:
    answer = run(
        [*SH, "cat; echo $A >&2; exit 1"],
        inputs={"token": secret_ref("token")},
        secrets={"token": CANARY},
        action={"stdin": "{{ .token }}", "env": {"A": "{{ .token }}"}},
        extract=TEXT,
    )
    assert leaks(answer, []) == []
    assert answer.outputs == {"it": "[REDACTED]"}
    failed(answer, "exit_code", "[REDACTED]")


def test_the_name_of_an_output_is_not_masked() -> None:
    answer = run(
        [*SH, "printf ready"], extract={"status": {"from": "stdout", "trim": False}}, hides=["status", "ready"]
    )
    assert answer.outputs == {"status": "[REDACTED]"}


def test_what_is_masked_is_counted_once() -> None:
    answer, _ = told([*PYTHON, IMPORTS + "print(json.dumps([t])); print(t, t, file=sys.stderr)"], extract=JSON)
    assert answer.redacted == 3


def test_without_secrets_nothing_is_masked() -> None:
    answer = run([*SH, "echo plain"], extract=TEXT)
    assert (answer.outputs, answer.redacted) == ({"it": "plain\n"}, 0)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can refuse inspection")
@pytest.mark.parametrize(
    ("name", "closed"),
    [("GERT_APPROVAL_SIGNING_KEY", "True"), ("GERT_MCP_TOKEN", "True"), ("GERT_STATE_DIR", "False")],
)
def test_a_process_of_gert_that_has_a_key_or_a_token_cannot_be_inspected(name: str, closed: str) -> None:
    code = (
        "from gert.ecosystem.process.own_process import claim_process, is_closed;"
        f"claim_process([{name!r}]); print(is_closed())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == closed
