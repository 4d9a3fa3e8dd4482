"""Deterministic checks of Python source, without running it: its syntax, and a few rules of style."""

import ast
from collections.abc import Callable, Iterator
from typing import Final

MAX_SOURCE: Final = 1 << 20
MAX_LINE: Final = 120


def syntax_problem(source: str) -> str | None:
    """Return why a text is not valid Python; None if it is."""
    parsed = _parsed(source)
    return parsed if isinstance(parsed, str) else None


def lint_problem(source: str) -> str | None:
    """Return the first problem that the checks find, by line; None if there is none."""
    parsed = _parsed(source)
    if isinstance(parsed, str):
        return parsed
    found = [*_line_problems(source), *(problem for check in _CHECKS for problem in check(parsed))]
    if not found:
        return None
    line, problem = min(found)
    return f"line {line}: {problem}"


def _parsed(source: str) -> ast.Module | str:
    if len(source) > MAX_SOURCE:
        return f"it is too long: expected at most {MAX_SOURCE} characters"
    try:
        return ast.parse(source)
    except SyntaxError as error:
        return f"line {error.lineno or 1}: {error.msg}"
    except (ValueError, RecursionError, MemoryError) as error:
        # Nested too deeply for the parser, or not text at all.
        return f"it cannot be parsed: {type(error).__name__}"


def _line_problems(source: str) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(source.split("\n"), start=1):
        text = line.removesuffix("\r")
        if len(text) > MAX_LINE:
            yield number, f"it is longer than {MAX_LINE} characters"
        if text != text.rstrip():
            yield number, "it ends with white space"
        if "\t" in text[: len(text) - len(text.lstrip())]:
            yield number, "it is indented with a tab"


def _bare_excepts(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ExceptHandler) and node.type is None:
            yield node.lineno, "`except:` without an exception"


def _star_imports(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and any(alias.name == "*" for alias in node.names):
            yield node.lineno, f"`from {node.module or '.'} import *`"


def _mutable_defaults(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            for default in (*node.args.defaults, *node.args.kw_defaults):
                if isinstance(default, ast.List | ast.Dict | ast.Set):
                    yield default.lineno, "a default argument that calls share"


def _unused_imports(tree: ast.Module) -> Iterator[tuple[int, str]]:
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    exported = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    for node in tree.body:
        if isinstance(node, ast.Import | ast.ImportFrom) and getattr(node, "module", None) != "__future__":
            for alias in node.names:
                name = (alias.asname or alias.name).partition(".")[0]
                if name not in used and name not in exported and name not in ("*", "_"):
                    yield node.lineno, f"`{name}` is imported and not used"


_CHECKS: Final[tuple[Callable[[ast.Module], Iterator[tuple[int, str]]], ...]] = (
    _bare_excepts,
    _star_imports,
    _mutable_defaults,
    _unused_imports,
)
