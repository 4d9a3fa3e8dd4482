"""Renders text from data that is partly unknown: an action that depends on an unknown value is `(unknown)`."""

from collections.abc import Iterator, Mapping
from typing import Any

from gert.kernel.template.budget import Budget, Meter, too_deep
from gert.kernel.template.evaluator import NO_VALUE, Evaluation
from gert.kernel.template.functions import FUNCTIONS
from gert.kernel.template.strict import Inputs, StrictEvaluation
from gert.kernel.template.template import Template
from gert.kernel.template.tree import (
    Assign,
    Break,
    Call,
    Clause,
    Continue,
    Expression,
    If,
    Literal,
    Range,
    Statement,
    With,
)
from gert.kernel.template.unknown import UNKNOWN, GuardedState, Unknown, UnknownRead, is_unknown
from gert.kernel.template.values import truth


def render_known_parts(template: Template, data: Any, budget: Budget | None = None) -> str:
    """Render a template to text; what depends on an unknown value is `(unknown)`, and the rest is as it will be."""
    evaluation = (_StrictPartialEvaluation if isinstance(data, Inputs) else _PartialEvaluation)(data, Meter(budget))
    try:
        evaluation.run(template.statements, data)
    except UnknownRead:
        return UNKNOWN
    except RecursionError:
        raise too_deep() from None
    return "".join(evaluation.pieces)


class _PartialEvaluation(Evaluation):
    """Prints unknown values and passes them on, and raises UnknownRead where something is computed from one."""

    __slots__ = ()

    def run(self, statements: tuple[Statement, ...], dot: Any) -> Statement | None:
        for statement in statements:
            scope, printed = len(self.names), len(self.pieces)
            try:
                if type(statement) is Range and isinstance(self.value(statement.over, dot), Unknown):
                    raise UnknownRead
                left = super().run((statement,), dot)
            except UnknownRead:
                left = None
                if type(statement) is Assign:
                    self.bind(statement.name, statement.declares, UNKNOWN)
                    continue
                if _reaches_out(statement):
                    raise
                self.leave_scope(scope)
                self.pieces[printed:] = [UNKNOWN]
            if left is not None:
                return left
        return None

    def judged(self, clause: Clause, dot: Any) -> Any:
        truth(_guarded(self.value(clause.condition, dot)))
        return super().judged(clause, dot)

    def value(self, expression: Expression, dot: Any) -> Any:
        return self.call(expression, dot) if type(expression) is Call else super().value(expression, dot)

    def within(self, value: Any, segments: tuple[str, ...]) -> Any:
        for segment in segments:
            if isinstance(value, Unknown):
                raise UnknownRead
            value = super().within(value, (segment,))
        return value

    def call(self, call: Call, dot: Any, last: Any = NO_VALUE) -> Any:
        if not FUNCTIONS[call.name].lazy:
            values = (Literal(each.offset, _guarded(self.value(each, dot))) for each in call.arguments)
            call = Call(call.offset, call.name, tuple(values))
        return super().call(call, dot, _guarded(last))

    def arguments(self, call: Call, dot: Any, last: Any) -> Iterator[Any]:
        return map(_guarded, super().arguments(call, dot, last))


class _StrictPartialEvaluation(StrictEvaluation, _PartialEvaluation):
    """Renders a template of a tool."""

    __slots__ = ()


def _guarded(value: Any) -> Any:
    """Return a value that something is computed from; UnknownRead if it is unknown, and for a map once that is read."""
    if isinstance(value, Mapping):
        return value if isinstance(value, GuardedState) else GuardedState(value)
    if is_unknown(value):
        raise UnknownRead
    return value


def _reaches_out(statement: Statement, *, in_loop: bool = False) -> bool:
    """Whether a statement may set a variable of those after it, or leave the loop around it."""
    if isinstance(statement, Break | Continue):
        return not in_loop
    if isinstance(statement, Assign):
        return not statement.declares
    bodies: tuple[tuple[Statement, ...], ...] = ()
    sets = False
    if isinstance(statement, Range):
        sets, bodies, in_loop = (
            bool(statement.names) and not statement.declares,
            (statement.body, statement.otherwise),
            True,
        )
    elif isinstance(statement, If | With):
        sets = any(each.name is not None and not each.declares for each in statement.clauses)
        bodies = (*(each.body for each in statement.clauses), statement.otherwise)
    return sets or any(_reaches_out(each, in_loop=in_loop) for body in bodies for each in body)
