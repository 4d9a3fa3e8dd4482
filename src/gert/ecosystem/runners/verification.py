"""What a runner checks before a plan is spent; each refusal leaves the plan unspent and names what is wrong."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import Final, Protocol

import msgspec

from gert.ecosystem.runners.artifacts import StateFolder
from gert.ecosystem.runners.sandbox import Machine, probe, read_files
from gert.ecosystem.runners.secrets import Resolving
from gert.ecosystem.runners.wire import Lookup
from gert.errors import Refused
from gert.kernel.foundation.canonical import digest
from gert.kernel.foundation.signature import Keys
from gert.kernel.runbook.documents.runner import RunnerBlock
from gert.kernel.runbook.documents.skill import SecretsPolicy, Skill
from gert.kernel.runbook.program import SkillLookup
from gert.kernel.runner.authorization import Authorization, check_authorization, check_expiry, read_authorization
from gert.kernel.runner.execution_record import ExecutionRecord
from gert.kernel.runner.plan import Plan, check_dispatched, check_skill, read_plan
from gert.kernel.runner.registry import admit, allow_secret, capabilities_digest, lacks

STEPS: Final = (
    "read", "authorization", "expiry", "runner", "scope", "unspent", "skill", "policy", "artifacts", "prepare",
    "spend", "request", "secret", "execute", "response", "log", "record", "report",
)  # fmt: skip
"""The steps in their order; `spend` is the one after which there is no way back."""


class Invocation(msgspec.Struct, frozen=True, kw_only=True):
    """What a runner is started with: the plan, and what it repeats of it, which can only be narrower."""

    plan: bytes
    authorization: bytes
    runner_id: str
    secret_ref: str | None
    scope: tuple[str, ...]
    ttl_seconds: int
    dispatched: bool = False


class Started(msgspec.Struct, frozen=True, kw_only=True):
    """A plan whose execution begins.

    documents: the bytes of its skill, by digest
    """

    plan: Plan
    digest: str
    authorization: Authorization
    scope: tuple[str, ...]
    isolation: str
    dispatched: bool
    documents: tuple[tuple[str, bytes], ...] = ()


class Spend(Protocol):
    """Where plans are spent: in a ledger, or in a state directory."""

    name: str | None
    """The ledger; None for a state directory."""

    async def is_spent(self, plan_id: str) -> bool:
        """Whether the plan was spent before."""

    async def begin(self, started: Started) -> None:
        """Spend the plan, durably and once; Refused where it was spent before."""

    async def finish(self, record: ExecutionRecord, record_digest: str) -> None:
        """Report the record."""


class Runner(msgspec.Struct, frozen=True, kw_only=True):
    """This runner and its machine.

    keys: verify authorizations
    runners: as this machine knows them
    skills: finds a skill by its id
    policies: sets of secrets policies, each of which must allow a secret
    stop: set to end the execution; a record is written all the same
    observe: told before each step
    """

    keys: Keys
    runners: Mapping[str, RunnerBlock]
    skills: Callable[[str], SkillLookup | None]
    policies: tuple[tuple[SecretsPolicy, ...], ...]
    spend: Spend
    state: str
    clock: Callable[[], datetime]
    resolving: Resolving
    host: str
    version: str
    stop: asyncio.Event
    observe: Callable[[str], object] = lambda _: None
    lookup: Lookup | None = None
    probe: Callable[[], Awaitable[Machine]] = probe


class Verified(msgspec.Struct, frozen=True, kw_only=True):
    """A plan that this runner may execute, and until when."""

    plan: Plan
    digest: str
    authorization: Authorization
    scope: tuple[str, ...]
    runner: RunnerBlock
    skill: Skill
    source: bytes
    files: dict[str, bytes]
    expires: datetime


async def verify(invocation: Invocation, runner: Runner, folder: StateFolder) -> Verified:
    """Check everything that can be checked before the plan is spent; Refused names the first thing that is wrong."""
    # (1) The plan is one, in its one form.
    runner.observe("read")
    plan, authorization = read_plan(invocation.plan), read_authorization(invocation.authorization)
    # (2) It is signed, and the signature is over these bytes.
    runner.observe("authorization")
    check_authorization(plan, invocation.plan, authorization, runner.keys)
    # (3) Now, for as long as the runner was started.
    runner.observe("expiry")
    expires = check_expiry(plan, authorization, runner.clock(), invocation.ttl_seconds)
    # (4) For this runner, with the capabilities that were approved.
    runner.observe("runner")
    block = _own(plan, invocation.runner_id, runner.runners)
    # (5) With this secret, under a scope that is not wider.
    runner.observe("scope")
    scope = _narrowed(plan, invocation)
    # (6) Once.
    runner.observe("unspent")
    if plan.ledger != runner.spend.name:
        raise Refused("spent/ledger", "the plan is spent in another ledger than this runner writes to")
    if await runner.spend.is_spent(plan.plan_id):
        raise Refused("spent/plan", f"the plan `{plan.plan_id}` was executed before")
    # (7) The skill is the one that was approved, byte by byte, and so are its files.
    runner.observe("skill")
    lookup = _skill(plan, runner.skills(plan.skill_id))
    files = read_files(lookup)
    skill: Skill = lookup.document.model
    # (8) Nothing is wider than the skill, the runner and the secrets policies allow.
    runner.observe("policy")
    admit(skill)
    check_skill(plan, skill)
    objection = lacks(skill, block)
    if objection is not None:
        raise Refused("router/capability", f"the runner `{plan.runner_id}` cannot execute `{skill.id}`: {objection}")
    if plan.unsandboxed and not block.unsandboxed:
        raise Refused("isolation/grant", f"the runner `{plan.runner_id}` takes no unsandboxed grants")
    if plan.secret_ref is not None:
        for policies in runner.policies:
            allow_secret(policies, skill.id, plan.secret_ref, scope)
    # (9) Its artifacts are new, and inside the state directory.
    runner.observe("artifacts")
    folder.require_new(plan.artifacts.paths)
    return Verified(
        plan=plan,
        digest=digest(invocation.plan),
        authorization=authorization,
        scope=scope,
        runner=block,
        skill=skill,
        source=lookup.document.source,
        files=files,
        expires=expires,
    )


def _own(plan: Plan, runner_id: str, runners: Mapping[str, RunnerBlock]) -> RunnerBlock:
    if plan.runner_id != runner_id:
        raise Refused("runner/id", f"the plan is for the runner `{plan.runner_id}`, and this is `{runner_id}`")
    if runner_id not in runners:
        raise Refused("runner/id", f"no runner `{runner_id}` is registered here")
    if capabilities_digest(runner_id, runners[runner_id]) != plan.runner_digest:
        raise Refused("runner/capabilities", f"the runner `{runner_id}` has changed since the plan was made")
    return runners[runner_id]


def _narrowed(plan: Plan, invocation: Invocation) -> tuple[str, ...]:
    if invocation.secret_ref != plan.secret_ref:
        raise Refused("scope/secret", "the runner was started with another `secret_ref` than the plan has")
    if invocation.dispatched:
        check_dispatched(plan.secret_ref)
    if wider := sorted({*invocation.scope} - {*plan.scope}):
        raise Refused("scope/wider", f"the scope `{wider[0]}` is wider than the plan")
    if plan.scope and not invocation.scope:
        raise Refused("scope/empty", "the runner was started without a scope", hint="pass --scope")
    return tuple(sorted(set(invocation.scope)))


def _skill(plan: Plan, lookup: SkillLookup | None) -> SkillLookup:
    if lookup is None:
        raise Refused("skill/absent", f"there is no skill `{plan.skill_id}` here")
    if lookup.document.digest != plan.skill_digest:
        raise Refused("skill/digest", f"the skill `{plan.skill_id}` is not the one that was approved")
    if not lookup.document.is_sound:
        raise Refused("skill/valid", f"the skill `{plan.skill_id}` is not valid", hint=f"gert validate {lookup.file}")
    return lookup
