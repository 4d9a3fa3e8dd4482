"""Hints for commands and options that people know from other programs, and for those they misspell."""

import json
import re
import shlex

import click
import pytest

from gert.ecosystem.surfaces.cli.habits import HABITS
from gert.ecosystem.surfaces.cli.main import group, main


def resolved(words: list[str]) -> tuple[click.Command, list[str]]:
    """The command that words begin with, and what follows it."""
    command: click.Command = group
    with click.Context(group) as context:
        while words and isinstance(command, click.Group) and (found := command.get_command(context, words[0])):
            command, words = found, words[1:]
    return command, words


def options_of(command: click.Command) -> set[str]:
    return {"--help", *(option for param in command.params for option in param.opts)}


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("exec book.yaml --dry-run", "did you mean `--mode dry-run`?"),
        ("exec book.yaml --check", "did you mean `--mode dry-run`?"),
        ("exec book.yaml -e pod=web", "did you mean `--var NAME=VALUE`?"),
        ("exec book.yaml --extra-vars pod=web", "did you mean `--var NAME=VALUE`?"),
        ("exec book.yaml --pod web", "to set an input, write `--var pod=VALUE`"),
        ("exec book.yaml --pod=web", "to set an input, write `--var pod=VALUE`"),
        ("exec book.yaml pod=web", "to set an input, write `--var pod=VALUE`"),
        ("exec book.yaml --verbos", "did you mean `--verbose`, or for an input `--var verbos=VALUE`?"),
        ("tool try disk --check", "did you mean `--dry-run`?"),
        ("exec book.yaml -x", "run `gert exec --help` for usage"),
        ("run show last --jsn", "did you mean `--json`?"),
        ("run last", "did you mean `gert run show last`?"),
        ("run 20260228-1430", "did you mean `gert run show 20260228-1430`?"),
        ("run lst", "did you mean `list`?"),
        ("run runbooks/restart.yaml", "to run a runbook, write `gert exec runbooks/restart.yaml`"),
        ("run check-disk", "to run a runbook, write `gert exec check-disk`"),
        ("runbooks/restart.yaml", "to run a runbook, write `gert exec runbooks/restart.yaml`"),
        ("start book.yaml", "did you mean `gert exec RUNBOOK`?"),
        ("list", "did you mean `gert run list`?"),
        ("status", "did you mean `gert run status RUN`?"),
        ("history", "did you mean `gert run list`?"),
        ("lint book.yaml", "did you mean `gert validate FILE`?"),
        ("check book.yaml", "did you mean `gert validate FILE`?"),
        ("exce book.yaml", "did you mean `exec`?"),
        ("frobnicate", "run `gert --help` to list the commands"),
        ("--verbose exec book.yaml", "options follow the command: `gert COMMAND --verbose`"),
        ("run --json list", "options follow the command: `gert run COMMAND --json`"),
    ],
)
def test_a_word_of_another_program_gets_the_command_that_is_meant(
    words: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words.split()) == 2
    message, said = capsys.readouterr().err.splitlines()
    assert re.match(r"error: (no such|there is no|got unexpected) ", message)
    assert "Did you mean" not in message
    assert said == f"  hint: {hint}"


def test_the_hint_is_in_the_json_of_the_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["exec", "book.yaml", "--dry-run", "--json"]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert (error["message"], error["hint"]) == ("no such option `--dry-run`", "did you mean `--mode dry-run`?")


@pytest.mark.parametrize(
    ("path", "word", "meant"),
    [pytest.param(path, word, meant, id=f"{path} {word}") for path in HABITS for word, meant in HABITS[path].items()],
)
def test_a_habit_is_no_word_of_gert_and_what_is_meant_is_one(path: str, word: str, meant: str) -> None:
    command, rest = resolved(path.split()[1:])
    assert rest == []
    if isinstance(command, click.Group):
        assert resolved([word])[1] == [word], "the group has such a command"
        begun, *words = shlex.split(meant)
        assert begun == "gert"
        command, words = resolved(words)
        assert words == [] or words[0].startswith("-") or words[0].isupper()
        assert not isinstance(command, click.Group) or words == ["--help"]
    else:
        assert word not in options_of(command), "the command has such an option"
        words = shlex.split(meant)
    assert {each for each in words if each.startswith("-")} <= options_of(command)
