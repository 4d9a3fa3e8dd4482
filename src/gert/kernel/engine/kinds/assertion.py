"""Evaluate assertions; all must hold."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from gert.errors import GertError, TemplateEvalError
from gert.kernel.engine.frame import Frame
from gert.kernel.engine.outputs import assumed_result
from gert.kernel.engine.plan import Plan
from gert.kernel.engine.requests import Steps
from gert.kernel.engine.results import Result, failed
from gert.kernel.foundation.patterns import compile_pattern
from gert.kernel.foundation.values import show
from gert.kernel.runbook.documents.steps import AssertionBlock, AssertStep
from gert.kernel.template import render_text
from gert.kernel.template.budget import Meter
from gert.kernel.template.compare import equal
from gert.kernel.template.unknown import is_unknown
from gert.kernel.template.values import as_number, is_empty, is_list, is_map


def run_assert(
    step: AssertStep, frame: Frame, plan: Plan, inputs: dict[str, Any], keys: Iterator[str], approval: object = None
) -> Steps[Result]:
    """Evaluate the assertions in order; the first that does not hold fails the step, unless an earlier is unknown."""
    yield from ()  # an assertion makes no request
    unknown = False
    for assertion in step.assert_:
        try:
            value = frame.render(assertion.value)
            expected = frame.render(assertion.expected)
            if is_unknown(value) or is_unknown(expected):
                unknown = True
                continue
            holds = _HOLDS[assertion.type](value, expected)
        except GertError:
            if unknown:
                break  # an earlier one may not hold, and then this one is not evaluated
            raise
        if not holds:
            if unknown:
                break
            return failed("assertion", _message(assertion, value, expected, frame), outputs={"passed": False})
    if unknown:
        return assumed_result(frame, plan.settings)
    return Result(outputs={"passed": True})


def _message(assertion: AssertionBlock, value: Any, expected: Any, frame: Frame) -> str:
    if assertion.message is not None:
        return frame.render_text(assertion.message)
    how = assertion.type.replace("_", " ")
    against = f" {show(expected)}" if assertion.expected is not None else ""
    return f"expected {how}{against}, found {show(value)}"


def _number(value: Any) -> float:
    number = as_number(value.strip() if isinstance(value, str) else value)
    if number is None:
        raise TemplateEvalError(f"expected a number to compare, found {show(value)}")
    return number


def _equals(value: Any, expected: Any) -> bool:
    # `expected` is written as text; a list or map is compared with the text it prints as.
    if (is_list(value) or is_map(value)) != (is_list(expected) or is_map(expected)):
        return render_text(value) == render_text(expected)
    return equal(value, expected, Meter())


def _contains(value: Any, expected: Any) -> bool:
    if is_list(value):
        return any(_equals(item, expected) for item in value)
    if is_map(value):
        return render_text(expected) in value
    return render_text(expected) in render_text(value)


def _matches(value: Any, expected: Any) -> bool:
    return compile_pattern(render_text(expected)).search(render_text(value)) is not None


_HOLDS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "equals": _equals,
    "not_equals": lambda value, expected: not _equals(value, expected),
    "contains": _contains,
    "not_contains": lambda value, expected: not _contains(value, expected),
    "matches": _matches,
    "not_matches": lambda value, expected: not _matches(value, expected),
    "greater_than": lambda value, expected: _number(value) > _number(expected),
    "greater_or_equal": lambda value, expected: _number(value) >= _number(expected),
    "less_than": lambda value, expected: _number(value) < _number(expected),
    "less_or_equal": lambda value, expected: _number(value) <= _number(expected),
    "exists": lambda value, _: value is not None,
    "not_exists": lambda value, _: value is None,
    "empty": lambda value, _: is_empty(value),
    "not_empty": lambda value, _: not is_empty(value),
}
