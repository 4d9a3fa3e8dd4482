"""Origins: which secrets, inputs and outputs a value of a step is made of, through templates, constants and loops."""

from collections.abc import Iterable, Iterator, Mapping
from functools import reduce
from typing import Any, Final

import msgspec

from gert.kernel.foundation.globs import split_path
from gert.kernel.governance.parameter import Parameter
from gert.kernel.runbook.documents.steps import ExtensionStep, Step, ToolStep
from gert.kernel.runbook.program import Program, inner_lists, walk
from gert.kernel.runbook.validate.domain.names.scopes import ARCHIVE, scope_key
from gert.kernel.template import Template, templates_in
from gert.kernel.template.values import MISSING, field


class Origin(msgspec.Struct, frozen=True):
    """What a value is made of: one name of each kind, which is enough for a message.

    secret: a name with a secret value
    withheld: a secret output; later steps get a placeholder in its place
    input: an input of the runbook that is recorded; for `part`, only a part of its value is used
    output: an output that is recorded
    literal: the file contains the value, or part of it
    """

    secret: str | None = None
    withheld: str | None = None
    input: str | None = None
    part: str | None = None
    output: str | None = None
    literal: bool = False


NOTHING: Final = Origin()

# Keys that are made of the keys of later steps take a round each; beyond this, they are made of everything.
_MOST_ROUNDS: Final = 8
_FACTS: Final = frozenset({"status", "exit_code", "retry_count"})


class _Inside(msgspec.Struct, frozen=True):
    """What the result of a step holds: the outputs of it and of the steps in it, and the results of those by id."""

    outputs: Mapping[str, Origin]
    all_outputs: Origin
    steps: Mapping[str, Step]


class Origins:
    """The origins of every name of a runbook."""

    def __init__(self, program: Program) -> None:
        meta = program.runbook.meta
        self._program = program
        self._inputs = {name: _of_input(name, block.parameter()) for name, block in meta.inputs.items()}
        self._outputs: dict[str, Origin] = {}
        for step in program.steps:
            _add_outputs(self._outputs, program, step)
        self.everything = _merged((*self._inputs.values(), *self._outputs.values()))
        self._inside: dict[int, _Inside] = {}
        self._segments = {ARCHIVE, *program.by_id}
        for step in program.steps:
            self._segments.update(scope_key(step.scope) if step.scope is not None else ())
        # The keys of the results of loops by step, and those of `.scope` and `.step` as a whole.
        self._keys: dict[int, Origin] = {}
        self._all_keys = NOTHING
        self._known: dict[tuple[Any, ...], Origin] = {}
        self._constants: dict[str, Any] = {}
        for name, value in meta.constants.items():  # a constant reads only those before it
            self._known[(name,)] = self.of(value)
            self._constants[name] = value
        self._find_keys()

    def _find_keys(self) -> None:
        """Find what the keys of loops and the names of scopes are made of; they may be made of each other."""
        if not any(_is_computed(each) for step in self._program.steps for each in (_key(step), step.scope)):
            return
        for _ in range(_MOST_ROUNDS):
            before = {**self._keys}, self._all_keys
            for step, items in _around(self._program, self):
                if _is_computed(step.scope):
                    self._all_keys = _both(self._all_keys, self.of(step.scope, items))
                if _is_computed(_key(step)):
                    self._keys[id(step)] = _both(self._keys.get(id(step), NOTHING), self.of(_key(step), items))
                    self._all_keys = _both(self._all_keys, self._keys[id(step)])
            if before == (self._keys, self._all_keys):
                return
        self._keys = dict.fromkeys(self._keys, self.everything)
        self._all_keys = self.everything

    def of(self, value: Any, items: Mapping[str, Origin] | None = None) -> Origin:
        """Return the origin of a value as written; `items` are those of the loops around it."""
        found = [self.at(each.path, items or {}) for _, template in templates_in(value) for each in template.references]
        return _merged(found) if found else Origin(literal=value is not None and not _is_empty(value))

    def may_be_nothing(self, value: Any, items: Mapping[str, Any]) -> bool:
        """Return whether a value as written may render to nothing: text does not, nor an input that is always set."""
        if not isinstance(value, Template):
            return value is None or value is MISSING or value is _UNKNOWN
        if not value.is_value:
            return False
        if not value.path or value.path[0] in items or value.path[0] in self._outputs:
            return True
        head, rest = value.path[0], value.path[1:]
        if head in self._constants:  # a constant of constants is not followed further
            return self.may_be_nothing(reduce(_below, rest, self._constants[head]), self._constants)
        block = self._program.runbook.meta.inputs.get(head)
        parameter = block.parameter() if block is not None and not rest else None
        return parameter is None or not (parameter.required or parameter.default is not None)

    def at(self, path: tuple[Any, ...], items: Mapping[str, Origin]) -> Origin:
        """Return the origin of what a path leads to."""
        if not path or not isinstance(path[0], str):
            return self.everything
        head, rest = path[0], path[1:]
        if head == "step" and rest and isinstance(rest[0], str):
            return NOTHING if rest[1:] == ("status",) else self._record(rest[0], rest[1:])
        if head in ("step", "scope"):
            return self._among(rest)
        if head in items:
            return _part(items[head]) if rest else items[head]
        found = [self._constant(head, rest)] if head in self._constants else []
        return _merged((*found, *self._set(head, rest)))

    def _set(self, head: str, rest: tuple[Any, ...]) -> Iterator[Origin]:
        """Yield the origins of what inputs and steps set under a name."""
        if head in self._inputs:
            yield _part(self._inputs[head]) if rest else self._inputs[head]
        if head in self._outputs:
            yield self._outputs[head]
        step = self._program.by_id.get(head)
        # An output hides the step of its name, once it is set.
        if step is not None and head not in self._program.outputs_of(step):
            yield self._record(head, rest)

    def _record(self, name: str, rest: tuple[Any, ...]) -> Origin:
        step = self._program.by_id.get(name)
        found = self._result(step, rest) if step is not None else NOTHING
        secret = found.secret and f"{name}.{found.secret}"
        return msgspec.structs.replace(found, secret=secret) if secret else found

    def _result(self, step: Step, rest: tuple[Any, ...]) -> Origin:
        """Return the origin of a part of the result of a step."""
        inside = self._inside_of(step)
        keys = (self._keys.get(id(each), NOTHING) for each in inside.steps.values())
        whole = _merged((inside.all_outputs, *keys))
        if step.for_each is not None:
            if not rest:
                return _both(whole, self._keys.get(id(step), NOTHING))
            rest = rest[1:]  # the index or the key of an item
        if not rest or not isinstance(rest[0], str):
            return whole
        name = rest[0]
        found = [inside.outputs[name]] if name in inside.outputs else []
        if name in inside.steps:
            found.append(self._result(inside.steps[name], rest[1:]))
        return _merged(found)

    def _inside_of(self, step: Step) -> _Inside:
        if id(step) not in self._inside:
            outputs: dict[str, Origin] = {}
            for each in walk((step,)):
                _add_outputs(outputs, self._program, each)
            steps = {each.id: each for each in walk((step,)) if each.id is not None and each is not step}
            self._inside[id(step)] = _Inside(outputs, _merged(outputs.values()), steps)
        return self._inside[id(step)]

    def _among(self, rest: tuple[Any, ...]) -> Origin:
        """Return the origin of a part of `.step` or `.scope`: the outputs it names, else all outputs and all keys."""
        named = [each for each in rest if isinstance(each, str) and each in self._outputs]
        if named and self._segments.isdisjoint(named):
            return _merged(self._outputs[each] for each in named)
        last = rest[-1] if rest else None
        is_whole = not isinstance(last, str) or last.isdecimal() or last in self._segments or self._all_keys != NOTHING
        return _merged((*self._outputs.values(), self._all_keys)) if is_whole and last not in _FACTS else NOTHING

    def _constant(self, name: str, rest: tuple[Any, ...]) -> Origin:
        """Return the origin of a part of a constant; its name stands for the secrets in it."""
        value = self._constants[name]
        path: tuple[Any, ...] = (name,)
        for segment in rest:
            below = _below(value, segment)
            if below is _UNKNOWN or below is MISSING:
                break
            value, path = below, (*path, segment)
        if path not in self._known:
            self._known[path] = self.of(value)
        found = self._known[path] if len(path) > len(rest) else _part(self._known[path])
        return msgspec.structs.replace(found, secret=name) if found.secret else found

    def spread(self, source: str, key: str, items: Mapping[str, Origin]) -> Origin:
        """Return the origin of an input that `inputs_from` may set."""
        head, *rest = *split_path(source), key
        if head not in self._constants or head in items:
            return self.at((head, *rest), items)
        value = reduce(_below, rest, self._constants[head])
        # A map in the file has the keys that are written there, and no others.
        is_absent = value is MISSING or value is None
        found = () if is_absent else (self._constant(head, tuple(rest)),)
        return _merged((*found, *self._set(head, tuple(rest))))


_UNKNOWN: Final = object()


def _key(step: Step) -> Template | None:
    return step.for_each.key if step.for_each is not None else None


def _is_computed(template: Template | None) -> bool:
    return template is not None and not template.is_text


def _below(value: Any, segment: Any) -> Any:
    """Return a part of a constant as written; MISSING if there is none, _UNKNOWN if only the run knows."""
    if isinstance(value, Mapping | list):
        if isinstance(segment, str):
            return field(value, segment)
        is_index = isinstance(segment, int) and isinstance(value, list) and 0 <= segment < len(value)
        return value[segment] if is_index else _UNKNOWN
    return _UNKNOWN if isinstance(value, Template) or value is _UNKNOWN else MISSING


def calls(program: Program, origins: Origins) -> Iterator[tuple[ToolStep | ExtensionStep, Mapping[str, Origin]]]:
    """Yield every step that passes inputs, with the origins of the items around it."""
    for step, items in _around(program, origins):
        if isinstance(step, ToolStep | ExtensionStep):
            yield step, items


def _around(program: Program, origins: Origins) -> Iterator[tuple[Step, Mapping[str, Origin]]]:
    """Yield every step with the origins of the items around it, its own included."""
    for steps in (program.runbook.steps, program.runbook.finally_):
        yield from _in_list(steps, origins, {})


def _in_list(
    steps: tuple[Step, ...], origins: Origins, items: Mapping[str, Origin]
) -> Iterator[tuple[Step, Mapping[str, Origin]]]:
    for step in steps:
        inside = items
        if step.for_each is not None:
            over, name = step.for_each.over, step.for_each.as_
            item = origins.of(over, items)
            item = _part(item) if isinstance(over, Template) else item
            # The items of a secret list are secret, under their own name.
            inside = {**items, name: msgspec.structs.replace(item, secret=name) if item.secret else item}
        yield step, inside
        for inner in inner_lists(step):
            yield from _in_list(inner.steps, origins, inside)


def _of_input(name: str, parameter: Parameter) -> Origin:
    if parameter.secret:
        return Origin(secret=name)
    # The values of these are in the file or known to everyone.
    return NOTHING if parameter.type == "bool" or parameter.enum is not None else Origin(input=name)


def _of_output(name: str, parameter: Parameter) -> Origin:
    return Origin(secret=name, withheld=name) if parameter.secret else Origin(output=name)


def _add_outputs(found: dict[str, Origin], program: Program, step: Step) -> None:
    for name, each in program.outputs_of(step).items():
        found[name] = _both(found.get(name, NOTHING), _of_output(name, each))


def _part(origin: Origin) -> Origin:
    """Return the origin of a part of a value; a secret cannot be read in parts."""
    return msgspec.structs.replace(origin, input=None, part=origin.input) if origin.input else origin


def _merged(origins: Iterable[Origin]) -> Origin:
    return reduce(_both, origins, NOTHING)


def _both(one: Origin, other: Origin) -> Origin:
    if other is NOTHING or one == other:
        return one
    return Origin(
        secret=one.secret or other.secret,
        withheld=one.withheld or other.withheld,
        input=one.input or other.input,
        part=one.part or other.part,
        output=one.output or other.output,
        literal=one.literal or other.literal,
    )


def _is_empty(value: Any) -> bool:
    return (value.source if isinstance(value, Template) else value) in ("", [], {})
