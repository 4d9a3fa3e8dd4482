"""Tools: declared, found, valid, and called as their contracts require."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from gert.errors import GertError, PatternError
from gert.kernel.foundation.globs import split_path
from gert.kernel.foundation.names import did_you_mean, listing, suggestion
from gert.kernel.foundation.text import shorten
from gert.kernel.foundation.values import coerce
from gert.kernel.governance.contract import Contract
from gert.kernel.governance.parameter import Parameter
from gert.kernel.runbook.documents.steps import ExtensionStep, ToolStep
from gert.kernel.runbook.finding import Finding, Path, Severity, error, warning
from gert.kernel.runbook.program import Program, ToolLookup
from gert.kernel.runbook.tools import name_of
from gert.kernel.runbook.validate.case import Case
from gert.kernel.template import Template, templates_in
from gert.kernel.template.tree import Output, Text


def tool_lookups(case: Case) -> Iterator[Finding]:
    """D15: every declared tool is found. D17: every declared tool is valid."""
    names: dict[str, str] = {}
    for index, entry in enumerate(case.program.runbook.tools):
        path: Path = ("tools", index)
        lookup = case.program.lookups.get(entry)
        if entry in names.values() or names.get(name_of(entry)) not in {None, entry}:
            yield error("D15", path, f"the tool `{name_of(entry)}` is declared twice")
        names.setdefault(name_of(entry), entry)
        if lookup is None:
            continue
        if lookup.document is None:
            searched = "; ".join(lookup.searched)
            steps = (step.tool for step in case.program.steps if isinstance(step, ToolStep))
            used = did_you_mean(name_of(entry), [each for each in steps if each not in case.program.tool_names])
            hint = f"did you mean `{used}`, which steps use? " if used else ""
            yield error("D15", path, f"the tool `{shorten(entry)}` was not found", f"{hint}searched: {searched}")
        else:
            yield from _invalid_tool(entry, lookup, path)


def _invalid_tool(entry: str, lookup: ToolLookup, path: Path) -> Iterator[Finding]:
    document = lookup.document
    if document is None:
        return
    problems = [finding for finding in document.findings if finding.severity is Severity.ERROR]
    if problems:
        first = problems[0]
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        where = f"{lookup.file}:{first.line}:{first.column}"
        yield error("D17", path, f"the tool `{shorten(entry)}` is not valid: {first.message}{more}", f"see {where}")
    elif document.kind != "tool":
        yield error("D17", path, f"`{lookup.file}` is a {document.kind}, not a tool")


def declared_tools(case: Case) -> Iterator[Finding]:
    """D16: a step may only use a declared tool. D18: the tool has the action."""
    program = case.program
    used: set[str] = set()
    for step in program.steps:
        if not isinstance(step, ToolStep):
            continue
        lookup = program.tool_names.get(step.tool)
        if lookup is None:
            guess = did_you_mean(step.tool, program.tool_names)
            if guess is not None and program.tool_names[guess].document is None:
                used.add(program.tool_names[guess].entry)
                continue  # the declaration is misspelt, which D15 reports once
            hint = f"did you mean `{guess}`?" if guess else "add it to `tools`"
            yield error("D16", step.at("tool"), f"the tool `{shorten(step.tool)}` is not declared in `tools`", hint)
            continue
        used.add(lookup.entry)
        tool = lookup.tool
        if tool is None:
            continue
        if step.action is None and len(tool.actions) != 1:
            message = f"`action` is missing: the tool `{step.tool}` has {len(tool.actions)}"
            yield error("D18", step.path, message, f"one of {listing(tool.actions)}")
        elif step.action is not None and step.action not in tool.actions:
            hint = suggestion(step.action, tool.actions) or f"it has {listing(tool.actions)}"
            message = f"the tool `{step.tool}` has no action `{shorten(step.action)}`"
            yield error("D18", step.at("action"), message, hint)
    for index, entry in enumerate(program.runbook.tools):
        if entry not in used:
            message = f"no step uses the tool `{shorten(entry)}`"
            yield warning("D23", ("tools", index), message, "declare only what the runbook may use")


def tool_inputs(case: Case) -> Iterator[Finding]:
    """D19: required inputs are given. D20: values fit their types. D21: every given input is declared.

    D28: `inputs_from` names objects, and their keys are inputs of the contract.
    """
    for step in case.program.steps:
        if not isinstance(step, ToolStep | ExtensionStep):
            continue
        contract = case.program.contract_of(step)
        if contract is None:
            continue
        given = {name for name, value in step.inputs.items() if value is not None}
        complete = True
        # The last source with a key wins, unless the step sets it itself.
        for source, path in reversed(step.spread):
            keys = _keys_of(case.program, source)
            complete = complete and keys is not None
            yield from _spread(contract, source, keys, path, step)
            yield from _spread_values(contract, _constant(case.program, source), path, given)
            given.update(keys or (), _facts(case.program, source))
        yield from _check_given(contract, step, case.program.inputs_of(step), given if complete else None)


def _check_given(
    contract: Contract, step: ToolStep | ExtensionStep, values: Mapping[str, Any], given: set[str] | None
) -> Iterator[Finding]:
    callee = f"`{step.tool}`" if isinstance(step, ToolStep) else f"`{step.extension}`"
    for name, parameter in contract.inputs.items():
        if given is not None and name not in given and parameter.must_be_given:
            about = f"{name}: {parameter.description}" if parameter.description else None
            path = step.path
            if name in values:
                path, about = step.at("inputs", name), "the value is empty; put text that begins with `#` in quotes"
            yield error("D19", path, f"the input `{name}` of {callee} is missing", about)
    for name, value in values.items():
        declared_as = contract.inputs.get(name)
        if declared_as is None:
            yield _undeclared(name, callee, contract.inputs, step.at("inputs", name))
        elif (
            value is not None
            and (why := without_secret(literal_objection(value, declared_as), declared_as)) is not None
        ):
            yield error("D20", step.at("inputs", name), f"the input `{name}` of {callee}: {why}")


def _undeclared(name: str, callee: str, known: Iterable[str], path: Path) -> Finding:
    hint = suggestion(name, known) or "declare it in the contract, or remove it"
    return warning("D21", path, f"{callee} declares no input `{shorten(name)}`", hint, on_key=True)


# The first characters of JSON of these types.
_BRACKETS: Final = {"list": "[", "object": "{"}
_FACTS: Final = frozenset({"status", "exit_code", "retry_count"})


def literal_objection(value: Any, parameter: Parameter) -> str | None:
    """Return why a literal value does not fit a parameter; templates are checked when they are rendered."""
    if any(True for _ in templates_in(value)):
        if isinstance(value, Template) and parameter.type in _BRACKETS and not _may_be_json(value, parameter.type):
            return f"expected {parameter.type}, found text with a template in it"
        return None
    try:
        return parameter.objection(coerce(value, parameter.type))
    except PatternError:
        return None  # reported at the pattern itself
    except GertError as problem:
        return problem.message


def _may_be_json(template: Template, type_name: str) -> bool:
    """Return whether a template may render to JSON of a type, apart from white space."""
    parts = [part for part in template.statements if not (isinstance(part, Text) and part.text.isspace())]
    first = parts[0] if parts else None
    if isinstance(first, Text):
        return first.text.lstrip().startswith(_BRACKETS[type_name])
    # Two adjacent values are not JSON; the output of `if` and other blocks is unknown.
    return len(parts) == 1 or not all(isinstance(part, Text | Output) for part in parts)


def without_secret(why: str | None, parameter: Parameter) -> str | None:
    """Return an objection without the value if it is secret, because findings are logged."""
    return "the value does not fit, and is not shown because it is secret" if why and parameter.secret else why


def _keys_of(program: Program, source: str) -> set[str] | None:
    """Return the keys that a source spreads, if they are known before the run."""
    constant = _constant(program, source)
    if isinstance(constant, Mapping):
        return {key for key, value in constant.items() if value is not None}
    producer = program.by_id.get(source)
    if producer is not None and producer.for_each is None:
        return set(program.outputs_of(producer)) if program.contract_of(producer) is not None else None
    return None


def _constant(program: Program, source: str) -> Any:
    """Return the constant that a source names, or a part of one; None if it names something else."""
    head, *rest = split_path(source)
    found: Any = program.runbook.meta.constants.get(head)
    for segment in rest:
        found = found.get(segment) if isinstance(found, Mapping) else None
    return found


def _facts(program: Program, source: str) -> frozenset[str]:
    """Return gert's own facts about a step, which are passed only if the contract declares them."""
    producer = program.by_id.get(source)
    if producer is None or producer.for_each is not None:
        return frozenset()
    return _FACTS if isinstance(producer, ToolStep | ExtensionStep) else _FACTS - {"exit_code"}


def _spread_values(contract: Contract, source: Any, path: Path, given: set[str]) -> Iterator[Finding]:
    """D20: the values that a constant spreads fit, except those that `inputs` replaces."""
    for key, value in source.items() if isinstance(source, Mapping) else ():
        parameter = contract.inputs.get(key)
        if parameter is not None and key not in given and value is not None:
            why = without_secret(literal_objection(value, parameter), parameter)
            if why is not None:
                yield error("D20", path, f"the input `{key}`: {why}")


def _spread(
    contract: Contract, source: str, keys: set[str] | None, path: Path, step: ToolStep | ExtensionStep
) -> Iterator[Finding]:
    callee = f"`{step.tool}`" if isinstance(step, ToolStep) else f"`{step.extension}`"
    for key in sorted((keys or set()) - contract.inputs.keys()):
        message = f"`{source}` spreads `{key}`, which is not an input of {callee}"
        yield error("D28", path, message, f"it takes {listing(contract.inputs)}")
