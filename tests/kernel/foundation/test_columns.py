"""Text in the columns of a terminal."""

import pytest

from gert.kernel.foundation.columns import column_count, cut, most_columns, rows, wrap


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        pytest.param("abc", 3, id="a letter takes one"),
        pytest.param("東京", 4, id="a wide character takes two"),
        pytest.param("e\u0301", 1, id="a combining character takes none"),
    ],
)
def test_columns_are_counted(text: str, columns: int) -> None:
    assert column_count(text) == columns


@pytest.mark.parametrize(
    ("text", "width", "shown"),
    [
        pytest.param("abcdef", 6, "abcdef", id="what fits is whole"),
        pytest.param("abcdef", 5, "abcd…", id="what does not is cut, and says so"),
        pytest.param("ab cdef", 4, "ab…", id="no space stands before the mark"),
        pytest.param("東京都庁", 6, "東京…", id="a wide character is not halved"),
        pytest.param("abc", 1, "…", id="nothing but the mark fits"),
    ],
)
def test_what_is_too_long_is_cut(text: str, width: int, shown: str) -> None:
    assert cut(text, width) == shown
    assert column_count(shown) <= width


@pytest.mark.parametrize(
    ("line", "lines"),
    [
        pytest.param("a short line", ["a short line"], id="what fits stays"),
        pytest.param(
            "one two three four five six", ["one two three four", "  five six"], id="what follows is indented"
        ),
        pytest.param(
            "  run:  one two three four", ["  run:  one two", "        three four"], id="it stands below the value"
        ),
        pytest.param(
            "  │ one two three four five", ["  │ one two three", "  │ four five"], id="quoted text stays quoted"
        ),
        pytest.param(
            "aa bb  cc dd ee ff gg hh", ["aa bb  cc dd ee ff", "  gg hh"], id="several spaces stay as they are"
        ),
        pytest.param(f"see {'x' * 30} now", ["see", f"  {'x' * 30}", "  now"], id="a longer word is whole"),
        pytest.param("東京 東京 東京 東京 東京", ["東京 東京 東京 東京", "  東京"], id="wide characters count twice"),
    ],
)
def test_lines_wrap_at_words(line: str, lines: list[str]) -> None:
    assert wrap(line, 20) == lines


def test_a_label_that_takes_half_the_width_is_not_repeated_as_space() -> None:
    assert wrap("  a long label: one two three", 20) == ["  a long label: one", "  two three"]


@pytest.mark.parametrize("width", [20, 33, 80])
@pytest.mark.parametrize(
    "line",
    [
        pytest.param("x" * 500, id="one word"),
        pytest.param("  command:       " + "a b " * 100, id="words below their label"),
        pytest.param("  inputs:        " + " " * 300 + "  command: x", id="blanks"),
        pytest.param("    │ " + "東京" * 90, id="wide characters"),
        pytest.param("a" + "e\u0301" * 200, id="combining characters"),
    ],
)
def test_rows_are_not_broken_again_and_lose_nothing(line: str, width: int) -> None:
    first, *others = rows(line, width)
    assert all(column_count(row) <= width for row in (first, *others))
    bars = {row.partition("│ ")[0] for row in others}
    assert len(bars) == 1
    assert bars.pop().strip(" ") == ""
    assert first + "".join(row.partition("│ ")[2] for row in others) == line


@pytest.mark.parametrize("mark", ["\u1b44", "\u302e", "\u4dc0", "\u3248", "\u1bf2", "\U0001f3fb", "\u0301", "\u2800"])
def test_characters_that_terminals_draw_wider_than_they_say_are_counted_as_wide(mark: str) -> None:
    assert most_columns(mark) >= 1
    line = "  command:       echo " + mark * 57 + "  because:       low risk; rule: allowed"
    for width in (40, 80, 120):
        first, *others = rows(line, width)
        assert all(len(row) <= width for row in (first, *others))
        assert all(row.lstrip(" ").startswith("│ ") for row in others)
        # Even if every such character takes two columns, no row is broken by the terminal.
        wide = 1 if mark in ("\u1b44", "\u1bf2", "\u0301") else 2
        assert all(len(row) + (wide - 1) * row.count(mark) <= width for row in (first, *others))
