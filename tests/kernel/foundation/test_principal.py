import msgspec
import pytest

from gert.errors import InputError
from gert.kernel.foundation.principal import KERNEL, Principal, parse_principal, principal_of

ALICE = Principal("human", "alice@example.com")
JUDGE = Principal("agent", "judge-01", role="judge", model="m-1")


@pytest.mark.parametrize(
    ("declared", "item_key", "item", "actor", "expected"),
    [
        pytest.param(JUDGE, "skeptic", {"role": "doubt"}, ALICE, JUDGE, id="a declared principal comes first"),
        pytest.param(
            None,
            "skeptic",
            {"role": "doubt"},
            ALICE,
            Principal("agent", "skeptic", role="doubt"),
            id="then the key of the item, with its role",
        ),
        pytest.param(None, "skeptic", "text", ALICE, Principal("agent", "skeptic"), id="an item need not have a role"),
        pytest.param(None, "s", {"role": 3}, None, Principal("agent", "s"), id="a role that is not text is left out"),
        pytest.param(None, " ", {}, ALICE, ALICE, id="an empty key names nobody"),
        pytest.param(None, None, {"role": "doubt"}, ALICE, ALICE, id="then the actor of the run"),
        pytest.param(None, None, None, None, KERNEL, id="and otherwise the kernel"),
    ],
)
def test_who_acts(
    declared: Principal | None,
    item_key: str | None,
    item: object,
    actor: Principal | None,
    expected: Principal,
) -> None:
    assert principal_of(declared, item_key, item, actor) == expected


def test_a_principal_is_read_from_a_mapping() -> None:
    assert parse_principal({"kind": "agent", "id": "judge-01", "role": "judge", "model": "m-1"}) == JUDGE
    assert parse_principal(JUDGE) is JUDGE


@pytest.mark.parametrize(
    ("value", "why"),
    [
        pytest.param("alice", "expected a principal with `kind` and `id`", id="plain text"),
        pytest.param(None, "expected a principal", id="nothing"),
        pytest.param({"kind": "robot", "id": "x"}, "system | human | agent, found `robot`", id="an unknown kind"),
        pytest.param({"kind": ["agent"], "id": "x"}, "found `['agent']`", id="a kind that is not text"),
        pytest.param({"id": "x"}, "found `None`", id="no kind"),
        pytest.param({"kind": "human"}, "needs `id`", id="no id"),
        pytest.param({"kind": "human", "id": " "}, "to be text", id="an empty id"),
        pytest.param({"kind": "human", "id": 7}, "to be text, found `7`", id="an id that is a number"),
        pytest.param({"kind": "human", "id": "x", "rol": "y"}, "no field `rol`", id="an unknown field"),
        pytest.param({"kind": "agent", "id": "x", "model": {}}, "`model` of a principal", id="a model that is no text"),
    ],
)
def test_what_is_not_a_principal(value: object, why: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_principal(value)
    assert why in caught.value.message


def test_what_is_not_known_is_not_written() -> None:
    assert msgspec.json.encode(KERNEL) == b'{"kind":"system","id":"kernel"}'
