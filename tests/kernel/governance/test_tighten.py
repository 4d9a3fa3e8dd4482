"""Tightening: which claims of an inner layer are reported, and in which words."""

import pytest

from gert.kernel.governance.contract import Contract, Declared, resolve
from gert.kernel.governance.parameter import Parameter
from gert.kernel.governance.tighten import relaxations

NETWORK = frozenset(("network",))
PODS = frozenset(("pods",))
NONE: frozenset[str] = frozenset()


def said(parent: Declared | Contract, child: Declared) -> list[str]:
    return [relaxation.message for relaxation in relaxations(parent, child)]


@pytest.mark.parametrize(
    ("parent", "child", "messages"),
    [
        pytest.param(Declared(effects=NETWORK), Declared(), [], id="omitted means inherit"),
        pytest.param(Declared(effects=NETWORK), Declared(effects=NETWORK | PODS), [], id="effects may grow"),
        pytest.param(
            Declared(effects=NETWORK | PODS),
            Declared(effects=PODS),
            ["`effects` may only grow; the tool also has `network`"],
            id="effects may not shrink",
        ),
        pytest.param(
            Declared(writes=PODS),
            Declared(writes=NONE),
            ["`writes` may only grow; the tool also has `pods`"],
            id="an empty list of writes is a claim",
        ),
        pytest.param(
            Declared(reads=PODS),
            Declared(reads=NETWORK),
            ["`reads` may only grow; the tool also has `pods`"],
            id="other reads do not replace the tool's",
        ),
        pytest.param(Declared(), Declared(reads=PODS), [], id="reads may be added where there were none"),
        pytest.param(Declared(idempotent=True), Declared(idempotent=False), [], id="true to false tightens"),
        pytest.param(
            Declared(idempotent=False),
            Declared(idempotent=True),
            ["`idempotent` may only go from true to false; the tool says false"],
            id="false to true relaxes",
        ),
        pytest.param(
            Declared(deterministic=False),
            Declared(deterministic=True),
            ["`deterministic` may only go from true to false; the tool says false"],
            id="deterministic obeys the same rule",
        ),
        pytest.param(Declared(), Declared(idempotent=True), [], id="an action may fill in what its tool left open"),
        pytest.param(
            resolve(Declared(effects=NETWORK)),
            Declared(idempotent=True),
            ["`idempotent` may only go from true to false; the tool says false"],
            id="a step may not fill it in",
        ),
        pytest.param(
            resolve(Declared()),
            Declared(effects=NETWORK),
            ["`effects` must be declared by the tool, which declares none, so they are unknown"],
            id="a step may not name the effects of a silent tool",
        ),
        pytest.param(
            resolve(Declared()),
            Declared(side_effects=False),
            ["`side_effects` may only go from false to true; the tool declares no effects at all"],
            id="nor call it harmless",
        ),
        pytest.param(resolve(Declared()), Declared(side_effects=True), [], id="it may call it harmful"),
        pytest.param(
            Declared(side_effects=True),
            Declared(side_effects=False),
            ["`side_effects` may only go from false to true; the tool says true"],
            id="side_effects true to false relaxes",
        ),
        pytest.param(
            Declared(side_effects=False),
            Declared(side_effects=True),
            [],
            id="side_effects false to true tightens",
        ),
        pytest.param(
            Declared(effects=NETWORK),
            Declared(side_effects=False),
            ["`side_effects` may only go from false to true; the tool has the effects `network`"],
            id="side_effects false denies effects",
        ),
        pytest.param(
            Declared(effects=NETWORK),
            Declared(side_effects=True),
            [],
            id="side_effects true takes nothing away",
        ),
        pytest.param(
            Declared(effects=NETWORK),
            Declared(effects=NETWORK, side_effects=False),
            [],
            id="side_effects beside effects is ignored",
        ),
    ],
)
def test_what_relaxes_a_contract(parent: Declared | Contract, child: Declared, messages: list[str]) -> None:
    assert said(parent, child) == messages


@pytest.mark.parametrize(
    ("outer", "inner", "messages"),
    [
        pytest.param(
            Parameter(type="string", required=True, secret=True),
            Parameter(type="string"),
            [],
            id="leaving out required and secret inherits them",
        ),
        pytest.param(Parameter(), Parameter(type="int"), [], id="any may become a type"),
        pytest.param(Parameter(type="int"), Parameter(), [], id="leaving out the type inherits it"),
        pytest.param(
            Parameter(type="int"),
            Parameter(type="string"),
            ["`host` is declared by the tool: its type is `int` and may not become `string`"],
            id="a type may not change",
        ),
        pytest.param(Parameter(enum=(1, 2)), Parameter(enum=(1,)), [], id="an enum may lose values"),
        pytest.param(
            Parameter(enum=(1, 2)),
            Parameter(enum=(1, 3)),
            ["`host` is declared by the tool: `enum` may only lose values; `3` would be new"],
            id="an enum may not gain values",
        ),
        pytest.param(
            Parameter(enum=(1,)),
            Parameter(enum=(True,)),
            ["`host` is declared by the tool: `enum` may only lose values; `True` would be new"],
            id="true is not one",
        ),
        pytest.param(
            Parameter(pattern="^a"),
            Parameter(pattern="^b"),
            ["`host` is declared by the tool: `pattern` is `^a` and may not be replaced"],
            id="a pattern may not be replaced",
        ),
        pytest.param(Parameter(), Parameter(pattern="^b", min=1, max=2, enum=(1,)), [], id="limits may be added"),
        pytest.param(Parameter(min=1, max=9), Parameter(min=2, max=8), [], id="bounds may close in"),
        pytest.param(
            Parameter(min=1, max=9),
            Parameter(min=0, max=10),
            [
                "`host` is declared by the tool: `min` is 1 and may only go up",
                "`host` is declared by the tool: `max` is 9 and may only go down",
            ],
            id="bounds may not open",
        ),
    ],
)
def test_what_widens_a_parameter(outer: Parameter, inner: Parameter, messages: list[str]) -> None:
    assert said(Declared(inputs={"host": outer}), Declared(inputs={"host": inner})) == messages
    assert said(Declared(outputs={"host": outer}), Declared(outputs={"host": inner})) == messages


def test_a_relaxation_names_what_it_is_about() -> None:
    parent = Declared(writes=PODS, inputs={"host": Parameter(type="int")})
    child = Declared(writes=NONE, inputs={"host": Parameter(type="bool")})
    found = [(each.property, each.parameter) for each in relaxations(parent, child, parent_name="the action")]
    assert found == [("writes", None), ("inputs", "host")]


def test_the_parent_goes_by_the_name_it_is_given() -> None:
    (found,) = relaxations(Declared(writes=PODS), Declared(writes=NONE), parent_name="action `delete`")
    assert found.message == "`writes` may only grow; action `delete` also has `pods`"


@pytest.mark.parametrize(
    ("outer", "inner", "expected"),
    [
        pytest.param(
            Parameter(type="string", required=True, pattern="^a", secret=True),
            Parameter(description="where", default="a", has_default=True),
            Parameter(
                type="string",
                required=True,
                pattern="^a",
                secret=True,
                description="where",
                default="a",
                has_default=True,
            ),
            id="a description and a default are added, limits stay",
        ),
        pytest.param(
            Parameter(type="int", enum=(1, 2, 3), min=0, max=9, default=1, has_default=True),
            Parameter(type="string", enum=(3, 2, 7), min=1, max=99, default=2, has_default=True),
            Parameter(type="int", enum=(2, 3), min=1, max=9, default=2, has_default=True),
            id="only what is narrower takes effect",
        ),
    ],
)
def test_how_a_parameter_resolves(outer: Parameter, inner: Parameter, expected: Parameter) -> None:
    contract = resolve(Declared(inputs={"host": outer}), Declared(inputs={"host": inner}))
    assert contract.inputs == {"host": expected}


def test_parameters_of_all_layers_are_kept() -> None:
    contract = resolve(Declared(inputs={"url": Parameter()}), Declared(inputs={"payload": Parameter(required=True)}))
    assert contract.inputs == {"url": Parameter(), "payload": Parameter(required=True)}
