"""Finds claims of an inner layer that would weaken the outer contract (kernel-v0 §4).

`resolve` never applies such a claim; these functions report it to the author.
"""

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from gert.kernel.foundation.names import listing
from gert.kernel.governance.contract import UNKNOWN, Contract, Declared, Tags, migrate
from gert.kernel.governance.parameter import Parameter, widenings


class Relaxation(msgspec.Struct, frozen=True):
    """A claim that would weaken the outer contract; `property` is its key, `hint` the way out."""

    property: str
    message: str
    parameter: str | None = None
    hint: str | None = None


TAGS: Final = ("effects", "reads", "writes")
PROMISES: Final = ("deterministic", "idempotent")


def relaxations(parent: Declared | Contract, child: Declared, *, parent_name: str = "the tool") -> Iterator[Relaxation]:
    """Yield every property of `child` that is weaker than in `parent`.

    A child may fill in what a `Declared` parent omits: a tool may leave
    `idempotent` to its actions. A `Contract` is final: an undeclared key has its strictest value, and
    a step that claims more relaxes it.
    """
    outer = migrate(parent) if isinstance(parent, Declared) else parent
    yield from _lost_tags(outer, child, parent_name)
    if isinstance(outer, Contract) and outer.effects is None and child.effects is not None:
        yield Relaxation(
            "effects", f"`effects` must be declared by {parent_name}, which declares none, so they are unknown"
        )
    for name in PROMISES:
        if getattr(outer, name) is False and getattr(child, name) is True:
            yield Relaxation(name, f"`{name}` may only go from true to false; {parent_name} says false")
    yield from _widened_parameters("inputs", outer.inputs, child.inputs, parent_name)
    yield from _widened_parameters("outputs", outer.outputs, child.outputs, parent_name)


def _lost_tags(outer: Declared | Contract, child: Declared, parent_name: str) -> Iterator[Relaxation]:
    for name in TAGS:
        had: Tags | None = getattr(outer, name)
        has: Tags | None = getattr(child, name)
        if had and has is not None and not had <= has:
            lost = listing(sorted(had - has))
            hint = f"repeat {lost}, or move `{name}` from the tool to its actions"
            yield Relaxation(name, f"`{name}` may only grow; {parent_name} also has {lost}", hint=hint)
    # `side_effects: true` only adds `unknown`; only `false` can relax.
    if child.effects is None and child.side_effects is False and (outer.effects or _is_undeclared(outer)):
        yield Relaxation(
            "side_effects", f"`side_effects` may only go from false to true; {_parent_effects(outer, parent_name)}"
        )


def _is_undeclared(outer: Declared | Contract) -> bool:
    return isinstance(outer, Contract) and outer.effects is None


def _parent_effects(outer: Declared | Contract, parent_name: str) -> str:
    if not outer.effects:
        return f"{parent_name} declares no effects at all"
    if outer.effects == {UNKNOWN}:
        return f"{parent_name} says true"
    return f"{parent_name} has the effects {listing(sorted(outer.effects))}"


def _widened_parameters(
    kind: str, outer: Mapping[str, Parameter], inner: Mapping[str, Parameter], parent_name: str
) -> Iterator[Relaxation]:
    for name, parameter in inner.items():
        for why in widenings(outer[name], parameter) if name in outer else ():
            yield Relaxation(kind, f"`{name}` is declared by {parent_name}: {why}", parameter=name)
