"""Contracts: inner layers only tighten, retries are safe, deprecated keys are reported."""

from collections.abc import Iterable, Iterator, Mapping

from gert.kernel.foundation.duration import parse_duration
from gert.kernel.governance.parameter import Parameter, narrowed
from gert.kernel.governance.tighten import Relaxation, relaxations
from gert.kernel.runbook.documents.contract import ContractBlock, ParameterBlock
from gert.kernel.runbook.documents.modifiers import RetryBlock
from gert.kernel.runbook.documents.steps import ExtensionStep, ToolStep
from gert.kernel.runbook.finding import Finding, error, warning
from gert.kernel.runbook.validate.case import Case
from gert.kernel.runbook.validate.domain.evidence import check_pattern
from gert.kernel.runbook.validate.domain.tools import literal_objection, without_secret


def tightened_contracts(case: Case) -> Iterator[Finding]:
    """D32: a step may restrict its tool's contract further, never relax it."""
    for step in case.program.steps:
        if not isinstance(step, ToolStep) or step.contract is None:
            continue
        base = case.program.base_contract_of(step)
        if base is None:
            continue
        for relaxation in relaxations(base, step.contract.declared(), parent_name=f"the tool `{step.tool}`"):
            yield relaxation_finding(step.contract, relaxation)
        yield from revoked_flags(base.inputs, step.contract.inputs, f"the tool `{step.tool}`")
        yield from revoked_flags(base.outputs, step.contract.outputs, f"the tool `{step.tool}`")
        # An inherited default applies if no value is given.
        own = {n: b for n, b in step.contract.inputs.items() if b.has_default or not (n in step.inputs or step.spread)}
        yield from replaced_defaults(base.inputs, own, f"the tool `{step.tool}`")


def relaxation_finding(block: ContractBlock, relaxation: Relaxation) -> Finding:
    """D32: report a claim that would weaken the outer layer."""
    below = (relaxation.parameter,) if relaxation.parameter is not None else ()
    return error("D32", block.at(relaxation.property, *below), relaxation.message, relaxation.hint)


def revoked_flags(
    outer: Mapping[str, Parameter], inner: Mapping[str, ParameterBlock], parent_name: str
) -> Iterator[Finding]:
    """D32: an inner layer cannot revoke `required` and `secret`; omitted, they are inherited."""
    for name in inner.keys() & outer.keys():
        for key in ("required", "secret"):
            if getattr(outer[name], key) and key in inner[name].said and not getattr(inner[name], key):
                message = f"`{key}` may only go from false to true; {parent_name} says true"
                yield error("D32", inner[name].at(key), message)


def replaced_defaults(
    outer: Mapping[str, Parameter], inner: Mapping[str, ParameterBlock], parent_name: str
) -> Iterator[Finding]:
    """D43: a default must fit every layer, as a value must. D32: null is not a value."""
    for name, block in inner.items():
        parameter = block.parameter()
        merged = narrowed(outer[name], parameter) if name in outer else parameter
        if name not in outer or not merged.has_default:
            continue
        path = block.at("default") if block.has_default else block.path
        if merged.default is None:
            if outer[name].must_be_given:
                message = f"`{name}` is required by {parent_name}, and null is not a value"
                yield error("D32", path, message, "remove `default`, or set a value")
        elif block.has_default and literal_objection(block.default, parameter):
            continue  # reported with its own limits
        elif (why := without_secret(literal_objection(merged.default, merged), merged)) is not None:
            yield error("D43", path, f"the default does not fit: {why}")


def contract_parameters(case: Case) -> Iterator[Finding]:
    """D43: the limits in a step's own contract make sense."""
    for step in case.program.steps:
        if step.contract is not None:
            yield from contract_limits(step.contract)


def contract_limits(block: ContractBlock) -> Iterator[Finding]:
    """D43: the limits of every parameter of a contract."""
    for parameter in (*block.inputs.values(), *block.outputs.values()):
        yield from parameter_limits(parameter)


def parameter_limits(block: ParameterBlock) -> Iterator[Finding]:
    """D43: a parameter's own limits make sense, and its default and enumeration respect them."""
    if block.pattern is not None:
        yield from check_pattern("D43", block.pattern, block.at("pattern"))
    if block.min is not None and block.max is not None and block.min > block.max:
        yield error("D43", block.at("min"), "`min` is larger than `max`")
    parameter = block.parameter()
    bare = Parameter(type=parameter.type, secret=parameter.secret)
    for index, value in enumerate(block.enum or ()):
        if (why := without_secret(literal_objection(value, bare), bare)) is not None:
            yield error("D43", block.at("enum", index), f"the value is not allowed by the other limits: {why}")
    if (
        block.has_default
        and block.default is not None
        and (why := without_secret(literal_objection(block.default, parameter), parameter))
    ):
        yield error("D43", block.at("default"), f"the default does not fit: {why}")


def deprecated_contracts(case: Case) -> Iterator[Finding]:
    """D33: `side_effects` still works, but is deprecated."""
    for step in case.program.steps:
        yield from deprecated_keys(step.contract)


def deprecated_keys(block: ContractBlock | None, *, both_is_error: bool = False) -> Iterator[Finding]:
    """D33: inline `effects` wins over `side_effects`; in a tool file the two together are an error."""
    if block is None or block.side_effects is None:
        return
    path = block.at("side_effects")
    if block.effects is None:
        becomes = "effects: [unknown]" if block.side_effects else "effects: []"
        yield warning(
            "D33",
            path,
            "`side_effects` is deprecated",
            f"declare `effects` and `writes`; this is read as `{becomes}`",
            on_key=True,
        )
    else:
        report = error if both_is_error else warning
        yield report(
            "D33",
            path,
            "`side_effects` is given together with `effects`, which replaces it",
            "remove `side_effects`",
            on_key=True,
        )


def extension_effects(case: Case) -> Iterator[Finding]:
    """D34: only the contract describes what an extension does, so it must declare effects."""
    for step in case.program.steps:
        if isinstance(step, ExtensionStep) and step.contract.effects is None and step.contract.side_effects is None:
            message = f"the contract of {step.label} declares no `effects`, so its risk is critical"
            yield warning("D34", step.contract.path, message, "declare `effects`, even if it is `[]`")


def declared_writes(case: Case) -> Iterator[Finding]:
    """D48: a step that declares effects also declares writes."""
    for step in case.program.steps:
        if step.contract is not None and step.contract.effects:
            tool, action = None, None
            if isinstance(step, ToolStep):
                tool, action = case.program.tool_of(step), case.program.action_of(step)
            outer = [tool.contract if tool else None, action[1].contract if action else None]
            yield from undeclared_writes(step.contract, outer, step.label)


def undeclared_writes(block: ContractBlock, outer: Iterable[ContractBlock | None], label: str) -> Iterator[Finding]:
    """D48: neither a contract nor its outer layers declare `writes`, so rules on `writes` never match it."""
    if block.effects and all(each is None or each.writes is None for each in (block, *outer)):
        message = f"the contract of {label} has effects and omits `writes`, so no rule on `writes` matches it"
        yield warning("D48", block.at("effects"), message, "declare `writes`, even if it is `[]`", on_key=True)


def safe_retries(case: Case) -> Iterator[Finding]:
    """D35: only an idempotent step may be retried automatically."""
    for step in case.program.steps:
        contract = case.program.contract_of(step)
        action = case.program.action_of(step) if isinstance(step, ToolStep) else None
        is_unsafe = contract is not None and not contract.idempotent
        if is_unsafe and step.contract is not None and action is not None and action[1].retry is not None:
            message = f"the action `{action[0]}` is retried on failure, and {step.label} is not idempotent"
            yield error("D35", step.contract.at("idempotent"), message, "use an action without `retry`")
        if step.retry is None:
            continue
        if contract is not None and not contract.idempotent:
            yield unsafe_retry(step.retry, step.label)
        yield from retry_delays(step.retry)


def unsafe_retry(retry: RetryBlock, label: str) -> Finding:
    """D35: a retry of something that is not idempotent."""
    message = f"`retry` needs an idempotent contract, and that of {label} is not"
    return error("D35", retry.path, message, "declare `idempotent: true` if it is true, or remove `retry`")


def retry_delays(retry: RetryBlock) -> Iterator[Finding]:
    """D35: the delays between attempts are consistent with their maximum."""
    if retry.max_backoff is None:
        return
    if retry.backoff is None:
        yield warning("D35", retry.at("max_backoff"), "`max_backoff` has no effect without `backoff`")
    elif parse_duration(retry.max_backoff) < parse_duration(retry.backoff):
        yield error("D35", retry.at("max_backoff"), "`max_backoff` is shorter than `backoff`")
