"""Runs a template's tree over data, within a budget."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from gert.kernel.template.budget import Budget, Meter
from gert.kernel.template.functions import FUNCTIONS
from gert.kernel.template.printing import sorted_items, written
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
from gert.kernel.template.values import MISSING, field, is_list, is_map, is_nothing, is_number, kind, truth

_NO_VALUE = object()


def render(template: Template, data: Any, budget: Budget | None = None) -> str:
    """The text a template makes of the data."""
    return template.source if template.is_text else rendered(template, data, Meter(budget))


def evaluate(template: Template, data: Any, budget: Budget | None = None) -> Any:
    """The value of a template that is one action, otherwise its text."""
    return template.source if template.is_text else evaluated(template, data, Meter(budget))


def condition(template: Template, data: Any, budget: Budget | None = None) -> bool:
    """Whether a template holds; white space around it does not count."""
    if template.is_text:
        return truth(template.source.strip())
    actions = [each for each in template.statements if not (type(each) is Text and each.text.isspace())]
    if len(actions) == 1 and type(actions[0]) is Output:
        return truth(_Evaluation(data, Meter(budget)).value(actions[0].value, data))
    return truth(rendered(template, data, Meter(budget)).strip())


def rendered(template: Template, data: Any, meter: Meter) -> str:
    """`render`, counted by a meter that others share."""
    evaluation = _Evaluation(data, meter)
    evaluation.run(template.statements, data)
    return "".join(evaluation.pieces)


def evaluated(template: Template, data: Any, meter: Meter) -> Any:
    """`evaluate`, counted by a meter that others share."""
    if not template.is_value:
        return rendered(template, data, meter)
    action = template.statements[0]
    assert isinstance(action, Output)  # noqa: S101 - this is what `is_value` says
    value = _Evaluation(data, meter).value(action.value, data)
    return None if value is MISSING else value


class _Evaluation:
    __slots__ = ("meter", "names", "pieces", "values")

    def __init__(self, data: Any, meter: Meter) -> None:
        self.meter = meter
        self.pieces: list[str] = []
        # Variables in scope, innermost last; the empty name is `$`.
        self.names = [""]
        self.values = [data]

    # Statements

    def run(self, statements: tuple[Statement, ...], dot: Any) -> Statement | None:
        """Run statements in order, up to a `break` or `continue`, which is returned."""
        for statement in statements:
            left = _RUN[type(statement)](self, statement, dot)
            if left is not None:
                return left
        return None

    def text(self, text: Text, _: Any) -> None:
        self.meter.make(len(text.text))
        self.pieces.append(text.text)

    def output(self, output: Output, dot: Any) -> None:
        value = self.value(output.value, dot)
        self.meter.offset = output.value.offset
        self.meter.step()
        text = written(value, self.meter)
        self.meter.make(len(text))
        self.pieces.append(text)

    def assign(self, assign: Assign, dot: Any) -> None:
        self.bind(assign.name, assign.declares, self.value(assign.value, dot))

    def bind(self, name: str, declares: bool, value: Any) -> None:
        if declares:
            self.names.append(name)
            self.values.append(value)
        else:
            self.values[self.place(name)] = value

    def place(self, name: str) -> int:
        """Where the innermost variable of this name is."""
        names = self.names
        position = len(names) - 1
        while names[position] != name:
            position -= 1
        return position

    def leave_scope(self, scope: int) -> None:
        del self.names[scope:], self.values[scope:]

    def choose(self, node: If | With, dot: Any) -> Statement | None:
        """Run the first clause that holds, otherwise the rest."""
        scope = len(self.names)
        left = None
        for clause in node.clauses:
            value = self.judged(clause, dot)
            if value is not _NO_VALUE:
                left = self.run(clause.body, value if type(node) is With else dot)
                break
        else:
            left = self.run(node.otherwise, dot)
        self.leave_scope(scope)
        return left

    def judged(self, clause: Clause, dot: Any) -> Any:
        """The value of a clause's condition, or no value where it is false."""
        self.meter.step()
        value = self.value(clause.condition, dot)
        if clause.name is not None:
            self.bind(clause.name, clause.declares, value)
        return value if truth(value) else _NO_VALUE

    def range(self, node: Range, dot: Any) -> Statement | None:
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
                self.values[self.place(node.names[-1])] = item
                if len(node.names) > 1:
                    self.values[self.place(node.names[0])] = key
            left = self.run(node.body, item)
            self.leave_scope(inner)
            if type(left) is Break:
                break
        # As in Go, a `break` in the `else` ends this `range`, a `continue` goes to the one around it.
        outward = self.run(node.otherwise, dot) if empty else None
        self.leave_scope(scope)
        return None if type(outward) is Break else outward

    def leave(self, node: Break | Continue, _: Any) -> Statement:
        return node

    # Expressions

    def value(self, expression: Expression, dot: Any) -> Any:
        """The value of an expression where dot is this."""
        value: Any = _VALUE[type(expression)](self, expression, dot)
        return value

    def literal(self, literal: Literal, _: Any) -> Any:
        return literal.value

    def path(self, path: Path, dot: Any) -> Any:
        for segment in path.segments:
            dot = field(dot, segment)
        return dot

    def variable(self, variable: Variable, _: Any) -> Any:
        value = self.values[self.place(variable.name)]
        for segment in variable.segments:
            value = field(value, segment)
        return value

    def access(self, access: Access, dot: Any) -> Any:
        value = self.value(access.of, dot)
        for segment in access.segments:
            value = field(value, segment)
        return value

    def pipe(self, pipe: Pipe, dot: Any) -> Any:
        value = self.value(pipe.first, dot)
        for call in pipe.calls:
            value = self.call(call, dot, value)
        return value

    def call(self, call: Call, dot: Any, last: Any = _NO_VALUE) -> Any:
        self.meter.step()
        if call.name in _STOPS_AT:
            return self.short_circuit(call, dot, last)
        values = [self.value(argument, dot) for argument in call.arguments]
        if last is not _NO_VALUE:
            values.append(last)
        self.meter.offset = call.offset
        return FUNCTIONS[call.name].call(self.meter, *values)

    def short_circuit(self, call: Call, dot: Any, last: Any) -> Any:
        """`and` and `or`: the operand that decides, without evaluating those after it."""
        stop = _STOPS_AT[call.name]
        value: Any = MISSING
        for argument in call.arguments:
            value = self.value(argument, dot)
            if truth(value) is stop:
                return value
        return value if last is _NO_VALUE else last


def _elements(value: Any, meter: Meter) -> Iterable[tuple[Any, Any]]:
    """What `range` walks: a list, a map by sorted keys, the numbers below an integer, or nothing."""
    if is_nothing(value):
        return ()
    if is_list(value):
        return enumerate(value)
    if is_map(value):
        return sorted_items(value, meter)
    if is_number(value) and isinstance(value, int):
        return ((number, number) for number in range(value))
    hint = 'split it first, as in `range split "," .list`' if isinstance(value, str) else None
    raise meter.fault(f"`range` needs a list, a map or an integer, found {kind(value)}", hint=hint)


_STOPS_AT = {"and": False, "or": True}

_RUN: Mapping[type, Callable[[_Evaluation, Any, Any], Statement | None]] = {
    Text: _Evaluation.text,
    Output: _Evaluation.output,
    Assign: _Evaluation.assign,
    If: _Evaluation.choose,
    With: _Evaluation.choose,
    Range: _Evaluation.range,
    Break: _Evaluation.leave,
    Continue: _Evaluation.leave,
}

_VALUE: Mapping[type, Callable[[_Evaluation, Any, Any], Any]] = {
    Literal: _Evaluation.literal,
    Path: _Evaluation.path,
    Variable: _Evaluation.variable,
    Access: _Evaluation.access,
    Call: _Evaluation.call,
    Pipe: _Evaluation.pipe,
}
