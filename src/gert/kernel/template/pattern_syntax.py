"""Reads a pattern in Go's syntax (RE2) and writes it as the same pattern for Python.

Classes, anchors and flags are written out, so that `\\d` is ASCII and `$` is the end of the text, as in Go.
What RE2 leaves out for the sake of time is left out here: backreferences and looking around.
"""

from collections.abc import Mapping
from typing import NoReturn, TypeAlias

from msgspec import Struct

from gert.errors import TemplateSyntaxError
from gert.kernel.template.wording import shown

Interval: TypeAlias = tuple[int, int]
Characters: TypeAlias = tuple[Interval, ...]

LAST = 0x10FFFF
ANY: Characters = ((0, LAST),)
NOT_NEWLINE: Characters = ((0, 9), (11, LAST))
MAX_DEPTH = 50
MAX_COUNT = 1000


class One(Struct, frozen=True):
    """One character out of a set."""

    characters: Characters
    python: str


class Edge(Struct, frozen=True):
    """A place between characters: an anchor or a word boundary."""

    python: str
    start_of_text: bool = False


class Sequence(Struct, frozen=True):
    """Parts one after the other."""

    parts: tuple["Part", ...]


class Choice(Struct, frozen=True):
    """One of several options."""

    options: tuple["Part", ...]


class Repeat(Struct, frozen=True):
    """A part some number of times; `most` of None is without end."""

    part: "Part"
    least: int
    most: int | None
    python: str


class Group(Struct, frozen=True):
    """A part in parentheses, captured or not."""

    part: "Part"
    python: str


Part: TypeAlias = One | Edge | Sequence | Choice | Repeat | Group


def merged(intervals: list[Interval]) -> Characters:
    """Sorted, disjoint intervals with the same members."""
    result: list[Interval] = []
    for low, high in sorted(intervals):
        if result and low <= result[-1][1] + 1:
            result[-1] = (result[-1][0], max(high, result[-1][1]))
        else:
            result.append((low, high))
    return tuple(result)


def others(characters: Characters) -> Characters:
    """Every character that is not in the set."""
    result: list[Interval] = []
    after = 0
    for low, high in characters:
        if low > after:
            result.append((after, low - 1))
        after = high + 1
    if after <= LAST:
        result.append((after, LAST))
    return tuple(result)


_DIGIT: Characters = ((48, 57),)
_WORD: Characters = ((48, 57), (65, 90), (95, 95), (97, 122))
_SPACE: Characters = ((9, 10), (12, 13), (32, 32))
_CLASSES: Mapping[str, Characters] = {
    "d": _DIGIT,
    "w": _WORD,
    "s": _SPACE,
    "D": others(_DIGIT),
    "W": others(_WORD),
    "S": others(_SPACE),
}
_POSIX: Mapping[str, Characters] = {
    "alnum": ((48, 57), (65, 90), (97, 122)),
    "alpha": ((65, 90), (97, 122)),
    "ascii": ((0, 127),),
    "blank": ((9, 9), (32, 32)),
    "cntrl": ((0, 31), (127, 127)),
    "digit": _DIGIT,
    "graph": ((33, 126),),
    "lower": ((97, 122),),
    "print": ((32, 126),),
    "punct": ((33, 47), (58, 64), (91, 96), (123, 126)),
    "space": ((9, 13), (32, 32)),
    "upper": ((65, 90),),
    "word": _WORD,
    "xdigit": ((48, 57), (65, 70), (97, 102)),
}
_CONTROL = {"n": 10, "t": 9, "r": 13, "f": 12, "v": 11, "a": 7}
_NOT_HERE: Mapping[str, str] = {
    "?=": "looking ahead",
    "?!": "looking ahead",
    "?<=": "looking behind",
    "?<!": "looking behind",
    "?>": "an atomic group",
    "?P=": "a backreference",
    "?(": "a conditional group",
    "?#": "a comment",
}


def python_of(part: Part) -> str:
    """The same pattern for Python."""
    if isinstance(part, One | Edge):
        return part.python
    if isinstance(part, Sequence):
        return "".join(map(python_of, part.parts))
    if isinstance(part, Choice):
        return "|".join(map(python_of, part.options))
    if isinstance(part, Repeat):
        return python_of(part.part) + part.python
    return f"{part.python}{python_of(part.part)})"


def pattern_of(source: str) -> Part:
    """Read a pattern; TemplateSyntaxError says where and why it cannot be read."""
    reader = _Reader(source)
    part = reader.choice()
    if reader.position < len(source):
        reader.fail("unexpected `)`")
    return part


class _Reader:
    __slots__ = ("depth", "flags", "names", "position", "source")

    def __init__(self, source: str) -> None:
        self.source = source
        self.position = 0
        self.depth = 0
        self.flags: frozenset[str] = frozenset()
        self.names: set[str] = set()

    def fail(self, message: str, *, hint: str | None = None, at: int | None = None) -> NoReturn:
        offset = self.position if at is None else at
        raise TemplateSyntaxError(f"bad pattern {shown(self.source)}: {message}", offset=offset, hint=hint)

    def sees(self, text: str) -> bool:
        return self.source.startswith(text, self.position)

    def take(self) -> str:
        if self.position >= len(self.source):
            self.fail("it ends too early")
        self.position += 1
        return self.source[self.position - 1]

    def until(self, end: str, what: str) -> str:
        """What stands before a closing text, which is passed."""
        stop = self.source.find(end, self.position)
        if stop < 0:
            self.fail(f"{what} is not closed")
        found = self.source[self.position : stop]
        self.position = stop + len(end)
        return found

    # Structure

    def choice(self) -> Part:
        options = [self.sequence()]
        while self.sees("|"):
            self.position += 1
            options.append(self.sequence())
        return options[0] if len(options) == 1 else Choice(tuple(options))

    def sequence(self) -> Part:
        parts: list[Part] = []
        while self.position < len(self.source) and self.source[self.position] not in "|)":
            if self.sees("\\Q"):
                self.position += 2
                stop = self.source.find("\\E", self.position)
                quoted = self.source[self.position : stop if stop >= 0 else len(self.source)]
                parts.extend(self.literal(ord(character)) for character in quoted)
                self.position = len(self.source) if stop < 0 else stop + 2
                if quoted:
                    parts[-1] = self.repeated(parts[-1])
                continue
            part = self.atom()
            if part is not None:
                parts.append(self.repeated(part))
        return parts[0] if len(parts) == 1 else Sequence(tuple(parts))

    def repeated(self, part: Part) -> Part:
        """The part with the quantifier after it, if there is one."""
        start = self.position
        bounds = self.quantifier()
        if bounds is None:
            return part
        if isinstance(part, Edge):
            self.fail("there is nothing to repeat", at=start)
        least, most = bounds
        written = self.source[start : self.position]
        if self.sees("?"):
            self.position += 1
            written += "?"
        if self.position < len(self.source) and (self.source[self.position] in "*+?" or self.counted()):
            self.fail("a quantifier may not follow a quantifier", hint="put the first one in `(?:…)`")
        return Repeat(part, least, most, written)

    def quantifier(self) -> tuple[int, int | None] | None:
        if self.position >= len(self.source):
            return None
        bounds = {"*": (0, None), "+": (1, None), "?": (0, 1)}.get(self.source[self.position])
        if bounds is not None:
            self.position += 1
            return bounds
        counted = self.counted()
        if counted is None:
            return None
        least, most, self.position = counted
        if least > MAX_COUNT or (most is not None and most > MAX_COUNT):
            self.fail(f"a count may be {MAX_COUNT} at most")
        if most is not None and most < least:
            self.fail("the counts stand in the wrong order")
        return least, most

    def counted(self) -> tuple[int, int | None, int] | None:
        """`{n}`, `{n,}` or `{n,m}`; anything else in braces is literal text, as in Go."""
        stop = self.source.find("}", self.position) if self.sees("{") else -1
        low, comma, high = self.source[self.position + 1 : stop].partition(",")
        if stop < 0 or not _is_count(low) or (high and not _is_count(high)):
            return None
        least = int(low)
        return least, (int(high) if high else None) if comma else least, stop + 1

    def atom(self) -> Part | None:
        """One part, or None for flags that stand alone."""
        if self.counted():
            self.fail("there is nothing to repeat")
        character = self.take()
        if character == "(":
            return self.group()
        if character == "[":
            return self.set()
        if character == "\\":
            return self.escape()
        if character == ".":
            return One(ANY, "(?s:.)") if "s" in self.flags else One(NOT_NEWLINE, ".")
        if character == "^":
            return Edge("(?m:^)") if "m" in self.flags else Edge(r"\A", start_of_text=True)
        if character == "$":
            return Edge("(?m:$)") if "m" in self.flags else Edge(r"\Z")
        if character in "*+?":
            self.fail("there is nothing to repeat", at=self.position - 1)
        return self.literal(ord(character))

    def group(self) -> Part | None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            self.fail(f"it is nested deeper than {MAX_DEPTH} levels")
        before = self.flags
        opening: str | None = "("
        if self.sees("?"):
            opening = self.special()
        part = None
        if opening is not None:
            part = Group(self.choice(), opening)
            if not self.sees(")"):
                self.fail("a group is not closed")
            self.position += 1
            self.flags = before
        self.depth -= 1
        return part

    def special(self) -> str | None:
        """What a group opens with after `(?`, or None for flags that stand alone."""
        for mark, what in _NOT_HERE.items():
            if self.sees(mark):
                self.fail(f"{what} is not part of the pattern language")
        if self.sees("?P<") or self.sees("?<"):
            self.position += 3 if self.sees("?P<") else 2
            name = self.until(">", "the name of a group")
            if not name.isidentifier() or not name.isascii() or name in self.names:
                self.fail(f"{shown(name)} cannot name a group here")
            self.names.add(name)
            return f"(?P<{name}>"
        self.position += 1
        start, on = self.position, True
        flags = set(self.flags)
        while (character := self.take()) not in ":)":
            if character == "-" and on:
                on = False
            elif character in "ims":
                (flags.add if on else flags.discard)(character)
            else:
                self.fail(f"unknown flag {shown(character)}", at=start)
        if self.position - 1 == start and character == ")":
            self.fail("there is nothing to repeat", at=start - 1)
        self.flags = frozenset(flags)
        return "(?:" if character == ":" else None

    # Characters

    def literal(self, code: int) -> One:
        return self.one(((code, code),))

    def one(self, characters: Characters) -> One:
        """One character out of a set, folded where case does not count."""
        python = _python_set(characters)
        if "i" in self.flags:
            folded = _folded(characters)
            if folded != characters:
                return One(folded, f"(?i:{python})")
        return One(characters, python)

    def escape(self) -> Part:
        character = self.take()
        if character in _CLASSES:
            return self.one(_CLASSES[character])
        if character in "bB":
            # Python's own `\B` does not match in the empty text.
            return Edge(r"(?a:\b)" if character == "b" else r"(?a:(?!\b))")
        if character == "A":
            return Edge(r"\A", start_of_text=True)
        if character == "z":
            return Edge(r"\Z")
        return self.literal(self.escaped(character))

    def escaped(self, character: str) -> int:
        """The code point of an escape, in or out of a set."""
        at = self.position - 2
        if character in _CONTROL:
            return _CONTROL[character]
        if character == "x":
            return self.hexadecimal()
        if character == "0" or (character in "1234567" and self.octal_follows()):
            digits = character
            while len(digits) < 3 and self.position < len(self.source) and self.source[self.position] in "01234567":
                digits += self.take()
            return int(digits, 8)
        if character.isdigit() and character != "0":
            self.fail("a backreference is not part of the pattern language", at=at)
        if character in "pP":
            self.fail(
                f"`\\{character}` is not part of the pattern language",
                hint="list the characters in `[…]`",
                at=at,
            )
        if not character.isascii() or character.isalnum() or not character.isprintable():
            self.fail(f"unknown escape {shown(chr(92) + character)}", at=at)
        return ord(character)

    def octal_follows(self) -> bool:
        return self.source[self.position : self.position + 1] in tuple("01234567")

    def hexadecimal(self) -> int:
        if self.sees("{"):
            self.position += 1
            digits = self.until("}", "a character code")
        else:
            digits = self.take() + self.take()
        try:
            code = int(digits, 16) if digits.isalnum() and len(digits) <= 8 else LAST + 1
        except ValueError:
            code = LAST + 1
        if code > LAST:
            self.fail(f"{shown(digits)} is not the code of a character")
        return code

    def set(self) -> One:
        """A set in brackets."""
        negated = self.sees("^")
        self.position += negated
        intervals: list[Interval] = []
        first = True
        while first or not self.sees("]"):
            first = False
            if self.sees("[:"):
                self.position += 2
                intervals.extend(self.posix(self.until(":]", "a class")))
                continue
            low = self.member()
            if not isinstance(low, int):
                intervals.extend(low)
                continue
            high: int | Characters = low
            if self.sees("-") and not self.sees("-]"):
                self.position += 1
                high = self.member()
            if not isinstance(high, int) or high < low:
                self.fail("a range in a set stands in the wrong order")
            intervals.append((low, high))
        self.position += 1
        characters = merged(intervals)
        if "i" in self.flags:
            characters = _folded(characters)
        return self.one(others(characters) if negated else characters)

    def posix(self, name: str) -> Characters:
        negated = name.startswith("^")
        found = _POSIX.get(name.removeprefix("^"))
        if found is None:
            self.fail(f"unknown class {shown(name)}")
        return others(found) if negated else found

    def member(self) -> int | Characters:
        character = self.take()
        if character != "\\":
            return ord(character)
        character = self.take()
        return _CLASSES[character] if character in _CLASSES else self.escaped(character)


def _is_count(text: str) -> bool:
    return text.isdecimal() and text.isascii() and len(text) < 6


def _folded(characters: Characters) -> Characters:
    """With the other case of every ASCII letter."""
    intervals = list(characters)
    for low, high in characters:
        for start, shift in ((65, 32), (97, -32)):
            from_, to = max(low, start), min(high, start + 25)
            if from_ <= to:
                intervals.append((from_ + shift, to + shift))
    return merged(intervals)


def _python_set(characters: Characters) -> str:
    if not characters:
        return "(?!)"
    if characters == ANY:
        return "(?s:.)"
    if characters[0][0] == 0 and characters[-1][1] == LAST:
        return f"[^{''.join(map(_python_interval, others(characters)))}]"  # much faster to compile
    if len(characters) == 1 and characters[0][0] == characters[0][1]:
        return _python_literal(characters[0][0])
    return f"[{''.join(map(_python_interval, characters))}]"


def _python_interval(interval: Interval) -> str:
    low, high = interval
    return _python_code(low) if low == high else f"{_python_code(low)}-{_python_code(high)}"


def _python_literal(code: int) -> str:
    return chr(code) if chr(code).isalnum() else _python_code(code)


def _python_code(code: int) -> str:
    if 32 <= code < 127:
        return chr(code) if chr(code).isalnum() else f"\\{chr(code)}"
    return f"\\U{code:08x}"
