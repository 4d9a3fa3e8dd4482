"""Tables of the generated pages."""

from collections.abc import Sequence


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Give a Markdown table, without the columns that no row fills."""
    kept = [place for place in range(len(heads)) if any(row[place] for row in rows)]
    head, *lines = (f"| {' | '.join(line[place] for place in kept)} |\n" for line in (heads, *rows))
    return "".join((head, "|---" * len(kept), "|\n", *lines))
