"""Finds the data that a template may read, without running it.

Every path in the source is one reference, resolved to the root data: a path in the body of `range` begins
at the elements, a path after a variable begins where its value came from. A value that a function creates
has no origin; a value that a function passes on (`or`, `default`, `index`, `first`, …) is followed.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from msgspec import Struct

from gert.kernel.template.functions import FUNCTIONS
from gert.kernel.template.tree import (
    Access,
    Assign,
    Break,
    Call,
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


class Each:
    """Some element, known only at run time."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "EACH"

    def __reduce__(self) -> str:
        return "EACH"


EACH: Final = Each()

Segment: TypeAlias = str | int | Each

# Bounds on the origins of a value (`or $x $x` doubles them) and on their depth (a loop that assigns).
_MOST_ORIGINS = 16
_LONGEST_PATH = 64
_MOST_ROUNDS = 4


class Reference(Struct, frozen=True):
    """A path from the root data; `tolerant` if the template handles its absence."""

    path: tuple[Segment, ...]
    offset: int
    tolerant: bool


class _Origin(Struct, frozen=True):
    """Where a value may come from; `spread` if its positions differ from those of the data."""

    path: tuple[Segment, ...]
    offset: int
    tolerant: bool
    spread: bool = False

    def at(self, *segments: Segment) -> "_Origin":
        if self.spread and segments:
            segments = (EACH, *segments[1:])
        return _Origin((self.path + segments)[:_LONGEST_PATH], self.offset, self.tolerant)


_Origins: TypeAlias = tuple[_Origin, ...]


def references_of(statements: tuple[Statement, ...]) -> tuple[Reference, ...]:
    """The references of a template, in the order of its source."""
    root: _Origins = (_Origin((), 0, False),)
    finder = _Finder(root)
    finder.run(statements, root)
    return tuple(sorted(finder.found, key=lambda reference: reference.offset))


class _Finder:
    __slots__ = ("found", "in_loop", "names", "values")

    def __init__(self, root: _Origins) -> None:
        self.in_loop = False
        self.found: dict[Reference, None] = {}
        self.names = [""]
        self.values: list[_Origins] = [root]

    def read(self, origins: _Origins) -> None:
        """Record the origins that are read here."""
        for origin in origins:
            self.found[Reference(origin.path, origin.offset, origin.tolerant)] = None

    # Statements

    def run(self, statements: tuple[Statement, ...], dot: _Origins) -> None:
        for statement in statements:
            _RUN[type(statement)](self, statement, dot)

    def nothing(self, _: Any, __: _Origins) -> None:
        """Text, `break` and `continue` read nothing."""

    def output(self, output: Output, dot: _Origins) -> None:
        self.read(self.origins(output.value, dot, False))

    def assign(self, assign: Assign, dot: _Origins) -> None:
        origins = self.origins(assign.value, dot, False)
        self.read(origins)
        self.bind(assign.name, assign.declares, origins)

    def bind(self, name: str, declares: bool, origins: _Origins) -> None:
        if declares:
            self.names.append(name)
            self.values.append(origins)
            return
        # An assignment may not have happened: the variable may still have its earlier value.
        place = self.place(name)
        self.values[place] = self.few(self.values[place] + origins)

    def place(self, name: str) -> int:
        return len(self.names) - 1 - self.names[::-1].index(name)

    def choose(self, node: If | With, dot: _Origins) -> None:
        scope = len(self.names)
        for clause in node.clauses:
            origins = self.origins(clause.condition, dot, True)
            self.read(origins)
            if clause.name is not None:
                self.bind(clause.name, clause.declares, origins)
            self.inside(clause.body, origins if type(node) is With else dot)
        self.inside(node.otherwise, dot)
        del self.names[scope:], self.values[scope:]

    def inside(self, statements: tuple[Statement, ...], dot: _Origins) -> None:
        scope = len(self.names)
        self.run(statements, dot)
        del self.names[scope:], self.values[scope:]

    def range(self, node: Range, dot: _Origins) -> None:
        scope = len(self.names)
        origins = self.origins(node.over, dot, False)
        self.read(origins)
        elements = self.few(tuple(origin.at(EACH) for origin in origins))
        for name in node.names[:-1]:
            self.bind(name, node.declares, ())
        for name in node.names[-1:]:
            self.bind(name, node.declares, elements)
        self.rounds(node.body, elements)
        self.inside(node.otherwise, dot)
        del self.names[scope:], self.values[scope:]

    def rounds(self, body: tuple[Statement, ...], elements: _Origins) -> None:
        """Walk a loop's body until its variables no longer change: each round begins with the last assignments."""
        outermost, self.in_loop = not self.in_loop, True
        for _ in range(_MOST_ROUNDS if outermost else 1):
            before = self.values.copy()
            self.inside(body, elements)
            if self.values == before:
                break
        if outermost:
            self.in_loop = False

    # Expressions

    def origins(self, expression: Expression, dot: _Origins, tolerant: bool) -> _Origins:
        """Return where the value of an expression may come from; record what it reads."""
        return self.few(_ORIGINS[type(expression)](self, expression, dot, tolerant))

    def few(self, origins: _Origins) -> _Origins:
        """Return the origins without duplicates; those beyond the bound are recorded and not followed further."""
        if len(origins) < 2:
            return origins
        unique = tuple(dict.fromkeys(origins))
        self.read(unique[_MOST_ORIGINS:])
        return unique[:_MOST_ORIGINS]

    def literal(self, _: Literal, __: _Origins, ___: bool) -> _Origins:
        return ()

    def path(self, path: Path, dot: _Origins, tolerant: bool) -> _Origins:
        return _moved(dot, path.segments, path.offset, tolerant)

    def variable(self, variable: Variable, _: _Origins, tolerant: bool) -> _Origins:
        return _moved(self.values[self.place(variable.name)], variable.segments, variable.offset, tolerant)

    def access(self, access: Access, dot: _Origins, tolerant: bool) -> _Origins:
        return tuple(origin.at(*access.segments) for origin in self.origins(access.of, dot, tolerant))

    def pipe(self, pipe: Pipe, dot: _Origins, tolerant: bool) -> _Origins:
        # How a call treats missing values also applies to the value piped into it.
        outer = [tolerant]
        for call in reversed(pipe.calls):
            outer.append(tolerates(call, outer[-1]))
        origins = self.origins(pipe.first, dot, outer.pop())
        for call in pipe.calls:
            origins = self.few(self.call(call, dot, outer.pop(), origins))
        return origins

    def call(self, call: Call, dot: _Origins, tolerant: bool, last: _Origins | None = None) -> _Origins:
        inner = tolerates(call, tolerant)
        arguments = [self.origins(argument, dot, inner) for argument in call.arguments]
        if last is not None:
            arguments.append(last)
        gives = FUNCTIONS[call.name].gives
        if gives == "any argument":
            return tuple(origin for origins in arguments for origin in origins)
        if gives == "first or second":
            self.read(arguments[2])
            return arguments[0] + arguments[1]
        if gives == "element":
            return tuple(origin.at(EACH) for origin in arguments[0])
        for origins in arguments[1:]:
            self.read(origins)
        if gives == "at path":
            keys = tuple(_key(argument) for argument in call.arguments[1:])
            keys += (EACH,) * (len(arguments) - 1 - len(keys))
            return tuple(origin.at(*keys) for origin in arguments[0])
        if gives == "part":
            return tuple(_Origin(o.path, o.offset, o.tolerant, spread=True) for o in arguments[0])
        for origins in arguments[:1]:
            self.read(origins)
        return ()


def _moved(origins: _Origins, segments: tuple[str, ...], offset: int, tolerant: bool) -> _Origins:
    """Return the origins extended by a path."""
    return tuple(
        _Origin(moved.path, offset, tolerant, moved.spread)
        for moved in (origin.at(*segments) if segments else origin for origin in origins)
    )


def tolerates(call: Call, outer: bool) -> bool:
    """Whether the arguments of a call may be missing; `outer` if its result may be."""
    takes = FUNCTIONS[call.name].takes
    return takes == "expects" or (takes == "accepts" and outer)


def _key(argument: Expression) -> Segment:
    """Return a literal key of `index`, or some element."""
    value = argument.value if isinstance(argument, Literal) else None
    if isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    return EACH


_RUN: Mapping[type, Callable[[_Finder, Any, _Origins], None]] = {
    Text: _Finder.nothing,
    Break: _Finder.nothing,
    Continue: _Finder.nothing,
    Output: _Finder.output,
    Assign: _Finder.assign,
    If: _Finder.choose,
    With: _Finder.choose,
    Range: _Finder.range,
}

_ORIGINS: Mapping[type, Callable[[_Finder, Any, _Origins, bool], _Origins]] = {
    Literal: _Finder.literal,
    Path: _Finder.path,
    Variable: _Finder.variable,
    Access: _Finder.access,
    Call: _Finder.call,
    Pipe: _Finder.pipe,
}
