"""Renders the templates of a tool: what its author misspelt is an error, and never an argument without its last part.

A declared input that was not given is missing, as everywhere. A name that is not declared is an error. A key that a
given value does not have is absent, and so is all that is computed from it. `if`, `with`, `or`, `and`, `default`,
`coalesce`, `ternary`, `eq`, `ne` and `not` may look at what is absent; printing it, or looping over it, is an error.
So a template renders as it does elsewhere, or not at all.
"""

from collections.abc import Container, Mapping
from typing import Any

from gert.errors import TemplateEvalError
from gert.kernel.foundation.text import shorten
from gert.kernel.template.budget import Budget, Meter, too_deep
from gert.kernel.template.evaluator import NO_VALUE, Evaluation
from gert.kernel.template.functions import FUNCTIONS, lists
from gert.kernel.template.template import Template
from gert.kernel.template.tree import Call, Expression, Literal
from gert.kernel.template.unknown import GuardedState
from gert.kernel.template.values import MISSING, Absent, is_nothing, kind


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
    """Tells what is absent from what may be missing."""

    __slots__ = ()

    def value(self, expression: Expression, dot: Any) -> Any:
        """Return the value of an expression for this dot."""
        return self.call(expression, dot) if type(expression) is Call else super().value(expression, dot)

    def within(self, value: Any, segments: tuple[str, ...]) -> Any:
        """Return the value at a path."""
        for segment in segments:
            if type(value) is Absent:
                value = Absent(value.said, super().within(value.value, (segment,)))
                continue
            found = super().within(value, (segment,))
            value = Absent(f"there is no `{shorten(segment)}` in {kind(value)}") if _lacks(value, found) else found
        return value

    def call(self, call: Call, dot: Any, last: Any = NO_VALUE) -> Any:
        """Return the value of a call: absent if it is computed from what is, or if it looks for what is not there."""
        function = FUNCTIONS[call.name]
        if function.lazy:
            return super().call(call, dot, last)  # `and` and `or` return one of their arguments
        given = [self.value(argument, dot) for argument in call.arguments]
        if last is not NO_VALUE:
            given.append(last)
        absent = next((each for each in given if type(each) is Absent), None)
        if absent is not None and function.takes == "refuses":
            raise absent.fault(self.meter)
        chooses = function.gives in ("any argument", "first or second")
        if not chooses:
            given = [each.value if type(each) is Absent else each for each in given]
        literals = tuple(Literal(call.offset, each) for each in given)
        found = super().call(Call(call.offset, call.name, literals), dot)
        if absent is None:
            said = self._lacked(call.name, given, found)
            return found if said is None else Absent(said, found)
        if chooses:
            return Absent(absent.said) if call.name == "coalesce" and found is MISSING else found
        return found if function.takes == "expects" else Absent(absent.said, found)

    def _lacked(self, name: str, given: list[Any], found: Any) -> str | None:
        """Say what a function has not found, if that is not there."""
        if name == "index" and found is MISSING:
            value, *keys = given
            for key in keys:
                inner = lists.index(self.meter, value, key)
                if inner is MISSING:
                    return f"`index` finds nothing in {kind(value)}" if _lacks(value, inner) else None
                value = inner
        if name in ("first", "last") and found is MISSING and not is_nothing(given[0]):
            return f"`{name}` finds nothing in an empty list"
        if name == "pluck" and None in found:
            path, value = given
            plucked = (self.within(item, lists.segments_of(path)) for item in lists.items_of(self.meter, value, name))
            return next((each.said for each in plucked if type(each) is Absent), None)
        return None


def _lacks(value: Any, found: Any) -> bool:
    """Whether a value that is there does not have what was looked for; a declared input need not be given."""
    if found is not MISSING or is_nothing(value):
        return False
    return not isinstance(value.of if isinstance(value, GuardedState) else value, Inputs)
