"""The three verdicts of governance."""

from gert.kernel.foundation.ordered_word import OrderedWord


class Verdict(OrderedWord):
    """Ordered from permissive to strict, so that the strictest is the max."""

    ALLOW = 0
    REQUIRE_APPROVAL = 1
    DENY = 2
