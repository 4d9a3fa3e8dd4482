"""The ways a secret may be written, and the search for all of them at once.

A writer that encodes a secret chooses for each character whether to leave it, and writers differ in what
they leave. So a form is not a text but a row of units, one per character, each with all its spellings.
The search follows every spelling at the same time: it never goes back, whatever the secrets are.
"""

import base64
import re
from collections.abc import Iterable, Iterator
from functools import cache, lru_cache
from unicodedata import normalize

from gert.kernel.foundation.text import PLACEHOLDER

MIN_LENGTH = 4
"""Shorter secrets occur in ordinary text by chance."""

_MIN_LINE = 8
"""Lines of a secret with several lines are looked for alone from this length on."""

_PREFIX = 3
"""How many characters must fit before a place is looked at closely; no form is as short."""

Spelling = tuple[str, ...]
"""One way to write a character: for each position, the characters that may stand there."""

Unit = tuple[Spelling, ...]
Form = tuple[Unit, ...]
_Place = tuple[int, int, int, int]
"""How far a form is read: the form, its unit, the spelling of that, and the position in it."""

_END: _Place = (-1, 0, 0, 0)


def forms_of(secret: str) -> Iterator[Form]:
    """Give every form in which a secret is looked for."""
    for part in sorted(_parts(secret)):
        yield from _as_text(part)
        core = _apart_from_placeholder(part)
        if len(core) >= MIN_LENGTH and core.isascii():
            # UTF-16, read as if it were UTF-8.
            yield (((core[0],),), *((("\0", char),) for char in core[1:]))
        data = _octets(part)
        yield (_octet(data[0])[:1], *map(_octet, data[1:]))
        for encoded in _base64_forms(data):
            core = _apart_from_placeholder(encoded)
            if len(core) >= MIN_LENGTH:
                yield (((core[0],),), *map(_wrapped, core[1:]))


def _parts(secret: str) -> set[str]:
    """The texts that are looked for: the whole, long lines of it, and each as Unicode may also compose it."""
    lines = secret.splitlines()
    parts = {secret, secret.strip()}
    if len(lines) > 1:
        parts.update(line.strip() for line in lines if len(line.strip()) >= _MIN_LINE)
    parts.update([normalize(form, part) for part in parts if not part.isascii() for form in ("NFC", "NFD")])
    return {part for part in parts if len(part) >= MIN_LENGTH}


def _octets(part: str) -> bytes:
    """The bytes of a text; one from the environment may hold some that are no text."""
    try:
        return part.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return part.encode("utf-8", "surrogatepass")


class Spellings:
    """Finds forms in a text; what a text could still become part of is found by the same steps."""

    __slots__ = ("_forms", "_longest", "_prefix", "_start", "_states")

    def __init__(self, forms: Iterable[Form]) -> None:
        self._forms = list(dict.fromkeys(forms))
        self._longest = max((sum(max(map(len, unit)) for unit in form) for form in self._forms), default=0)
        self._states: dict[frozenset[_Place], _State] = {}
        self._start = self._state(
            frozenset((at, 0, spelling, 0) for at, form in enumerate(self._forms) for spelling in range(len(form[0])))
        )
        prefixes = sorted(self._prefixes(self._start, _PREFIX))
        self._prefix = re.compile(_alternation(prefixes)) if prefixes else None

    def spans(self, text: str, until: int | None = None) -> Iterator[tuple[int, int]]:
        """Find where forms start before `until`, with overlapping ones joined."""
        if self._prefix is None:
            return
        limit = len(text) if until is None else until
        begin, end = -1, -1
        match = self._prefix.search(text)
        while match and match.start() < limit:
            start = match.start()
            reached = self._reach(text, start)
            if reached > start:
                if start >= end:
                    if end > begin:
                        yield begin, end
                    begin = start
                end = max(end, reached)
            match = self._prefix.search(text, start + 1)
        if end > begin:
            yield begin, end

    def held(self, text: str) -> int:
        """Find from where a text could be the beginning of a form that continues."""
        for at in self._candidates(text, max(0, len(text) - self._longest + 1)):
            state = self._start
            for place in range(at, len(text)):
                following = self._next(state).get(text[place])
                if following is None:
                    break
                state = following
            else:
                if state.places:
                    return at
        return len(text)

    def _candidates(self, text: str, since: int) -> Iterator[int]:
        """Where a form may begin: where its first characters stand, and where the text is too short to say."""
        if self._prefix is None:
            return
        short = max(since, len(text) - _PREFIX + 1)
        match = self._prefix.search(text, since)
        while match and match.start() < short:
            yield match.start()
            match = self._prefix.search(text, match.start() + 1)
        yield from range(short, len(text))

    def _reach(self, text: str, start: int) -> int:
        """Give the end of the longest form that starts at a place, or 0."""
        state, end = self._start, 0
        for at in range(start, len(text)):
            following = self._next(state).get(text[at])
            if following is None:
                break
            state = following
            if state.is_end:
                end = at + 1
        return end

    def _next(self, state: "_State") -> "dict[str, _State]":
        if state.next is None:
            moves: dict[str, set[_Place]] = {}
            for place in state.places:
                form, unit, spelling, at = place
                for char in self._forms[form][unit][spelling][at]:
                    moves.setdefault(char, set()).update(self._after(place))
            state.next = {char: self._state(frozenset(places)) for char, places in moves.items()}
        return state.next

    def _after(self, place: _Place) -> Iterator[_Place]:
        form, unit, spelling, at = place
        units = self._forms[form]
        if at + 1 < len(units[unit][spelling]):
            yield form, unit, spelling, at + 1
        elif unit + 1 < len(units):
            yield from ((form, unit + 1, choice, 0) for choice in range(len(units[unit + 1])))
        else:
            yield _END

    def _state(self, places: frozenset[_Place]) -> "_State":
        known = self._states.get(places)
        if known is None:
            known = self._states[places] = _State(places - {_END}, _END in places)
        return known

    def _prefixes(self, state: "_State", size: int) -> Iterator[str]:
        if size == 0:
            yield ""
            return
        for char, following in self._next(state).items():
            yield from (char + rest for rest in self._prefixes(following, size - 1))


class _State:
    """Where the search may stand after some characters; where it goes from there is worked out once."""

    __slots__ = ("is_end", "next", "places")

    def __init__(self, places: frozenset[_Place], is_end: bool) -> None:
        self.places = places
        self.is_end = is_end
        self.next: dict[str, _State] | None = None


def _as_text(part: str) -> Iterator[Form]:
    """As it is or encoded, character by character."""
    cores = [_apart_from_placeholder(piece) for piece in part.split(PLACEHOLDER)]
    for core in cores:
        if len(core) >= MIN_LENGTH:
            yield tuple(map(_unit, core))
    if cores != [part] and any(char in "[]" for char in part):
        # What cannot be masked as it is, because of its brackets, is still masked where they are encoded.
        yield tuple(_unit(char)[1:] if char in "[]" else _unit(char) for char in part)


_SHORT_ESCAPES = {
    '"': '\\"',
    "\\": "\\\\",
    "/": "\\/",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\b": "\\b",
    "\f": "\\f",
}


_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&apos;"}
_QUOTED = {"'": ("''", "'\\''", "'\"'\"'"), '"': ('""',)}
"""How SQL, CSV and shells write a quote inside of quotes."""

_BETWEEN_OCTETS = (":", " ", "-", "%", "\\x", "\n", "\r\n")
_LINE_BREAKS = ("\n", "\r\n", "\\n")


@cache
def _octet(octet: int) -> Unit:
    """Two digits in hex, alone or with what stands between two of them in dumps and where all is escaped."""
    digits = tuple(_any_case(f"{octet:02x}"))
    return (digits, *((*between, *digits) for between in _BETWEEN_OCTETS))


@cache
def _wrapped(char: str) -> Unit:
    """A character of base64, which may begin another line."""
    return ((char,), *((*line_break, char) for line_break in _LINE_BREAKS))


@lru_cache(1024)
def _unit(char: str) -> Unit:
    """A character as it is, then as URLs, JSON (once or twice over), HTML, shells and other programs write it."""
    if char.isascii() and char.isalnum():
        return ((char,),)
    return tuple(dict.fromkeys((*_in_urls_and_json(char), *_in_html(char), *_in_programs(char))))


def _in_html(char: str) -> Iterator[Spelling]:
    number = ord(char)
    if char in _ENTITIES:
        yield tuple(_ENTITIES[char])
    # PHP writes three digits, and others at least two.
    yield from (tuple(f"&#{number:0{width}d};") for width in (1, 3))
    for width in (1, 2):
        yield (*"&#", "xX", *_any_case(f"{number:0{width}x}"), ";")


def _in_programs(char: str) -> Iterator[Spelling]:
    """With a backslash before it, between quotes, and by its bytes; what was no UTF-8 is read as U+FFFD."""
    yield from map(tuple, _QUOTED.get(char, ()))
    if char.isascii():
        yield "\\", char
    else:
        yield ("\ufffd",)
    octets = _octets(char)
    yield tuple(chars for octet in octets for chars in ("\\", "x", *_any_case(f"{octet:02x}")))
    yield tuple("".join(f"\\{octet:03o}" for octet in octets))
    if ord(char) < 256:
        yield ("\\", "x", *_any_case(f"{ord(char):02x}"))


def _in_urls_and_json(char: str) -> tuple[Spelling, ...]:
    octets = [octet.to_bytes().hex() for octet in char.encode("utf-8", "surrogatepass")]
    units = char.encode("utf-16-be", "surrogatepass").hex()
    unicode = "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
    escapes = [unicode, _SHORT_ESCAPES[char]] if char in _SHORT_ESCAPES else [unicode]
    spellings = [
        (char,),
        *([("+",)] if char == " " else []),
        _encoded("%", octets),
        _encoded("%25", octets),
        *map(_escaped, escapes),
        *(_escaped(escape.replace("\\", "\\\\").replace('"', '\\"')) for escape in escapes),
    ]
    return (*spellings, _escaped("\\\\\\/")) if char == "/" else tuple(spellings)


def _encoded(mark: str, octets: list[str]) -> Spelling:
    return tuple(chars for octet in octets for chars in (*mark, *_any_case(octet)))


def _escaped(escape: str) -> Spelling:
    """An escape, with the digits of `\\u` in either case."""
    parts = re.split(r"(?<=u)([0-9a-f]{4})", escape)
    return tuple(chars for at, part in enumerate(parts) for chars in (_any_case(part) if at % 2 else part))


def _any_case(digits: str) -> list[str]:
    return [digit if digit.isdigit() else digit + digit.upper() for digit in digits]


def _base64_forms(data: bytes) -> Iterator[str]:
    """The characters that depend on the secret alone, for each of the three places it can start at."""
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        yield encode(data).decode()
        yield encode(data).decode().rstrip("=")
        for before in range(3):
            encoded = encode(b"\0" * before + data).decode().rstrip("=")
            # Characters that also carry bits of what stands before or after are not part of the secret.
            first = (0, 2, 3)[before]
            last = len(encoded) if (before + len(data)) % 3 == 0 else len(encoded) - 1
            yield encoded[first:last]


def _apart_from_placeholder(form: str) -> str:
    """Cut what overlaps with the placeholder, so that masked text never looks like part of a secret."""
    while form and form not in PLACEHOLDER:
        ends = [size for size in range(1, len(PLACEHOLDER)) if PLACEHOLDER.startswith(form[-size:])]
        starts = [size for size in range(1, len(PLACEHOLDER)) if PLACEHOLDER.endswith(form[:size])]
        if ends:
            form = form[: -ends[-1]]
        elif starts:
            form = form[starts[-1] :]
        else:
            return form
    return ""


def _alternation(texts: list[str]) -> str:
    """Build one expression from sorted texts of one length, shared beginnings factored out."""
    if texts == [""]:
        return ""
    groups: dict[str, list[str]] = {}
    for text in texts:
        groups.setdefault(text[0], []).append(text[1:])
    return f"(?:{'|'.join(re.escape(first) + _alternation(rest) for first, rest in groups.items())})"
