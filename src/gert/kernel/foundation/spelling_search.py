"""Searches for all forms of all secrets at once, in time linear in the text.

Partial matches are tracked together as one set of positions in the forms. The transition from a set by a symbol is
computed once, as in a regular expression engine that never backtracks, so a secret that repeats itself costs no
more than another. A regular expression over the first characters skips text in which no form begins.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from gert.kernel.foundation.spellings import GAP, LEADS, STYLE, Form, readings

START: Final = -1
"""The position before every form."""

_LOOKAHEAD: Final = 13
"""How many characters decide whether a form may begin at a position."""

_MAX_STATES: Final = 20_000
_LONG: Final = 4096
_NOTHING: Final = frozenset[int]()
_STARTED: Final = frozenset({START})


class State:
    """The positions reached in the forms after some text."""

    __slots__ = ("begun", "ends", "next", "places")

    def __init__(self, places: frozenset[int], ends: frozenset[int]) -> None:
        self.places = places
        self.ends = ends
        self.next: dict[str, State] = {}
        self.begun: State | None = self if START in places else None


class BackStep(NamedTuple):
    """The positions of a state that lead to a goal: whether a form begins at them, and whether one continues."""

    places: frozenset[int]
    begins: bool
    goes_on: bool


class SpellingSearch:
    """The forms as an automaton; position `2 * unit` is before a unit, `2 * unit + 1` in the gap before it."""

    __slots__ = ("_alphabet", "_back", "_begins", "_prefixes", "_states", "_units", "_wrapped", "nothing")

    def __init__(self, forms: Iterable[Form]) -> None:
        self._units: list[frozenset[str] | None] = []
        self._wrapped: list[bool] = []
        self._begins: dict[str, list[int]] = {}
        self._states: dict[frozenset[int], State] = {}
        self._back: dict[tuple[State, str, frozenset[int], bool], BackStep] = {}
        self.nothing = self.state(_NOTHING)
        kept = [form for form in dict.fromkeys(forms) if form.units]
        for form in kept:
            for symbol in form.units[0]:
                self._begins.setdefault(symbol, []).append(2 * len(self._units) + 2)
            self._units += (*form.units, None)
            self._wrapped += (bool(form.gaps),) * len(form.units) + (False,)
        self._alphabet = frozenset[str]().union({GAP, STYLE}, *(form_unit for form in kept for form_unit in form.units))
        self._prefixes = (_rough(kept), _exact(kept, at_end=False), _exact(kept, at_end=True)) if kept else None

    def candidate(self, text: str, at: int) -> int:
        """Return the next position where a form may begin, or the end of the text."""
        if self._prefixes is None:
            return len(text)
        rough, exact, at_end = self._prefixes
        while (found := rough.search(text, at)) is not None:
            at = found.start()
            if exact.match(text, at) or (at >= len(text) - _LOOKAHEAD and at_end.match(text, at)):
                return at
            at += 1
        return len(text)

    def state(self, places: frozenset[int]) -> State:
        """Return the state for a set of positions."""
        known = self._states.get(places)
        if known is None:
            if len(self._states) > _MAX_STATES:
                self._states = {_NOTHING: self.nothing}
            ends = (place for place in places if place != START and self._units[place >> 1] is None)
            known = self._states[places] = State(places, frozenset(ends))
        return known

    def begin(self, state: State) -> State:
        """Return the state in which forms may also begin here."""
        if state.begun is None:
            state.begun = self.state(state.places | _STARTED)
        return state.begun

    def step(self, state: State, symbol: str) -> State:
        """Return the state after a symbol."""
        following = state.next.get(symbol)
        if following is None:
            if symbol not in self._alphabet:
                return self.nothing
            after = (self._after(place, symbol) for place in state.places)
            following = state.next[symbol] = self.state(_NOTHING.union(*after))
        return following

    def back(self, state: State, symbol: str, goal: frozenset[int], *, or_ends: bool) -> "BackStep":
        """Return the positions of a state that a symbol leads to the goal, or at which a form ends."""
        key = state, symbol, goal, or_ends
        known = self._back.get(key)
        if known is None:
            if len(self._back) > _MAX_STATES:
                self._back.clear()
            led = frozenset(place for place in state.places if not goal.isdisjoint(self._after(place, symbol)))
            known = self._back[key] = BackStep(led | state.ends if or_ends else led, START in led, bool(led - _STARTED))
        return known

    def _after(self, place: int, symbol: str) -> Iterable[int]:
        if place == START:
            return self._begins.get(symbol, ())
        if symbol == STYLE:
            return (place,)
        at, is_gap = divmod(place, 2)
        if symbol == GAP:
            return (place + 1,) if self._wrapped[at] and not is_gap else ()
        unit = self._units[at]
        return (2 * at + 2,) if unit is not None and symbol in unit else ()


class SearchStream:
    """Finds forms in a text that arrives in chunks; the result does not depend on where it is split."""

    __slots__ = ("_begin", "_candidate", "_edges", "_jumps", "_search", "_settled", "_state", "_states", "_text")

    def __init__(self, search: SpellingSearch) -> None:
        self._search = search
        self._text = ""
        # Characters from `_begin` on were read: there is a state before each of them, the escapes and gaps that
        # begin at each, a state after them, and the states after escapes that end later.
        self._begin = self._candidate = 0
        self._states: list[State] = []
        self._edges: dict[int, list[tuple[str, int]]] = {}
        self._state = search.nothing
        self._jumps: dict[int, State] = {}
        self._settled = 0

    def feed(self, chunk: str, *, is_final: bool = False) -> Iterator[tuple[str, list[tuple[int, int]]]]:
        """Yield the decided text in pieces, each with the spans of forms that begin in it."""
        self._text += chunk
        self._candidate = self._search.candidate(self._text, self._begin + len(self._states))
        given = 0
        while self._seek():
            is_over = self._advance(is_final)
            if not is_over and self._is_early():
                break
            held = self._begin + len(self._states) if is_over else self._held()
            spans = self._spans(held)
            if spans:
                yield self._text[given:held], [(begin - given, end - given) for begin, end in spans]
                given = held
            self._drop(held)
            if not is_over:
                break
        yield self._text[given : self._begin], []
        self._rebase()

    def _seek(self) -> bool:
        """Skip to the next position where a form may begin, unless some are being read."""
        if not self._states:
            self._begin = self._candidate
        return self._begin < len(self._text)

    def _is_early(self) -> bool:
        """Return whether little was read since a long match was last examined; examining it costs its length."""
        read = len(self._states)
        return read > _LONG and (read - self._settled) * 4 < read

    def _advance(self, is_final: bool) -> bool:
        """Read further; return whether no form is being read any more. If not, more text is needed."""
        search, text, states, state, jumps = self._search, self._text, self._states, self._state, self._jumps
        at, size = self._begin + len(states), len(text)
        candidate = self._candidate
        is_over = False
        while True:
            if at in jumps:
                state = search.state(state.places | jumps.pop(at).places)
            if at == candidate and at < size:
                # More text may show that no form begins here; the automaton then drops it.
                state = search.begin(state)
            elif at == size or not (state.places or jumps):
                is_over = at < size or is_final
                break
            if text[at] in LEADS and not self._branch(at, state, is_final):
                break
            if at == candidate:
                candidate = search.candidate(text, at + 1)
            states.append(state)
            state = search.step(state, text[at])
            at += 1
        self._state, self._candidate = state, candidate
        return is_over

    def _branch(self, at: int, state: State, is_final: bool) -> bool:
        """Follow the escapes and gaps that begin at a position, unless more text could change them."""
        found = readings(self._text, at, is_final=is_final)
        if found is None:
            return False
        for symbol, end in found:
            after = self._search.step(state, symbol)
            if after.places:
                self._edges.setdefault(at, []).append((symbol, end))
                known = self._jumps.get(end, after)
                self._jumps[end] = self._search.state(known.places | after.places)
        return True

    def _held(self) -> int:
        """Return the position from which the text belongs to forms that may continue."""
        held = self._begin + len(self._states)
        goals = {end: state.places for end, state in self._jumps.items()}
        goals[held] = self._state.places - self._state.ends
        return min(self._backward(goals), default=held)

    def _spans(self, held: int) -> list[tuple[int, int]]:
        """Return the spans of forms that begin before a position, with overlapping ones joined."""
        if not (self._state.ends or any(state.ends for state in self._states)):
            return []
        inside = bytearray(len(self._states) + 1)
        goals = {self._begin + len(self._states): self._state.ends}
        begins = [at for at in self._backward(goals, inside) if at < held]
        spans: list[tuple[int, int]] = []
        for begin in reversed(begins):
            if not spans or begin >= spans[-1][1]:
                spans.append((begin, self._begin + inside.find(0, begin - self._begin + 1)))
        return spans

    def _backward(self, goals: dict[int, frozenset[int]], inside: bytearray | None = None) -> Iterator[int]:
        """Yield, from the last to the first, the positions where a form begins that leads to the goals.

        inside: if given, the ends of forms are goals too, and the positions where forms continue are marked in it
        """
        back, text, first, or_ends = self._search.back, self._text, self._begin, inside is not None
        for at in range(first + len(self._states) - 1, first - 1, -1):
            state = self._states[at - first]
            led = back(state, text[at], goals[at + 1], or_ends=or_ends)
            for symbol, end in self._edges.get(at, ()):
                other = back(state, symbol, goals.get(end, _NOTHING), or_ends=or_ends)
                if inside is not None and (other.begins or other.goes_on):
                    inside[at + 1 - first : end - first] = b"\1" * (end - at - 1)
                led = BackStep(led.places | other.places, led.begins or other.begins, led.goes_on or other.goes_on)
            if inside is not None and led.goes_on:
                inside[at - first] = 1
            goals[at] = led.places
            if led.begins:
                yield at

    def _drop(self, held: int) -> None:
        """Drop what was read before a position."""
        del self._states[: held - self._begin]
        self._begin = held
        self._settled = len(self._states)
        if not self._states:
            self._state = self._search.nothing
            self._edges.clear()

    def _rebase(self) -> None:
        """Drop the decided beginning of the text."""
        by, self._begin = self._begin, 0
        self._text = self._text[by:]
        if self._states:
            self._edges = {
                at - by: [(symbol, end - by) for symbol, end in edges] for at, edges in self._edges.items() if at >= by
            }
            self._jumps = {at - by: state for at, state in self._jumps.items()}


_ESCAPES_OF_LETTERS: Final = r"\\(?:[\\uUx0-7]|\Z)|%(?:[3-7u]|25?|\Z)|&(?:[#a]|\Z)"
_LEADS: Final = "\\%&\r\n\x1b"
_UNFINISHED: Final = rf"[\\%&'\"]\S{{0,{_LOOKAHEAD - 3}}}\Z"


def _rough(forms: list[Form]) -> re.Pattern[str]:
    """Build an expression to skip text with: it matches wherever `_exact` does, and at some other positions.

    Each branch begins with a literal character, so that the regular expression engine can skip by a set.
    """
    firsts: dict[str, dict[str, set[str]]] = {}
    for units, gaps in forms:
        for first in _raw([units[0]]):
            seconds = firsts.setdefault(first, {})
            for second in _raw([units[1]]):
                seconds.setdefault(second, set(_LEADS)).update(_raw([units[2]]), gaps)
    quotes = "'\"" if any(not unit.isdisjoint("'\"") for units, _ in forms for unit in units[:3]) else ""
    leads = _any_of(_LEADS + quotes)
    letters = all(symbol[-1].isascii() and symbol[-1].isalnum() for units, _ in forms for symbol in units[0])
    branches = [_ESCAPES_OF_LETTERS] if letters else [*map(re.escape, _LEADS[:3] + quotes)]
    for first, seconds in firsts.items():
        ways = [
            f"{re.escape(second)}(?:{_any_of(sorted({*thirds, *quotes}))}|\\Z)" for second, thirds in seconds.items()
        ]
        branches.append(f"{re.escape(first)}(?:{'|'.join([leads, *ways])}|\\Z)")
    return re.compile("|".join(branches))


def _exact(forms: list[Form], *, at_end: bool) -> re.Pattern[str]:
    """Build an expression that matches wherever a form begins, up to its third character or first escape.

    at_end: match instead where a form may begin, and the text ends before that is certain
    """
    # By the first character, and then by the second, the units that follow it, and how a gap before them begins.
    firsts: dict[str, dict[str, set[tuple[frozenset[str], str]]]] = {}
    for units, gaps in forms:
        for first in _raw([units[0]]):
            seconds = firsts.setdefault(first, {"": set()})
            seconds[""].add((units[1], gaps[:2]))
            for second in _raw([units[1]]):
                seconds.setdefault(second, set()).add((units[2], gaps))
    branches = [_escapes_of([units[0] for units, _ in forms], at_end)]
    for first, seconds in firsts.items():
        ways = [re.escape(second) + _after(following, at_end, bool(second)) for second, following in seconds.items()]
        branches.append(f"{re.escape(first)}(?:{'|'.join(ways)})")
    return re.compile("|".join(branches))


def _after(following: set[tuple[frozenset[str], str]], at_end: bool, with_chars: bool) -> str:
    """Return the expression for one of some units: its character, an escape of it, or a gap before it."""
    units = [unit for unit, _ in following]
    wrapped = [unit for unit, gaps in following if gaps]
    ways = [_any_of(_raw(units))] if with_chars and any(_raw(units)) else []
    ways += [_escapes_of(units, at_end), r"\x1b"]
    if wrapped:
        gaps = sorted({char for _, gaps in following for char in gaps})
        ways += [
            f"{_any_of(gaps)}(?:[{_any_of(_raw(wrapped))[1:-1]}\\s\"'\\\\]{'|' * at_end}{_END * at_end})",
            r"\\[\\nr]",
        ]
    return f"(?:{'|'.join([*ways, *[_END] * at_end])})"


_END: Final = r"\Z"


def _escapes_of(units: list[frozenset[str]], at_end: bool) -> str:
    """Return the expression for the beginning of an escape of one of some units."""
    if at_end:
        return _UNFINISHED
    chars = sorted({symbol[-1] for unit in units for symbol in unit if symbol})
    codes = [char.encode("utf-16-be", "surrogatepass").hex()[:4] for char in chars]
    octets = sorted({octet for char in chars for octet in (_first_octet(char), f"{ord(char) & 0xFF:02x}")})
    marks = [char for char in chars if not char.isascii() or not char.isalnum()]
    escapes = [
        rf"\\\\{{0,3}}(?:(?i:u(?:{'|'.join(codes)}|\{{)|x(?:{'|'.join(octets)}|\{{))|U|[0-7])",
        rf"%(?i:u(?:{'|'.join(codes)})|(?:25){{0,2}}(?:{'|'.join(octets)}))",
        rf"&(?:amp;)?{'(?:#|[A-Za-z])' if marks else '#'}",
        *([rf"\\\\{{0,3}}(?:[nrtbf]|{_any_of(marks)})", r"\\\\"] if marks else []),
        *(["'['\\\\\"]", '""'] if not {"'", '"'}.isdisjoint(marks) else []),
    ]
    return "|".join(escapes)


def _first_octet(char: str) -> str:
    return char.encode("utf-8", "surrogatepass").hex()[:2]


def _raw(units: Iterable[frozenset[str]]) -> list[str]:
    return sorted({symbol for unit in units for symbol in unit if len(symbol) == 1})


def _any_of(chars: Iterable[str]) -> str:
    return f"[{''.join(map(re.escape, chars))}]"
