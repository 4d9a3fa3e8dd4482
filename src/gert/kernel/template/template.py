"""A parsed template, and the one place that parses."""

from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

from gert.errors import TemplateSyntaxError
from gert.kernel.template.budget import too_deep
from gert.kernel.template.parser import statements_of
from gert.kernel.template.tree import Output, Path, Statement, Text

if TYPE_CHECKING:
    from gert.kernel.template.references import Reference

_LONGEST_CACHED = 2048


class Template:
    """A source that parsed; two templates are equal if their sources are."""

    def __init__(self, source: str, statements: tuple[Statement, ...], *, is_text: bool) -> None:
        self.source = source
        self.statements = statements
        self.is_text = is_text
        """Whether it has no action."""
        self.is_value = len(statements) == 1 and type(statements[0]) is Output
        """Whether it is a single output action, so that its value keeps its type."""
        self.path: tuple[str, ...] | None = None
        """Its path if it is a single name, such as `{{ .probe.status_code }}`, as most templates are."""
        first = statements[0] if self.is_value else None
        if type(first) is Output and type(first.value) is Path:
            self.path = first.value.segments

    @cached_property
    def references(self) -> "tuple[Reference, ...]":
        """The data it may read, in the order of the source."""
        from gert.kernel.template.references import references_of

        try:
            return references_of(self.statements)
        except RecursionError:
            raise too_deep() from None

    def __eq__(self, other: object) -> bool:
        return self.source == other.source if isinstance(other, Template) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.source)

    def __repr__(self) -> str:
        source = self.source if len(self.source) <= 60 else self.source[:57] + "..."
        return f"Template({source!r})"


def parse(source: str) -> Template:
    """Parse a template; TemplateSyntaxError says where and why it cannot."""
    if "{{" not in source:
        return Template(source, (Text(0, source),) if source else (), is_text=True)
    if len(source) <= _LONGEST_CACHED:
        return _cached(str(source))
    return _parsed(source)


def _parsed(source: str) -> Template:
    try:
        return Template(source, statements_of(source), is_text=False)
    except RecursionError:
        raise TemplateSyntaxError("the template is nested too deeply for where it is parsed") from None


_cached = lru_cache(maxsize=4096)(_parsed)
