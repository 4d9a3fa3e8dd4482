"""Skill files: what a skill reaches, where its secret belongs, and that its templates name what it declares."""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from gert.kernel.foundation.names import did_you_mean, listing, suggestion
from gert.kernel.governance.network import read_address, read_network
from gert.kernel.runbook.documents.project import Config
from gert.kernel.runbook.documents.skill import PLACE, HttpBlock, SecretsPolicy, Skill
from gert.kernel.runbook.finding import Finding, Path, at_offset, error, warning
from gert.kernel.runbook.validate.domain.contracts import contract_limits, deprecated_keys, undeclared_writes
from gert.kernel.runbook.validate.facts import Facts
from gert.kernel.template import Reference, Template, templates_in

# Text before the first action of a URL: the scheme, the host, and the slash that ends it.
_FIXED_HOST: Final = re.compile(r"^https://([^/?#@:\\\s{}]+)/")
_FORBIDDEN_HEADERS: Final = frozenset(
    {"host", "content-length", "transfer-encoding", "connection", "accept-encoding", "proxy-authorization", "upgrade"}
)
"""Headers that the runner sets itself: another value would change where a message ends or what is kept of it."""

_RESPONSE: Final = ("status", "body")


def skill_file(skill: Skill) -> Iterator[Finding]:
    """Check a skill document with all rules."""
    yield from _network(skill)
    yield from _ways(skill)
    yield from _secret_names(skill)
    if skill.http is not None:
        yield from _request(skill, skill.http)
    for name in skill.headers:
        if name.lower() in _FORBIDDEN_HEADERS:
            block = skill.http or skill.program
            assert block is not None  # noqa: S101 - it has headers
            yield error("D77", block.at("headers", name), f"the header `{name}` is set by the runner", on_key=True)
    yield from _templates(skill)
    yield from _outputs(skill)
    yield from deprecated_keys(skill.contract, both_is_error=True)
    yield from contract_limits(skill.contract)
    yield from undeclared_writes(skill.contract, (), f"the skill `{skill.id}`")
    if skill.contract.effects is None:
        yield warning("D34", ("contract",), "no `effects` are declared, so the risk is critical")


def _network(skill: Skill) -> Iterator[Finding]:
    """D75: a networked skill names domains and secrets. D76: a skill without a network has neither."""
    policy = skill.network_policy
    if skill.is_networked:
        if policy is None or not policy.domains:
            path = policy.path if policy is not None else ("permissions", "network")
            hint = "a networked skill lists the only hosts it connects to"
            yield error("D75", path, "`networkPolicy.domains` is missing", hint)
        if not skill.required_secrets:
            hint = "name the secret it sends; a networked skill without one is refused by the registry"
            yield error("D75", ("permissions", "network"), "`requiredSecrets` is missing", hint)
        return
    for key, given in (("networkPolicy", policy), ("requiredSecrets", skill.required_secrets), ("http", skill.http)):
        if given:
            yield error("D76", (key,), f"`{key}` needs a network, and `permissions.network` is `none`")


def _ways(skill: Skill) -> Iterator[Finding]:
    """D77: one way to act, within the network policy."""
    if (skill.http is None) == (skill.program is None):
        yield error("D77", (), "a skill acts by `http` or by `program`, and by one of them")
    if len(skill.required_secrets) > 1:
        hint = "a plan carries one `secret_ref`; split the skill"
        yield error("D77", ("requiredSecrets", 1), "a skill takes one secret at most", hint)
    if skill.http is not None and skill.network_policy is not None:
        if skill.http.method not in skill.network_policy.methods:
            message = f"the method `{skill.http.method}` is not in `networkPolicy.methods`"
            yield error("D77", ("http", "method"), message)
        if skill.network_policy.max_requests != 1:
            yield error("D77", ("networkPolicy", "maxRequests"), "a declared request is sent once")


def _secret_names(skill: Skill) -> Iterator[Finding]:
    """D79: a secret is no input, and its name is used."""
    for name, block in skill.contract.inputs.items():
        if block.secret:
            hint = "name it in `requiredSecrets`, and the runner resolves it"
            yield error("D79", block.path, f"the input `{name}` would be written into a plan", hint)
        if name == PLACE:
            yield error("D79", block.path, "`secret` cannot be the name of an input", "`.secret.NAME` is the secret")
    used = {reference.path[1:2] for _, each in _marked_templates(skill) for reference in _secret_references(each)}
    for index, secret in enumerate(skill.required_secrets):
        if (secret.name,) not in used:
            hint = f"write `{{{{ .secret.{secret.name} }}}}` in a header or in the body"
            yield error("D79", ("requiredSecrets", index), f"nothing says where `{secret.name}` is sent", hint)


def _secret_references(template: Template) -> Iterator[Reference]:
    """Yield the names that mean the secret, or everything."""
    for reference in template.references:
        if not reference.path or reference.path[0] == PLACE or not isinstance(reference.path[0], str):
            yield reference


def _marked_templates(skill: Skill) -> Iterator[tuple[Path, Template]]:
    """Yield the templates that may contain the secret."""
    block = skill.http if skill.http is not None else skill.program
    if block is None:
        return
    for name, template in block.headers.items():
        yield block.at("headers", name), template
    if skill.http is not None:
        for below, template in templates_in(skill.http.body):
            yield skill.http.at("body", *below), template


def _open_templates(skill: Skill) -> Iterator[tuple[Path, Template]]:
    """Yield the templates that may not contain a secret: proxies and servers log URLs."""
    if skill.http is not None:
        yield skill.http.at("url"), skill.http.url
        for name, template in skill.http.query.items():
            yield skill.http.at("query", name), template


def _request(skill: Skill, http: HttpBlock) -> Iterator[Finding]:
    """D78: the host is fixed, and one of the domains."""
    match = _FIXED_HOST.match(http.url.source)
    if match is None:
        hint = "write `https://HOST/PATH`; only the path may hold templates"
        yield error("D78", http.at("url"), "the URL has no fixed https host", hint)
        return
    domains = skill.network_policy.domains if skill.network_policy is not None else ()
    if match[1] not in domains:
        hint = suggestion(match[1], domains) or "add it there, or call another host"
        yield error("D78", http.at("url"), f"the host `{match[1]}` is not in `networkPolicy.domains`", hint)
    for reference in http.success.references if http.success is not None else ():
        if not reference.path or reference.path[0] not in _RESPONSE:
            message = "`success` reads `.status` and `.body` of the response"
            yield at_offset(reference.offset, error("D80", http.at("success"), message))
    if "?" in http.url.source or "#" in http.url.source:
        yield error("D78", http.at("url"), "the URL has a query or a fragment", "put parameters into `query`")


def _templates(skill: Skill) -> Iterator[Finding]:
    """D79: the secret is named whole, and nowhere else. D80: other names are inputs."""
    known = {secret.name for secret in skill.required_secrets}
    for path, template in _marked_templates(skill):
        for reference in _secret_references(template):
            if len(reference.path) != 2 or reference.path[1] not in known:
                listed = listing(f".secret.{name}" for name in sorted(known)) or "it declares none"
                yield at_offset(reference.offset, error("D79", path, "expected the name of a required secret", listed))
        yield from _declared(skill, path, template)
    for path, template in _open_templates(skill):
        for reference in _secret_references(template):
            hint = "a URL is written to logs on its way; send the secret in a header or in the body"
            yield at_offset(reference.offset, error("D79", path, "a secret cannot be part of a URL", hint))
        yield from _declared(skill, path, template)


def _declared(skill: Skill, path: Path, template: Template) -> Iterator[Finding]:
    inputs: Mapping[str, object] = skill.contract.inputs
    for reference in template.references:
        head = reference.path[0] if reference.path else None
        if isinstance(head, str) and head != PLACE and head not in inputs:
            guess = did_you_mean(head, inputs)
            hint = f"did you mean `.{guess}`?" if guess else "declare it in `contract.inputs`"
            yield at_offset(reference.offset, error("D80", path, f"the skill declares no input `{head}`", hint))


def _outputs(skill: Skill) -> Iterator[Finding]:
    """D81: what is taken is declared, and what is required is taken."""
    for name, block in skill.extract.items():
        if name not in skill.contract.outputs:
            hint = suggestion(name, skill.contract.outputs) or "declare it in `contract.outputs`"
            path = ("extract", name)
            yield error("D81", path, f"`{name}` is not an output of the contract", hint, on_key=True)
        if block.json_path is not None and block.from_ != "json":
            yield error("D81", block.at("path"), f"`path` belongs to `json`, and this is `{block.from_}`")
    for name, parameter in skill.contract.outputs.items():
        if parameter.required and name not in skill.extract:
            yield error("D81", ("contract", "outputs", name), f"nothing takes the required output `{name}`")


def secrets_policy_file(policy: SecretsPolicy) -> Iterator[Finding]:
    """D84: a pattern names something; one that matches every secret is a warning."""
    for rule in policy.allow:
        for index, pattern in enumerate(rule.secret_refs):
            if "://" not in pattern:
                hint = "begin with a scheme, as in `kv://openai/dev/*`"
                yield error("D84", rule.at("secret_refs", index), f"`{pattern}` is no pattern of a secret_ref", hint)
            elif pattern.partition("://")[2] in ("*", "**"):
                yield warning("D84", rule.at("secret_refs", index), f"`{pattern}` matches every secret of its scheme")
        for index, pattern in enumerate(rule.skills):
            if not pattern.startswith("S."):
                yield error(
                    "D84", rule.at("skills", index), f"`{pattern}` is no pattern of a skill id", "begin with `S.`"
                )


def runner_settings(config: Config, facts: Facts) -> Iterator[Finding]:
    """D84: the runners of a project can be read, and the policies about their secrets are there."""
    for index, file in enumerate(config.secrets_policies):
        if file in facts.absent:
            message = f"there is no secrets policy at `{file}`"
            yield error("D84", ("secrets_policies", index), message, "paths are relative to this file")
    for runner in config.runners.values():
        for index, text in enumerate(runner.private_addresses):
            if read_network(text) is None:
                yield error("D84", runner.at("private_addresses", index), f"`{text}` is not a network")
        for domain, text in runner.addresses.items():
            if read_address(text) is None:
                yield error("D84", runner.at("addresses", domain), f"`{text}` is not an address")
        kv = runner.secrets.kv if runner.secrets is not None else None
        if kv is not None and (kv.command is None) == (kv.vault is None):
            yield error("D84", kv.path, "`kv` takes a `command` or a `vault`, and one of them")
