"""The inputs of a replay: from the scenario and the caller, without prompts."""

from collections.abc import Mapping
from typing import Any

from gert.errors import InputError
from gert.kernel.engine.inputs import UNSET, BatchAnswer, GivenInput, InputProblem, ResolvedInputs, resolve_inputs
from gert.kernel.foundation.redaction import PLACEHOLDER
from gert.kernel.foundation.secret_refs import secret_ref
from gert.kernel.runbook.documents.contract import InputBlock
from gert.kernel.runbook.documents.scenario import Scenario

SOURCE = "scenario"


def replayed_inputs(
    inputs: Mapping[str, InputBlock], scenario: Scenario, given: Mapping[str, GivenInput] | None = None
) -> ResolvedInputs:
    """Resolve every input; values from the caller win over the scenario.

    A secret needs no value here: the state contains a reference, and no process receives the value.
    """
    known = {name: GivenInput(value, SOURCE, _text(scenario.inputs, name)) for name, value in scenario.inputs.items()}
    known |= given or {}
    secrets = {name for name, block in inputs.items() if block.secret}
    plain = {name: block for name, block in inputs.items() if name not in secrets}
    resolved = _resolve(plain, {name: each for name, each in known.items() if name not in secrets}, scenario)
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    hidden: dict[str, str] = {}
    for name, block in inputs.items():
        if name in resolved.sources:
            sources[name] = resolved.sources[name]
            values |= {name: resolved.values[name]} if name in resolved.values else {}
        elif name in secrets and _is_resolved(name, block, scenario, known):
            values[name], hidden[name] = secret_ref(name), PLACEHOLDER
            sources[name] = SOURCE if name in known else block.from_ or "default"
        elif name in secrets and block.from_ is not None:
            sources[name] = UNSET
    return ResolvedInputs(values, sources, hidden)


def _resolve(inputs: Mapping[str, InputBlock], given: Mapping[str, GivenInput], scenario: Scenario) -> ResolvedInputs:
    resolution = resolve_inputs(inputs, given)
    answer: BatchAnswer | None = None
    while True:
        try:
            batch = next(resolution) if answer is None else resolution.send(answer)
        except StopIteration as end:
            resolved: ResolvedInputs = end.value
            return resolved
        except InputError as problem:
            if all(isinstance(each, InputProblem) and each.kind == "no_value" for each in problem.problems):
                problem.hint = "write the value under `inputs` of the scenario"
            raise
        asked = (binding.name for binding in batch.bindings)
        answer = BatchAnswer({name: scenario.input_answers[name] for name in asked if name in scenario.input_answers})


def _is_resolved(name: str, block: InputBlock, scenario: Scenario, known: Mapping[str, GivenInput]) -> bool:
    has_default = block.parameter().has_default
    return name in known or name in scenario.input_answers or block.parameter().required or has_default


def _text(values: Mapping[str, Any], name: str) -> str | None:
    return getattr(values, "texts", {}).get(name)
