"""What errors say in a record, and which events fit a line."""

import pytest

from gert.errors import TraceError
from gert.kernel.agent.steps.error_text import error_summary, error_text
from gert.kernel.events.agent import ToolCompleted
from gert.kernel.events.envelope import MAX_LINE_BYTES
from gert.kernel.ledger.build_batch import ROOM, check_writable


class Wordless(Exception):
    def __str__(self) -> str:
        raise ValueError("no words")


@pytest.mark.parametrize(
    ("error", "words", "name"),
    [
        pytest.param(ValueError("no such pod"), "no such pod", "ValueError: no such pod", id="its words"),
        pytest.param(ValueError(), "", "ValueError", id="none"),
        pytest.param(Wordless(), "", "Wordless", id="none that can be had"),
        pytest.param(ValueError("a\nb"), "a b", "ValueError: a b", id="on one line"),
        pytest.param(ValueError("x" * 99), "x" * 29 + "…", "ValueError: " + "x" * 29 + "…", id="not all of them"),
        pytest.param(KeyboardInterrupt(), "", "KeyboardInterrupt", id="of what is no error"),
    ],
)
def test_what_an_error_says(error: BaseException, words: str, name: str) -> None:
    assert (error_text(error, 30), error_summary(error, 30)) == (words, name)


def test_an_error_does_not_repeat_a_credential() -> None:
    assert "sk-abcdefghijklmnop" not in error_summary(ValueError("bad key sk-abcdefghijklmnop"), 100)


def ended(result_json: str) -> ToolCompleted:
    return ToolCompleted(request_seq=1, tool_name="t", result_json=result_json)


def test_a_result_that_fits_a_line_is_recorded() -> None:
    check_writable(ended("x" * (MAX_LINE_BYTES - 2 * ROOM)))


@pytest.mark.parametrize(
    "result_json",
    [
        pytest.param("x" * MAX_LINE_BYTES, id="too long"),
        pytest.param('"' * (MAX_LINE_BYTES // 2), id="too long once it is written"),
        pytest.param("\ud800", id="half a character"),
    ],
)
def test_a_result_that_does_not_is_refused(result_json: str) -> None:
    with pytest.raises(TraceError):
        check_writable(ended(result_json))
