"""The places inputs are looked for in."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gert.ecosystem.inputs import Resolvers
from gert.ecosystem.inputs.env import EnvResolver
from gert.ecosystem.inputs.file import MAX_TEXT, FileResolver
from gert.kernel.engine.inputs import BatchAnswer, InputBinding, ResolveBatch
from gert.kernel.governance.parameter import Parameter


def binding(path: str, name: str = "a") -> InputBinding:
    return InputBinding(name=name, source=f"x/{path}", path=path, parameter=Parameter(type="string"))


def messages(answer: BatchAnswer) -> dict[str, str]:
    return {name: failure.message for name, failure in answer.failures.items()}


@pytest.mark.parametrize(
    ("environment", "values"),
    [
        pytest.param({"HOST": "srv1"}, {"a": "srv1"}, id="a variable that is set"),
        pytest.param({"HOST": ""}, {"a": ""}, id="set and empty is a value"),
        pytest.param({"host": "srv1"}, {}, id="names are exact"),
        pytest.param({}, {}, id="not set is not there"),
    ],
)
def test_variables(environment: dict[str, str], values: dict[str, Any]) -> None:
    answer = asyncio.run(EnvResolver(environment).resolve([binding("HOST")]))
    assert answer == BatchAnswer(values)


@pytest.mark.parametrize(
    ("data", "value"),
    [
        pytest.param(b"srv1\n", "srv1", id="the newline at the end is not part of it"),
        pytest.param(b"a\nb\r\n\r\n", "a\nb", id="nor are several"),
        pytest.param(b" x ", " x ", id="other space is"),
        pytest.param(b"", "", id="an empty file is a value"),
        pytest.param(b"x" * MAX_TEXT, "x" * MAX_TEXT, id="the largest file"),
    ],
)
def test_files(tmp_path: Path, data: bytes, value: str) -> None:
    (tmp_path / "v.txt").write_bytes(data)
    absolute = binding(str(tmp_path / "v.txt"), "b")
    answer = asyncio.run(FileResolver(str(tmp_path)).resolve([binding("v.txt"), absolute]))
    assert answer == BatchAnswer({"a": value, "b": value})


@pytest.mark.parametrize("path", ["missing.txt", "there.txt/below", "folder/missing"])
def test_a_missing_file_is_simply_not_there(tmp_path: Path, path: str) -> None:
    (tmp_path / "there.txt").write_text("x")
    (tmp_path / "folder").mkdir()
    assert asyncio.run(FileResolver(str(tmp_path)).resolve([binding(path)])) == BatchAnswer()


def _binary(path: Path) -> None:
    path.write_bytes(b"\xff\x00")


def _nul(path: Path) -> None:
    path.write_bytes(b"a\0b")


def _large(path: Path) -> None:
    path.write_bytes(b"x" * (MAX_TEXT + 1))


def _endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def _loop(path: Path) -> None:
    path.symlink_to(path)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        pytest.param(_binary, "is not UTF-8 text", id="binary"),
        pytest.param(_nul, "contains a NUL byte", id="text with a NUL"),
        pytest.param(_large, "is larger than 1 MiB", id="too large"),
        pytest.param(Path.mkdir, "is not a regular file", id="a folder"),
        pytest.param(os.mkfifo, "is not a regular file", id="a pipe without a writer"),
        pytest.param(_endless, "is not a regular file", id="a link to a device without end"),
        pytest.param(_loop, "cannot be read: too many levels of symbolic links", id="a link to itself"),
    ],
)
def test_files_that_cannot_be_used_are_failures(tmp_path: Path, make: Callable[[Path], None], why: str) -> None:
    make(tmp_path / "v")
    (tmp_path / "good").write_text("x")
    answer = asyncio.run(FileResolver(str(tmp_path)).resolve([binding("v"), binding("good", "b")]))
    assert answer.values == {"b": "x"}
    assert why in messages(answer)["a"]


def test_a_path_with_a_nul_is_none(tmp_path: Path) -> None:
    answer = asyncio.run(FileResolver(str(tmp_path)).resolve([binding("a\0b")]))
    assert "is not a path" in messages(answer)["a"]


@pytest.mark.parametrize(
    ("resolver", "failures"),
    [
        pytest.param(
            "provider/cmdb",
            {"a": "no provider `cmdb` is configured; add it to `providers`, or pass the input with --var"},
            id="a provider that cannot be asked fails",
        ),
        pytest.param(
            "file", {"a": "this installation has no input source `file`"}, id="a place that is not looked in fails"
        ),
        pytest.param("prompt", {}, id="without a person to ask, nothing is there"),
    ],
)
def test_batches_without_a_resolver(resolver: str, failures: dict[str, str]) -> None:
    resolvers = Resolvers({"env": EnvResolver({"HOST": "srv1"})})
    answer = asyncio.run(resolvers.answer(ResolveBatch(resolver, (binding("HOST"),))))
    assert answer.values == {}
    assert messages(answer) == failures


def test_a_batch_goes_to_its_resolver() -> None:
    resolvers = Resolvers({"provider/cmdb": EnvResolver({"HOST": "srv1"})})
    answer = asyncio.run(resolvers.answer(ResolveBatch("provider/cmdb", (binding("HOST"),))))
    assert answer.values == {"a": "srv1"}
