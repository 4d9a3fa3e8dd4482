"""Extracts the outputs of an action from what a tool printed (kernel-v0 §9.5, DECISIONS 15).

It reads nothing but its arguments, so a real process and a scenario's canned text give the same outputs.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import msgspec

from gert.errors import CanonicalError, InputError, PatternError
from gert.kernel.events.runbook.parts import Failure
from gert.kernel.foundation.canonical import require_canonical
from gert.kernel.foundation.json_path import Absent, follow
from gert.kernel.foundation.patterns import Match, compile_pattern
from gert.kernel.foundation.text import lines_of, without_trailing_newlines
from gert.kernel.foundation.values import coerce, show
from gert.kernel.governance.parameter import Parameter
from gert.kernel.runbook.documents.tool import ActionBlock, ExtractBlock

_UNDECLARED: Final = Parameter()
_BYTE_ORDER_MARK: Final = "\ufeff"


class ParsedJson(msgspec.Struct, frozen=True):
    """A text parsed as JSON, or why it is not JSON."""

    value: Any = None
    problem: str | None = None


class ToolOutput(msgspec.Struct, frozen=True, kw_only=True):
    """What a tool printed and its exit code, with secrets masked.

    document: returns the parsed stdout, if it differs from the text: a secret number is masked
        in the parsed document, because a mask in the text would make it invalid JSON
    truncated: the streams of which only the beginning was kept
    """

    exit_code: int
    stdout: str = ""
    stderr: str = ""
    document: Callable[[], ParsedJson] | None = None
    truncated: frozenset[str] = frozenset()


class ExtractResult(msgspec.Struct, frozen=True):
    """The extracted outputs, and the failure if a required one is missing."""

    outputs: dict[str, Any]
    failure: Failure | None = None


class _AbsentError(InputError):
    """The extract's source has no such value."""


class _Cached:
    """A document that is parsed on first use and then cached."""

    __slots__ = ("_parsed", "_read")

    def __init__(self, read: Callable[[], ParsedJson]) -> None:
        self._read = read
        self._parsed: ParsedJson | None = None

    def __call__(self) -> ParsedJson:
        if self._parsed is None:
            self._parsed = self._read()
        return self._parsed


def extract(action: ActionBlock, outputs: Mapping[str, Parameter], printed: ToolOutput) -> ExtractResult:
    """Extract every output that the action declares.

    After a success, a required or only output must be present and fit its type. An optional one may be absent
    and then has its default; if present, it must fit. Others are left out. After a failure, every match is kept.
    """
    found: dict[str, Any] = {}
    failure = None
    document = _Cached(printed.document or partial(parse_json, printed.stdout))
    for name, where in action.extract.items():
        parameter = outputs.get(name, _UNDECLARED)
        try:
            found[name] = _value(where, parameter, printed, document)
        except (InputError, CanonicalError, PatternError) as problem:
            if parameter.optional and isinstance(problem, _AbsentError):
                if parameter.has_default and printed.exit_code == 0:
                    found[name] = parameter.default
                continue
            needed = parameter.required or parameter.optional or len(action.extract) == 1
            if needed and failure is None and printed.exit_code == 0:
                place = f"output `{name}` of action `{action.path[-1]}`" if action.path else f"output `{name}`"
                failure = Failure("extraction", f"{place}: {problem.message}")
    return ExtractResult(found, failure)


def parse_json(text: str, seen: str | None = None) -> ParsedJson:
    """Parse a text as JSON; if it is not JSON, return the problem, which quotes `seen` instead of the text."""
    if not text.strip():
        return ParsedJson(problem="expected JSON on stdout, found nothing")
    try:
        return ParsedJson(msgspec.json.decode(text.removeprefix(_BYTE_ORDER_MARK)))
    except RecursionError:
        return ParsedJson(problem="the JSON on stdout is nested too deeply")
    except (msgspec.DecodeError, UnicodeEncodeError) as problem:
        detail = str(problem).removeprefix("JSON is malformed: ").lower()
        return ParsedJson(problem=f"expected JSON on stdout, found {show(text if seen is None else seen)} ({detail})")


def _value(where: ExtractBlock, parameter: Parameter, printed: ToolOutput, document: Callable[[], ParsedJson]) -> Any:
    value = _raw(where, printed, document)
    if isinstance(value, str) and parameter.type not in ("string", "any"):
        value = value.strip()
    coerced = coerce(value, parameter.type)
    require_canonical(coerced)
    return coerced


def _raw(where: ExtractBlock, printed: ToolOutput, document: Callable[[], ParsedJson]) -> Any:
    if where.from_ == "exit_code":
        return printed.exit_code
    if where.from_ == "json":
        parsed = document()
        if parsed.problem is not None:
            raise InputError(parsed.problem)
        return _follow(parsed.value, where.json_path or "$")
    text = printed.stderr if where.from_ == "stderr" else printed.stdout
    if where.lines:
        lines = lines_of(text, trim=where.trim)
        return lines if where.pattern is None else _matches(where, lines, text, printed.truncated)
    found = text if where.pattern is None else _match(where, text, printed.truncated)
    return without_trailing_newlines(found) if where.trim else found


def _match(where: ExtractBlock, text: str, truncated: frozenset[str]) -> str:
    """Return the first group of a pattern, or the whole match."""
    search = compile_pattern(where.pattern or "").search
    found = _group(search(text))
    if found is None and text.endswith("\n"):
        # `$` is the very end in Go, but authors who write `^(\d+)$` rarely think of the trailing newline.
        found = _group(search(text.removesuffix("\n").removesuffix("\r")))
    if found is None:
        raise _no_match(where, text, truncated)
    return found


def _matches(where: ExtractBlock, lines: list[str], text: str, truncated: frozenset[str]) -> list[str]:
    """Return what a pattern matches in each line, for the lines that match."""
    search = compile_pattern(where.pattern or "").search
    found = [group for line in lines if (group := _group(search(line))) is not None]
    if not found:
        raise _no_match(where, text, truncated)
    return found


def _group(match: Match | None) -> str | None:
    """Return the first group of a match, or all of it if the pattern has no group."""
    if match is None:
        return None
    return match.group(1) if match.groups() else match.group()


def _no_match(where: ExtractBlock, text: str, truncated: frozenset[str]) -> InputError:
    expected = f"expected {'a line' if where.lines else 'text'} that matches {show(where.pattern)} on {where.from_}"
    seen = show(text) if text.strip() else "nothing"
    if where.from_ in truncated:  # it may be in the part that was dropped
        return InputError(f"{expected}, of which only the beginning was kept, found {seen}")
    return _AbsentError(f"{expected}, found {seen}")


def _follow(value: Any, path: str) -> Any:
    """Return the value at a path such as `a.b[0].c`."""
    try:
        return follow(value, path)
    except Absent:
        raise _AbsentError(f"expected {show(path)} in the JSON on stdout, found nothing there") from None
