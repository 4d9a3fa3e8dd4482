import msgspec
import pytest

from gert.kernel.foundation.principal import KERNEL, Principal, principal_of

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
        pytest.param(None, " ", {}, ALICE, ALICE, id="an empty key names no principal"),
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


def test_what_is_not_known_is_not_written() -> None:
    assert msgspec.json.encode(KERNEL) == b'{"kind":"system","id":"kernel"}'
