"""Parses the expressions inside actions: tokens, pipelines, calls and operands."""

from collections.abc import Mapping
from typing import NoReturn

from gert.errors import PatternError, TemplateSyntaxError
from gert.kernel.template import lexer
from gert.kernel.template.functions import FUNCTIONS, Function
from gert.kernel.template.lexer import (
    CHARACTER,
    CLOSE,
    COMMA,
    DECLARE,
    DOT,
    EQUALS,
    LEFT_PAREN,
    NUMBER,
    PATH,
    PIPE,
    QUOTED,
    RAW,
    RIGHT_PAREN,
    VARIABLE,
    WORD,
)
from gert.kernel.template.tree import Access, Call, Expression, Literal, Path, Pipe, Variable
from gert.kernel.template.wording import shown

MAX_DEPTH = 100

_CONSTANTS: Mapping[str, bool | None] = {"true": True, "false": False, "nil": None}
_OPERANDS = frozenset({PATH, VARIABLE, WORD, QUOTED, RAW, NUMBER, CHARACTER, LEFT_PAREN, DOT})
# A character constant is a number. As an argument of these functions it was meant as text.
_TAKE_TEXT = frozenset(
    [
        "eq",
        "ne",
        "default",
        "coalesce",
        "ternary",
        "contains",
        "hasPrefix",
        "hasSuffix",
        "upper",
        "lower",
        "trim",
        "replace",
        "split",
        "join",
        "quote",
        "fromJson",
        "regexMatch",
        "regexFind",
        "index",
    ]
)
_CONSTANT_KINDS = frozenset({QUOTED, NUMBER, CHARACTER})
_TOKEN = lexer.TOKEN.match


class ExpressionParser:
    """Reads one token at a time, and parses expressions; nesting is bounded."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.position = 0  # where the next text begins
        self.opening = 0  # where the current action begins
        self.trimming = False  # the last action ended with a trim marker
        self.kind = CLOSE  # the current token: its kind, text, start and end
        self.text = ""
        self.start = self.end = 0
        self.before = 0  # where the token before it ended
        self.variables = [""]  # in scope; the empty name is `$`
        self.depth = 0

    # Tokens

    def advance(self) -> int:
        """Read the next token of the action."""
        self.before = self.end
        match = _TOKEN(self.source, self.end)
        if match is None:
            from gert.kernel.template import diagnostics

            raise diagnostics.no_token(self.source, self.end, self.opening)
        self.kind = kind = match.lastindex or 0
        self.start, self.end = match.span(kind)
        self.text = match[kind]
        return kind

    def fail(self, message: str, *, offset: int | None = None, hint: str | None = None) -> NoReturn:
        """Fail at the current token, or at an offset."""
        raise TemplateSyntaxError(message, offset=self.start if offset is None else offset, hint=hint)

    def found(self) -> str:
        """The current token, for a message."""
        return "the end of the action" if self.kind == CLOSE else shown(self.text)

    def close(self) -> None:
        """End the action; text begins after it."""
        if self.kind != CLOSE:
            self.fail(f"expected the end of the action, found {self.found()}")
        self.position = self.end
        self.trimming = self.text[0] == "-"

    def deeper(self) -> None:
        """Enter one more level of nesting."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            self.fail(f"the template is nested deeper than {MAX_DEPTH} levels")

    # Expressions

    def pipeline(self, until: int) -> Expression:
        """Commands joined by `|`, up to a closing token that is left current."""
        first = self._command(piped=False)
        if self.kind != PIPE:
            return self._ended(first, until)
        if isinstance(first, Literal) and first.value is None:
            self.fail("`nil` is not a value of its own", offset=first.offset)
        calls: list[Call] = []
        while self.kind == PIPE:
            self.advance()
            start, is_whole = self.start, self.kind == LEFT_PAREN
            call = self._command(piped=True)
            if not isinstance(call, Call) or is_whole:
                # A call in parentheses is complete, and takes no further argument.
                hint = "write it without parentheses" if isinstance(call, Call) else None
                self.fail("a function must follow `|`", offset=start, hint=hint)
            if not calls and type(first) is Literal and call.name in _TAKE_TEXT:
                character = _TOKEN(self.source, first.offset)
                if character and character[CHARACTER]:
                    self._fail_on_character(character[CHARACTER], first.offset)
            calls.append(call)
        return self._ended(Pipe(first.offset, first, tuple(calls)), until)

    def _ended(self, value: Expression, until: int) -> Expression:
        if self.kind != until:
            hint = None
            if self.kind in (DECLARE, EQUALS):
                hint = "assign at the start of an action, as in `{{ $x := … }}`"
                if self.kind == EQUALS and (compared := self._operator_hint("=")):
                    hint = f"{compared} to compare"
            if self.kind == COMMA:
                hint = "arguments are parted by spaces"
            if self.kind == CLOSE:
                self.fail("a parenthesis is not closed")
            self.fail(f"unexpected {self.found()}", hint=hint)
        return value

    def _command(self, *, piped: bool) -> Expression:
        """A function with its arguments, or one operand."""
        if self.kind == WORD and self.text not in _CONSTANTS:
            return self._call(piped)
        start = self.start
        operand = self._operand()
        if self.kind in _OPERANDS:
            self._fail_on_second_operand(start)
        if isinstance(operand, Literal) and operand.value is None:
            self.fail("`nil` is not a value of its own", offset=operand.offset)
        return operand

    def _fail_on_second_operand(self, start: int) -> NoReturn:
        if self.kind == NUMBER and self.text[0] in "+-":
            hint = self._operator_hint(self.text[0])
            self.fail(f"`{self.text[0]}` is not part of the template language", hint=hint)
        if self.start == self.before:
            self.fail(f"a space must precede {self.found()}")
        found = shown(self.source[start : self.before])
        hint = self._operator_hint(self.text) if self.kind == WORD else None
        self.fail(f"{found} is not a function and takes no arguments", hint=hint)

    def _operator_hint(self, symbol: str) -> str | None:
        from gert.kernel.template import diagnostics

        return diagnostics.operator_hint(self.source, self.start, self.opening, symbol)

    def _call(self, piped: bool) -> Call:
        name, offset = self.text, self.start
        function = FUNCTIONS.get(name)
        if function is None:
            from gert.kernel.template import diagnostics

            raise diagnostics.unknown_function(name, self.source, offset)
        arguments: list[Expression] = []
        self.advance()
        while self.kind in _OPERANDS:
            if self.start == self.before:
                self._fail_on_touching(arguments)
            if self.kind == WORD and self.text not in _CONSTANTS:
                self._fail_on_bare_word(name)
            if self.kind == CHARACTER and name in _TAKE_TEXT:
                self._fail_on_character(self.text, self.start)
            arguments.append(self._operand())
        self._check_call(name, function, arguments, piped, offset)
        return Call(offset, name, tuple(arguments))

    def _fail_on_touching(self, arguments: list[Expression]) -> NoReturn:
        hint = None
        if self.kind == LEFT_PAREN and not arguments:
            hint = "arguments follow a space, without parentheses or commas"
        self.fail(f"a space must precede {self.found()}", hint=hint)

    def _fail_on_character(self, text: str, offset: int) -> NoReturn:
        from gert.kernel.template.rewrite import in_double_quotes

        hint = f"write `{in_double_quotes(text)}`" if len(text) <= 40 else None
        self.fail(f"text must be in double quotes, found {shown(text)}", offset=offset, hint=hint)

    def _fail_on_bare_word(self, name: str) -> NoReturn:
        if self.text in FUNCTIONS:
            hint = f"put it in parentheses, as in `{name} ({self.text} …)`"
            self.fail(f"the function `{self.text}` cannot be an argument", hint=hint)
        from gert.kernel.template import diagnostics

        known = diagnostics.word_hint(self.text, self.source, self.start)
        hint = known or f'write `.{self.text}` for data, or `"{self.text}"` for text'
        self.fail(f"unexpected `{self.text}`", hint=hint)

    def _check_call(self, name: str, function: Function, arguments: list[Expression], piped: bool, offset: int) -> None:
        count = len(arguments) + piped
        if self.kind == COMMA:
            self.fail("unexpected `,`", hint="arguments are parted by spaces")
        if count < function.least or (function.most is not None and count > function.most):
            self.fail(f"`{name}` takes {_count(function)}, found {count}", offset=offset)
        if function.check and arguments:
            first = arguments[0]
            if isinstance(first, Literal) and isinstance(first.value, str):
                try:
                    function.check(first.value)
                except PatternError as error:
                    self.fail(error.message, offset=first.offset, hint=error.hint)

    def _operand(self) -> Expression:
        """A path, a variable, a constant, or a pipeline in parentheses; the next token becomes current."""
        kind, text, offset = self.kind, self.text, self.start
        value: Expression
        if kind == PATH:
            value = Path(offset, _segments(text[1:]))
        elif kind in _CONSTANT_KINDS:
            value = Literal(offset, self._constant(kind, text))
        elif kind == VARIABLE:
            value = self._variable(text, offset)
        elif kind == DOT:
            value = Path(offset, ())
        elif kind == LEFT_PAREN:
            return self._parenthesised()
        elif kind == RAW:
            value = Literal(offset, text[1:-1].replace("\r", ""))
        elif kind == WORD and text in _CONSTANTS:
            value = Literal(offset, _CONSTANTS[text])
        elif kind == CLOSE:
            self.fail("expected a value, found the end of the action")
        else:
            self.fail(f"expected a value, found {self.found()}")
        self.advance()
        return value

    def _constant(self, kind: int, text: str) -> str | int | float:
        # Most constants are plain; only the others need escapes, bases and exponents.
        if kind == QUOTED and "\\" not in text:
            return text[1:-1]
        if text.isdecimal() and text.isascii() and len(text) < 19 and (text[0] != "0" or text == "0"):
            return int(text)
        from gert.kernel.template import literals

        try:
            if kind == QUOTED:
                return literals.text_of(text)
            return literals.number_of(text) if kind == NUMBER else literals.character_of(text)
        except ValueError as error:
            if kind == CHARACTER and "\\" not in text:
                self._fail_on_character(text, self.start)
            self.fail(str(error))

    def _variable(self, text: str, offset: int) -> Variable:
        name, dot, path = text[1:].partition(".")
        if name not in self.variables:
            hint = f"declare it with `${name} := …`, or write `.{name}` for data"
            self.fail(f"undefined variable `${name}`", offset=offset, hint=hint)
        return Variable(offset, name, _segments(path) if dot else ())

    def _parenthesised(self) -> Expression:
        offset = self.start
        self.deeper()
        self.advance()
        value = self.pipeline(RIGHT_PAREN)
        path = self.text[2:]
        self.depth -= 1
        self.advance()
        return Access(offset, value, _segments(path)) if path else value


def _segments(path: str) -> tuple[str, ...]:
    return tuple(path.replace("/", ".").split("."))


def _count(function: Function) -> str:
    """How many arguments a function takes, in words."""
    least, most = function.least, function.most
    if most is None:
        number = f"at least {least}"
    else:
        number = str(least) if least == most else f"{least} to {most}"
    return f"{number} argument{'' if number.endswith('1') else 's'}"
