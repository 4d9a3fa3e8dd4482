"""Where inputs get their values (ecosystem-v0 §5): one generator, driven here by hand."""

from collections.abc import Mapping
from typing import Any

import pytest

from gert.errors import InputError
from gert.kernel.engine.inputs import (
    BatchAnswer,
    GivenInput,
    InputProblem,
    ResolveBatch,
    ResolvedInputs,
    effect_of,
    resolve_inputs,
)
from gert.kernel.events.runbook.parts import Failure
from gert.kernel.foundation.secret_refs import secret_ref
from gert.kernel.runbook.document import load
from gert.kernel.runbook.documents.contract import InputBlock

SECRET = "hunter2, found you"


def declared(inputs: str) -> dict[str, InputBlock]:
    lines = "\n".join(f"    {line}" for line in inputs.splitlines())
    steps = "steps: [{type: end, outcome: {category: resolved, code: x}}]"
    source = f"apiVersion: kernel/v0\nmeta:\n  name: x\n  inputs:\n{lines}\n{steps}\n"
    document = load(source.encode(), kind="runbook")
    assert document.model is not None, document.findings
    blocks: dict[str, InputBlock] = document.model.meta.inputs
    return blocks


def drive(
    inputs: str,
    given: Mapping[str, Any] | None = None,
    answers: Mapping[str, BatchAnswer] | None = None,
    recorded: Mapping[str, str] | None = None,
    asked: list[ResolveBatch] | None = None,
) -> tuple[ResolvedInputs, list[ResolveBatch]]:
    """Run the generator; a resolver without an answer finds nothing."""
    asked = [] if asked is None else asked
    wrapped = {
        name: value if isinstance(value, GivenInput) else GivenInput(value) for name, value in (given or {}).items()
    }
    resolution = resolve_inputs(declared(inputs), wrapped, recorded=recorded or {})
    answer: BatchAnswer | None = None
    while True:
        try:
            batch = next(resolution) if answer is None else resolution.send(answer)
        except StopIteration as end:
            return end.value, asked
        asked.append(batch)
        answer = (answers or {}).get(batch.resolver, BatchAnswer())


def found(**values: Any) -> BatchAnswer:
    return BatchAnswer(values)


def failed(name: str, message: str) -> BatchAnswer:
    return BatchAnswer(failures={name: Failure("transport", message)})


@pytest.mark.parametrize(
    ("inputs", "given", "answers", "values", "sources"),
    [
        pytest.param(
            "host: {type: string, from: env/HOST, default: d}",
            {"host": "cli"},
            {"env": found(host="env")},
            {"host": "cli"},
            {"host": "cli"},
            id="what the caller gives wins over everything",
        ),
        pytest.param(
            "host: {type: string, from: env/HOST, default: d}",
            {},
            {"env": found(host="env")},
            {"host": "env"},
            {"host": "env/HOST"},
            id="its source wins over the default",
        ),
        pytest.param(
            "host: {type: string, from: env/HOST, default: d}",
            {},
            {},
            {"host": "d"},
            {"host": "default"},
            id="the default stands in for what is not there",
        ),
        pytest.param(
            "host: {type: string, from: env/HOST}",
            {},
            {},
            {},
            {"host": "unset"},
            id="an optional input may have no value, and its source says so",
        ),
        pytest.param(
            "n: {type: any, default: null}", {}, {}, {"n": None}, {"n": "default"}, id="a default of null is a value"
        ),
        pytest.param(
            "port: {type: int}",
            {"port": " 80 "},
            {},
            {"port": 80},
            {"port": "cli"},
            id="text becomes the declared type",
        ),
        pytest.param(
            "ports: {type: list, from: env/P}",
            {},
            {"env": found(ports="[80, 443]")},
            {"ports": [80, 443]},
            {"ports": "env/P"},
            id="text from a source may be JSON",
        ),
        pytest.param(
            "v: {type: string}",
            {"v": GivenInput(1.1, "file:vars.yaml", "1.10")},
            {},
            {"v": "1.10"},
            {"v": "file:vars.yaml"},
            id="an input declared as text takes what was written",
        ),
        pytest.param(
            "v: {type: float}",
            {"v": GivenInput(1.1, "file:vars.yaml", "1.10")},
            {},
            {"v": 1.1},
            {"v": "file:vars.yaml"},
            id="any other input takes the native value",
        ),
        pytest.param(
            "b: {type: string, from: prompt}\na: {type: string, from: env/A}",
            {},
            {"env": found(a="1"), "prompt": found(b="2")},
            {"b": "2", "a": "1"},
            {"b": "prompt", "a": "env/A"},
            id="the order is that of the declaration",
        ),
        pytest.param(
            "a: {type: string}",
            {"a": "x\ufdd0name\ufdd1"},
            {},
            {"a": "x\ufffdname\ufffd"},
            {"a": "cli"},
            id="no value can pass for a reference to a secret",
        ),
        pytest.param(
            "a: {type: string, from: cmdb.host}",
            {},
            {"provider/cmdb": found(a="x", other="y")},
            {"a": "x"},
            {"a": "provider/cmdb.host"},
            id="a provider cannot add inputs, and its short form is written in full",
        ),
    ],
)
def test_where_values_come_from(
    inputs: str, given: Mapping[str, Any], answers: Mapping[str, BatchAnswer], values: Any, sources: Any
) -> None:
    resolved, _ = drive(inputs, given, answers)
    assert list(resolved.values.items()) == list(values.items())
    assert list(resolved.sources.items()) == list(sources.items())
    assert resolved.secrets == {}


def test_each_resolver_is_asked_once_and_people_last() -> None:
    _, asked = drive(
        """
z: {type: string, from: prompt}
a: {type: string, from: provider/cmdb.server.name}
f: {type: string, from: file/etc/host}
b: {type: string, from: provider/pd.incident.id}
c: {type: string, from: cmdb.server.zone}
e: {type: string, from: env/E}
y: {type: string, from: prompt}
g: {type: string, from: env/G}
given: {type: string, from: env/GIVEN}
""".strip(),
        {"given": "x"},
    )
    assert [(batch.resolver, [(b.name, b.path) for b in batch.bindings]) for batch in asked] == [
        ("env", [("e", "E"), ("g", "G")]),
        ("file", [("f", "etc/host")]),
        ("provider/cmdb", [("a", "server.name"), ("c", "server.zone")]),
        ("provider/pd", [("b", "incident.id")]),
        ("prompt", [("z", ""), ("y", "")]),
    ]


@pytest.mark.parametrize(
    ("inputs", "given", "answers", "message", "hint"),
    [
        pytest.param(
            "host: {type: string, required: true}",
            {},
            {},
            "no value for required input `host`",
            "pass --var host=… or set a default",
            id="nothing at all",
        ),
        pytest.param(
            "host: {type: string, required: true, from: env/HOST}",
            {},
            {},
            "no value for required input `host`",
            "set the environment variable `HOST`, or pass --var host=…",
            id="a variable that is not set",
        ),
        pytest.param(
            "host: {type: string, required: true, from: file/h.txt}",
            {},
            {},
            "no value for required input `host`",
            "write it to the file `h.txt`, or pass --var host=…",
            id="a file that is not there",
        ),
        pytest.param(
            "key: {type: string, required: true, secret: true, from: prompt}",
            {},
            {},
            "no value for required input `key`",
            "answer the prompt, or pass --input key=@FILE",
            id="a secret is not asked for on the command line",
        ),
        pytest.param(
            "port: {type: int}",
            {"port": "abc"},
            {},
            "input `port` from the command line: expected an int, found `abc`",
            None,
            id="of another type",
        ),
        pytest.param(
            "zone: {type: string, enum: [a, b], from: env/ZONE, default: a}",
            {},
            {"env": found(zone="c")},
            "input `zone` from `env/ZONE`: expected one of `a`, `b`, found `c`",
            None,
            id="a wrong value from a source is not replaced by the default",
        ),
        pytest.param(
            "port: {type: int, min: 1, max: 10}",
            {"port": "11"},
            {},
            "input `port` from the command line: expected at most 10, found `11`",
            None,
            id="out of bounds",
        ),
        pytest.param(
            "host: {type: string, pattern: '^[a-z]+$'}",
            {"host": "a\nb"},
            {},
            "input `host` from the command line: expected text that matches `^[a-z]+$`, found `a\\nb`",
            None,
            id="a pattern holds for all lines",
        ),
        pytest.param(
            "host: {type: string, from: provider/cmdb.x, default: d}",
            {},
            {"provider/cmdb": failed("host", "it did not answer")},
            "input `host` from `provider/cmdb.x`: it did not answer",
            "pass the value with --var or --input",
            id="a failure is an error even where there is a default",
        ),
        pytest.param(
            "host: {type: string, from: provider/cmdb.x}",
            {},
            {"provider/cmdb": BatchAnswer({"host": "x"}, {"host": Failure("timeout", "too late")})},
            "input `host` from `provider/cmdb.x`: too late",
            "pass the value with --var or --input",
            id="a resolver that says both failed",
        ),
        pytest.param(
            "hostname: {type: string}",
            {"hostnam": "x"},
            {},
            "there is no input `hostnam`",
            "did you mean `hostname`?",
            id="a misspelt name",
        ),
        pytest.param(
            "host: {type: string}\nport: {type: int}",
            {"\x1b[2J": "x"},
            {},
            "there is no input `\ufffd[2J`",
            "the runbook takes `host`, `port`",
            id="a name that is nothing like it, made harmless",
        ),
        pytest.param(
            "{}", {"x": "y"}, {}, "there is no input `x`", "the runbook takes no inputs", id="no inputs at all"
        ),
        pytest.param(
            "a: {type: any}",
            {"a": float("nan")},
            {},
            "input `a` from the command line: `nan` is not a JSON number",
            None,
            id="what JSON cannot hold",
        ),
        pytest.param(
            "a: {type: string, from: env/A}",
            {},
            {"env": found(a="x\udcff")},
            "input `a` from `env/A`: the text has a lone surrogate at character 1",
            None,
            id="a variable that is not UTF-8",
        ),
        pytest.param(
            "a: {type: string}",
            {"a": None},
            {},
            "input `a` from the command line: expected a string, found nothing",
            None,
            id="null is not text",
        ),
    ],
)
def test_what_is_wrong_with_inputs(
    inputs: str, given: Mapping[str, Any], answers: Mapping[str, BatchAnswer], message: str, hint: str | None
) -> None:
    with pytest.raises(InputError) as caught:
        drive(inputs, given, answers)
    assert caught.value.message == message
    assert caught.value.hint == hint


def test_everything_wrong_is_said_at_once() -> None:
    with pytest.raises(InputError) as caught:
        drive("a: {type: int}\nb: {type: string, required: true}\nc: {type: bool}", {"a": "x", "c": "maybe", "d": "y"})
    assert caught.value.message == (
        "4 problems with the inputs: (1) there is no input `d`; "
        "(2) input `a` from the command line: expected an int, found `x`; "
        "(3) no value for required input `b`; "
        "(4) input `c` from the command line: expected a bool, found `maybe`"
    )
    assert caught.value.hint == (
        "(1) the runbook takes `a`, `b`, `c`; (3) pass --var b=… or set a default; (4) use true or false"
    )


def test_a_flood_of_problems_is_cut() -> None:
    with pytest.raises(InputError) as caught:
        drive("a: {type: int}", {f"x{number}": "" for number in range(50)})
    assert caught.value.message.endswith("(10) there is no input `x9`; and 40 more")


def test_a_run_that_cannot_begin_does_not_prompt() -> None:
    resolution = resolve_inputs(declared("a: {type: string, from: prompt}\nb: {required: true}"), {})
    with pytest.raises(InputError, match="no value for required input `b`"):
        next(resolution)


@pytest.mark.parametrize(
    "limits",
    [
        pytest.param("type: int", id="another type"),
        pytest.param("type: object", id="not JSON"),
        pytest.param("type: string, enum: ['a, found b', c]", id="not in its enumeration"),
        pytest.param("type: string, pattern: '^[0-9]+$'", id="not its pattern"),
        pytest.param("type: string, min: 100", id="too short"),
        pytest.param("type: string, max: 3", id="too long"),
    ],
)
def test_an_objection_never_shows_a_secret(limits: str) -> None:
    with pytest.raises(InputError) as caught:
        drive(f"key: {{{limits}, secret: true}}", {"key": SECRET})
    said = f"{caught.value.message} {caught.value.hint}"
    assert "the value is secret and not shown" in said
    assert "hunter2" not in said
    assert "found you" not in said
    assert str(len(SECRET)) not in said


def test_a_secret_that_is_no_text_is_not_shown_either() -> None:
    with pytest.raises(InputError) as caught:
        drive("key: {type: object, secret: true}", {"key": {"hunter2": float("inf")}})
    assert "hunter2" not in f"{caught.value.message} {caught.value.hint}"


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        pytest.param("string", "hunter2", "hunter2", id="text"),
        pytest.param("string", "", "", id="empty text"),
        pytest.param("int", "0042", "42", id="a number"),
        pytest.param("bool", "true", "true", id="a truth value"),
        pytest.param("object", '{"b": 1, "a": "é"}', '{"a":"é","b":1}', id="an object"),
    ],
)
def test_state_holds_only_a_reference_to_a_secret(kind: str, value: str, text: str) -> None:
    resolved, _ = drive(f"key: {{type: {kind}, secret: true, from: env/KEY}}", {}, {"env": found(key=value)})
    assert resolved.values == {"key": secret_ref("key")}
    assert resolved.secrets == {"key": text}
    assert "hunter2" not in repr(resolved)
    assert resolved.sources == {"key": "env/KEY"}


def test_there_is_a_source_for_each_input_with_a_value() -> None:
    resolved, _ = drive("a: {type: int}\nb: {type: string}\nc: {type: list, default: [1]}", {"a": "1"})
    assert resolved.values == {"a": 1, "c": [1]}
    assert resolved.sources == {"a": "cli", "c": "default"}


@pytest.mark.parametrize(
    ("value", "source", "items"),
    [
        pytest.param("a, b,,c ", "cli", ["a", "b", "c"], id="a flag is split on commas"),
        pytest.param('["a, b"]', "cli", ["a, b"], id="a flag that is JSON is read as JSON"),
        pytest.param("", "cli", [], id="an empty flag is an empty list"),
        pytest.param("a,b", "file:names.txt", None, id="the text of a file is not split"),
        pytest.param("a,b", "api", None, id="text from Python is not split"),
    ],
)
def test_which_text_is_split_into_a_list(value: str, source: str, items: list[str] | None) -> None:
    inputs = declared("names: {type: list}")
    resolving = resolve_inputs(inputs, {"names": GivenInput(value, source)})
    if items is None:
        with pytest.raises(InputError, match="expected a list"):
            next(resolving)
    else:
        with pytest.raises(StopIteration) as done:
            next(resolving)
        assert done.value.value.values == {"names": items}


def test_a_list_in_the_environment_is_split_on_commas() -> None:
    resolving = resolve_inputs(declared("names: {type: list, from: env/NAMES}"), {})
    batch = next(resolving)
    with pytest.raises(StopIteration) as done:
        resolving.send(BatchAnswer({"names": "a, b"}))
    assert batch.resolver == "env"
    assert done.value.value.values == {"names": ["a", "b"]}


def test_every_problem_has_its_input_source_and_kind() -> None:
    inputs = (
        "host: {type: string, from: provider/cmdb.x}\n"
        "port: {type: int, from: cmdb.y}\n"
        "zone: {type: string, required: true, from: env/ZONE}\n"
        "size: {type: int}\n"
    )
    answers = {"provider/cmdb": BatchAnswer({"port": "x"}, {"host": Failure("timeout", "too late")})}
    with pytest.raises(InputError) as caught:
        drive(inputs, {"size": "big", "other": "1"}, answers)
    found = {(each.input, each.source, each.kind) for each in caught.value.problems if isinstance(each, InputProblem)}
    assert found == {
        ("other", "cli", "unknown_input"),
        ("size", "cli", "invalid_value"),
        ("host", "provider/cmdb.x", "timeout"),
        ("port", "provider/cmdb.y", "invalid_value"),
        ("zone", "env/ZONE", "no_value"),
    }


@pytest.mark.parametrize(
    ("source", "effect"),
    [
        pytest.param("provider/cmdb.server.host", "network", id="a provider"),
        pytest.param("cmdb.server.host", "network", id="its short form"),
        pytest.param("env/HOST", "environment", id="a variable"),
        pytest.param("file/host.txt", "filesystem", id="a file"),
        pytest.param("prompt", None, id="a person"),
        pytest.param("", None, id="no source"),
    ],
)
def test_the_effect_of_a_source(source: str, effect: str | None) -> None:
    assert effect_of(source) == effect


SECRET = "key: {secret: true, default: spare, from: env/KEY}"
"""A secret input that has a source and a default."""


@pytest.mark.parametrize(
    ("source", "inputs", "batches"),
    [
        pytest.param("env/KEY", SECRET, 1, id="its source has no value now"),
        pytest.param("env/OLD", SECRET, 1, id="its binding was changed"),
        pytest.param("cli", SECRET, 0, id="it was given, so its source is not read"),
        pytest.param("file:key.txt", SECRET, 0, id="it was given as a file"),
        pytest.param("cli", "key: {secret: true, default: spare}", 0, id="it was given and has no source"),
        pytest.param(
            "cli", "key: {secret: true, default: spare, from: prompt}", 1, id="it was given, and is asked for"
        ),
    ],
)
def test_a_recorded_secret_without_a_value_is_a_problem(source: str, inputs: str, batches: int) -> None:
    asked: list[ResolveBatch] = []
    with pytest.raises(InputError, match="the run was started with the secret input `key`") as caught:
        drive(inputs, recorded={"key": source}, asked=asked)
    assert len(asked) == batches
    assert caught.value.hint is not None
    assert "pass --input key=@FILE" in caught.value.hint
    assert "default" not in caught.value.hint


@pytest.mark.parametrize(
    ("source", "given", "value"),
    [
        pytest.param("env/KEY", {}, "from-env", id="from its source"),
        pytest.param("cli", {"key": "given"}, "given", id="given again"),
        pytest.param("env/KEY", {"key": "given"}, "given", id="given in place of its source"),
        pytest.param("default", {}, "spare", id="its default, whatever its source has now"),
        pytest.param("default", {"key": "given"}, "given", id="given in place of its default"),
    ],
)
def test_a_recorded_secret_is_resolved_as_it_was(source: str, given: dict[str, str], value: str) -> None:
    resolved, _ = drive(SECRET, given, {"env": found(key="from-env")}, {"key": source})
    assert resolved.secrets == {"key": value}
