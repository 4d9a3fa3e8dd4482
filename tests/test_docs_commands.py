"""Every command that the docs show was run: sessions are played, and everything else is a command that exists."""

import re
import shlex
from pathlib import Path

import click
import pytest
from tests.docs_session import PIECE, ROOT, difference, play, session_of

from gert.ecosystem.surfaces.cli.main import group

PAGES = [
    ROOT / "README.md",
    *sorted(page for page in (ROOT / "docs").rglob("*.md") if page.parent.name != "decisions"),
]
SESSIONS = [
    pytest.param(
        page,
        id=str(page.relative_to(ROOT)),
        marks=pytest.mark.needs(
            "bash",
            *(name for name in ("jq", "git", "openssl") if re.search(rf"(\| |-- run:.* |\$\(){name} ", text)),
            *" ".join(re.findall(r"<!-- needs: (.*?) -->", text)).split(),
        ),
    )
    for page in PAGES
    if "```console" in (text := page.read_text(encoding="utf-8"))
]


@pytest.mark.parametrize("page", SESSIONS)
def test_the_commands_of_a_page_do_what_it_shows(page: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    text = page.read_text(encoding="utf-8")
    commands, stubs = session_of(text)
    dsn = request.getfixturevalue("dsn") if "<!-- postgres -->" in text else None
    wrong = []
    for command, (code, printed) in zip(commands, play(commands, stubs, tmp_path, dsn), strict=True):
        place = f"{page.relative_to(ROOT)}:{command.line}: $ {command.text}"
        if code != command.code:
            wrong.append(f"{place}\nexit code {code}, not {command.code}\n{printed}")
        elif command.shown and (what := difference(command.shown, printed)):
            wrong.append(f"{place}\n{what}\n{printed}")
    assert not wrong, "\n\n".join(wrong)


def shown_commands() -> list[tuple[str, str]]:
    """Every `gert …` in a block or between backticks, with its place."""
    found = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        blocks = [(piece.start(), piece["text"]) for piece in PIECE.finditer(text) if piece["text"]]
        spans = [(span.start(), span[1]) for span in re.finditer(r"`(gert [^`\n]+)`", PIECE.sub(_blank, text))]
        for start, said in [*blocks, *spans]:
            for line in said.replace("\\\n", " ").splitlines():
                if command := re.match(r"(?:\$ )?(gert [a-z-]+.*)", line):
                    found.append((f"{page.relative_to(ROOT)}:{text[:start].count(chr(10)) + 1}", command[1]))
    return found


def _blank(piece: re.Match[str]) -> str:
    return "\n" * piece[0].count("\n")


def unknown(line: str) -> str | None:
    """The first word of a command line that `gert` does not know."""
    try:
        words = shlex.split(line.partition(" #")[0], comments=True)[1:]
    except ValueError:
        words = line.split()[1:]
    command: click.Command = group
    context = click.Context(group, info_name="gert")
    while words and isinstance(command, click.Group):
        name = words.pop(0)
        if name.startswith("-"):
            return None
        if "|" in name and name != "|":
            return next((each for each in name.split("|") if command.get_command(context, each) is None), None)
        inner = command.get_command(context, name)
        if inner is None:
            return None if not re.fullmatch(r"[a-z-]+", name) else name
        command, context = inner, click.Context(inner, info_name=name, parent=context)
    options = {option for each in command.get_params(context) for option in [*each.opts, *each.secondary_opts]}
    for word in words:
        if word in ("|", "&&", ">", ">>", "&", "…", ";", "--"):
            break
        if word.startswith("--") and word.partition("=")[0].rstrip(",.;") not in options:
            return word
    return None


def test_every_command_and_option_in_the_docs_exists() -> None:
    wrong = [f"{place}: {line}: `{word}`" for place, line in shown_commands() if (word := unknown(line)) is not None]
    assert not wrong, "\n".join(wrong)


def test_every_block_of_commands_is_a_session() -> None:
    """A block that shows how to call gert is played."""
    missed = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for piece in PIECE.finditer(text):
            if piece["mark"] or piece["language"] == "console":
                continue
            if piece["language"] in ("", "sh", "bash") and re.search(r"^ *(\$ |gert[ -]|artana )", piece["text"], re.M):
                missed.append(f"{page.relative_to(ROOT)}:{text[: piece.start()].count(chr(10)) + 1}")
    assert not missed, "\n".join(missed)
