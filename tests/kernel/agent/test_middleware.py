"""The order middleware takes part in, and what a policy insists on."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gert.errors import InputError, UsageError
from gert.kernel.agent.middleware import PreparedToolRequest, order_middleware, require_middleware
from gert.kernel.agent.shapes import KernelPolicy

NAMES = ("PIIScrubberMiddleware", "QuotaMiddleware", "CapabilityGuardMiddleware", "SafetyPolicyMiddleware")


def named(name: str, base: type = object) -> Any:
    return type(name, (base,), {})()


def names(found: Any) -> list[str]:
    return [type(each).__name__ for each in found]


@given(st.permutations([*NAMES, "Mine", "Yours"]))
def test_what_is_known_comes_first_and_the_rest_as_it_was_given(given_names: list[str]) -> None:
    found = names(order_middleware([named(name) for name in given_names]))
    assert found[:4] == list(NAMES)
    assert found[4:] == [name for name in given_names if name not in NAMES]


def test_one_made_from_a_known_one_counts_as_it() -> None:
    scrubber = named("PIIScrubberMiddleware")
    own = named("OurScrubber", type(scrubber))
    assert names(order_middleware([named("Mine"), own])) == ["OurScrubber", "Mine"]
    require_middleware(KernelPolicy.enforced(), [own, named("QuotaMiddleware"), named("CapabilityGuardMiddleware")])


@pytest.mark.parametrize(
    ("policy", "present", "missing"),
    [
        pytest.param(KernelPolicy(), (), (), id="permissive needs nothing"),
        pytest.param(KernelPolicy.enforced(), NAMES[:3], (), id="enforced has its three"),
        pytest.param(KernelPolicy.enforced(), NAMES[1:3], NAMES[:1], id="enforced without scrubber"),
        pytest.param(KernelPolicy.enforced(), ("Mine",), NAMES[:3], id="enforced with something else"),
        pytest.param(KernelPolicy.enforced_v2(), NAMES, (), id="enforced_v2 has its four"),
        pytest.param(KernelPolicy.enforced_v2(), NAMES[:3], NAMES[3:], id="enforced_v2 without safety"),
        pytest.param(KernelPolicy.enforced_v2(), (), NAMES, id="enforced_v2 with nothing"),
    ],
)
def test_what_a_policy_insists_on(policy: KernelPolicy, present: tuple[str, ...], missing: tuple[str, ...]) -> None:
    middleware = [named(name) for name in present]
    if not missing:
        require_middleware(policy, middleware)
        return
    with pytest.raises(UsageError) as caught:
        require_middleware(policy, middleware)
    assert all(f"`{name}`" in str(caught.value) for name in (*missing, policy.mode))
    assert not any(f"`{name}`" in str(caught.value) for name in set(NAMES) - set(missing))


@pytest.mark.parametrize("mode", ["", "Enforced", "enforced_v3", "none"])
def test_a_mode_nobody_knows_is_refused(mode: Any) -> None:
    with pytest.raises(InputError):
        KernelPolicy(mode)


@pytest.mark.parametrize(
    ("first", "second", "merged"),
    [
        (("a",), ("b",), ("b", None, None, None)),
        (("a", "key", "plan", 1.0), ("b",), ("b", "key", "plan", 1.0)),
        (("a", "key", "plan", 1.0), ("b", "other", None, 0.0), ("b", "other", "plan", 0.0)),
    ],
)
def test_of_two_findings_the_later_stands(first: Any, second: Any, merged: Any) -> None:
    assert PreparedToolRequest(*first).merge(PreparedToolRequest(*second)) == PreparedToolRequest(*merged)
    assert PreparedToolRequest(*first).with_arguments_json("x").arguments_json == "x"
