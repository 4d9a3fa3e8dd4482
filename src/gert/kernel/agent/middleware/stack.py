"""The order of middleware, and what a policy mode requires."""

from collections.abc import Mapping, Sequence

from gert.errors import UsageError
from gert.kernel.agent.middleware.base import KernelMiddleware
from gert.kernel.agent.middleware.capabilities import CapabilityGuardMiddleware
from gert.kernel.agent.middleware.pii import PIIScrubberMiddleware
from gert.kernel.agent.middleware.quota import QuotaMiddleware
from gert.kernel.agent.types.api import KernelPolicy
from gert.kernel.foundation.arguments import checked

GUARDS: tuple[type, ...] = (PIIScrubberMiddleware, QuotaMiddleware, CapabilityGuardMiddleware)
"""These run first, in this order; the rest follows in the order given."""

_ENFORCED = tuple(guard.__name__ for guard in GUARDS)
REQUIRED: Mapping[str, tuple[str, ...]] = {
    "permissive": (),
    "enforced": _ENFORCED,
    "enforced_v2": (*_ENFORCED, "SafetyPolicyMiddleware"),
}
"""The middleware each policy mode requires. This version has no `SafetyPolicyMiddleware`: it refuses `enforced_v2`."""


@checked
def order_middleware(middleware: Sequence[KernelMiddleware]) -> tuple[KernelMiddleware, ...]:
    """Return middleware in the order in which it runs."""
    return tuple(sorted(middleware, key=_rank))


def require_middleware(policy: KernelPolicy, middleware: Sequence[KernelMiddleware]) -> None:
    """Refuse a kernel without the middleware its policy requires; it is checked by type, not by name."""
    present = {guard.__name__ for guard in GUARDS if any(isinstance(each, guard) for each in middleware)}
    missing = [name for name in REQUIRED[policy.mode] if name not in present]
    if missing:
        absent = [name for name in missing if name not in _ENFORCED]
        hint = f"this version has no `{absent[0]}`: use `KernelPolicy.enforced()`" if absent else None
        raise UsageError(f"policy `{policy.mode}` requires {', '.join(f'`{name}`' for name in missing)}", hint=hint)


def _rank(middleware: KernelMiddleware) -> int:
    return next((place for place, guard in enumerate(GUARDS) if isinstance(middleware, guard)), len(GUARDS))
