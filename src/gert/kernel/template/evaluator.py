"""Runs a template's tree over data, within a budget."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from gert.errors import TemplateEvalError
from gert.kernel.foundation.secret_refs import is_marked
from gert.kernel.template.budget import Budget, Meter, too_deep
from gert.kernel.template.functions import FUNCTIONS
from gert.kernel.template.printer import sorted_items, written
from gert.kernel.template.template import Template
from gert.kernel.template.tree import (
    Access,
    Assign,
    Break,
    Call,
    Clause,
    Continue,
    Expression,
    If,
    Literal,
    Output,
    Path,
    Pipe,
    Range,
    Statement,
    Text,
    Variable,
    With,
)
from gert.kernel.template.values import MISSING, Absent, field, is_list, is_map, is_nothing, is_number, kind, truth

NO_VALUE = object()


def render(template: Template, data: Any, budget: Budget | None = None) -> str:
    """Render a template to text."""
    try:
        return template.source if template.is_text else rendered(template, data, Meter(budget))
    except RecursionError:
        raise too_deep() from None


def evaluate(template: Template, data: Any, budget: Budget | None = None) -> Any:
    """Return the value of a template that is one action, otherwise its text."""
    if template.path is not None:
        value = data
        for segment in template.path:
            value = field(value, segment)
        return None if value is MISSING else value
    try:
        return template.source if template.is_text else evaluated(template, data, Meter(budget))
    except RecursionError:
        raise too_deep() from None


def condition(template: Template, data: Any, budget: Budget | None = None) -> bool:
    """Return whether a condition holds; surrounding white space is ignored."""
    try:
        return _holds(template, data, budget)
    except RecursionError:
        raise too_deep() from None


def _holds(template: Template, data: Any, budget: Budget | None) -> bool:
    if template.is_text:
        return truth(template.source.strip())
    actions = [each for each in template.statements if not (type(each) is Text and each.text.isspace())]
    if len(actions) == 1 and type(actions[0]) is Output:
        return truth(Evaluation(data, Meter(budget)).value(actions[0].value, data))
    return truth(rendered(template, data, Meter(budget)).strip())


def rendered(template: Template, data: Any, meter: Meter) -> str:
    """Render like `render`, with a shared meter."""
    evaluation = Evaluation(data, meter)
    evaluation.run(template.statements, data)
    return "".join(evaluation.pieces)


def evaluated(template: Template, data: Any, meter: Meter) -> Any:
    """Evaluate like `evaluate`, with a shared meter."""
    if not template.is_value:
        return rendered(template, data, meter)
    action = template.statements[0]
    assert isinstance(action, Output)  # noqa: S101 - this is what `is_value` says
    value = Evaluation(data, meter).value(action.value, data)
    return None if value is MISSING else value


class Evaluation:
    """One evaluation of a template: its variables, what it has printed, and its meter."""

    __slots__ = ("meter", "names", "pieces", "variables")

    def __init__(self, data: Any, meter: Meter) -> None:
        self.meter = meter
        self.pieces: list[str] = []
        # The values of the variables in scope, innermost last, and the names in the order they were declared;
        # the empty name is `$`.
        self.variables: dict[str, list[Any]] = {"": [data]}
        self.names: list[str] = []

    # Statements

    def run(self, statements: tuple[Statement, ...], dot: Any) -> Statement | None:
        """Run statements in order, up to a `break` or `continue`, which is returned."""
        meter = self.meter
        for statement in statements:
            meter.steps -= 1
            if meter.steps < 0:
                meter.offset = statement.offset
                meter.step(0)
            left = _RUN[type(statement)](self, statement, dot)
            if left is not None:
                return left
        return None

    def text(self, text: Text, _: Any) -> None:
        """Print text."""
        self.meter.make(len(text.text))
        self.pieces.append(text.text)

    def output(self, output: Output, dot: Any) -> None:
        """Print a value."""
        value = self.value(output.value, dot)
        self.meter.offset = output.value.offset
        text = written(value, self.meter)
        self.meter.make(len(text))
        self.pieces.append(text)

    def assign(self, assign: Assign, dot: Any) -> None:
        """Set a variable."""
        self.bind(assign.name, assign.declares, self.value(assign.value, dot))

    def bind(self, name: str, declares: bool, value: Any) -> None:
        """Give a variable a value, in this scope if it is declared here."""
        if declares:
            self.names.append(name)
            self.variables.setdefault(name, []).append(value)
        else:
            self.variables[name][-1] = value

    def leave_scope(self, scope: int) -> None:
        """Drop the variables beyond the first `scope`."""
        while len(self.names) > scope:
            self.variables[self.names.pop()].pop()

    def choose(self, node: If | With, dot: Any) -> Statement | None:
        """Run the first clause that holds, otherwise the rest."""
        scope = len(self.names)
        left = None
        for clause in node.clauses:
            value = self.judged(clause, dot)
            if value is not NO_VALUE:
                left = self.run(clause.body, value if type(node) is With else dot)
                break
        else:
            left = self.run(node.otherwise, dot)
        self.leave_scope(scope)
        return left

    def judged(self, clause: Clause, dot: Any) -> Any:
        """Return the value of a clause's condition, or no value if it is false."""
        self.meter.step()
        value = self.value(clause.condition, dot)
        if clause.name is not None:
            self.bind(clause.name, clause.declares, value)
        return value if truth(value) else NO_VALUE

    def range(self, node: Range, dot: Any) -> Statement | None:
        """Run the body once per element, otherwise the rest."""
        over = self.value(node.over, dot)
        scope = len(self.names)
        for name in node.names:
            self.bind(name, node.declares, over)
        inner = len(self.names)
        self.meter.offset = node.over.offset
        if len(node.names) > 1 and is_number(over):
            raise self.meter.fault("`range` over an integer takes one variable")
        empty = True
        for key, item in _elements(over, self.meter):
            empty = False
            self.meter.step()
            if node.names:
                self.variables[node.names[-1]][-1] = item
                if len(node.names) > 1:
                    self.variables[node.names[0]][-1] = key
            left = self.run(node.body, item)
            self.leave_scope(inner)
            if type(left) is Break:
                break
        # As in Go, a `break` in the `else` ends this `range`, a `continue` applies to the enclosing one.
        outward = self.run(node.otherwise, dot) if empty else None
        self.leave_scope(scope)
        return None if type(outward) is Break else outward

    def leave(self, node: Break | Continue, _: Any) -> Statement:
        """Leave the body of a `range`."""
        return node

    # Expressions

    def value(self, expression: Expression, dot: Any) -> Any:
        """Return the value of an expression for this dot."""
        value: Any = _VALUE[type(expression)](self, expression, dot)
        return value

    def literal(self, literal: Literal, _: Any) -> Any:
        """Return a constant."""
        return literal.value

    def path(self, path: Path, dot: Any) -> Any:
        """Return the value at a path in dot."""
        return self.within(dot, path.segments)

    def variable(self, variable: Variable, _: Any) -> Any:
        """Return the value at a path in a variable."""
        value = self.variables[variable.name][-1]
        return self.within(value, variable.segments) if variable.segments else value

    def access(self, access: Access, dot: Any) -> Any:
        """Return the value at a path in the value of a pipeline."""
        return self.within(self.value(access.of, dot), access.segments)

    def within(self, value: Any, segments: tuple[str, ...]) -> Any:
        """Return the value at a path."""
        self.meter.visit(len(segments))
        for segment in segments:
            value = field(value, segment)
        return value

    def pipe(self, pipe: Pipe, dot: Any) -> Any:
        """Return the value of the last call of a pipeline."""
        value = self.value(pipe.first, dot)
        for call in pipe.calls:
            value = self.call(call, dot, value)
        return value

    def call(self, call: Call, dot: Any, last: Any = NO_VALUE) -> Any:
        """Return the value of a call; `last` is what is piped into it."""
        self.meter.step()
        self.meter.visit(len(call.arguments))
        function = FUNCTIONS[call.name]
        if function.lazy:
            return function.call(self.meter, self.arguments(call, dot, last))
        values = [self.value(argument, dot) for argument in call.arguments]
        if last is not NO_VALUE:
            values.append(last)
        self.meter.offset = call.offset
        if not function.whole:
            for value in values:
                if type(value) is str and is_marked(value):
                    raise secret_refused(self.meter, call.name)
        return function.call(self.meter, *values)

    def arguments(self, call: Call, dot: Any, last: Any) -> Iterator[Any]:
        """Yield the arguments of a call, each evaluated on demand."""
        for argument in call.arguments:
            yield self.value(argument, dot)
        if last is not NO_VALUE:
            yield last


def secret_refused(meter: Meter, name: str) -> TemplateEvalError:
    """Return the error for a function on a secret: templates see a reference, not the value."""
    return meter.fault(
        f"`{name}` cannot look into a secret", hint="a secret can only be passed whole, as in `{{ .token }}`"
    )


def _elements(value: Any, meter: Meter) -> Iterable[tuple[Any, Any]]:
    """Yield the elements of `range`: a list, a map by sorted keys, the numbers below an integer, or nothing."""
    if is_nothing(value):
        return ()
    if is_list(value):
        return enumerate(value)
    if is_map(value):
        return sorted_items(value, meter)
    if is_number(value) and isinstance(value, int):
        return ((number, number) for number in range(value))
    if isinstance(value, Absent):
        raise value.fault(meter)
    hint = 'split it first, as in `range split "," .list`' if isinstance(value, str) else None
    raise meter.fault(f"`range` needs a list, a map or an integer, found {kind(value)}", hint=hint)


_RUN: Mapping[type, Callable[[Evaluation, Any, Any], Statement | None]] = {
    Text: Evaluation.text,
    Output: Evaluation.output,
    Assign: Evaluation.assign,
    If: Evaluation.choose,
    With: Evaluation.choose,
    Range: Evaluation.range,
    Break: Evaluation.leave,
    Continue: Evaluation.leave,
}

_VALUE: Mapping[type, Callable[[Evaluation, Any, Any], Any]] = {
    Literal: Evaluation.literal,
    Path: Evaluation.path,
    Variable: Evaluation.variable,
    Access: Evaluation.access,
    Call: Evaluation.call,
    Pipe: Evaluation.pipe,
}
