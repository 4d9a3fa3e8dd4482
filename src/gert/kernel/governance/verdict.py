"""Verdicts: the three answers governance gives."""

from gert.kernel.foundation.ordered_word import OrderedWord


class Verdict(OrderedWord):
    """Ordered from permissive to strict, so the strictest is simply the max."""

    ALLOW = 0
    REQUIRE_APPROVAL = 1
    DENY = 2
