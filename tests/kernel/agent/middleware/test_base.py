"""The order middleware takes part in, and what a policy requires."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gert.errors import InputError, UsageError
from gert.kernel.agent.middleware.base import PassThroughMiddleware, PreparedToolRequest
from gert.kernel.agent.middleware.capabilities import CapabilityGuardMiddleware
from gert.kernel.agent.middleware.pii import PIIScrubberMiddleware
from gert.kernel.agent.middleware.quota import QuotaMiddleware
from gert.kernel.agent.middleware.stack import order_middleware, require_middleware
from gert.kernel.agent.safety.config import SafetyPolicyConfig
from gert.kernel.agent.safety.middleware import SafetyPolicyMiddleware
from gert.kernel.agent.types.api import KernelPolicy

GUARDS = (PIIScrubberMiddleware, QuotaMiddleware, CapabilityGuardMiddleware)
NAMES = tuple(guard.__name__ for guard in GUARDS)


def named(name: str, base: type = PassThroughMiddleware) -> Any:
    return type(name, (base,), {})()


def safety() -> SafetyPolicyMiddleware:
    return SafetyPolicyMiddleware(config=SafetyPolicyConfig())


def names(found: Any) -> list[str]:
    return [type(each).__name__ for each in found]


@given(st.permutations([*GUARDS, "Mine", "Yours"]))
def test_what_is_known_comes_first_and_the_rest_as_it_was_given(order: list[Any]) -> None:
    found = names(order_middleware([named(each) if isinstance(each, str) else each() for each in order]))
    assert found[:3] == list(NAMES)
    assert found[3:] == [each for each in order if isinstance(each, str)]


def test_one_made_from_a_known_one_counts_as_it() -> None:
    own = named("OurScrubber", PIIScrubberMiddleware)
    assert names(order_middleware([named("Mine"), own])) == ["OurScrubber", "Mine"]
    require_middleware(KernelPolicy.enforced(), [own, QuotaMiddleware(), CapabilityGuardMiddleware()])


@pytest.mark.parametrize(
    ("policy", "present", "missing"),
    [
        pytest.param(KernelPolicy(), (), (), id="permissive needs nothing"),
        pytest.param(KernelPolicy.enforced(), GUARDS, (), id="enforced has its three"),
        pytest.param(KernelPolicy.enforced(), GUARDS[1:], NAMES[:1], id="enforced without scrubber"),
        pytest.param(KernelPolicy.enforced(), NAMES, NAMES, id="enforced with classes of the same names"),
        pytest.param(KernelPolicy.enforced(), (GUARDS[0], *NAMES[1:]), NAMES[1:], id="only some by name alone"),
        pytest.param(KernelPolicy.enforced_v2(), (*GUARDS, safety), (), id="enforced_v2 has its four"),
        pytest.param(KernelPolicy.enforced_v2(), GUARDS, ("SafetyPolicyMiddleware",), id="enforced_v2 without safety"),
        pytest.param(
            KernelPolicy.enforced_v2(),
            (*GUARDS, "SafetyPolicyMiddleware"),
            ("SafetyPolicyMiddleware",),
            id="enforced_v2 with a class of that name",
        ),
        pytest.param(KernelPolicy.enforced_v2(), (), NAMES, id="enforced_v2 with nothing"),
    ],
)
def test_what_a_policy_requires(policy: KernelPolicy, present: tuple[Any, ...], missing: tuple[str, ...]) -> None:
    middleware = [named(each) if isinstance(each, str) else each() for each in present]
    if not missing:
        require_middleware(policy, middleware)
        return
    with pytest.raises(UsageError) as caught:
        require_middleware(policy, middleware)
    assert all(f"`{name}`" in str(caught.value) for name in (*missing, policy.mode))
    assert not any(f"`{name}`" in str(caught.value) for name in set(NAMES) - set(missing))


@pytest.mark.parametrize("mode", ["", "Enforced", "enforced_v3", "none"])
def test_an_unknown_mode_is_refused(mode: Any) -> None:
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
