"""Which middleware a kernel has: in which order it takes part, and what a policy mode requires."""

from collections.abc import Sequence

from gert.errors import UsageError
from gert.kernel.agent.guards.capabilities import CapabilityGuardMiddleware
from gert.kernel.agent.guards.pii import PIIScrubberMiddleware
from gert.kernel.agent.guards.quota import QuotaMiddleware
from gert.kernel.agent.middleware import KernelMiddleware
from gert.kernel.agent.shapes import KernelPolicy
from gert.kernel.foundation.arguments import checked

GUARDS: tuple[type, ...] = (PIIScrubberMiddleware, QuotaMiddleware, CapabilityGuardMiddleware)
"""Comes first, in this order; the rest follows as it was given."""


@checked
def order_middleware(middleware: Sequence[KernelMiddleware]) -> tuple[KernelMiddleware, ...]:
    """Middleware in the order it takes part."""
    return tuple(sorted(middleware, key=_rank))


def require_middleware(policy: KernelPolicy, middleware: Sequence[KernelMiddleware]) -> None:
    """Refuse a kernel that lacks what its policy requires; a class of the same name does not count."""
    if policy.mode == "permissive":
        return
    missing = [guard for guard in GUARDS if not any(isinstance(each, guard) for each in middleware)]
    if missing:
        raise UsageError(f"policy `{policy.mode}` needs {', '.join(f'`{guard.__name__}`' for guard in missing)}")
    if policy.mode == "enforced_v2":
        raise UsageError(
            "policy `enforced_v2` needs `SafetyPolicyMiddleware`, which this version does not have",
            hint="use `KernelPolicy.enforced()`",
        )


def _rank(middleware: KernelMiddleware) -> int:
    return next((place for place, guard in enumerate(GUARDS) if isinstance(middleware, guard)), len(GUARDS))
