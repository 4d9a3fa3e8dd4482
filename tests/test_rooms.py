"""Rooms that import-linter cannot watch: calls that need no import of their own."""

import re
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[1] / "src" / "gert"
STARTS_A_PROCESS = re.compile(
    r"\b(create_subprocess_\w+|subprocess_exec|subprocess_shell|posix_spawnp?|forkpty|os\.(?:fork|exec\w+|spawn\w+|popen|system))\("
)
OPENS_A_DATABASE = re.compile(r"""import_module\(["'](?:asyncpg|sqlite3)""")


def outside(room: str, pattern: re.Pattern[str]) -> list[str]:
    """The files of other rooms whose text matches a pattern."""
    files = (file for file in SOURCE.rglob("*.py") if not file.is_relative_to(SOURCE / "ecosystem" / room))
    return [str(file.relative_to(SOURCE)) for file in files if pattern.search(file.read_text(encoding="utf-8"))]


@pytest.mark.parametrize(
    ("room", "pattern"),
    [
        pytest.param("process", STARTS_A_PROCESS, id="only ecosystem/process starts processes"),
        pytest.param("ledger", OPENS_A_DATABASE, id="only ecosystem/ledger opens databases"),
    ],
)
def test_no_other_room_does_it(room: str, pattern: re.Pattern[str]) -> None:
    assert outside(room, pattern) == []
    assert any(pattern.search(file.read_text(encoding="utf-8")) for file in (SOURCE / "ecosystem" / room).rglob("*.py"))
