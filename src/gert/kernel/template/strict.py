"""Renders the templates of a tool: what its author misspelt is an error, and never an argument without its last part.

A declared input that was not given is missing, as everywhere. A name that is not declared is an error, and so is a
key that a given value does not have, unless the template handles that: `default`, `if`, `with`, `or`, `eq`.
"""

from collections.abc import Container, Mapping
from typing import Any

from gert.errors import TemplateEvalError
from gert.kernel.foundation.text import shorten
from gert.kernel.template.budget import Budget, Meter, too_deep
from gert.kernel.template.evaluator import NO_VALUE, Evaluation
from gert.kernel.template.references import tolerates
from gert.kernel.template.template import Template
from gert.kernel.template.tree import Call, Clause, Expression, Pipe
from gert.kernel.template.values import MISSING, is_nothing, kind


class Inputs(dict[str, Any]):
    """The inputs of a tool; reading a name that is neither given nor declared is an error."""

    __slots__ = ("declared",)

    def __init__(self, given: Mapping[str, Any], declared: Container[str]) -> None:
        super().__init__(given)
        self.declared = declared

    def get(self, key: str, default: Any = None) -> Any:
        """Return an input."""
        if key not in self and key not in self.declared:
            raise TemplateEvalError(f"the tool declares no input `{shorten(key)}`")
        return super().get(key, default)


def render_strictly(template: Template, inputs: Inputs, budget: Budget | None = None) -> str:
    """Render a template of a tool to text."""
    if template.is_text:
        return template.source
    evaluation = StrictEvaluation(inputs, Meter(budget))
    try:
        evaluation.run(template.statements, inputs)
    except RecursionError:
        raise too_deep() from None
    return "".join(evaluation.pieces)


class StrictEvaluation(Evaluation):
    """Raises where a value lacks a key and the template does not handle that."""

    __slots__ = ("tolerant",)

    def __init__(self, data: Any, meter: Meter) -> None:
        super().__init__(data, meter)
        self.tolerant = False

    def judged(self, clause: Clause, dot: Any) -> Any:
        """Judge a condition, which may read what is missing."""
        outer, self.tolerant = self.tolerant, True
        try:
            return super().judged(clause, dot)
        finally:
            self.tolerant = outer

    def value(self, expression: Expression, dot: Any) -> Any:
        """Return the value of an expression for this dot."""
        if type(expression) is Pipe:
            return self.pipe(expression, dot)
        return self.call(expression, dot) if type(expression) is Call else super().value(expression, dot)

    def within(self, value: Any, segments: tuple[str, ...]) -> Any:
        """Return the value at a path."""
        for segment in segments:
            found = super().within(value, (segment,))
            self._require(found, value, f"there is no `{shorten(segment)}` in")
            value = found
        return value

    def pipe(self, pipe: Pipe, dot: Any) -> Any:
        """Return the value of a pipeline; how a call treats missing values also applies to what is piped into it."""
        outer = self.tolerant
        levels = [outer]
        for call in reversed(pipe.calls):
            levels.append(tolerates(call, levels[-1]))
        try:
            self.tolerant = levels.pop()
            value = self.value(pipe.first, dot)
            for call in pipe.calls:
                self.tolerant = levels.pop()
                value = self.call(call, dot, value)
        finally:
            self.tolerant = outer
        return value

    def call(self, call: Call, dot: Any, last: Any = NO_VALUE) -> Any:
        """Return the value of a call."""
        outer, self.tolerant = self.tolerant, tolerates(call, self.tolerant)
        try:
            found = super().call(call, dot, last)
            if call.name == "index" and call.arguments:
                self._require(found, self.value(call.arguments[0], dot), "`index` finds nothing in")
        finally:
            self.tolerant = outer
        return found

    def _require(self, found: Any, value: Any, what: str) -> None:
        """Refuse what is missing in a value that is there; a declared input need not be."""
        if found is MISSING and not (self.tolerant or is_nothing(value) or isinstance(value, Inputs)):
            raise self.meter.fault(f"{what} {kind(value)}: correct the name, or write `default` for a fallback")
