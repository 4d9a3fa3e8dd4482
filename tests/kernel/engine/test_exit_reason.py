"""The reason of a failed program: the line that says why, not the one that points to its help."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gert.kernel.engine.exit_reason import exit_message, reason_line

TRACEBACK = 'Traceback (most recent call last):\n  File "x.py", line 1, in <module>\nValueError: see the help\n'
ARGPARSE = "warning: old\nusage: x [-h] --to TO\n         [--from FROM]\nx: error: `--to` is missing\n"
GIT = "error: unknown option `nope'\nusage: git commit [-a]\n   or: git\n\n    -q    be quiet: hush\n\nOther options\n"
CLAP = "error: unexpected argument '--nope' found\n\nUsage: x [OPTIONS]\n\nFor more information, try '--help'.\n"


@pytest.mark.parametrize(
    ("printed", "reason"),
    [
        pytest.param("a\nb\n\n  \n", "b", id="the last line that is not empty"),
        pytest.param("tar: bad option\nTry 'tar --help' or 'tar --usage' for more information.\n", "tar: bad option"),
        pytest.param("curl: bad\ncurl: try 'curl --help' or 'curl --manual'\n", "curl: bad"),
        pytest.param('psql: bad\npsql: hint: Try "psql --help" for more information.\n', "psql: bad"),
        pytest.param("x: bad\nx: Use -help for summary.\n", "x: bad"),
        pytest.param("Error: unknown flag: --x\nSee 'kubectl get --help' for usage.\n", "Error: unknown flag: --x"),
        pytest.param("docker: bad\n\nRun 'docker --help' for more information\n", "docker: bad"),
        pytest.param("bad\nsee `man 1 x` for more\n", "bad"),
        pytest.param("bad\nplease run x -h\n", "bad"),
        pytest.param(CLAP, "error: unexpected argument '--nope' found"),
        pytest.param(GIT, "error: unknown option `nope'", id="the line before a whole usage text"),
        pytest.param(ARGPARSE, "x: error: `--to` is missing", id="the line after a usage text"),
        pytest.param(TRACEBACK, "ValueError: see the help", id="the end of a traceback, whatever it says"),
        pytest.param("run 7 failed: no space left\n", "run 7 failed: no space left"),
        pytest.param("user alice is not allowed\n", "user alice is not allowed"),
        pytest.param("Usage: x FILE\nTry 'x --help'.\n", "Try 'x --help'.", id="a usage text alone"),
        pytest.param("Invalid command; type help for a list.\n", "Invalid command; type help for a list."),
    ],
)
def test_the_reason_is_the_last_line_that_says_why(printed: str, reason: str) -> None:
    assert reason_line(printed) == reason


@pytest.mark.parametrize(
    ("streams", "reason"),
    [(("err\n", "out\n"), "err"), ((" \n", "out\n"), "out"), (("", ""), ""), (("Try --help\n", "out\n"), "Try --help")],
)
def test_standard_output_counts_only_where_standard_error_is_empty(streams: tuple[str, ...], reason: str) -> None:
    assert reason_line(*streams) == reason


def test_the_message_is_one_bounded_line() -> None:
    assert exit_message("`x`", 3, "") == "`x` exited with 3"
    assert exit_message("`x`", 3, "a\x1b[2J\tb" + "c" * 500) == f"`x` exited with 3: a�[2J⇥b{'c' * 192}…"


@given(st.text(max_size=300), st.text(max_size=300))
def test_a_program_that_printed_has_a_reason_and_it_is_a_line_of_it(stderr: str, stdout: str) -> None:
    said = [line.strip() for text in (stderr, stdout) for line in text.splitlines() if line.strip()]
    found = reason_line(stderr, stdout)
    assert found in said if said else found == ""


def test_a_huge_stream_is_searched_at_its_end_only() -> None:
    assert reason_line("for " * 4_000_000 + "\nrun " + "x: " * 4_000_000 + "\nbad\n") == "bad"
