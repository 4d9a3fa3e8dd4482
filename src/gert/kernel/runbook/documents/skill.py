"""The skill document, `skill/v0`: one vendor call, what it may reach, and the place of its secret."""

from typing import Any, Final

from gert.kernel.runbook.documents.contract import ContractBlock
from gert.kernel.runbook.documents.tool import JSON_PATH, SKILL_ID
from gert.kernel.runbook.kinds import (
    BOOL,
    CONDITION,
    EXTENSIONS,
    IDENTIFIER,
    IDENTIFIER_WORD,
    NONEMPTY_TEMPLATE,
    TEMPLATE,
    TEMPLATED,
    TEXT,
    TEXTS,
    TIMEOUT,
    Int,
    ListOf,
    MapOf,
    Nested,
    Word,
    words,
)
from gert.kernel.runbook.model import Model, optional, required
from gert.kernel.template import Template

API_VERSION: Final = "skill/v0"
SKILL_SUFFIX: Final = ".skill.yaml"
PLACE: Final = "secret"
"""Templates of a skill name its secret as `.secret.NAME`."""

NO_NETWORK: Final = "none"
NETWORKS: Final = (NO_NETWORK, "https")
METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
VENDOR: Final = "^[a-z0-9][a-z0-9_-]{0,63}$"
SCOPE: Final = "^[a-z0-9][a-z0-9_.:/-]{0,127}$"
# Lower case, and the last label begins with a letter: an IP address is not a domain.
DOMAIN: Final = r"^([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z]([a-z0-9-]{0,61}[a-z0-9])?$"
HEADER: Final = "^[A-Za-z0-9][A-Za-z0-9-]{0,127}$"
DIGEST: Final = "^sha256:[0-9a-f]{64}$"
PROGRAM_FILE: Final = "^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$"
MAX_RESPONSE_BYTES: Final = 64 * 1024 * 1024
DEFAULT_RESPONSE_BYTES: Final = 1024 * 1024
MAX_REQUESTS: Final = 100

SKILL_ID_WORD: Final = Word("a skill id such as `S.vendor.openai.chat.v0.1.0`", pattern=SKILL_ID)
VENDOR_WORD: Final = Word("a vendor such as `openai`", pattern=VENDOR)
SCOPES: Final = ListOf(Word("a scope label such as `llm:chat`", pattern=SCOPE), minItems=1, uniqueItems=True)
DOMAIN_WORD: Final = Word("a domain such as `api.openai.com`, in lower case", pattern=DOMAIN)
_HEADERS: Final = MapOf(TEMPLATE, keys=HEADER)


class PermissionsBlock(Model):
    """What the skill may do beyond computing."""

    network: str = required(words(*NETWORKS), "`none`, or `https` to the domains of `networkPolicy`")


class NetworkPolicyBlock(Model):
    """What leaves the runner: the policy is enforced where the bytes leave."""

    domains: tuple[str, ...] = optional(
        ListOf(DOMAIN_WORD, uniqueItems=True), "the only hosts that are connected to", default=()
    )
    methods: tuple[str, ...] = required(ListOf(words(*METHODS), minItems=1, uniqueItems=True), "allowed HTTP methods")
    max_response_bytes: int = optional(
        Int(minimum=1, maximum=MAX_RESPONSE_BYTES),
        "the response is cut here",
        default=DEFAULT_RESPONSE_BYTES,
        key="maxResponseBytes",
    )
    redirects: bool = optional(
        BOOL, "follow redirects of GET and HEAD, each checked like the first request", default=False
    )
    max_requests: int = optional(
        Int(minimum=1, maximum=MAX_REQUESTS), "requests of one execution", default=1, key="maxRequests"
    )


class RequiredSecretBlock(Model):
    """A secret by name: a plan names its `secret_ref`, and only the runner resolves that."""

    name: str = required(IDENTIFIER_WORD, "name, used as `.secret.NAME` in `headers` and `body`")
    scope: tuple[str, ...] = required(SCOPES, "scope labels it is used under")
    description: str | None = optional(TEXT, "what the secret is for")


class HttpBlock(Model):
    """One declared request; the runner sends it."""

    method: str = required(words(*METHODS), "HTTP method")
    url: Template = required(
        NONEMPTY_TEMPLATE, "https URL; its host is fixed, and inputs are percent-encoded in the rest"
    )
    query: dict[str, Template] = optional(MapOf(TEMPLATE), "query parameters", default={})
    headers: dict[str, Template] = optional(_HEADERS, "headers", default={})
    body: Any = optional(
        TEMPLATED, "a map or list is sent as JSON, text as it is; a key whose template yields nothing is left out"
    )
    success: Template | None = optional(
        CONDITION, "condition on `.status` and `.body` of the response (default: a status of 200 to 299)"
    )


class ProgramBlock(Model):
    """A program that runs in a sandbox and reaches the vendor only through a gateway, which adds the secret."""

    argv: tuple[str, ...] = required(
        ListOf(Word("a word of a command", minLength=1), minItems=1), "command; it reads its inputs as JSON on stdin"
    )
    files: dict[str, str] = optional(
        MapOf(Word("a digest `sha256:…`", pattern=DIGEST), keys=PROGRAM_FILE),
        "files beside the skill that it is given, with their digests",
        default={},
    )
    headers: dict[str, Template] = optional(
        _HEADERS, "headers the gateway sets on each request, such as the secret", default={}
    )


class OutputBlock(Model):
    """Where one declared output is taken from."""

    from_: str = optional(
        words("json", "text", "status"), "the response as JSON, as text, or its status", default="json", key="from"
    )
    json_path: str | None = optional(
        Word("a path such as `a.b[0]`, or `$` for all of it", pattern=JSON_PATH),
        "path into the JSON: `a.b[0].c`",
        key="path",
    )


class Skill(Model):
    """A skill: a contract, a network policy, the secrets it needs, and how it acts."""

    api_version: str = required(words(API_VERSION), "version of the skill format", key="apiVersion")
    id: str = required(SKILL_ID_WORD, "id with its version")
    vendor: str = required(VENDOR_WORD, "whom it calls")
    description: str | None = optional(TEXT, "what it does")
    permissions: PermissionsBlock = required(Nested(PermissionsBlock), "what it may do")
    network_policy: NetworkPolicyBlock | None = optional(
        Nested(NetworkPolicyBlock), "what leaves the runner", key="networkPolicy"
    )
    required_secrets: tuple[RequiredSecretBlock, ...] = optional(
        ListOf(Nested(RequiredSecretBlock)), "secrets by name and scope", default=(), key="requiredSecrets"
    )
    contract: ContractBlock = required(Nested(ContractBlock), "what it affects, its inputs and outputs")
    timeout: str = optional(TIMEOUT, "time limit of an execution", default="60s")
    http: HttpBlock | None = optional(Nested(HttpBlock), "acts by one declared request")
    program: ProgramBlock | None = optional(Nested(ProgramBlock), "acts by a program in a sandbox")
    extract: dict[str, OutputBlock] = optional(
        MapOf(Nested(OutputBlock), keys=IDENTIFIER), "where outputs are taken from", default={}
    )
    extensions: dict[str, Any] = optional(EXTENSIONS, "free metadata", default={})

    @property
    def is_networked(self) -> bool:
        """Whether it needs a network."""
        return self.permissions.network != NO_NETWORK

    @property
    def scopes(self) -> tuple[str, ...]:
        """The scope labels of its secrets."""
        return tuple(dict.fromkeys(label for each in self.required_secrets for label in each.scope))

    @property
    def headers(self) -> dict[str, Template]:
        """The headers of its requests, as templates."""
        block = self.http if self.http is not None else self.program
        return block.headers if block is not None else {}


POLICY_API_VERSION: Final = "secrets-policy/v0"


class SecretsPolicyMeta(Model):
    """What the policy is."""

    name: str = required(Word("a name", minLength=1), "name of the policy, shown with its refusals")
    description: str | None = optional(TEXT, "what the policy is for")


class SecretRuleBlock(Model):
    """Which skills may use which secrets; `*` matches any characters but `/`, `**` any."""

    skills: tuple[str, ...] = required(TEXTS, "patterns of skill ids")
    secret_refs: tuple[str, ...] = required(TEXTS, "patterns of `secret_ref`s")
    scopes: tuple[str, ...] = required(TEXTS, "patterns of scope labels; all labels of a use must match one")


class SecretsPolicy(Model):
    """Which skills may use which `secret_ref` under which scope; what no rule allows is refused."""

    api_version: str = required(words(POLICY_API_VERSION), "version of the format", key="apiVersion")
    meta: SecretsPolicyMeta = required(Nested(SecretsPolicyMeta), "what the policy is")
    allow: tuple[SecretRuleBlock, ...] = required(ListOf(Nested(SecretRuleBlock)), "what is allowed")
