"""The three gates: the registry admits skills, the router finds runners, the secrets policy allows secrets."""

from typing import Any

import pytest

from gert.errors import Refused
from gert.kernel.governance.network import is_public, read_address, read_network
from gert.kernel.runbook.document import load
from gert.kernel.runbook.documents.runner import RunnerBlock
from gert.kernel.runbook.documents.skill import NetworkPolicyBlock, PermissionsBlock, SecretsPolicy, Skill
from gert.kernel.runner.registry import admit, allow_secret, capabilities_digest, route


def skill(network: str = "https", **changes: Any) -> Skill:
    usual: dict[str, Any] = {
        "id": "S.vendor.openai.chat.v0.1.0",
        "vendor": "openai",
        "permissions": PermissionsBlock(network=network),
        "network_policy": NetworkPolicyBlock(domains=("api.openai.com",), methods=("POST",)),
        "required_secrets": ("api_key",),
    }
    return Skill(**{**usual, **changes})


def runner(**changes: Any) -> RunnerBlock:
    return RunnerBlock(**{"vendors": ("openai",), "domains": ("api.openai.com",), **changes})


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        pytest.param({}, None, id="domains and secrets"),
        pytest.param({"network_policy": None}, "registry/domains", id="no policy"),
        pytest.param({"network_policy": NetworkPolicyBlock(methods=("GET",))}, "registry/domains", id="no domains"),
        pytest.param({"required_secrets": ()}, "registry/secrets", id="no secrets"),
        pytest.param({"network": "none", "network_policy": None, "required_secrets": ()}, None, id="no network"),
    ],
)
def test_which_skills_the_registry_admits(changes: dict[str, Any], rule: str | None) -> None:
    if rule is None:
        admit(skill(**changes))
        return
    with pytest.raises(Refused) as refusal:
        admit(skill(**changes))
    assert refusal.value.rule == rule


@pytest.mark.parametrize(
    ("runners", "wanted", "result"),
    [
        pytest.param({"a": runner()}, None, "a", id="the only one"),
        pytest.param({"a": runner(vendors=("*",), domains=("*",))}, None, "a", id="one for anything"),
        pytest.param({"a": runner(), "b": runner(vendors=("x",))}, None, "a", id="the only one that can"),
        pytest.param({"a": runner(), "b": runner()}, "b", "b", id="the one that is wanted"),
        pytest.param({}, None, "router/capability", id="none at all"),
        pytest.param({"a": runner(network="none")}, None, "router/capability", id="one without a network"),
        pytest.param({"a": runner(domains=())}, "a", "router/capability", id="one that reaches nothing"),
        pytest.param(
            {"a": runner(domains=("api.openai.com.evil.test",))}, None, "router/capability", id="a similar host"
        ),
        pytest.param({"a": runner(vendors=("anthropic",))}, None, "router/capability", id="one of another vendor"),
        pytest.param({"a": runner(), "b": runner()}, None, "router/ambiguous", id="two that can"),
        pytest.param({"a": runner()}, "c", "router/capability", id="one that is not registered"),
    ],
)
def test_which_runner_the_router_finds(runners: dict[str, RunnerBlock], wanted: str | None, result: str) -> None:
    if "/" not in result:
        assert route(skill(), runners, wanted) == result
        return
    with pytest.raises(Refused) as refusal:
        route(skill(), runners, wanted)
    assert refusal.value.rule == result


def test_a_skill_without_a_network_still_needs_a_runner_for_programs() -> None:
    from gert.kernel.runbook.documents.skill import ProgramBlock

    offline = skill("none", network_policy=None, required_secrets=(), program=ProgramBlock(argv=("x",)))
    with pytest.raises(Refused, match="cannot"):
        route(offline, {"a": runner()}, "a")
    assert route(offline, {"a": runner(programs=True, network="none")}) == "a"


POLICY: SecretsPolicy = load(b"""apiVersion: secrets-policy/v0
meta: {name: dev}
allow:
  - {skills: ["S.vendor.openai.*"], secret_refs: ["kv://openai/dev/*"], scopes: ["llm:*"]}
  - {skills: ["S.vendor.slack.post.v0.1.0"], secret_refs: ["file:///etc/gert/**"], scopes: ["chat:write"]}
""").model


@pytest.mark.parametrize(
    ("skill_id", "reference", "scope", "is_allowed"),
    [
        pytest.param("S.vendor.openai.chat.v0.1.0", "kv://openai/dev/api_key", ["llm:chat"], True, id="as written"),
        pytest.param("S.vendor.openai.chat.v0.1.0", "kv://openai/prod/api_key", ["llm:chat"], False, id="production"),
        pytest.param("S.vendor.openai.chat.v0.1.0", "kv://openai/dev/a/b", ["llm:chat"], False, id="deeper than `*`"),
        pytest.param(
            "S.vendor.openai.chat.v0.1.0", "kv://openai/dev/../prod/k", ["llm:chat"], False, id="a path that climbs"
        ),
        pytest.param("S.vendor.openai.chat.v0.1.0", "KV://openai/dev/api_key", ["llm:chat"], False, id="another case"),
        pytest.param(
            "S.vendor.openai.chat.v0.1.0", "kv://openai/dev/api_key", ["llm:chat", "x"], False, id="one scope more"
        ),
        pytest.param("S.vendor.openai.chat.v0.1.0", "kv://openai/dev/api_key", [], False, id="no scope"),
        pytest.param(
            "S.vendor.openai.chat.v0.1.0", "file:///etc/gert/slack", ["llm:chat"], False, id="another rule's secret"
        ),
        pytest.param(
            "S.vendor.slack.post.v0.1.0", "file:///etc/gert/a/b", ["chat:write"], True, id="`**` is any depth"
        ),
        pytest.param(
            "S.vendor.slack.post.v0.1.0", "file:///etc/gert/../shadow", ["chat:write"], False, id="`**` does not climb"
        ),
        pytest.param("S.vendor.slack.post.v0.2.0", "file:///etc/gert/a", ["chat:write"], False, id="another version"),
        pytest.param(
            "S.vendor.openaievil.chat.v0.1.0", "kv://openai/dev/k", ["llm:chat"], False, id="a similar vendor"
        ),
    ],
)
def test_which_secrets_a_skill_may_use(skill_id: str, reference: str, scope: list[str], is_allowed: bool) -> None:
    if is_allowed:
        allow_secret([POLICY], skill_id, reference, scope)
        return
    with pytest.raises(Refused) as refusal:
        allow_secret([POLICY], skill_id, reference, scope)
    assert refusal.value.rule == "secrets-policy/allow"


def test_without_a_policy_no_secret_is_allowed() -> None:
    with pytest.raises(Refused):
        allow_secret([], "S.vendor.openai.chat.v0.1.0", "kv://openai/dev/api_key", ["llm:chat"])


def test_a_change_of_capabilities_changes_their_digest_and_a_description_does_not() -> None:
    first = capabilities_digest("a", runner())
    assert capabilities_digest("a", runner(description="x")) == first
    assert capabilities_digest("b", runner()) != first
    assert capabilities_digest("a", runner(private_addresses=("10.0.0.0/8",))) != first


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("93.184.216.34", True), ("2606:2800:220:1::1", True),
        ("127.0.0.1", False), ("10.1.2.3", False), ("172.16.0.1", False), ("192.168.1.1", False),
        ("169.254.169.254", False), ("100.64.0.1", False), ("0.0.0.0", False), ("224.0.0.1", False),
        ("255.255.255.255", False), ("::1", False), ("fe80::1", False), ("fc00::1", False), ("::", False),
        ("::ffff:127.0.0.1", False), ("64:ff9b::7f00:1", False), ("2002:7f00:1::", False), ("ff02::1", False),
        ("64:ff9b:1::7f00:1", False), ("::127.0.0.1", False), ("::ffff:0:127.0.0.1", False), ("fec0::1", False),
        ("64:ff9b::5db8:d822", True),
    ],
)  # fmt: skip
def test_which_addresses_are_public(address: str, public: bool) -> None:
    found = read_address(f"[{address}]" if ":" in address else address)
    assert found is not None
    assert is_public(found[0]) is public


@pytest.mark.parametrize("text", ["1.2.3.4:0", "1.2.3.4:70000", "300.1.1.1", "[::1", "vendor.test", ""])
def test_what_is_no_address(text: str) -> None:
    assert read_address(text) is None
    assert read_network("10.0.0.1/8") is None
