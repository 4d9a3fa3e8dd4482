"""The policy document, `policy/v0`: governance outside any runbook, which runbooks can only tighten."""

from typing import Any, Final

from gert.kernel.runbook.documents.governance import APPROVERS, GovernanceBlock
from gert.kernel.runbook.kinds import EXTENSIONS, NAME, NAME_WORD, TEXT, MapOf, Nested, words
from gert.kernel.runbook.model import Model, optional, required

API_VERSION: Final = "policy/v0"
GROUPS: Final = MapOf(APPROVERS, keys=NAME)


class PolicyMeta(Model):
    """What the policy is."""

    name: str = required(NAME_WORD, "name of the policy, shown with its decisions")
    description: str | None = optional(TEXT, "what the policy is for")
    extensions: dict[str, Any] = optional(EXTENSIONS, "free metadata", default={})


class PolicyFile(Model):
    """Rules that apply to every runbook run under this policy."""

    api_version: str = required(words(API_VERSION), "version of the policy format", key="apiVersion")
    meta: PolicyMeta = required(Nested(PolicyMeta), "what the policy is")
    groups: dict[str, tuple[str, ...]] = optional(GROUPS, "people by group, for `group:` in rules", default={})
    governance: GovernanceBlock = required(Nested(GovernanceBlock), "rules and approval settings")
