"""Assertions and evidence: assertions can be evaluated, and evidence can be given."""

from collections.abc import Iterator
from typing import Final

from gert.errors import GertError
from gert.kernel.foundation.patterns import compile_pattern
from gert.kernel.foundation.text import with_article
from gert.kernel.runbook.documents.steps import ASSERTIONS, PATTERN_ASSERTIONS, AssertionBlock, AssertStep, ManualStep
from gert.kernel.runbook.finding import Finding, Path, error, warning
from gert.kernel.runbook.validate.case import Case
from gert.kernel.template import templates_in
from gert.kernel.template.values import as_number

NUMERIC: Final = frozenset({"greater_than", "greater_or_equal", "less_than", "less_or_equal"})


def assertions(case: Case) -> Iterator[Finding]:
    """D36: an assertion has a value to compare with if its type needs one, and its pattern compiles."""
    for step in case.program.steps:
        if isinstance(step, AssertStep):
            for assertion in step.assert_:
                yield from _assertion(assertion)


def _assertion(assertion: AssertionBlock) -> Iterator[Finding]:
    compares = ASSERTIONS[assertion.type]
    expected = assertion.expected
    if compares and expected is None:
        yield error("D36", assertion.path, f"`{assertion.type}` needs `expected`")
    elif not compares and expected is not None:
        yield error("D36", assertion.at("expected"), f"`{assertion.type}` takes no `expected`")
    elif expected is not None and expected.is_text:
        if assertion.type in PATTERN_ASSERTIONS:
            yield from check_pattern("D36", expected.source, assertion.at("expected"))
        elif assertion.type in NUMERIC and as_number(expected.source.strip()) is None:
            message = f"`{assertion.type}` compares numbers, and `{expected.source}` is not a number"
            yield error("D36", assertion.at("expected"), message)
    if not any(True for _ in templates_in(assertion.value)):
        yield warning(
            "D36",
            assertion.at("value"),
            "the assertion compares a constant value",
            "use a template such as `{{ .name }}`",
        )


def check_pattern(rule: str, pattern: str, path: Path) -> Iterator[Finding]:
    """Report a regular expression that does not compile."""
    try:
        compile_pattern(pattern)
    except GertError as problem:
        yield error(rule, path, problem.message, problem.hint)


def evidence_blocks(case: Case) -> Iterator[Finding]:
    """D37: a checklist has items, other evidence has none, and each piece has its own name."""
    for step in case.program.steps:
        if not isinstance(step, ManualStep):
            continue
        seen: set[str] = set()
        for piece in step.required_evidence:
            if piece.kind == "checklist" and not piece.items:
                yield error("D37", piece.path, f"the checklist `{piece.name}` has no `items`")
            elif piece.kind != "checklist" and piece.items:
                yield error(
                    "D37",
                    piece.at("items"),
                    f"only a checklist has `items`, and `{piece.name}` is {with_article(piece.kind)}",
                )
            if piece.name in seen:
                yield error("D37", piece.at("name"), f"two pieces of evidence are called `{piece.name}`")
            seen.add(piece.name)
