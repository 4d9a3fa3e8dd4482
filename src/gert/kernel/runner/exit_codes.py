"""The exit codes of `gert-runner`: one per class of refusal and failure, so that a job can tell them apart."""

from collections.abc import Mapping
from enum import IntEnum
from typing import Final

from gert.errors import Refused


class RunnerExit(IntEnum):
    """Below 20 nothing was executed and the plan is not spent; from 20 on there is a record."""

    DONE = 0
    USAGE = 2
    PLAN = 10
    AUTHORIZATION = 11
    EXPIRY = 12
    RUNNER = 13
    SCOPE = 14
    SPENT = 15
    SKILL = 16
    POLICY = 17
    ARTIFACTS = 18
    ISOLATION = 19
    SECRET = 20
    NETWORK = 22
    VENDOR = 23
    TRANSPORT = 24
    TIMEOUT = 25
    RESPONSE = 26
    PROGRAM = 27
    CANCELLED = 28
    RECORD = 29
    INTERNAL = 30


# The first part of a rule is its class.
CLASSES: Final[Mapping[str, RunnerExit]] = {
    "plan": RunnerExit.PLAN,
    "authorization": RunnerExit.AUTHORIZATION,
    "expiry": RunnerExit.EXPIRY,
    "runner": RunnerExit.RUNNER,
    "scope": RunnerExit.SCOPE,
    "secrets-policy": RunnerExit.SCOPE,
    "spent": RunnerExit.SPENT,
    "skill": RunnerExit.SKILL,
    "registry": RunnerExit.POLICY,
    "router": RunnerExit.POLICY,
    "network-policy": RunnerExit.POLICY,
    "artifacts": RunnerExit.ARTIFACTS,
    "secret": RunnerExit.SECRET,
    "isolation": RunnerExit.ISOLATION,
    "network": RunnerExit.NETWORK,
    "vendor": RunnerExit.VENDOR,
    "transport": RunnerExit.TRANSPORT,
    "timeout": RunnerExit.TIMEOUT,
    "response": RunnerExit.RESPONSE,
    "program": RunnerExit.PROGRAM,
    "cancelled": RunnerExit.CANCELLED,
    "record": RunnerExit.RECORD,
}


def is_refusal(code: int) -> bool:
    """Whether a runner that ended with this code refused to begin."""
    return RunnerExit.PLAN <= code < RunnerExit.SECRET


def exit_of_rule(rule: str) -> RunnerExit:
    """Return the exit code of a rule."""
    return CLASSES.get(rule.partition("/")[0], RunnerExit.INTERNAL)


def exit_after_start(failure: Refused) -> RunnerExit:
    """Return the exit code of an execution that failed; it never looks like a plan that was not spent."""
    code = exit_of_rule(failure.rule)
    return RunnerExit.INTERNAL if is_refusal(code) else code


def exit_before_start(refusal: Refused) -> RunnerExit:
    """Return the exit code of a runner that refuses to begin; it never looks like an execution that failed."""
    code = exit_of_rule(refusal.rule)
    return code if is_refusal(code) else RunnerExit.POLICY
