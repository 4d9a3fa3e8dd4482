"""The immutable tree of a parsed template; every node knows its character offset in the source."""

from typing import TypeAlias

from msgspec import Struct


class Literal(Struct, frozen=True):
    """A constant: text, a number, `true`, `false` or `nil`."""

    offset: int
    value: str | int | float | bool | None


class Path(Struct, frozen=True):
    """`.a.b`, looked up in dot; without segments it is dot itself."""

    offset: int
    segments: tuple[str, ...]


class Variable(Struct, frozen=True):
    """`$x.a.b`; the empty name is `$`, the root data."""

    offset: int
    name: str
    segments: tuple[str, ...]


class Access(Struct, frozen=True):
    """`(…).a.b`, looked up in the value of a parenthesised pipeline."""

    offset: int
    of: "Expression"
    segments: tuple[str, ...]


class Call(Struct, frozen=True):
    """A function and the arguments written after it."""

    offset: int
    name: str
    arguments: tuple["Expression", ...]


class Pipe(Struct, frozen=True):
    """`first | call | call`: each call takes the value before it as its last argument."""

    offset: int
    first: "Expression"
    calls: tuple[Call, ...]


class Text(Struct, frozen=True):
    """Text outside the actions, after trimming."""

    offset: int
    text: str


class Output(Struct, frozen=True):
    """An action that prints a value."""

    offset: int
    value: "Expression"


class Assign(Struct, frozen=True):
    """`$x := …` where it declares, `$x = …` where it does not; prints nothing."""

    offset: int
    name: str
    declares: bool
    value: "Expression"


class Clause(Struct, frozen=True):
    """One arm of `if` or `with`: a condition, perhaps kept in a variable, and what follows it."""

    offset: int
    name: str | None
    declares: bool
    condition: "Expression"
    body: tuple["Statement", ...]


class If(Struct, frozen=True):
    """The first clause whose condition holds, otherwise the rest."""

    offset: int
    clauses: tuple[Clause, ...]
    otherwise: tuple["Statement", ...]


class With(Struct, frozen=True):
    """As `If`, and dot is the value of the condition."""

    offset: int
    clauses: tuple[Clause, ...]
    otherwise: tuple["Statement", ...]


class Range(Struct, frozen=True):
    """The body once per element, otherwise the rest; `names` are none, `$value`, or `$key, $value`."""

    offset: int
    names: tuple[str, ...]
    declares: bool
    over: "Expression"
    body: tuple["Statement", ...]
    otherwise: tuple["Statement", ...]


class Break(Struct, frozen=True):
    """Leave the innermost `range`."""

    offset: int


class Continue(Struct, frozen=True):
    """Continue with the next element of the innermost `range`."""

    offset: int


Expression: TypeAlias = Literal | Path | Variable | Access | Call | Pipe
Statement: TypeAlias = Text | Output | Assign | If | With | Range | Break | Continue
