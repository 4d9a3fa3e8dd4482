"""Plans and authorizations as values: their one form, their digest, and everything that makes one void."""

import hashlib
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gert.errors import Refused
from gert.kernel.foundation.secret_refs import all_refs
from gert.kernel.foundation.signature import Keys, parse_key
from gert.kernel.governance.network import NetworkPolicy
from gert.kernel.runbook.document import load
from gert.kernel.runbook.documents.runner import RunnerBlock
from gert.kernel.runbook.documents.skill import Skill
from gert.kernel.runner.authorization import (
    Grant,
    authorize,
    check_authorization,
    check_expiry,
    encode_authorization,
    read_authorization,
)
from gert.kernel.runner.plan import Order, Plan, attempt_of, make_plan, plan_bytes, plan_digest, plan_id_of, read_plan

NOON = datetime(2026, 2, 28, 12, tzinfo=UTC)
KEY = parse_key("ed25519:cGxhbi1rZXktb2YtdGhlLWJlbmNoLTAxMjM0NTY3ODk=")
KEYS = Keys(default=parse_key(KEY.public_text or ""))
SOURCE = b"""apiVersion: skill/v0
id: S.vendor.acme.send.v1.2.3
vendor: acme
permissions: {network: https}
networkPolicy: {domains: [api.acme.example, b.acme.example], methods: [POST], maxResponseBytes: 1048576}
requiredSecrets: [{name: token, scope: ["a:read", "a:write"]}]
contract: {effects: [network], writes: [acme], inputs: {text: {type: string}}}
http: {method: POST, url: "https://api.acme.example/", headers: {x: "{{ .secret.token }}"}, body: {text: "{{ .text }}"}}
"""
DOCUMENT = load(SOURCE)
SKILL: Skill = DOCUMENT.model


def block(**given: Any) -> RunnerBlock:
    return RunnerBlock(**given)


RUNNER = block(vendors=("acme",), domains=("api.acme.example", "b.acme.example"))


def plan(runner: RunnerBlock = RUNNER, **changes: Any) -> Plan:
    order = Order(
        plan_id="plan-123", skill_id=SKILL.id, inputs={"text": "hi"}, day="2026-02-28", secret_ref="kv://acme/dev/token"
    )
    return make_plan(
        msgspec.structs.replace(order, **changes), SKILL, DOCUMENT.digest, {"codex": runner}, "/x/ledger.db"
    )


def test_a_plan_has_the_fields_of_the_interface_in_canonical_json() -> None:
    data = plan_bytes(plan())
    document = json.loads(data)
    names = "plan_id runner_id vendor skill_id network_policy secret_ref scope ttl_seconds artifacts"
    assert {name: document[name] for name in names.split()} == {
        "plan_id": "plan-123",
        "runner_id": "codex",
        "vendor": "acme",
        "skill_id": "S.vendor.acme.send.v1.2.3",
        "network_policy": {
            "domains": ["api.acme.example", "b.acme.example"], "methods": ["POST"], "maxResponseBytes": 1048576,
            "redirects": False, "maxRequests": 1,
        },
        "secret_ref": "kv://acme/dev/token",
        "scope": ["a:read", "a:write"],
        "ttl_seconds": 900,
        "artifacts": {
            "request": "_state/runs/2026-02-28/plan-123/request.json",
            "response": "_state/runs/2026-02-28/plan-123/response.json",
            "log": "_state/runs/2026-02-28/plan-123/run.md",
            "record": "_state/runs/2026-02-28/plan-123/record.json",
        },
    }  # fmt: skip
    assert plan_digest(plan()) == f"sha256:{hashlib.sha256(data).hexdigest()}"
    assert read_plan(data) == plan()


@given(st.dictionaries(st.just("text"), st.text(st.characters(exclude_categories=["Cs"])), max_size=1))
def test_a_plan_survives_its_file_and_equal_plans_have_one_digest(inputs: dict[str, str]) -> None:
    if all_refs(inputs):
        with pytest.raises(Refused, match="holds a secret"):
            plan(inputs=inputs)
        return
    made = plan(inputs=inputs)
    assert read_plan(plan_bytes(made)) == made
    assert plan_digest(plan(inputs=dict(inputs))) == plan_digest(made)


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        pytest.param({"plan_id": "../x"}, "plan/form", id="an id that is a path"),
        pytest.param({"ttl_seconds": 0}, "plan/form", id="no time at all"),
        pytest.param({"ttl_seconds": 10**9}, "plan/form", id="thirty years"),
        pytest.param({"scope": ("a:read", "a:read")}, "plan/form", id="a scope twice"),
        pytest.param({"scope": ("b:read",)}, "scope/wider", id="a scope that the skill has not"),
        pytest.param({"secret_ref": None}, "plan/secret-ref", id="no secret where one is needed"),
        pytest.param({"secret_ref": "kv://a/../b"}, "plan/secret-ref", id="a secret that climbs"),
        pytest.param({"secret_ref": "ftp://a/b"}, "plan/secret-ref", id="a scheme that no runner resolves"),
        pytest.param({"secret_ref": "kv://a b"}, "plan/secret-ref", id="white space in a secret_ref"),
        pytest.param({"inputs": {"text": "\ufdd0token\ufdd1"}}, "plan/secret-input", id="a secret among the inputs"),
        pytest.param({"inputs": {"text": float("nan")}}, "plan/form", id="a number that is none"),
        pytest.param({"day": ".."}, "artifacts/path", id="a day that is a path"),
        pytest.param({"runner": block(vendors=("x",), domains=("*",))}, "router/capability", id="another vendor"),
        pytest.param({"runner": block(vendors=("*",), domains=("x.example",))}, "router/capability", id="no reach"),
    ],
)
def test_what_cannot_be_a_plan_is_none(changes: dict[str, Any], rule: str) -> None:
    with pytest.raises(Refused) as refusal:
        plan_bytes(plan(**changes))
    assert refusal.value.rule == rule


@pytest.mark.parametrize(
    ("change", "wider"),
    [
        pytest.param({}, None, id="the same"),
        pytest.param({"domains": ("a",)}, None, id="fewer domains"),
        pytest.param({"domains": ("a", "b", "c")}, "the domain `c`", id="more domains"),
        pytest.param({"methods": ("GET",)}, "the method `GET`", id="another method"),
        pytest.param({"max_response_bytes": 11}, "responses of 11 bytes", id="larger responses"),
        pytest.param({"max_requests": 3}, "3 requests", id="more requests"),
        pytest.param({"redirects": True}, "redirects", id="redirects"),
    ],
)
def test_which_policies_are_wider(change: dict[str, Any], wider: str | None) -> None:
    usual = NetworkPolicy(domains=("a", "b"), methods=("POST",), max_response_bytes=10, max_requests=2)
    assert msgspec.structs.replace(usual, **change).wider_than(usual) == wider


def test_an_authorization_holds_for_its_plan_and_its_time() -> None:
    made = plan()
    given = authorize(made, Grant(verdict="approved", tickets=("t",), approvers=("bob",)), KEY, NOON)
    check_authorization(made, plan_bytes(made), read_authorization(encode_authorization(given)), KEYS)
    assert check_expiry(made, given, NOON) == NOON + timedelta(seconds=900)
    assert check_expiry(made, given, NOON, 60) == NOON + timedelta(seconds=60)


@pytest.mark.parametrize("field", list(Plan.__struct_fields__))
def test_every_field_of_a_plan_is_bound_by_its_authorization(field: str) -> None:
    made = plan()
    given = authorize(made, Grant(verdict="allow"), KEY, NOON)
    document = json.loads(plan_bytes(made))
    value = document[field]
    document[field] = not value if isinstance(value, bool) else f"{value}x"
    changed = json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
    with pytest.raises(Refused) as refusal:
        check_authorization(made, changed, given, KEYS)
    assert refusal.value.rule == "authorization/digest"


def test_hmac_works_as_well_and_the_key_decides_the_algorithm() -> None:
    shared = parse_key("base64:" + "c2hhcmVkLXNlY3JldC1vZi10aGUtYmVuY2g=")
    made = plan()
    given = authorize(made, Grant(verdict="allow"), shared, NOON)
    check_authorization(made, plan_bytes(made), given, Keys(default=shared))
    with pytest.raises(Refused, match="is for"):
        check_authorization(made, plan_bytes(made), given, KEYS)


def test_the_id_of_a_plan_belongs_to_one_call_of_one_run() -> None:
    ids = {plan_id_of(run, call, attempt) for run in "ab" for call in ("x", "x~2") for attempt in (1, 2)}
    assert len(ids) == 8
    assert plan_id_of("a", "x") == plan_id_of("a", "x", 1)
    assert {attempt_of(each) for each in ids} == {1, 2}
    assert attempt_of("plan-123") == 123
    assert attempt_of("codex") == 1
