"""What a caller gives on the command line and in files."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from gert.ecosystem.host.config.variables import given_values, resolve
from gert.ecosystem.inputs import Resolvers
from gert.ecosystem.inputs.env import EnvResolver
from gert.errors import DocumentError, GertError, InputError, UsageError
from gert.kernel.engine.inputs import GivenInput
from gert.kernel.runbook.document import load

RUNBOOK = b"""
apiVersion: kernel/v0
meta:
  name: x
  inputs:
    host: {type: string, from: env/HOST}
    port: {type: int, default: 80}
    key: {type: string, from: env/KEY, secret: true}
steps: [{type: end, outcome: {category: resolved, code: x}}]
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("a=b", "b", id="a name and a value"),
        pytest.param("a=b=c=", "b=c=", id="split at the first equals sign"),
        pytest.param("a=", "", id="an empty value"),
        pytest.param(" a =b", "b", id="space around the name"),
        pytest.param("a= 1 ", " 1 ", id="the value is text as it stands"),
        pytest.param("a=@b", "@b", id="a var reads no file"),
        pytest.param("a=[1]", "[1]", id="a var is not parsed"),
    ],
)
def test_vars(text: str, expected: str) -> None:
    assert given_values([text]) == {"a": GivenInput(expected, is_raw=True)}


@pytest.mark.parametrize(
    ("text", "value", "source_text"),
    [
        pytest.param("a=b", "b", None, id="a word"),
        pytest.param("a=1.10", 1.1, "1.10", id="a number, and how it was written"),
        pytest.param("a=[80, 443]", [80, 443], "[80, 443]", id="a list"),
        pytest.param('a={"b": [1, {"c": null}]}', {"b": [1, {"c": None}]}, '{"b": [1, {"c": null}]}', id="JSON"),
        pytest.param('a="1"', "1", None, id="quoted text"),
        pytest.param("a=yes", "yes", None, id="YAML 1.2: yes is a word"),
        pytest.param("a=null", None, "null", id="null"),
        pytest.param("a=", "", None, id="nothing is empty text"),
        pytest.param('a="@b"', "@b", None, id="quoted, an at sign is text"),
    ],
)
def test_inputs_are_native(text: str, value: Any, source_text: str | None) -> None:
    assert given_values(inputs=[text]) == {"a": GivenInput(value, "cli", source_text)}


def test_an_input_may_be_the_text_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "token.txt").write_text("hunter2\n")
    assert given_values(inputs=[f"a=@{tmp_path}/token.txt"]) == {
        "a": GivenInput("hunter2", "file:token.txt", file=f"{tmp_path}/token.txt")
    }


def test_the_command_line_wins_over_files_and_later_files_over_earlier_ones(tmp_path: Path) -> None:
    (tmp_path / "one.yaml").write_text("a: 1\nb: 1.10\nc: {d: [x]}\n")
    (tmp_path / "two.json").write_text('{"b": 2, "e": "f"}')
    given = given_values(["a=cli"], ["e=3"], [str(tmp_path / "one.yaml"), str(tmp_path / "two.json")])
    assert given == {
        "a": GivenInput("cli", is_raw=True),
        "b": GivenInput(2, "file:two.json", "2"),
        "c": GivenInput({"d": ["x"]}, "file:one.yaml"),
        "e": GivenInput(3, "cli", "3"),
    }
    assert given_values(vars_files=[str(tmp_path / "one.yaml")])["b"] == GivenInput(1.1, "file:one.yaml", "1.10")


@pytest.mark.parametrize(
    ("variables", "inputs", "message"),
    [
        pytest.param(["hunter2"], [], "`--var` expects name=value, found no `=`", id="a var without a name"),
        pytest.param([], ["hunter2"], "`--input` expects name=value, found no `=`", id="an input without one"),
        pytest.param(["=hunter2"], [], "`--var` expects name=value, found no name", id="an empty name"),
        pytest.param(["a=1", "a=1"], [], "`a` is given twice", id="twice, even if alike"),
        pytest.param(["a=1"], ["a=2"], "`a` is given twice", id="once each way"),
        pytest.param([], ["a=[hunter2"], "the value of input `a` is not valid YAML or JSON", id="not YAML"),
        pytest.param([], ["a={hunter2: 1, hunter2: 2}"], "the value of input `a` is not valid", id="a key twice"),
        pytest.param([], ["a=!!python/object:os.system hunter2"], "the value of input `a` is not valid", id="a tag"),
        pytest.param([], ["a=\udcff"], "the value of input `a` is not valid", id="bytes that are not UTF-8"),
        pytest.param([], ["a=@/nowhere/x"], "there is no file `/nowhere/x` for input `a`", id="no such file"),
        pytest.param([], ["a=@/dev/zero"], "input `a`: `/dev/zero` is not a regular file", id="a device"),
        pytest.param([], ["a=@"], "there is no file `` for input `a`", id="no name of a file"),
    ],
)
def test_how_it_may_not_be_called(variables: list[str], inputs: list[str], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        given_values(variables, inputs)
    assert caught.value.message.startswith(message)
    assert "hunter2" not in f"{caught.value.message} {caught.value.hint}"


@pytest.mark.parametrize(
    ("source", "error", "message"),
    [
        pytest.param(None, UsageError, "there is no file", id="not there"),
        pytest.param(b"- hunter2\n", DocumentError, "expected a map of values by name", id="a list"),
        pytest.param(b"hunter2\n", DocumentError, "expected a map of values by name", id="the file of a token"),
        pytest.param(b"a: 1\na: 2\n", DocumentError, ":2:1: the key `a` appears twice in one map", id="a key twice"),
        pytest.param(b"a: [\n", DocumentError, ":2:1: not valid YAML", id="not YAML"),
        pytest.param(b"\xff", DocumentError, "not UTF-8", id="not text"),
        pytest.param(b"", DocumentError, "the document is empty", id="empty"),
    ],
)
def test_files_that_are_refused(tmp_path: Path, source: bytes | None, error: type[GertError], message: str) -> None:
    file = tmp_path / "vars.yaml"
    if source is not None:
        file.write_bytes(source)
    with pytest.raises(error) as caught:
        given_values(vars_files=[str(file)])
    assert message in caught.value.message
    assert "hunter2" not in caught.value.message


def test_inputs_are_resolved_with_what_was_given_and_found() -> None:
    inputs = load(RUNBOOK, kind="runbook").model.meta.inputs
    resolvers = Resolvers({"env": EnvResolver({"HOST": "srv1", "KEY": "hunter2"})})
    resolved = asyncio.run(resolve(inputs, given_values(["port=8080"]), resolvers))
    assert resolved.values["host"] == "srv1"
    assert resolved.values["port"] == 8080
    assert "hunter2" not in str(resolved.values)
    assert resolved.sources == {"host": "env/HOST", "port": "cli", "key": "env/KEY"}
    assert resolved.secrets == {"key": "hunter2"}


def test_what_is_wrong_reaches_the_caller() -> None:
    inputs = load(RUNBOOK, kind="runbook").model.meta.inputs
    with pytest.raises(InputError, match="expected an int, found `x`"):
        asyncio.run(resolve(inputs, given_values(["port=x"]), Resolvers({"env": EnvResolver({})})))
