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
    assert masked_preview(TOOL, ACTION, inputs) == ("redis-cli", preview)


STRICT = load(b"""
apiVersion: tool/v0
meta: {name: clean}
contract:
  effects: [files]
  writes: [files]
  inputs: {folder: {type: string}, cfg: {type: object}}
actions:
  misspelt:
    argv: [rm, -r, --, "/base/{{ .fodler }}"]
  field:
    argv: [rm, -r, --, "/base/{{ .cfg.folder }}"]
""").model


@pytest.mark.parametrize(
    ("action", "inputs", "shown"),
    [
        pytest.param("misspelt", {"folder": "a"}, "/base/{{ .fodler }}", id="a name that is not declared"),
        pytest.param("misspelt", {"folder": UNKNOWN}, "/base/{{ .fodler }}", id="beside an unknown input"),
        pytest.param("field", {"cfg": {"fodler": "a"}}, "/base/{{ .cfg.folder }}", id="a key that is not there"),
        pytest.param("field", {"cfg": {"x": UNKNOWN}}, "/base/{{ .cfg.folder }}", id="a key beside an unknown value"),
        pytest.param("field", {"cfg": UNKNOWN}, "/base/(unknown)", id="a key of an unknown value"),
        pytest.param("field", {"cfg": {"folder": "a"}}, "/base/a", id="a key that is there"),
        pytest.param("field", {}, "/base/", id="an input that is not given"),
    ],
)
def test_what_will_fail_is_shown_as_written(action: str, inputs: dict[str, Any], shown: str) -> None:
    assert masked_call(STRICT, action, STRICT.actions[action], inputs)["arguments"][-1] == shown
