"""What this machine can enforce, and what a runner of this project lacks: tried, not assumed."""

import os
import shutil
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from importlib.util import find_spec

import msgspec

from gert.ecosystem.host.config.keys.plan_keys import plan_keys, plan_signing_key
from gert.ecosystem.host.runner.project import RunnerProject
from gert.ecosystem.runners.artifacts import StateFolder
from gert.ecosystem.runners.sandbox import ENFORCED, probe
from gert.ecosystem.runners.seccomp import sandbox_filter
from gert.ecosystem.runners.wire import tls_context
from gert.errors import GertError
from gert.kernel.foundation.names import listing
from gert.kernel.runbook.documents.runner import RunnerBlock


class Diagnosis(msgspec.Struct, frozen=True):
    """One thing that was looked at; `ok` is None for what is only worth knowing."""

    name: str
    ok: bool | None
    detail: str


async def diagnose(project: RunnerProject) -> AsyncIterator[Diagnosis]:
    """Look at the machine, then at the project."""
    yield Diagnosis("system", sys.platform == "linux", f"{sys.platform} on {os.uname().machine}")
    machine = await probe()
    found = machine.bubblewrap or "not found: install bubblewrap"
    yield Diagnosis("bubblewrap", machine.bubblewrap is not None, found)
    yield Diagnosis(
        "seccomp", sandbox_filter() is not None, "system calls can be filtered" if sandbox_filter() else "no"
    )
    if machine.flaw is None:
        yield Diagnosis("sandbox", True, "; ".join(ENFORCED))
    else:
        yield Diagnosis("sandbox", False, f"{machine.flaw}; programs are refused without an unsandboxed grant")
    can_close = sys.platform == "linux"
    memory = "no core dump, no inspection by other processes" if can_close else "the process cannot be closed to others"
    yield Diagnosis("memory", can_close, memory)
    for each in _project(project):
        yield each


def _project(project: RunnerProject) -> Iterator[Diagnosis]:
    yield _tried("state", partial(_state, project))
    yield Diagnosis("ledger", True, f"plans are spent in {project.ledger}")
    yield _tried("verify key", partial(_verify_key, project))
    yield _tried("signing key", lambda: f"key `{plan_signing_key(project.environ).id}` authorizes plans", optional=True)
    policies = [policy.meta.name for each in project.secrets_policies for policy in each]
    said = ", ".join(policies) or "none: no skill may use a secret (set `secrets_policies`)"
    yield Diagnosis("secrets", bool(policies), said)
    if not project.runners:
        yield Diagnosis("runners", False, "none is registered (set `runners` in gert-project.yaml)")
    for name, runner in sorted(project.runners.items()):
        yield _tried(f"runner {name}", partial(_runner, runner))


def _tried(name: str, look: Callable[[], str], *, optional: bool = False) -> Diagnosis:
    try:
        return Diagnosis(name, True, look())
    except GertError as problem:
        return Diagnosis(name, None if optional else False, problem.message)


def _state(project: RunnerProject) -> str:
    with StateFolder(project.state):
        return f"artifacts go to {project.state}"


def _verify_key(project: RunnerProject) -> str:
    keys = plan_keys(project.environ)
    if not len(keys):
        raise GertError("no key to verify plans with: set GERT_PLAN_VERIFY_KEY or GERT_PLAN_VERIFY_KEY_FILE")
    return f"plans are verified with {listing(key.id for key in keys)}"


def _runner(runner: RunnerBlock) -> str:
    tls_context(runner.ca_file)
    sources = ["file://", "env:// where you start it yourself"]
    if runner.secrets is not None:
        for name, command in runner.secrets.cmd.items():
            _require_command(command[0], f"cmd://{name}")
            sources.append(f"cmd://{name}")
        kv = runner.secrets.kv
        if kv is not None and kv.command is not None:
            _require_command(kv.command[0], "kv://")
        if kv is not None and kv.vault is not None and find_spec("hvac") is None:
            raise GertError("`vault` needs the extra `gert[vault]`")
        sources += ["kv://"] if kv is not None else []
    reach = f"reaches {', '.join(runner.domains)}" if runner.domains else "reaches nothing"
    return f"{reach}; secrets from {', '.join(sources)}"


def _require_command(program: str, scheme: str) -> None:
    if shutil.which(program) is None:
        raise GertError(f"the program `{program}` for `{scheme}` was not found")
