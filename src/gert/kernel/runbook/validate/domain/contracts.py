"""Contracts: inner layers only tighten, retries are safe, what is deprecated is said."""

from collections.abc import Iterator

from gert.kernel.foundation.duration import parse_duration
from gert.kernel.governance.tighten import relaxations
from gert.kernel.runbook.documents.contract import ContractBlock
from gert.kernel.runbook.documents.steps import ExtensionStep, RetryBlock, ToolStep
from gert.kernel.runbook.finding import Finding, error, warning
from gert.kernel.runbook.validate.case import Case


def tightening(case: Case) -> Iterator[Finding]:
    """D32: a step may restrict its tool's contract further, never relax it."""
    for step in case.program.steps:
        if not isinstance(step, ToolStep) or step.contract is None:
            continue
        base = case.program.base_contract_of(step)
        if base is None:
            continue
        for relaxation in relaxations(base, step.contract.declared(), parent_name=f"the tool `{step.tool}`"):
            yield error("D32", step.contract.at(relaxation.property), relaxation.message)


def deprecated(case: Case) -> Iterator[Finding]:
    """D33: `side_effects` still works, and should not be written any more."""
    for step in case.program.steps:
        yield from old_words(step.contract)


def old_words(block: ContractBlock | None, *, both_is_error: bool = False) -> Iterator[Finding]:
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
            "`side_effects` stands beside `effects`, which replaces it",
            "remove `side_effects`",
            on_key=True,
        )


def extensions(case: Case) -> Iterator[Finding]:
    """D34: nothing but the contract says what an extension does, so it must say something."""
    for step in case.program.steps:
        if isinstance(step, ExtensionStep) and step.contract.effects is None and step.contract.side_effects is None:
            message = f"the contract of {step.label} declares no `effects`, so its risk is critical"
            yield warning("D34", step.contract.path, message, "declare `effects`, even if it is `[]`")


def retries(case: Case) -> Iterator[Finding]:
    """D35: only what is idempotent may be tried again by itself."""
    for step in case.program.steps:
        if step.retry is None:
            continue
        contract = case.program.contract_of(step)
        if contract is not None and not contract.idempotent:
            yield unsafe_retry(step.retry, step.label)
        yield from waits(step.retry)


def unsafe_retry(retry: RetryBlock, label: str) -> Finding:
    """D35: a retry of something that is not idempotent."""
    message = f"`retry` needs an idempotent contract, and that of {label} is not"
    return error("D35", retry.path, message, "declare `idempotent: true` where that is honest, or remove `retry`")


def waits(retry: RetryBlock) -> Iterator[Finding]:
    """D35: waits between attempts grow towards their limit."""
    if retry.max_backoff is None:
        return
    if retry.backoff is None:
        yield warning("D35", retry.at("max_backoff"), "`max_backoff` does nothing without `backoff`")
    elif parse_duration(retry.max_backoff) < parse_duration(retry.backoff):
        yield error("D35", retry.at("max_backoff"), "`max_backoff` is shorter than `backoff`")
