"""Names, step records and scopes that are known at a point of a runbook, and how references to them resolve."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from itertools import chain
from typing import Any, Final, TypeAlias

from gert.kernel.events.vocabulary import STEP_STATUSES
from gert.kernel.foundation.globs import split_path
from gert.kernel.foundation.names import did_you_mean, listing
from gert.kernel.foundation.text import shorten
from gert.kernel.runbook.documents.steps import RepeatStep, Step
from gert.kernel.runbook.finding import Finding, Path, Severity, at_offset, error, warning
from gert.kernel.runbook.program import Program, inner_lists, walk
from gert.kernel.runbook.validate.domain.names.compared import compared_words
from gert.kernel.runbook.validate.domain.names.names import Binding, Names
from gert.kernel.runbook.validate.domain.names.scopes import Scopes
from gert.kernel.runbook.validate.domain.names.shapes import (
    ANYTHING,
    ListShape,
    ScalarShape,
    Shape,
    StatusShape,
    Unresolved,
    follow,
)
from gert.kernel.template import EACH, Reference, Template

Marks: TypeAlias = tuple[int, int, int]
Made: TypeAlias = tuple[dict[str, Binding], dict[str, Binding], dict[str, Binding]]


BARE_NAME: Final = re.compile(r"\s*\{\{-?\s*\.([\w./]+)\s*-?\}\}\s*")


class Known:
    """Three journals (names, step records, scopes) that move together, and lookups in them."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.names = Names()
        self.records = Names()
        self.filled = Names()
        self.scopes = Scopes(program)
        self.asked: Counter[str] = Counter()
        # After a step with an unknown tool, any name may exist; the unknown tool has its own finding.
        self.is_blind = False
        self.jumpers = {
            name for step in program.steps if step.next is not None for name in (step.id, step.next.step) if name
        }

    # --- marks

    def mark(self) -> Marks:
        """Return a mark to undo to."""
        return self.names.mark(), self.records.mark(), self.filled.mark()

    def undo(self, marks: Marks) -> Made:
        """Undo to a mark; return what was added since."""
        return self.names.undo(marks[0]), self.records.undo(marks[1]), self.filled.undo(marks[2])

    def doubt_since(self, marks: Marks) -> None:
        """Mark everything added since a mark as uncertain."""
        for known, mark in zip((self.names, self.records, self.filled), marks, strict=True):
            for name in known.since(mark):
                known.doubt(name)

    def absorb(self, made: Made, *, certain: bool = True) -> None:
        """Add what was found in another walk."""
        for known, bindings in zip((self.names, self.records, self.filled), made, strict=True):
            for name, binding in bindings.items():
                known.bind(name, binding.shape, certain=binding.certain and certain)

    def absorb_any(self, ways: list[Made], *, covered: bool) -> None:
        """Add what several paths made known, of which one is taken: only what all of them set is certain."""
        for which, known in enumerate((self.names, self.records, self.filled)):
            for name in dict.fromkeys(name for way in ways for name in way[which]):
                bindings = [way[which][name] for way in ways if name in way[which]]
                certain = covered and len(bindings) == len(ways) and all(binding.certain for binding in bindings)
                known.bind(name, _common(bindings), certain=certain)

    # --- lookup

    def check(self, template: Template | None, path: Path, step: Step | None = None) -> Iterator[Finding]:
        """Yield a finding for every reference of a template that does not resolve here."""
        if template is None or template.is_text:
            return
        references = template.references
        # A template that tests a name anywhere may read it although it is not set on every path.
        tested = {_subject(reference) for reference in references if reference.tolerant}
        for reference in references:
            if reference.path and isinstance(reference.path[0], str):
                expects = reference.tolerant or _subject(reference) in tested or self._is_asked(reference, step)
                yield from self._resolve(reference, path, expects)
        for name, word in compared_words(template):
            if word.value and word.value not in STEP_STATUSES and self._is_status(name):
                yield at_offset(word.offset, _no_status(name, str(word.value), path))

    def _is_status(self, name: tuple[str, ...]) -> bool:
        """Return whether a name is how a step ended."""
        is_record = name[:1] == ("step",)
        head, *rest = name[is_record:] or ("",)
        binding = (None if is_record else self.names.get(head)) or self.records.get(head)
        return binding is not None and isinstance(follow(binding.shape, rest, head), StatusShape)

    def _is_asked(self, reference: Reference, step: Step | None) -> bool:
        """Return whether the author tests the name: in the step's `when`, or in the condition of an enclosing arm."""
        return (step is not None and step.when is not None) or self.asked[_subject(reference)] > 0

    def _resolve(self, reference: Reference, path: Path, expects: bool) -> Iterator[Finding]:
        head, rest = str(reference.path[0]), reference.path[1:]
        binding: Binding | Unresolved | None
        if head == "scope":
            said = ".scope." + "/".join(map(str, rest))
            binding = self.scopes.follow(rest, self.filled)
            rest = ()
        elif head == "step":
            if not rest or not isinstance(rest[0], str):
                return
            head, rest, said = rest[0], rest[1:], f".step.{rest[0]}"
            binding = self.records.get(head) or self._elsewhere(head, said)
            if isinstance(binding, Binding) and rest == ("status",):
                rest = ()  # a loop also has a status
        else:
            said = f".{head}"
            binding = self.names.get(head) or self.records.get(head)
            if binding is None and not self.is_blind:
                binding = self._elsewhere(head, said)
        if binding is None or (rest == ("retry_count",) and head in self.jumpers):
            return
        dead = binding if isinstance(binding, Unresolved) else follow(binding.shape, rest, said)
        if isinstance(dead, Unresolved):
            yield _at(reference, path, "D26" if dead.is_list else "D24", dead)
        elif isinstance(binding, Binding) and not binding.certain and not expects:
            whole = "." + ".".join(map(str, reference.path))
            fallback = f'give it a fallback, as in `default "" {whole}`, or ' if EACH not in reference.path else ""
            dead = Unresolved(f"`{said}` is not set on every path to here", f"{fallback}guard the step with `when`")
            yield _at(reference, path, "D25", dead, Severity.WARNING)

    def shape_of(self, value: Any) -> tuple[Shape, str] | None:
        """Return the shape of a value that is a single name, and that name; None if it is unknown."""
        bare = BARE_NAME.fullmatch(value.source) if isinstance(value, Template) else None
        if bare is None:
            return None
        head, *rest = split_path(bare[1])
        binding = self.names.get(head) or self.records.get(head)
        if binding is None or head in {"step", "scope"}:
            return None
        shape = follow(binding.shape, rest, head)
        return None if isinstance(shape, Unresolved) else (shape, f".{bare[1]}")

    def source(self, source: str, path: Path) -> Iterator[Finding]:
        """D28: `inputs_from` names an object that is known here."""
        head, *rest = split_path(source)
        if not head or "{{" in source:
            bare = source.strip("{} .")
            yield error(
                "D28", path, "`inputs_from` takes a name, not a template", f"use `inputs_from: {shorten(bare)}`"
            )
            return
        if head == "scope":
            yield from self._scope_source(source, rest, path)
            return
        if head == "step" and rest:
            head, rest = rest[0], rest[1:]
            binding = self.records.get(head)
        else:
            binding = self.names.get(head) or self.records.get(head)
        if binding is None:
            if self.is_blind:
                return
            dead = self._elsewhere(head, head)
            yield error("D28", path, dead.message, dead.hint or "name a constant, an input, an output or a step")
            return
        shape = follow(binding.shape, rest, head)
        if isinstance(shape, Unresolved):
            yield error("D28", path, shape.message, shape.hint)
        elif isinstance(shape, ScalarShape | ListShape):
            yield error("D28", path, f"`{source}` is not an object", "`inputs_from` spreads the keys of a map")

    def _scope_source(self, source: str, rest: list[str], path: Path) -> Iterator[Finding]:
        found = self.scopes.follow(rest, self.filled)
        if isinstance(found, Unresolved):
            yield error("D28", path, found.message, found.hint or f"`{shorten(source)}` is not an object")

    # --- explanations

    @cached_property
    def _items(self) -> dict[str, Step]:
        return {step.for_each.as_: step for step in self.program.steps if step.for_each is not None}

    @cached_property
    def makers(self) -> Mapping[str, Step]:
        """The first step that sets each output name."""
        found: dict[str, Step] = {}
        for step in self.program.steps:
            for name in self.program.outputs_of(step):
                found.setdefault(name, step)
        return found

    def _elsewhere(self, head: str, said: str) -> Unresolved:
        """Explain why a name is not known here, as precisely as possible."""
        name = shorten(head)
        if head in self._items:
            loop = self._items[head]
            hint = f"its results are in the list `.{loop.id}`"
            return Unresolved(f"`{said}` exists only inside the loop of {loop.label}", hint, is_list=True)
        if head == "repeat":
            return Unresolved("`.repeat` exists only inside a `repeat` block")
        if head in self.program.by_id:
            return self._inside(self.program.by_id[head], said, None) or Unresolved(
                f"the step `{name}` has not run on any path to here"
            )
        maker = self.makers.get(head)
        if maker is None:
            guess = did_you_mean(head, chain(self.names.bound, self.records.bound))
            return Unresolved(
                f"the name `{shorten(said)}` is not defined", f"did you mean `.{guess}`?" if guess else None
            )
        if maker.type == "assert":
            return Unresolved(f"`{said}` of an assertion is read through its id", f"use `.{maker.id}.{name}`")
        if maker.for_each is not None:
            key = "<key>" if maker.for_each.key is not None else "0"
            hint = f'use `index .{maker.id} {key} "{name}"`'
            return Unresolved(f"`{said}` is set inside the loop of {maker.label}", hint, is_list=True)
        if maker.scope is not None:
            hint = f"read `.{maker.id}.{name}`, or add `export: [{name}]` to {maker.label}"
            return Unresolved(f"`{said}` is stored in the scope `{shorten(maker.scope.source)}`", hint)
        return self._inside(maker, said, name) or Unresolved(
            f"`{said}` is set by {maker.label}, which has not run on any path to here"
        )

    def _inside(self, step: Step, said: str, output: str | None) -> Unresolved | None:
        """Explain a step inside a block whose iterations are overlays: only exports survive it."""
        block = self._overlays.get(id(step))
        if block is None:
            return None
        hint = f"add `export: [{output}]` to {step.label}, or " if output and block.for_each is None else ""
        where = f".scope.repeat.{block.id}.0" if block.for_each is None else f".{block.id}"
        return Unresolved(
            f"`{said}` does not survive the block {block.label}, where it is set", f"{hint}read `{where}`"
        )

    @cached_property
    def _overlays(self) -> dict[int, Step]:
        """The outermost repeated or looped block around each step."""
        found: dict[int, Step] = {}
        for step in self.program.steps:
            if isinstance(step, RepeatStep) or step.for_each is not None:
                for block in inner_lists(step):
                    for inner in walk(block.steps):
                        found.setdefault(id(inner), step)
        return found


def _no_status(name: tuple[str, ...], word: str, path: Path) -> Finding:
    guess = did_you_mean(word, STEP_STATUSES)
    hint = f"did you mean `{guess}`?" if guess else f"a step is {listing(STEP_STATUSES)}"
    return warning("D24", path, f"`.{'.'.join(name)}` is never `{shorten(word)}`", hint)


def _subject(reference: Reference) -> str:
    """Return the subject of a reference: a name, the step after `.step`, or the whole path after `.scope`."""
    if reference.path[:1] == ("scope",):
        return ".".join(map(str, reference.path))
    named = reference.path[1:] if reference.path[:1] == ("step",) else reference.path
    return str(named[0]) if named else ""


def subjects(template: Template) -> list[str]:
    """Return the subjects of all references of a template."""
    return [_subject(reference) for reference in template.references]


def _at(reference: Reference, path: Path, rule: str, dead: Unresolved, severity: Severity = Severity.ERROR) -> Finding:
    return Finding(
        rule=rule,
        severity=severity,
        path=path,
        message=dead.message,
        hint=dead.hint,
        offset=reference.offset,
    )


def _common(bindings: Iterable[Binding]) -> Shape:
    shapes = [binding.shape for binding in bindings]
    return shapes[0] if all(shape == shapes[0] for shape in shapes) else ANYTHING
