"""The order of middleware, and what a policy mode requires."""

from collections.abc import Mapping, Sequence

from gert.errors import UsageError
from gert.kernel.agent.middleware.base import KernelMiddleware
from gert.kernel.agent.middleware.capabilities import CapabilityGuardMiddleware
from gert.kernel.agent.middleware.pii import PIIScrubberMiddleware
from gert.kernel.agent.middleware.quota import QuotaMiddleware
from gert.kernel.agent.safety.middleware import SafetyPolicyMiddleware
from gert.kernel.agent.types.api import KernelPolicy
from gert.kernel.foundation.arguments import checked
from gert.kernel.foundation.names import listing

GUARDS: tuple[type, ...] = (
    PIIScrubberMiddleware,
    QuotaMiddleware,
    CapabilityGuardMiddleware,
    SafetyPolicyMiddleware,
)
"""The first three run first, in this order, and the safety policy last: it decides about what will be called."""

REQUIRED: Mapping[str, tuple[type, ...]] = {
    "permissive": (),
    "enforced": GUARDS[:3],
    "enforced_v2": GUARDS,
}
"""The middleware each policy mode requires."""


@checked
def order_middleware(middleware: Sequence[KernelMiddleware]) -> tuple[KernelMiddleware, ...]:
    """Return middleware in the order in which it runs."""
    return tuple(sorted(middleware, key=_rank))


def require_middleware(policy: KernelPolicy, middleware: Sequence[KernelMiddleware]) -> None:
    """Refuse a kernel without the middleware its policy requires; it is checked by type, not by name."""
    required = REQUIRED[policy.mode]
    missing = [guard.__name__ for guard in required if not any(isinstance(each, guard) for each in middleware)]
    if missing:
        raise UsageError(
            f"policy `{policy.mode}` requires {listing(missing)}",
            hint="pass `middleware=ArtanaKernel.default_middleware_stack(safety=…)`",
        )


def _rank(middleware: KernelMiddleware) -> int:
    if isinstance(middleware, SafetyPolicyMiddleware):
        return len(GUARDS)
    # Other middleware comes between, in the order given.
    return next((place for place, guard in enumerate(GUARDS) if isinstance(middleware, guard)), len(GUARDS) - 1)
