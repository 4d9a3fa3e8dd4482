"""Checks what `gert ... --json` prints against the shapes of its results."""

import json
from collections.abc import Sequence
from functools import cache
from typing import Any

import jsonschema_rs

from gert.ecosystem.surfaces.cli.results import LINES, RESULTS, result_schema

CHECKED: set[str] = set()
"""The commands whose results were checked in this process."""


def fits(words: Sequence[str], printed: str) -> None:
    """Fail where a command with --json prints something that has none of its shapes."""
    options = words[: words.index("--")] if "--" in words else words
    command = next((name for name in (" ".join(words[:2]), *words[:1]) if name in RESULTS), None)
    if command is None or "--json" not in options or not printed or "--help" in options:
        return
    if command == "run export" and "--send" not in options:
        return  # the run itself, as it was recorded
    for document in printed.splitlines() if command in LINES else [printed]:
        check(command, json.loads(document))


def check(command: str, document: Any) -> None:
    """Fail where a document has none of the shapes of a command."""
    try:
        _validator(command).validate(document)
    except jsonschema_rs.ValidationError as problem:
        wrong = [f"{'.'.join(map(str, each.instance_path))}: {each.message}" for each in _nearest(command, document)]
        raise AssertionError(f"`gert {command} --json` prints what its shape does not have: {wrong}") from problem
    CHECKED.add(command)


@cache
def _validator(command: str) -> Any:
    return jsonschema_rs.validator_for(result_schema(command))


def _nearest(command: str, document: Any) -> list[Any]:
    """What is wrong under the shape that fits best."""
    schema = result_schema(command)
    tried = ({**each, "$defs": schema["$defs"]} for each in schema["anyOf"])
    return min((list(jsonschema_rs.validator_for(each).iter_errors(document)) for each in tried), key=len)
