"""A template as people read it before it has values: `Restart {{ .pod }}` is `Restart ‹pod›`."""

from gert.kernel.template.template import Template
from gert.kernel.template.tree import Assign, Text


def with_placeholders(template: Template) -> str:
    """The text of a template, with a placeholder for each action: the name of what it reads, where it reads one."""
    ends = [*(each.offset for each in template.statements[1:]), len(template.source)]
    parts = []
    for statement, end in zip(template.statements, ends, strict=False):
        if isinstance(statement, Text):
            parts.append(statement.text)
        elif not isinstance(statement, Assign):
            read = [each.path for each in template.references if statement.offset <= each.offset < end]
            names = {path[-1] for path in read if path and isinstance(path[-1], str)}
            parts.append(f"‹{names.pop()}›" if len(names) == 1 else "‹…›")
    return "".join(parts)
