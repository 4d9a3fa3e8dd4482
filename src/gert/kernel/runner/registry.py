"""Three gates before a plan: the registry admits a skill, the router finds a runner, the policy allows its secret.

Each is a pure function and refuses with the name of its rule.
"""

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Final

from gert.errors import Refused
from gert.kernel.foundation.canonical import digest_value
from gert.kernel.foundation.names import listing
from gert.kernel.governance.network import NetworkPolicy
from gert.kernel.runbook.documents.runner import ANY, RunnerBlock
from gert.kernel.runbook.documents.skill import SecretsPolicy, Skill
from gert.kernel.runbook.model import Model
from gert.kernel.template import Template

_NOT_CAPABILITIES: Final = frozenset({"description"})


def policy_of_skill(skill: Skill) -> NetworkPolicy | None:
    """Return the network policy that a skill declares; None for a skill without a network."""
    said = skill.network_policy
    if said is None or not skill.is_networked:
        return None
    return NetworkPolicy(
        domains=said.domains,
        methods=said.methods,
        max_response_bytes=said.max_response_bytes,
        redirects=said.redirects,
        max_requests=said.max_requests,
    )


def admit(skill: Skill) -> None:
    """Registry: refuse a networked skill that does not say what it reaches and which secret it needs."""
    if not skill.is_networked:
        return
    if skill.network_policy is None or not skill.network_policy.domains:
        raise Refused("registry/domains", f"the skill `{skill.id}` is networked and names no `networkPolicy.domains`")
    if not skill.required_secrets:
        raise Refused("registry/secrets", f"the skill `{skill.id}` is networked and names no `requiredSecrets`")


def route(skill: Skill, runners: Mapping[str, RunnerBlock], wanted: str | None = None) -> str:
    """Router: return the runner that executes a skill; refuse where none has the capabilities.

    wanted: the runner that was asked for; without it, exactly one must be able to
    """
    if wanted is not None:
        if wanted not in runners:
            listed = listing(sorted(runners)) or "there is none"
            raise Refused("router/capability", f"no runner `{wanted}` is registered", hint=f"registered: {listed}")
        objection = lacks(skill, runners[wanted])
        if objection is not None:
            raise Refused("router/capability", f"the runner `{wanted}` cannot execute `{skill.id}`: {objection}")
        return wanted
    able = sorted(name for name, runner in runners.items() if lacks(skill, runner) is None)
    if not able:
        why = "; ".join(f"`{name}`: {lacks(skill, runner)}" for name, runner in sorted(runners.items()))
        raise Refused(
            "router/capability",
            f"no registered runner can execute `{skill.id}`",
            hint=why or "register one under `runners` in gert-project.yaml",
        )
    if len(able) > 1:
        listed = listing(able)
        raise Refused("router/ambiguous", f"several runners can execute `{skill.id}`", hint=f"choose one of {listed}")
    return able[0]


def lacks(skill: Skill, runner: RunnerBlock) -> str | None:
    """Return the capability that a runner lacks for a skill; None if it can execute it."""
    if skill.is_networked and runner.network != skill.permissions.network:
        return f"its network is `{runner.network}`, and the skill needs `{skill.permissions.network}`"
    if ANY not in runner.vendors and skill.vendor not in runner.vendors:
        return f"it serves no skills of `{skill.vendor}`"
    policy = policy_of_skill(skill)
    if policy is not None and ANY not in runner.domains and (more := sorted({*policy.domains} - {*runner.domains})):
        return f"it does not reach `{more[0]}`"
    if skill.program is not None and not runner.programs:
        return "it runs no programs"
    return None


def allow_secret(policies: Iterable[SecretsPolicy], skill_id: str, secret_ref: str, scope: Iterable[str]) -> None:
    """Secrets policy: refuse a secret that no rule allows this skill under all of its scope labels."""
    labels = tuple(scope)
    for policy in policies:
        for rule in policy.allow:
            if (
                _any(rule.skills, skill_id)
                and _any(rule.secret_refs, secret_ref)
                and labels
                and all(_any(rule.scopes, label) for label in labels)
            ):
                return
    listed = " ".join(labels)
    raise Refused(
        "secrets-policy/allow",
        f"no secrets policy lets `{skill_id}` use `{secret_ref}` under the scope `{listed}`",
        hint="add a rule to a file of `secrets_policies` in gert-project.yaml",
    )


def _any(patterns: Iterable[str], text: str) -> bool:
    return any(_pattern(pattern).fullmatch(text) for pattern in patterns)


@lru_cache(maxsize=512)
def _pattern(pattern: str) -> re.Pattern[str]:
    """Compile a pattern: `**` is any text, `*` any text without `/`."""
    parts = re.split(r"(\*\*|\*)", pattern)
    stars = {"**": ".*", "*": "[^/]*"}
    # A path with `..` could leave the folder that a pattern names.
    return re.compile(r"(?!.*(?:^|/)\.\.?(?:/|$))" + "".join(stars.get(part) or re.escape(part) for part in parts))


def capabilities_digest(runner_id: str, runner: RunnerBlock) -> str:
    """Return the digest of what a runner can do: a plan names it, so a change makes the plan void."""
    return digest_value({"id": runner_id, **data_of(runner)})


def data_of(value: Any) -> Any:
    """Return a model as plain data, with all its keys but those that say nothing about what it can do."""
    if isinstance(value, Model):
        fields = ((key, getattr(value, field.name)) for key, field in value.fields.items())
        return {key: data_of(each) for key, each in fields if key not in _NOT_CAPABILITIES}
    if isinstance(value, dict):
        return {key: data_of(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [data_of(each) for each in value]
    return value.source if isinstance(value, Template) else value
