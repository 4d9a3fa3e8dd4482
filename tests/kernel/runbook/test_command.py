"""The command of an action as it is shown: what it computes from an unknown input is unknown."""

from typing import Any

import pytest

from gert.kernel.runbook.command import masked_call, masked_preview
from gert.kernel.runbook.document import load
from gert.kernel.template.unknown import UNKNOWN, Unknown

TOOL = load(b"""
apiVersion: tool/v0
meta: {name: redis, binary: redis-cli}
contract:
  effects: [redis]
  writes: []
  inputs: {keys: {type: any}, host: {type: string}}
actions:
  evict:
    argv: ["-h={{ .host }}", "keep-{{ len .keys }}", "{{ if gt (len .keys) 2 }}drop{{ else }}keep{{ end }}"]
    env: {COUNT: "{{ len .keys }} keys"}
    stdin: "{{ range .keys }}{{ . }};{{ end }}"
    preview: {argv: [redis-cli, "{{ len .keys }} on {{ .host }}"]}
""").model
ACTION = TOOL.actions["evict"]


@pytest.mark.parametrize(
    ("inputs", "arguments", "env", "stdin", "preview"),
    [
        pytest.param(
            {"keys": ["a", "b", "c"], "host": "web-1"},
            ["-h=web-1", "keep-3", "drop"], "3 keys", "a;b;c;", "3 on web-1",
            id="nothing is unknown",
        ),
        pytest.param(
            {"keys": UNKNOWN, "host": "web-1"},
            ["-h=web-1", "keep-(unknown)", "(unknown)"], "(unknown) keys", "(unknown)", "(unknown) on web-1",
            id="a list is unknown",
        ),
        pytest.param(
            {"keys": ["a"], "host": Unknown("web-(unknown)")},
            ["-h=web-(unknown)", "keep-1", "keep"], "1 keys", "a;", "1 on web-(unknown)",
            id="a text is unknown in part",
        ),
        pytest.param(
            {"keys": ["a", UNKNOWN], "host": "h"},
            ["-h=h", "keep-(unknown)", "(unknown)"], "(unknown) keys", "a;(unknown);", "(unknown) on h",
            id="an item is unknown",
        ),
        pytest.param(
            {"keys": "(unknown)", "host": "h"},
            ["-h=h", "keep-9", "drop"], "9 keys", None, "9 on h",
            id="a text that only reads like it",
        ),
    ],
)  # fmt: skip
def test_the_call_that_is_shown(
    inputs: dict[str, Any], arguments: list[str], env: str, stdin: str | None, preview: str
) -> None:
    call = masked_call(TOOL, "evict", ACTION, inputs)
    assert (list(call["arguments"]), call["env"]["COUNT"]) == (arguments, env)
    assert call["stdin"] == (ACTION.stdin.source if stdin is None else stdin)  # what cannot be rendered, as written
    assert masked_preview(ACTION, inputs) == ("redis-cli", preview)
