"""The templates of a step, each with its path."""

from collections.abc import Iterator
from typing import Any

from gert.kernel.runbook.documents.steps import AssertStep, EndStep, ExtensionStep, ManualStep, Step, ToolStep
from gert.kernel.runbook.finding import Path
from gert.kernel.template import Template, templates_in


def templates_of(step: Step) -> Iterator[tuple[Path, Template]]:
    """Yield every template that a step renders when it runs, without its flow conditions."""
    for name in ("title", "description", "scope"):
        template = getattr(step, name)
        if template is not None:
            yield step.at(name), template
    if step.principal is not None:
        for name in ("id", "role", "model"):
            template = getattr(step.principal, name)
            if template is not None:
                yield step.principal.at(name), template
    yield from _own(step)


def _own(step: Step) -> Iterator[tuple[Path, Template]]:
    if isinstance(step, ToolStep | ExtensionStep):
        yield from _nested(step.inputs, step.at("inputs"))
    elif isinstance(step, ManualStep):
        yield step.at("instructions"), step.instructions
    elif isinstance(step, AssertStep):
        for assertion in step.assert_:
            yield from _nested(assertion.value, assertion.at("value"))
            for name in ("expected", "message"):
                template = getattr(assertion, name)
                if template is not None:
                    yield assertion.at(name), template
    elif isinstance(step, EndStep):
        yield step.outcome.at("code"), step.outcome.code
        yield from _nested(step.outcome.meta, step.outcome.at("meta"))


def _nested(value: Any, path: Path) -> Iterator[tuple[Path, Template]]:
    for below, template in templates_in(value):
        yield path + below, template
