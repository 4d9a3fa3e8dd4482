"""The plan: what a runner may do, once, as canonical JSON; its digest is what is approved and signed.

The first nine fields are the message of the runner-kernel interface (v0.1), verbatim; the rest binds what the message
only names: the bytes of the skill, the capabilities of the runner, the inputs, and where the plan is spent.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from gert.errors import CanonicalError, Refused
from gert.kernel.foundation.canonical import canonical, digest, sha256_hex
from gert.kernel.foundation.names import is_safe_name, listing
from gert.kernel.foundation.secret_refs import all_refs
from gert.kernel.governance.network import NetworkPolicy
from gert.kernel.runbook.documents.runner import RunnerBlock
from gert.kernel.runbook.documents.skill import SCOPE, Skill
from gert.kernel.runbook.documents.tool import REFERENCE, SKILL_ID
from gert.kernel.runner.registry import admit, capabilities_digest, policy_of_skill, route

MAX_PLAN_BYTES: Final = 1024 * 1024
MAX_TTL: Final = 7 * 24 * 3600
DEFAULT_TTL: Final = 900
STATE: Final = "_state"
"""The first part of every path that a runner writes; the path is below the state directory."""

RUNS: Final = f"{STATE}/runs/"
"""Where artifacts are."""

SCHEMES: Final = ("env", "file", "kv", "cmd")
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}\Z")


class Artifacts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where an execution writes what it did, below the state directory."""

    request: str
    response: str
    log: str
    record: str

    @property
    def paths(self) -> dict[str, str]:
        """The paths by name."""
        return {name: getattr(self, name) for name in self.__struct_fields__}


class Plan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One execution of one skill by one runner.

    network_policy: None for a skill without a network
    secret_ref: None for a skill without a secret
    skill_digest, runner_digest: of the bytes of the skill, and of the capabilities of the runner
    ledger: where it is spent; None means once per state directory
    unsandboxed: a program may run without a sandbox where the machine has none
    run_id, step: the run and the step that it belongs to
    """

    plan_id: str
    runner_id: str
    vendor: str
    skill_id: str
    network_policy: NetworkPolicy | None
    secret_ref: str | None
    scope: tuple[str, ...]
    ttl_seconds: int
    artifacts: Artifacts
    inputs: dict[str, Any]
    skill_digest: str
    runner_digest: str
    ledger: str | None
    unsandboxed: bool = False
    requested_by: str | None = None
    run_id: str | None = None
    step: str | None = None


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked for; inputs fit the contract of the skill.

    day: the date in the paths of the artifacts
    runner: the runner that is wanted; without it, exactly one must be able to
    scope: fewer labels than those of the skill
    """

    plan_id: str
    skill_id: str
    inputs: Mapping[str, Any]
    day: str
    runner: str | None = None
    secret_ref: str | None = None
    scope: Sequence[str] = ()
    ttl_seconds: int = DEFAULT_TTL
    unsandboxed: bool = False
    requested_by: str | None = None
    run_id: str | None = None
    step: str | None = None


def make_plan(
    order: Order, skill: Skill, skill_digest: str, runners: Mapping[str, RunnerBlock], ledger: str | None
) -> Plan:
    """Make a plan; Refused where the registry or the router does not allow it, or no runner would execute it."""
    admit(skill)
    runner_id = route(skill, runners, order.runner)
    if all_refs(order.inputs):
        raise Refused("plan/secret-input", "an input holds a secret, and a plan is a file that people read")
    plan = Plan(
        plan_id=order.plan_id,
        runner_id=runner_id,
        vendor=skill.vendor,
        skill_id=skill.id,
        network_policy=policy_of_skill(skill),
        secret_ref=order.secret_ref,
        scope=tuple(sorted(order.scope or skill.scopes)),
        ttl_seconds=order.ttl_seconds,
        artifacts=artifacts_of(order.plan_id, order.day),
        inputs=dict(order.inputs),
        skill_digest=skill_digest,
        runner_digest=capabilities_digest(runner_id, runners[runner_id]),
        ledger=ledger,
        unsandboxed=order.unsandboxed,
        requested_by=order.requested_by,
        run_id=order.run_id,
        step=order.step,
    )
    check_plan(plan)
    check_skill(plan, skill)
    return plan


def artifacts_of(plan_id: str, day: str) -> Artifacts:
    """Return the paths of an execution's artifacts."""
    folder = f"{RUNS}{day}/{plan_id}"
    return Artifacts(
        request=f"{folder}/request.json",
        response=f"{folder}/response.json",
        log=f"{folder}/run.md",
        record=f"{folder}/record.json",
    )


def day_of(plan: Plan) -> str:
    """Return the date in the paths of a plan's artifacts."""
    return plan.artifacts.record.removeprefix(RUNS).partition("/")[0]


def plan_id_of(run_id: str, call: str, attempt: int = 1) -> str:
    """Return the id of the plan of a call in a run: the same whenever the run is driven again.

    attempt: a call whose outcome is unknown may be planned again, and that is another plan
    """
    return f"plan-{sha256_hex(canonical([run_id, call]))[:32]}-{attempt}"


def attempt_of(plan_id: str) -> int:
    """Return which attempt the id of a plan stands for."""
    number = plan_id.rpartition("-")[2]
    return int(number) if number.isdecimal() and len(number) <= 4 else 1


def plan_data(plan: Plan) -> dict[str, Any]:
    """Return a plan as plain data, with all its fields."""
    data: dict[str, Any] = msgspec.json.decode(plan_bytes(plan))
    return data


def plan_bytes(plan: Plan) -> bytes:
    """Return the canonical JSON of a plan: the bytes of its file."""
    try:
        return canonical(msgspec.to_builtins(plan))
    except CanonicalError as problem:
        raise Refused("plan/form", f"the inputs of the plan have no canonical form: {problem.message}") from None


def plan_digest(plan: Plan) -> str:
    """Return the digest of a plan: the SHA-256 of its file."""
    return digest(plan_bytes(plan))


def read_plan(data: bytes) -> Plan:
    """Read the bytes of a plan; they must be exactly its canonical form, so that two readers cannot disagree."""
    if len(data) > MAX_PLAN_BYTES:
        raise Refused("plan/form", f"the plan is larger than {MAX_PLAN_BYTES} bytes")
    try:
        plan = msgspec.json.decode(data, type=Plan)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as problem:
        raise Refused("plan/form", f"the file is not a plan: {_lower(problem)}") from None
    if plan_bytes(plan) != data:
        raise Refused("plan/form", "the plan is not in canonical form", hint="`gert plan create` writes it")
    check_plan(plan)
    return plan


def check_plan(plan: Plan) -> None:
    """Refuse a plan whose fields do not have their form."""
    for name, holds in (
        ("plan_id", is_safe_name(plan.plan_id)),
        ("runner_id", is_safe_name(plan.runner_id)),
        ("skill_id", re.fullmatch(SKILL_ID, plan.skill_id) is not None),
        ("ttl_seconds", 0 < plan.ttl_seconds <= MAX_TTL),
        ("scope", all(re.fullmatch(SCOPE, label) for label in plan.scope)),
        ("skill_digest", _DIGEST.match(plan.skill_digest) is not None),
        ("runner_digest", _DIGEST.match(plan.runner_digest) is not None),
    ):
        if not holds:
            raise Refused("plan/form", f"the field `{name}` of the plan is not valid")
    if len(set(plan.scope)) != len(plan.scope):
        raise Refused("plan/form", "the field `scope` of the plan has duplicates")
    if plan.secret_ref is not None:
        check_secret_ref(plan.secret_ref)
    for name, path in plan.artifacts.paths.items():
        check_path(name, path)
        if not path.startswith(RUNS):
            # Beside it are the plans of others, and the marks of those that are spent.
            raise Refused("artifacts/path", f"the path of the artifact `{name}` is not below `{RUNS}`")
    if len(set(plan.artifacts.paths.values())) != len(plan.artifacts.paths):
        raise Refused("artifacts/path", "two artifacts of the plan have the same path")


def check_secret_ref(reference: str) -> None:
    """Refuse what is not a reference that a runner can resolve."""
    scheme, _, rest = reference.partition("://")
    if re.fullmatch(REFERENCE, reference) is None or scheme not in SCHEMES:
        listed = listing(f"{each}://" for each in SCHEMES)
        raise Refused("plan/secret-ref", "the `secret_ref` of the plan is not valid", hint=f"one of {listed}")
    if any(part in (".", "..") for part in rest.split("/")):
        raise Refused("plan/secret-ref", "the `secret_ref` of the plan holds `.` or `..`")


def check_dispatched(reference: str | None) -> None:
    """Refuse a secret that a runner cannot have where gert starts it: its environment is clean."""
    if reference is not None and reference.startswith("env://"):
        raise Refused(
            "scope/env",
            "a runner that gert starts has a clean environment, so `env://` cannot be resolved",
            hint="use file://, kv:// or cmd://, or start `gert-runner` yourself",
        )


def check_path(name: str, path: str) -> None:
    """Refuse the path of an artifact that is not a plain path below `_state/`."""
    parts = path.split("/")
    if len(parts) < 2 or parts[0] != STATE or not all(is_safe_name(part) for part in parts[1:]):
        raise Refused("artifacts/path", f"the path of the artifact `{name}` is not a plain path below `{STATE}/`")


def check_skill(plan: Plan, skill: Skill) -> None:
    """Refuse a plan that is not about this skill, or allows more than the skill asks for."""
    if (plan.skill_id, plan.vendor) != (skill.id, skill.vendor):
        raise Refused("skill/identity", f"the plan is for `{plan.skill_id}` of `{plan.vendor}`, not for `{skill.id}`")
    allowed = policy_of_skill(skill)
    if (plan.network_policy is None) != (allowed is None):
        raise Refused("network-policy/wider", "the plan and the skill do not agree about the network")
    if plan.network_policy is not None and allowed is not None:
        more = plan.network_policy.wider_than(allowed)
        if more is not None:
            raise Refused("network-policy/wider", f"the plan allows {more}, and the skill does not")
    if (plan.secret_ref is None) == bool(skill.required_secrets):
        wanted = "needs a `secret_ref`" if skill.required_secrets else "takes no `secret_ref`"
        raise Refused("plan/secret-ref", f"the skill `{skill.id}` {wanted}", hint="pass --secret-ref, or leave it out")
    if wider := sorted({*plan.scope} - {*skill.scopes}):
        raise Refused("scope/wider", f"the scope `{wider[0]}` is not one of the skill's")
    if skill.required_secrets and not plan.scope:
        raise Refused("scope/empty", "a plan with a secret needs a scope")


def _lower(problem: Exception) -> str:
    text = str(problem)
    return text[:1].lower() + text[1:]
