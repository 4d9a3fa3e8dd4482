"""Templates inside maps and lists, at every depth; the keys of maps are never templates."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

from gert.errors import TemplateSyntaxError
from gert.kernel.template.budget import Budget, Meter, too_deep
from gert.kernel.template.evaluator import evaluated
from gert.kernel.template.template import Template, parse

Place: TypeAlias = tuple[str | int, ...]
Report: TypeAlias = Callable[[Place, TemplateSyntaxError], None]

MAX_DEPTH = 100


def compile_value(value: Any, report: Report) -> Any:
    """Parse every text with an action in a value; a value without any is returned unchanged."""
    try:
        return _compiled(value, report, ())
    except RecursionError:
        report((), TemplateSyntaxError("the value is nested too deeply for where it is parsed"))
        return value


def _compiled(value: Any, report: Report, place: Place) -> Any:
    if isinstance(value, str):
        return _parsed(value, report, place) if "{{" in value else value
    if not isinstance(value, list | Mapping):
        return value
    if len(place) >= MAX_DEPTH:
        report(place, TemplateSyntaxError(f"the value is nested deeper than {MAX_DEPTH} levels"))
        return value
    if isinstance(value, list):
        items = [_compiled(item, report, (*place, index)) for index, item in enumerate(value)]
        return items if _changed(items, value) else value
    entries = {key: _compiled(of, report, (*place, key)) for key, of in value.items()}
    return entries if _changed(entries.values(), value.values()) else value


def _changed(new: Any, old: Any) -> bool:
    return any(one is not other for one, other in zip(new, old, strict=True))


def _parsed(source: str, report: Report, place: Place) -> Template | str:
    try:
        return parse(source)
    except TemplateSyntaxError as error:
        report(place, error)
        return source


def render_value(compiled: Any, data: Any, budget: Budget | None = None) -> Any:
    """Evaluate the templates of a compiled value; native types are kept."""
    if isinstance(compiled, str):
        return compiled
    try:
        return _rendered(compiled, data, Meter(budget), MAX_DEPTH)
    except RecursionError:
        raise too_deep() from None


def _rendered(value: Any, data: Any, meter: Meter, depth: int) -> Any:
    if isinstance(value, Template):
        return value.source if value.is_text else evaluated(value, data, meter)
    if depth <= 0 or not isinstance(value, list | Mapping):
        return value  # nothing is compiled deeper than this
    if isinstance(value, list):
        items = [_rendered(item, data, meter, depth - 1) for item in value]
        return items if _changed(items, value) else value
    entries = {key: _rendered(of, data, meter, depth - 1) for key, of in value.items()}
    return entries if _changed(entries.values(), value.values()) else value


def templates_in(compiled: Any) -> Iterator[tuple[Place, Template]]:
    """Yield the templates of a compiled value with their paths."""
    waiting: list[tuple[Place, Any]] = [((), compiled)]
    while waiting:
        place, value = waiting.pop()
        if isinstance(value, Template):
            yield place, value
        elif len(place) >= MAX_DEPTH:
            continue
        elif isinstance(value, list):
            waiting.extend(((*place, index), value[index]) for index in range(len(value) - 1, -1, -1))
        elif isinstance(value, Mapping):
            waiting.extend(((*place, key), of) for key, of in reversed(list(value.items())))
