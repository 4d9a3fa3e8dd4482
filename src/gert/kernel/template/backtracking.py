"""How long Python's backtracking can take on a pattern, judged before it runs.

The pattern becomes an automaton with one place per character it can read (Glushkov's). Python tries ways
through it one after the other, so time is the number of ways to read the same text:

- two ways round one loop double with every round: exponential, refused;
- loops one after the other that can share the same text give a power of its length, which bounds the text;
- overlapping alternatives outside loops multiply by a constant, which is bounded.

A search that may start anywhere is one more loop, in front. Anchors are ignored, which errs on the safe side.
"""

from math import factorial, log2
from typing import NoReturn

from msgspec import Struct

from gert.errors import TemplateSyntaxError
from gert.kernel.template.pattern_syntax import (
    ANY,
    LAST,
    Characters,
    Choice,
    Edge,
    Group,
    One,
    Part,
    Repeat,
    Sequence,
    merged,
)
from gert.kernel.template.patterns import MAX_TEXT

MAX_PLACES = 400
MAX_COUNTED = 16
MAX_WORK = 400_000  # for the judging itself
MAX_CHAIN = 4
MAX_FORKS = 10
_AFFORDABLE = 1e8  # steps of Python's matcher, a second or so


class Cost(Struct, frozen=True):
    """What a search may take; the longest line is what counts if no loop crosses lines."""

    longest: int
    per_line: bool
    chain: int
    forks: float

    def steps(self, length: int) -> float:
        """The most that searching a text of this length may take."""
        chain = max(self.chain, 1)
        return float(length) ** chain / factorial(chain) * 2**self.forks


def cost_of(part: Part) -> Cost:
    """Judge a pattern; TemplateSyntaxError if it can take exponential time."""
    automaton = _Automaton(part)
    automaton.refuse_exponential()
    forks = automaton.forks()
    if forks > MAX_FORKS:
        _refuse("too many of its alternatives can match the same text")
    chain = automaton.chain()
    if chain > MAX_CHAIN:
        _refuse(
            "too many repeats in a row can match the same text",
            hint="let each repeat stop at a character of its own, as in `[^,]*,`",
        )
    longest = MAX_TEXT
    if chain > 1:
        longest = min(longest, int((_AFFORDABLE * factorial(chain) / 2**forks) ** (1 / chain)))
    return Cost(longest, automaton.within_lines(), chain, forks)


def _refuse(message: str, *, hint: str | None = None) -> NoReturn:
    raise TemplateSyntaxError(message, hint=hint)


class _Span(Struct, frozen=True):
    """A part of the automaton: where it begins and ends, and in how many ways it matches nothing."""

    first: dict[int, int]
    last: dict[int, int]
    empty: int


_END: Characters = ((LAST + 1, LAST + 1),)  # read by nothing: how often it is reached still counts
_EMPTY = _Span({}, {}, 1)


class _Automaton:
    __slots__ = ("_meets", "_outward", "follow", "loop_of", "reach", "sets", "work")

    def __init__(self, part: Part) -> None:
        # Place 0 is before the text; a search may stay there for any number of characters.
        self.sets: list[Characters] = [ANY]
        self.follow: list[dict[int, int]] = [{}]
        self._meets: dict[tuple[Characters, Characters], bool] = {}
        self._outward: dict[int, list[dict[int, int]]] = {}
        self.work = MAX_WORK
        whole = self.joined(self.span(part), self.place(_END))
        self.follow[0].update(whole.first)
        if not _anchored(part):
            self.follow[0][0] = 1
        self.reach = self.closure()
        self.loop_of = [self.loop(place) for place in range(len(self.sets))]

    def spend(self, work: int) -> None:
        self.work -= work
        if self.work < 0:
            _refuse("the pattern is too large", hint="use fewer alternatives and smaller counts")

    # Building

    def span(self, part: Part) -> _Span:
        if isinstance(part, One):
            return self.place(part.characters)
        if isinstance(part, Edge):
            return _EMPTY
        if isinstance(part, Group):
            return self.span(part.part)
        if isinstance(part, Sequence):
            return self.sequence(part.parts)
        if isinstance(part, Choice):
            spans = [self.span(option) for option in part.options]
            first: dict[int, int] = {}
            last: dict[int, int] = {}
            for span in spans:
                first.update(span.first)
                last.update(span.last)
            return _Span(first, last, sum(span.empty for span in spans))
        return self.repeat(part)

    def place(self, characters: Characters) -> _Span:
        number = len(self.sets)
        if number > MAX_PLACES:
            _refuse("the pattern is too large", hint="use smaller counts")
        self.sets.append(characters)
        self.follow.append({})
        return _Span({number: 1}, {number: 1}, 0)

    def sequence(self, parts: tuple[Part, ...]) -> _Span:
        whole = _EMPTY
        for part in parts:
            whole = self.joined(whole, self.span(part))
        return whole

    def joined(self, left: _Span, right: _Span) -> _Span:
        self.connect(left.last, right.first)
        first = dict(left.first)
        if left.empty:
            first.update({place: ways * left.empty for place, ways in right.first.items()})
        last = dict(right.last)
        if right.empty:
            last.update({place: ways * right.empty for place, ways in left.last.items()})
        return _Span(first, last, left.empty * right.empty)

    def connect(self, left: dict[int, int], right: dict[int, int]) -> None:
        self.spend(len(left) * len(right))
        for place, ways in left.items():
            follow = self.follow[place]
            for after, more in right.items():
                follow[after] = follow.get(after, 0) + ways * more

    def repeat(self, part: Repeat) -> _Span:
        if part.most == 0:
            return _EMPTY
        if part.most is not None and part.most != 1 and _is_fixed(part.part):
            if part.least == part.most:
                return self.sequence((part.part,) * part.least)
            if part.most <= MAX_COUNTED:
                return self.counted(part.part, part.least, part.most)
        span = self.span(part.part)
        if part.most != 1:
            if span.empty:
                _refuse("a part that can match nothing is repeated", hint="let it match one character at least")
            self.connect(span.last, span.first)
        return _Span(span.first, span.last, span.empty + (part.least == 0))

    def counted(self, part: Part, least: int, most: int) -> _Span:
        """`xx(x(x)?)?`, which is what `x{2,4}` means."""
        rest = _EMPTY
        for _ in range(most - least):
            more = self.joined(self.span(part), rest)
            rest = _Span(more.first, more.last, 1)
        return self.joined(self.sequence((part,) * least), rest)

    # Judging

    def closure(self) -> list[int]:
        """For each place, the places that can be reached from it, as bits."""
        reach = [sum(1 << after for after in follow) for follow in self.follow]
        changed = True
        while changed:
            changed = False
            for place in range(len(reach) - 1, -1, -1):
                self.spend(len(self.follow[place]) // 8)
                bits = reach[place]
                for after in self.follow[place]:
                    bits |= reach[after]
                if bits != reach[place]:
                    reach[place] = bits
                    changed = True
        return reach

    def loop(self, place: int) -> int:
        """The places of the loop this place is in, as bits; 0 if it is in none."""
        if not self.reach[place] >> place & 1:
            return 0
        return sum(1 << other for other in _bits(self.reach[place]) if self.reach[other] >> place & 1)

    def meets(self, one: Characters, other: Characters) -> bool:
        """Do two sets share a character?"""
        known = self._meets.get((one, other))
        if known is None:
            self.spend(len(one) + len(other))
            known = _overlap(one, other)
            self._meets[one, other] = known
        return known

    def refuse_exponential(self) -> None:
        """Two different ways round the same loop, reading the same text, double with every round."""
        for loop in {loop for loop in self.loop_of if loop}:
            places = list(_bits(loop))
            doubled = any(ways > 1 and loop >> after & 1 for at in places for after, ways in self.follow[at].items())
            if doubled or self.ambiguous(loop, places):
                _refuse(
                    "a repeat can match the same text in many ways, which can take exponential time",
                    hint="let each round begin or end with a character of its own, as in `(\\w+,)*`",
                )

    def ambiguous(self, loop: int, places: list[int]) -> bool:
        """Can two walks start at one place, part, and meet again, reading the same text?"""
        forward: dict[tuple[int, int], list[tuple[int, int]]] = {}
        waiting = [(place, place) for place in places]
        seen = set(waiting)
        while waiting:
            pair = waiting.pop()
            for after in self.pairs(pair, loop):
                forward.setdefault(after, []).append(pair)
                if after not in seen:
                    seen.add(after)
                    waiting.append(after)
        # Walk back from where two walks meet; a pair of different places on the way is an ambiguity.
        waiting = [(place, place) for place in places]
        back = set(waiting)
        while waiting:
            for before in forward.get(waiting.pop(), ()):
                if before[0] != before[1]:
                    return True
                if before not in back:
                    back.add(before)
                    waiting.append(before)
        return False

    def pairs(self, pair: tuple[int, int], loop: int) -> list[tuple[int, int]]:
        """Where two walks can go from here, reading the same character."""
        self.spend(len(self.follow[pair[0]]) * len(self.follow[pair[1]]))
        return [
            (one, other) if one <= other else (other, one)
            for one in self.follow[pair[0]]
            if loop >> one & 1
            for other in self.follow[pair[1]]
            if loop >> other & 1 and self.meets(self.sets[one], self.sets[other])
        ]

    def forks(self) -> float:
        """The logarithm of the ways through alternatives outside loops that read the same text."""
        most: dict[int, float] = {}
        waiting = [0]
        while waiting:
            place = waiting[-1]
            outward = self.outward(place)
            undone = [after for ways in outward for after in ways if after not in most]
            if undone:
                waiting.extend(undone)
                continue
            waiting.pop()
            further = max((most[after] for ways in outward for after in ways), default=0.0)
            most[place] = further + max(map(self.own_forks, outward))
        return most[0]

    def outward(self, place: int) -> list[dict[int, int]]:
        """The ways out of a place; a loop is left from any of its places."""
        known = self._outward.get(place)
        if known is None:
            loop = self.loop_of[place]
            known = [
                {after: ways for after, ways in self.follow[member].items() if not loop >> after & 1}
                for member in (_bits(loop) or [place])
            ]
            self.spend(sum(map(len, known)))
            self._outward[place] = known
        return known

    def own_forks(self, outward: dict[int, int]) -> float:
        """The logarithm of the ways to read one character from here."""
        ways = [
            sum(count for other, count in outward.items() if other == after or self.forked(after, other))
            for after in outward
        ]
        return log2(max(ways, default=1))

    def forked(self, one: int, other: int) -> bool:
        """Are two places reached by the same text, other than by going past a loop or through it?"""
        self.spend(2)
        past = any(other in ways for ways in self.outward(one) if self.loop_of[one])
        past = past or any(one in ways for ways in self.outward(other) if self.loop_of[other])
        return not past and self.meets(self.sets[one], self.sets[other])

    def chain(self) -> int:
        """The most loops in a row that can share the same text."""
        loops = sorted(
            {loop for loop in self.loop_of if loop}, key=lambda loop: -self.reach[_bits(loop)[0]].bit_count()
        )
        unions = {loop: self.union(loop) for loop in loops}
        longest: dict[int, int] = {}
        for loop in reversed(loops):
            after = [longest[other] for other in longest if self.overlap(loop, other, unions)]
            longest[loop] = 1 + max(after, default=0)
        return max(longest.values(), default=0)

    def union(self, loop: int) -> Characters:
        return merged([interval for place in _bits(loop) for interval in self.sets[place]])

    def overlap(self, loop: int, other: int, unions: dict[int, Characters]) -> bool:
        """Is there a way from one loop into another that either could have read as well?"""
        one, two = unions[loop], unions[other]
        if not self.meets(one, two):
            return False
        waiting = list(_bits(loop))
        seen = loop
        while waiting:
            self.spend(1)
            for after in self.follow[waiting.pop()]:
                if seen >> after & 1 or not (self.meets(self.sets[after], one) and self.meets(self.sets[after], two)):
                    continue
                if other >> after & 1:
                    return True
                seen |= 1 << after
                waiting.append(after)
        return False

    def within_lines(self) -> bool:
        """No loop but the search itself reads a newline."""
        newline: Characters = ((10, 10),)
        return not any(
            self.loop_of[place] and self.meets(self.sets[place], newline) for place in range(1, len(self.sets))
        )


def _anchored(part: Part) -> bool:
    """Can it match at the start of the text only?"""
    if isinstance(part, Edge):
        return part.start_of_text
    if isinstance(part, Sequence):
        return bool(part.parts) and _anchored(part.parts[0])
    if isinstance(part, Choice):
        return all(map(_anchored, part.options))
    return isinstance(part, Group) and _anchored(part.part)


def _is_fixed(part: Part) -> bool:
    """Does it read a fixed number of characters in one way?"""
    if isinstance(part, One | Edge):
        return True
    if isinstance(part, Sequence):
        return all(map(_is_fixed, part.parts))
    if isinstance(part, Repeat):
        return part.least == part.most and _is_fixed(part.part)
    return isinstance(part, Group) and _is_fixed(part.part)


def _overlap(one: Characters, other: Characters) -> bool:
    """Do two sorted rows of intervals share a member?"""
    first = second = 0
    while first < len(one) and second < len(other):
        (low, high), (bottom, top) = one[first], other[second]
        if low <= top and bottom <= high:
            return True
        first, second = (first + 1, second) if high < top else (first, second + 1)
    return False


def _bits(bits: int) -> list[int]:
    return [place for place in range(bits.bit_length()) if bits >> place & 1]
