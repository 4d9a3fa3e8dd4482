"""Origins: which secrets, inputs and outputs a value of a step is made of, through templates, constants and loops."""

from collections.abc import Iterable, Iterator, Mapping
from functools import reduce
from typing import Any, Final

import msgspec

from gert.kernel.foundation.globs import split_path
from gert.kernel.governance.parameter import Parameter
from gert.kernel.runbook.documents.steps import ExtensionStep, Step, ToolStep
from gert.kernel.runbook.program import Program, inner_lists, walk
from gert.kernel.template import Template, templates_in


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


class Origins:
    """The origins of every name of a runbook."""

    def __init__(self, program: Program) -> None:
        meta = program.runbook.meta
        self._inputs = {name: _of_input(name, block.parameter()) for name, block in meta.inputs.items()}
        self._outputs: dict[str, Origin] = {}
        self._records: dict[str, dict[str, Origin]] = {}
        for step in program.steps:
            _add_outputs(self._outputs, program, step)
            record = self._records.setdefault(step.id or "", {})
            for each in walk((step,)):  # the results of a block are those of its steps
                _add_outputs(record, program, each)
        self.everything = _merged((*self._inputs.values(), *self._outputs.values()))
        self._known: dict[tuple[Any, ...], Origin] = {}
        self._constants: dict[str, Any] = {}
        for name, value in meta.constants.items():  # a constant reads only those before it
            self._known[(name,)] = self.of(value)
            self._constants[name] = value

    def of(self, value: Any, items: Mapping[str, Origin] | None = None) -> Origin:
        """Return the origin of a value as written; `items` are those of the loops around it."""
        found = [self.at(each.path, items or {}) for _, template in templates_in(value) for each in template.references]
        return _merged(found) if found else Origin(literal=value is not None and not _is_empty(value))

    def at(self, path: tuple[Any, ...], items: Mapping[str, Origin]) -> Origin:
        """Return the origin of what a path leads to."""
        if not path or not isinstance(path[0], str):
            return self.everything
        head, rest = path[0], path[1:]
        if head == "step" and rest and isinstance(rest[0], str):
            return self._record(rest[0], rest[1:])
        if head in ("step", "scope"):
            return self._among(self._outputs, rest)
        if head in items:
            return _part(items[head]) if rest else items[head]
        found = [self._constant(head, rest)] if head in self._constants else []
        if head in self._inputs:
            found.append(_part(self._inputs[head]) if rest else self._inputs[head])
        if head in self._outputs:
            found.append(self._outputs[head])
        return _merged(found) if found else self._record(head, rest)

    def _record(self, step: str, rest: tuple[Any, ...]) -> Origin:
        found = self._among(self._records.get(step, {}), rest)
        secret = found.secret and f"{step}.{found.secret}"
        return msgspec.structs.replace(found, secret=secret) if secret else found

    @staticmethod
    def _among(outputs: Mapping[str, Origin], rest: tuple[Any, ...]) -> Origin:
        """Return the origin of the outputs that a path names; of all of them if it ends before their names."""
        named = [outputs[each] for each in rest if isinstance(each, str) and each in outputs]
        is_whole = not rest or not isinstance(rest[-1], str)
        return _merged(named or (outputs.values() if is_whole else ()))

    def _constant(self, name: str, rest: tuple[Any, ...]) -> Origin:
        """Return the origin of a part of a constant; its name stands for the secrets in it."""
        value: Any = self._constants[name]
        path: tuple[Any, ...] = (name,)
        for segment in rest:
            if not isinstance(value, Mapping) or segment not in value:
                break
            value, path = value[segment], (*path, segment)
        if path not in self._known:
            self._known[path] = self.of(value)
        found = self._known[path] if len(path) > len(rest) else _part(self._known[path])
        return msgspec.structs.replace(found, secret=name) if found.secret else found

    def spread(self, source: str, key: str, items: Mapping[str, Origin]) -> Origin:
        """Return the origin of an input that `inputs_from` may set."""
        path = tuple(split_path(source))
        if path[0] in self._constants:
            value: Any = self._constants
            for segment in (*path, key):
                value = value.get(segment) if isinstance(value, Mapping) else None
            return self.at((*path, key), items) if value is not None else NOTHING
        return self.at((*path, key), items)


def calls(program: Program, origins: Origins) -> Iterator[tuple[ToolStep | ExtensionStep, Mapping[str, Origin]]]:
    """Yield every step that passes inputs, with the origins of the items around it."""
    for steps in (program.runbook.steps, program.runbook.finally_):
        yield from _calls(steps, origins, {})


def _calls(
    steps: tuple[Step, ...], origins: Origins, items: Mapping[str, Origin]
) -> Iterator[tuple[ToolStep | ExtensionStep, Mapping[str, Origin]]]:
    for step in steps:
        inside = items
        if step.for_each is not None:
            over, name = step.for_each.over, step.for_each.as_
            item = origins.of(over, items)
            item = _part(item) if isinstance(over, Template) else item
            # The items of a secret list are secret, under their own name.
            inside = {**items, name: msgspec.structs.replace(item, secret=name) if item.secret else item}
        if isinstance(step, ToolStep | ExtensionStep):
            yield step, inside
        for inner in inner_lists(step):
            yield from _calls(inner.steps, origins, inside)


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
