"""Parses a source into a tree: recursive descent over one token at a time, with bounded nesting."""

from collections.abc import Callable, Mapping
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
from gert.kernel.template.wording import shown

MAX_SOURCE = 1 << 20
MAX_DEPTH = 100
MAX_VARIABLES = 500  # in scope at once

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
_OPENING = lexer.OPENING.match


def statements_of(source: str) -> tuple[Statement, ...]:
    """Parse a source with at least one action."""
    if len(source) > MAX_SOURCE:
        raise TemplateSyntaxError(f"the template is longer than {MAX_SOURCE} characters")
    return _Parser(source).template()


class _Parser:
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
        self.loops = 0

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
        self.depth += 1
        if self.depth > MAX_DEPTH:
            self.fail(f"the template is nested deeper than {MAX_DEPTH} levels")

    # Statements

    def template(self) -> tuple[Statement, ...]:
        statements, stopped_by = self.block()
        if stopped_by:
            self.fail(f"unexpected `{stopped_by}`", offset=self.opening, hint="no `if`, `range` or `with` is open")
        return statements

    def block(self) -> tuple[tuple[Statement, ...], str]:
        """Statements up to `end`, `else` (whose word is current) or the end of the source ("")."""
        source = self.source
        statements: list[Statement] = []
        while True:
            opening = source.find("{{", self.position)
            if opening < 0:
                self.add_text(statements, len(source), trim=False)
                self.position = len(source)
                return tuple(statements), ""
            match = _OPENING(source, opening)
            assert match is not None  # noqa: S101 - `{{` is here
            trims, comment = match.groups()
            self.add_text(statements, opening, trim=trims is not None)
            self.opening = opening
            if comment:
                self.comment(match.end())
                continue
            self.end = match.end()
            if self.advance() == WORD:
                word = self.text
                if word in ("end", "else"):
                    return tuple(statements), word
                keyword = _KEYWORDS.get(word)
                if keyword is not None:
                    statements.append(keyword(self))
                    continue
            statements.append(self.action())

    def add_text(self, statements: list[Statement], end: int, *, trim: bool) -> None:
        start = self.position
        text = self.source[start:end]
        if trim:
            text = text.rstrip(lexer.SPACE)
        if self.trimming:
            start += len(text)
            text = text.lstrip(lexer.SPACE)
            start -= len(text)
            self.trimming = False
        if text:
            statements.append(Text(start, text))

    def comment(self, after: int) -> None:
        end = self.source.find("*/", after)
        if end < 0:
            self.fail("the comment is not closed", offset=self.opening, hint="close it with `*/}}`")
        closing = lexer.COMMENT_END.match(self.source, end)
        if closing is None:
            self.fail("a comment must fill its action", offset=end, hint="`*/` must be right before `}}`")
        self.position = closing.end()
        self.trimming = closing[1] is not None

    def action(self) -> Statement:
        """An output or an assignment."""
        opening = self.opening
        if self.kind == VARIABLE:
            names, declares = self.binding(1)
            if names:
                value = self.pipeline(CLOSE)
                self.close()
                if declares:
                    self.declare(names)
                return Assign(opening, names[0], declares, value)
        value = self.pipeline(CLOSE)
        self.close()
        return Output(opening, value)

    def binding(self, most: int) -> tuple[tuple[str, ...], bool]:
        """Parse `$x :=` or `$x =`, or with two names; read nothing if there is none."""
        start, end, text = self.start, self.end, self.text
        names = [text[1:]]
        if "." not in text:
            kind = self.advance()
            if kind == COMMA and most > 1 and self.advance() == VARIABLE and "." not in self.text:
                names.append(self.text[1:])
                kind = self.advance()
            if kind in (DECLARE, EQUALS):
                declares = kind == DECLARE
                self.check_names(names, declares, start)
                self.advance()
                return tuple(names), declares
            if kind == COMMA or len(names) > 1:
                self.fail("only `range` takes two variables, as in `range $key, $value := .map`", offset=start)
            self.kind, self.text, self.start, self.end = VARIABLE, text, start, end
        return (), False

    def check_names(self, names: list[str], declares: bool, offset: int) -> None:
        for name in names:
            if not name:
                self.fail("`$` is the root data and cannot be assigned", offset=offset)
            if not declares and name not in self.variables:
                hint = f"declare it with `${name} := …`"
                self.fail(f"undefined variable `${name}`", offset=offset, hint=hint)

    def declare(self, names: tuple[str, ...]) -> None:
        self.variables.extend(names)
        if len(self.variables) > MAX_VARIABLES:
            self.fail(f"there are more than {MAX_VARIABLES} variables")

    def conditional(self) -> If | With:
        """`if` or `with`, its `else if` or `else with` clauses, and its `else`."""
        word, opening = self.text, self.opening
        scope = len(self.variables)
        self.deeper()
        clauses: list[Clause] = []
        otherwise: tuple[Statement, ...] = ()
        at = opening
        while True:
            self.advance()
            names: tuple[str, ...] = ()
            declares = False
            if self.kind == VARIABLE:
                names, declares = self.binding(1)
            condition = self.pipeline(CLOSE)
            self.close()
            if declares:
                self.declare(names)
            body, stopped_by = self.body(word, opening)
            clauses.append(Clause(at, names[0] if names else None, declares, condition, body))
            if stopped_by == "end":
                break
            at = self.opening
            if self.advance() == WORD and self.text == word:
                continue
            otherwise = self.otherwise(word, opening)
            break
        self.depth -= 1
        del self.variables[scope:]
        return (If if word == "if" else With)(opening, tuple(clauses), otherwise)

    def body(self, word: str, opening: int) -> tuple[tuple[Statement, ...], str]:
        """Statements up to `else` or up to and with `end`; their variables end with them."""
        scope = len(self.variables)
        statements, stopped_by = self.block()
        del self.variables[scope:]
        if not stopped_by:
            self.fail(f"`{word}` is not closed", offset=opening, hint="close it with `{{ end }}`")
        if stopped_by == "end":
            self.advance()
            self.close()
        return statements, stopped_by

    def otherwise(self, word: str, opening: int) -> tuple[Statement, ...]:
        """Parse the statements between `else` and `end`."""
        if self.kind == WORD and self.text in ("if", "with"):
            hint = "nest it: `{{ else }}{{ " + self.text + " … }}…{{ end }}{{ end }}`"
            self.fail(f"`else {self.text}` does not belong to `{word}`", hint=hint)
        self.close()
        statements, stopped_by = self.body(word, opening)
        if stopped_by == "else":
            self.fail(f"`{word}` has a second `else`", offset=self.opening)
        return statements

    def range(self) -> Range:
        """`range`, its variables, its body and its `else`."""
        opening, scope = self.opening, len(self.variables)
        self.deeper()
        self.advance()
        names: tuple[str, ...] = ()
        declares = False
        if self.kind == VARIABLE:
            names, declares = self.binding(2)
        over = self.pipeline(CLOSE)
        self.close()
        if declares:
            self.declare(names)
        self.loops += 1
        body, stopped_by = self.body("range", opening)
        self.loops -= 1
        otherwise: tuple[Statement, ...] = ()
        if stopped_by == "else":
            self.advance()
            otherwise = self.otherwise("range", opening)
        self.depth -= 1
        del self.variables[scope:]
        return Range(opening, names, declares, over, body, otherwise)

    def leave(self) -> Break | Continue:
        """`break` or `continue`."""
        word, opening = self.text, self.opening
        if not self.loops:
            self.fail(f"`{word}` outside `range`")
        self.advance()
        self.close()
        return Break(opening) if word == "break" else Continue(opening)

    def absent(self) -> NoReturn:
        """Fail on a keyword of Go that this language does not have."""
        self.fail(f"`{self.text}` is not part of the template language: a template cannot include another")

    # Expressions

    def pipeline(self, until: int) -> Expression:
        """Commands joined by `|`, up to a closing token that is left current."""
        first = self.command(piped=False)
        if self.kind != PIPE:
            return self.ended(first, until)
        if isinstance(first, Literal) and first.value is None:
            self.fail("`nil` is not a value of its own", offset=first.offset)
        calls: list[Call] = []
        while self.kind == PIPE:
            self.advance()
            start, is_whole = self.start, self.kind == LEFT_PAREN
            call = self.command(piped=True)
            if not isinstance(call, Call) or is_whole:
                # A call in parentheses is complete, and takes no further argument.
                hint = "write it without parentheses" if isinstance(call, Call) else None
                self.fail("a function must follow `|`", offset=start, hint=hint)
            if not calls and type(first) is Literal and call.name in _TAKE_TEXT:
                character = _TOKEN(self.source, first.offset)
                if character and character[CHARACTER]:
                    self.fail_on_character(character[CHARACTER], first.offset)
            calls.append(call)
        return self.ended(Pipe(first.offset, first, tuple(calls)), until)

    def ended(self, value: Expression, until: int) -> Expression:
        if self.kind != until:
            hint = None
            if self.kind in (DECLARE, EQUALS):
                hint = "assign at the start of an action, as in `{{ $x := … }}`"
                if self.kind == EQUALS and (compared := self.operator_hint("=")):
                    hint = f"{compared} to compare"
            if self.kind == COMMA:
                hint = "arguments are parted by spaces"
            if self.kind == CLOSE:
                self.fail("a parenthesis is not closed")
            self.fail(f"unexpected {self.found()}", hint=hint)
        return value

    def command(self, *, piped: bool) -> Expression:
        """A function with its arguments, or one operand."""
        if self.kind == WORD and self.text not in _CONSTANTS:
            return self.call(piped)
        start = self.start
        operand = self.operand()
        if self.kind in _OPERANDS:
            self.fail_on_second_operand(start)
        if isinstance(operand, Literal) and operand.value is None:
            self.fail("`nil` is not a value of its own", offset=operand.offset)
        return operand

    def fail_on_second_operand(self, start: int) -> NoReturn:
        if self.kind == NUMBER and self.text[0] in "+-":
            hint = self.operator_hint(self.text[0])
            self.fail(f"`{self.text[0]}` is not part of the template language", hint=hint)
        if self.start == self.before:
            self.fail(f"a space must precede {self.found()}")
        found = shown(self.source[start : self.before])
        hint = self.operator_hint(self.text) if self.kind == WORD else None
        self.fail(f"{found} is not a function and takes no arguments", hint=hint)

    def operator_hint(self, symbol: str) -> str | None:
        from gert.kernel.template import diagnostics

        return diagnostics.operator_hint(self.source, self.start, self.opening, symbol)

    def call(self, piped: bool) -> Call:
        name, offset = self.text, self.start
        function = FUNCTIONS.get(name)
        if function is None:
            from gert.kernel.template import diagnostics

            raise diagnostics.unknown_function(name, self.source, offset)
        arguments: list[Expression] = []
        self.advance()
        while self.kind in _OPERANDS:
            if self.start == self.before:
                self.fail_on_touching(arguments)
            if self.kind == WORD and self.text not in _CONSTANTS:
                self.fail_on_bare_word(name)
            if self.kind == CHARACTER and name in _TAKE_TEXT:
                self.fail_on_character(self.text, self.start)
            arguments.append(self.operand())
        self.check_call(name, function, arguments, piped, offset)
        return Call(offset, name, tuple(arguments))

    def fail_on_touching(self, arguments: list[Expression]) -> NoReturn:
        hint = None
        if self.kind == LEFT_PAREN and not arguments:
            hint = "arguments follow a space, without parentheses or commas"
        self.fail(f"a space must precede {self.found()}", hint=hint)

    def fail_on_character(self, text: str, offset: int) -> NoReturn:
        from gert.kernel.template.rewrite import in_double_quotes

        hint = f"write `{in_double_quotes(text)}`" if len(text) <= 40 else None
        self.fail(f"text must be in double quotes, found {shown(text)}", offset=offset, hint=hint)

    def fail_on_bare_word(self, name: str) -> NoReturn:
        if self.text in FUNCTIONS:
            hint = f"put it in parentheses, as in `{name} ({self.text} …)`"
            self.fail(f"the function `{self.text}` cannot be an argument", hint=hint)
        from gert.kernel.template import diagnostics

        known = diagnostics.word_hint(self.text, self.source, self.start)
        hint = known or f'write `.{self.text}` for data, or `"{self.text}"` for text'
        self.fail(f"unexpected `{self.text}`", hint=hint)

    def check_call(self, name: str, function: Function, arguments: list[Expression], piped: bool, offset: int) -> None:
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

    def operand(self) -> Expression:
        """A path, a variable, a constant, or a pipeline in parentheses; the next token becomes current."""
        kind, text, offset = self.kind, self.text, self.start
        value: Expression
        if kind == PATH:
            value = Path(offset, _segments(text[1:]))
        elif kind in _CONSTANT_KINDS:
            value = Literal(offset, self.constant(kind, text))
        elif kind == VARIABLE:
            value = self.variable(text, offset)
        elif kind == DOT:
            value = Path(offset, ())
        elif kind == LEFT_PAREN:
            return self.parenthesised()
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

    def constant(self, kind: int, text: str) -> str | int | float:
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
                self.fail_on_character(text, self.start)
            self.fail(str(error))

    def variable(self, text: str, offset: int) -> Variable:
        name, dot, path = text[1:].partition(".")
        if name not in self.variables:
            hint = f"declare it with `${name} := …`, or write `.{name}` for data"
            self.fail(f"undefined variable `${name}`", offset=offset, hint=hint)
        return Variable(offset, name, _segments(path) if dot else ())

    def parenthesised(self) -> Expression:
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


_KEYWORDS: Mapping[str, Callable[[_Parser], Statement]] = {
    "if": _Parser.conditional,
    "with": _Parser.conditional,
    "range": _Parser.range,
    "break": _Parser.leave,
    "continue": _Parser.leave,
    "define": _Parser.absent,
    "template": _Parser.absent,
    "block": _Parser.absent,
}
