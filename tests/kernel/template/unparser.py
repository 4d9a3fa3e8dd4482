"""Prints a tree as source."""

from collections.abc import Callable, Mapping
from typing import Any

from gert.kernel.template.budget import too_deep
from gert.kernel.template.functions.formatting import go_quoted
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


def unparse(template: Template) -> str:
    """Return a source that parses to the same tree, apart from offsets."""
    printer = _Printer()
    try:
        printer.block(template.statements)
    except RecursionError:
        raise too_deep() from None
    return "".join(printer.pieces)


class _Printer:
    __slots__ = ("pieces",)

    def __init__(self) -> None:
        self.pieces: list[str] = []

    def action(self, inner: str, *, comment: bool = False) -> None:
        # `{` before `{{` would begin the action one character early; a trimmed space parts them.
        touches = bool(self.pieces) and self.pieces[-1].endswith("{")
        if comment:
            self.pieces.append(" {{- /* */}}" if touches else "{{/* */}}")
        else:
            self.pieces.append(f" {{{{- {inner} }}}}" if touches else f"{{{{ {inner} }}}}")

    def block(self, statements: tuple[Statement, ...]) -> None:
        before: Statement | None = None
        for statement in statements:
            if type(before) is Text and type(statement) is Text:
                self.action("", comment=True)
            _PRINT[type(statement)](self, statement)
            before = statement

    def text(self, text: Text) -> None:
        self.pieces.append(text.text)

    def output(self, output: Output) -> None:
        self.action(written(output.value))

    def assign(self, assign: Assign) -> None:
        self.action(_bound((assign.name,), assign.declares) + written(assign.value))

    def choose(self, node: If | With) -> None:
        word = "if" if type(node) is If else "with"
        for position, clause in enumerate(node.clauses):
            self.action(f"{'else ' if position else ''}{word} {_condition(clause)}")
            self.block(clause.body)
        self.end(node.otherwise)

    def range(self, node: Range) -> None:
        self.action(f"range {_bound(node.names, node.declares)}{written(node.over)}")
        self.block(node.body)
        self.end(node.otherwise)

    def end(self, otherwise: tuple[Statement, ...]) -> None:
        if otherwise:
            self.action("else")
            self.block(otherwise)
        self.action("end")

    def leave(self, node: Break | Continue) -> None:
        self.action("break" if type(node) is Break else "continue")


def _condition(clause: Clause) -> str:
    names = (clause.name,) if clause.name is not None else ()
    return _bound(names, clause.declares) + written(clause.condition)


def _bound(names: tuple[str, ...], declares: bool) -> str:
    if not names:
        return ""
    return f"{', '.join(f'${name}' for name in names)} {':=' if declares else '='} "


def written(expression: Expression) -> str:
    """Return an expression as source."""
    return _WRITTEN[type(expression)](expression)


def _argument(expression: Expression) -> str:
    text = written(expression)
    return f"({text})" if isinstance(expression, Call | Pipe) else text


def _literal(literal: Literal) -> str:
    value = literal.value
    if isinstance(value, str):
        return go_quoted(value)
    if value is None:
        return "nil"
    return repr(value).lower() if isinstance(value, bool) else repr(value)


def _call(call: Call) -> str:
    return " ".join([call.name, *map(_argument, call.arguments)])


def _pipe(pipe: Pipe) -> str:
    first = written(pipe.first)
    if isinstance(pipe.first, Pipe):
        first = f"({first})"
    return " | ".join([first, *map(_call, pipe.calls)])


_PRINT: Mapping[type, Callable[[_Printer, Any], None]] = {
    Text: _Printer.text,
    Output: _Printer.output,
    Assign: _Printer.assign,
    If: _Printer.choose,
    With: _Printer.choose,
    Range: _Printer.range,
    Break: _Printer.leave,
    Continue: _Printer.leave,
}

_WRITTEN: Mapping[type, Callable[[Any], str]] = {
    Literal: _literal,
    Path: lambda path: "." + ".".join(path.segments),
    Variable: lambda variable: ".".join([f"${variable.name}", *variable.segments]),
    Access: lambda access: ".".join([f"({written(access.of)})", *access.segments]),
    Call: _call,
    Pipe: _pipe,
}
