"""Extension runners that gert ships: for agents, and for debates: reducers and a judge."""

import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

from gert.ecosystem.host.llm.reduce import declared_only, merge, vote
from gert.ecosystem.rpc.runner import Failed, Step, run
from gert.errors import GertError

_VOTE, _MERGE = "reduce-vote", "reduce-merge"


def reduce_vote() -> None:
    """Be `gert-ext-reduce-vote`: the decision of most agents."""
    run(_reducer(vote), principal={"kind": "system", "id": _VOTE, "role": "reducer"})


def reduce_merge() -> None:
    """Be `gert-ext-reduce-merge`: what all agents said, field by field."""
    run(_reducer(merge), principal={"kind": "system", "id": _MERGE, "role": "reducer"})


def judge_llm() -> None:
    """Be `gert-ext-judge-llm`: a model picks the winner."""
    from gert.ecosystem.host.llm.judge import judge, principal_of

    async def execute(step: Step) -> dict[str, Any]:
        try:
            return declared_only(await judge(step.inputs, os.environ), step.contract)
        except GertError as problem:
            raise Failed(_text(problem)) from None

    run(execute, principal=principal_of(os.environ))


def agent() -> None:
    """Be `gert-ext-agent`: a durable agent works on a step."""
    from gert.ecosystem.host.config.machine.process_setup import set_up_process

    set_up_process(os.environ)
    from gert.ecosystem.host.agent.agent_step import StepWaits, call_of, execute_agent, take_variables

    async def execute(step: Step) -> dict[str, Any]:
        try:
            call = call_of(step.call)
            # Among them are gert's keys, and the tools of the agent are processes of the same user.
            take_variables(call)
            step.child_run_id = call.agent_run_id
            return await execute_agent(step.inputs, step.vars, step.contract, call, os.environ, _tell)
        except StepWaits as waiting:
            step.waits_for = waiting.ticket_id
            return {}
        except GertError as problem:
            raise Failed(_text(problem)) from None

    run(execute, principal={"kind": "agent", "id": "agent"})


def _reducer(reduce: Callable[[Mapping[str, Any]], dict[str, Any]]) -> Callable[[Step], dict[str, Any]]:
    def execute(step: Step) -> dict[str, Any]:
        try:
            return declared_only(reduce(step.inputs), step.contract)
        except GertError as problem:
            raise Failed(_text(problem)) from None

    return execute


def _tell(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def _text(problem: GertError) -> str:
    return f"{problem.message} ({problem.hint})" if problem.hint else problem.message
