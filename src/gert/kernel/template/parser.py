"""Parses a source into a tree: recursive descent over one token at a time, with bounded nesting."""

from collections.abc import Callable, Mapping
from typing import NoReturn

from gert.errors import TemplateSyntaxError
from gert.kernel.template import lexer
from gert.kernel.template.expression_parser import ExpressionParser
from gert.kernel.template.lexer import CLOSE, COMMA, DECLARE, EQUALS, VARIABLE, WORD
from gert.kernel.template.tree import Assign, Break, Clause, Continue, If, Output, Range, Statement, Text, With

MAX_SOURCE = 1 << 20
MAX_VARIABLES = 500  # in scope at once

_OPENING = lexer.OPENING.match


def statements_of(source: str) -> tuple[Statement, ...]:
    """Parse a source with at least one action."""
    if len(source) > MAX_SOURCE:
        raise TemplateSyntaxError(f"the template is longer than {MAX_SOURCE} characters")
    return _Parser(source).template()


class _Parser(ExpressionParser):
    def __init__(self, source: str) -> None:
        super().__init__(source)
        self.loops = 0

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
