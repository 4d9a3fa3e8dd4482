"""Verdicts: the three answers governance gives."""

from gert.kernel.foundation.ranked import Ranked


class Verdict(Ranked):
    """Ordered from permissive to strict, so the strictest is simply the max."""

    ALLOW = 0
    REQUIRE_APPROVAL = 1
    DENY = 2
