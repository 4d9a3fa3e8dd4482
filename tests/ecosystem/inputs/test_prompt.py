"""Inputs from a person, at a terminal and through a pipe."""

from typing import Any

import pytest
from tests.ecosystem.host.people import at_terminal, piped

from gert.ecosystem.inputs.prompt import PromptResolver
from gert.kernel.engine.inputs import BatchAnswer, InputBinding
from gert.kernel.governance.parameter import Parameter


def binding(name: str = "port", **declared: Any) -> InputBinding:
    return InputBinding(name=name, source="prompt", path="", parameter=Parameter(**declared))


PORT = binding(type="int", required=True, min=1)
ZONE = binding("zone", type="string", enum=("a", "b"), default="a", has_default=True)
NOTE = binding("note", type="string", description="why\nnow\x1b[2J")
KEY = binding("key", type="string", secret=True, required=True, min=6, default="s3cret", has_default=True)


@pytest.mark.parametrize(
    ("bindings", "said", "values"),
    [
        pytest.param([PORT, ZONE], b"80\nb\n", {"port": "80", "zone": "b"}, id="one line each, in order"),
        pytest.param([ZONE, PORT], b"\n80", {"port": "80"}, id="an empty line leaves it to the default"),
        pytest.param([PORT], b"abc\n80\n", {"port": "abc"}, id="without a terminal a wrong answer is final"),
        pytest.param([PORT, ZONE], b"80\n", {"port": "80"}, id="no more lines"),
        pytest.param([PORT], b"", {}, id="no lines at all"),
        pytest.param([NOTE], b" a b \n", {"note": " a b "}, id="space is kept"),
        pytest.param([KEY], b"hunter2\n", {"key": "hunter2"}, id="a secret through a pipe"),
    ],
)
def test_answers_from_a_pipe(bindings: list[InputBinding], said: bytes, values: dict[str, str]) -> None:
    answer, _ = piped(lambda console: PromptResolver(console).resolve(bindings), said)
    assert answer == BatchAnswer(values)


def test_a_line_that_cannot_be_read_ends_the_questions() -> None:
    answer, shown = piped(lambda console: PromptResolver(console).resolve([NOTE, PORT]), b"\xff\n80\n")
    assert answer.values == {}
    assert answer.failures["note"].message == "a line of standard input is not UTF-8"
    assert "port" not in shown


def test_a_person_sees_what_is_asked_and_corrects_an_answer() -> None:
    answer, shown = at_terminal(
        lambda console: PromptResolver(console).resolve([PORT, ZONE, NOTE]),
        ("port: ", "abc\n"),
        ("port: ", "\n"),
        ("port: ", "8080\n"),
        ("zone: ", "c\n"),
        ("zone: ", "\n"),
        ("note: ", "\x04"),
    )
    assert answer == BatchAnswer({"port": "8080"})
    assert shown == (
        "`port` (int)\n"
        "port:   expected an int, found `abc`\n"
        "port:   a value is required\n"
        "port: `zone` (string, one of `a`, `b`, default `a`)\n"
        "zone:   expected one of `a`, `b`, found `c`\n"
        "zone: why\nnow\ufffd[2J\n`note` (string, may be left empty)\n"
        "note: "
    )


def test_after_three_wrong_answers_the_last_one_stands_for_the_kernel_to_refuse() -> None:
    answer, _ = at_terminal(
        lambda console: PromptResolver(console).resolve([PORT]), *(("port: ", f"x{number}\n") for number in range(3))
    )
    assert answer == BatchAnswer({"port": "x2"})


def test_a_secret_is_neither_shown_nor_repeated() -> None:
    answer, shown = at_terminal(
        lambda console: PromptResolver(console).resolve([KEY]), ("key: ", "short\n"), ("key: ", "hunter2\n")
    )
    assert answer == BatchAnswer({"key": "hunter2"})
    assert "short" not in shown
    assert "hunter2" not in shown
    assert "s3cret" not in shown
    assert "the value is secret and not shown" in shown
