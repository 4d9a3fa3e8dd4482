"""Attacks on runners: on the plan, its authorization, its single use, its secret, and on what leaves the runner.

Each attempt changes one thing that an attacker could change, lets the real procedure run against a real TLS server,
and asserts that nothing was called that the plan does not allow.
"""

import asyncio
import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.attacks.attack import Attack, table
from tests.ecosystem.runners.bench import CANARY, KEYS, OTHER, Bench, holds_canary, ping
from tests.ecosystem.runners.trials import KEY, NOON, Trial, addresses, machine, words
from tests.ecosystem.runners.vendors import Asked, Handler, Vendor, forever, vendor
from tests.ecosystem.surfaces.cli.workbench import Project

from gert.ecosystem.host.runner.spend import FolderSpend
from gert.ecosystem.runners.secrets import Resolving
from gert.errors import Refused
from gert.kernel.foundation.canonical import canonical
from gert.kernel.foundation.signature import HMAC_SHA256, Keys, parse_key
from gert.kernel.governance.network import NetworkPolicy
from gert.kernel.runner.authorization import Grant, authorize, signed_bytes
from gert.kernel.runner.plan import Artifacts, plan_data


@pytest.fixture(scope="module")
def served() -> Iterator[Vendor]:
    with vendor() as running:
        yield running


class Target(Bench):
    """A bench, and the vendor it calls."""

    vendor: Vendor


@pytest.fixture
def project(tmp_path: Path, served: Vendor) -> Iterator[Target]:
    served.asked.clear()
    target = Target(tmp_path / "project", served.port)
    target.vendor = served
    before = served.answer
    yield target
    served.answer = before


def refused(trial: Trial) -> str:
    """Run: the vendor is not called, the plan is not spent, and nothing is written."""
    bench: Any = trial.bench
    said = trial.said()
    assert bench.vendor.asked == []
    assert not (Path(trial.state) / "_state").exists(), "a plan that is refused leaves no trace"
    return said


def failed(trial: Trial, asked: int = 0) -> str:
    """Run: there is a record, the secret is nowhere, and the vendor was called no more than that."""
    bench: Any = trial.bench
    finished = trial.run()
    assert finished.record is not None, words(finished)
    assert finished.record.exit_code != 0
    assert len(bench.vendor.asked) == asked
    assert holds_canary(bench.root, but=[bench.secret]) == []
    for artifact in ("request", "response", "log"):
        assert (bench.root / getattr(trial.plan.artifacts, artifact)).is_file()
    return words(finished)


def attempt(change: Callable[[Trial], object]) -> Callable[[Project], str]:
    """An attempt on a plan that is refused before it begins."""

    def tried(project: Project) -> str:
        assert isinstance(project, Bench)
        trial = Trial(project)
        change(trial)
        return refused(trial)

    return tried


# --- the authorization


def unsigned(trial: Trial) -> None:
    trial.resign(signature="", alg="", key_id=None)


def none_algorithm(trial: Trial) -> None:
    trial.resign(alg="none")


def public_key_as_secret(trial: Trial) -> None:
    # The public key is known to everyone: used as a shared secret, it must not verify.
    forged = parse_key("base64:" + (KEY.public_text or "").partition(":")[2])
    trial.key = forged
    trial.resign(alg=HMAC_SHA256)


def foreign_key(trial: Trial) -> None:
    trial.key = parse_key(OTHER)


def no_keys(trial: Trial) -> None:
    trial.keys = Keys()


def signature_of_another(trial: Trial) -> None:
    other = authorize(msgspec.structs.replace(trial.plan, inputs={"word": "no"}), trial.grant, KEY, NOON)
    trial._signed = other


def longer_life(trial: Trial) -> None:
    trial.resign(expires_at="2027-02-28T12:00:00.000000Z")


def signed_too_long(trial: Trial) -> None:
    # Signed by the right key, and still longer than the plan that was approved.
    long = msgspec.structs.replace(trial.authorization(), expires_at="2027-02-28T12:00:00.000000Z")
    from gert.kernel.foundation.signature import sign

    made = sign(KEY, signed_bytes(long))
    trial._signed = msgspec.structs.replace(long, signature=made.value)


def verdict_flipped(trial: Trial) -> None:
    trial.resign(grant=Grant(verdict="approved", approvers=("mallory",)))


def denied_and_signed(trial: Trial) -> None:
    trial.grant = Grant(verdict="deny")


def expired(trial: Trial) -> None:
    trial.now = NOON + timedelta(seconds=trial.plan.ttl_seconds)


def from_the_future(trial: Trial) -> None:
    trial.now = NOON - timedelta(seconds=31)


def extra_field(trial: Trial) -> None:
    data = json.loads(trial.invocation().authorization)
    trial.given["authorization"] = canonical({**data, "note": "please"})


# --- the plan


def flipped(name: str, value: Any) -> Callable[[Project], str]:
    return attempt(lambda trial: trial.rewrite(**{name: value}))


def policy(**changes: Any) -> NetworkPolicy:
    """The network policy of the skill, with a change."""
    usual: dict[str, Any] = {"domains": ("vendor.test",), "methods": ("POST",), "max_response_bytes": 1}
    return NetworkPolicy(**{**usual, **changes})


def signed_plan(**fields: Any) -> Callable[[Project], str]:
    """A plan that is signed, and still more than it may be: a signer that was deceived."""
    return attempt(lambda trial: trial.change(**fields))


def same_meaning_other_bytes(trial: Trial) -> None:
    trial.authorization()
    trial.data = json.dumps(plan_data(trial.plan)).encode()


def duplicate_key(trial: Trial) -> None:
    trial.authorization()
    trial.data = trial.data[:-1] + b',"skill_id":"S.vendor.test.other.v0.1.0"}'


def artifacts(**paths: str) -> Artifacts:
    usual = {name: f"_state/runs/x/{name}" for name in ("request", "response", "log", "record")}
    return Artifacts(**{**usual, **paths})


# --- what the runner is started with


def started_with(**given: Any) -> Callable[[Project], str]:
    return attempt(lambda trial: trial.given.update(given))


# --- skill, runner, policies


def newer_skill(project: Project) -> str:
    assert isinstance(project, Bench)
    trial = Trial(project)
    project.skill(id="S.vendor.test.ping.v0.1.0", http__url="https://vendor.test/steal/{{ .word }}")
    again = Trial(project)
    trial.project = again.project
    return refused(trial)


def wider_runner(project: Project) -> str:
    assert isinstance(project, Bench)
    trial = Trial(project)
    project.runner = {**project.runner, "private_addresses": ["0.0.0.0/0"]}
    project.settle()
    trial.project = Trial(project).project
    return refused(trial)


def no_secrets_policy(project: Project) -> str:
    assert isinstance(project, Bench)
    trial = Trial(project)
    project.allow = [{"skills": ["S.vendor.test.**"], "secret_refs": ["kv://prod/*"], "scopes": ["**"]}]
    project.settle()
    trial.project = Trial(project).project
    return refused(trial)


# --- single use


def replayed(project: Project) -> str:
    assert isinstance(project, Target)
    assert Trial(project).run().exit_code == 0
    again = words(Trial(project).run())
    assert len(project.vendor.asked) == 1
    return again


def two_at_once(project: Project) -> str:
    assert isinstance(project, Target)
    both = [Trial(project), Trial(project)]

    async def race() -> list[str]:
        return [words(each) for each in await asyncio.gather(*(trial.runs() for trial in both))]

    said = sorted(asyncio.run(race()))
    assert said[0].startswith("0 ")
    assert len(project.vendor.asked) == 1
    return said[1]


def another_ledger(trial: Trial) -> None:
    trial.change(ledger="/var/lib/gert/ledger.db")


def artifact_of_another_plan(project: Project) -> str:
    assert isinstance(project, Target)
    first = Trial(project)
    assert first.run().exit_code == 0
    evidence = (project.root / first.plan.artifacts.response).read_bytes()
    second = Trial(project, "plan-2").change(artifacts=first.plan.artifacts)
    said = words(second.run())
    assert len(project.vendor.asked) == 1
    assert (project.root / first.plan.artifacts.response).read_bytes() == evidence
    return said


def linked_state(project: Project) -> str:
    assert isinstance(project, Target)
    elsewhere = project.root.parent / "elsewhere"
    elsewhere.mkdir()
    link = project.root.parent / "link"
    link.symlink_to(elsewhere)
    trial = Trial(project)
    trial.state, trial.spend = str(link), FolderSpend(str(link))
    said = words(trial.run())
    assert project.vendor.asked == []
    assert list(elsewhere.iterdir()) == []
    return said


def linked_folder(project: Project) -> str:
    assert isinstance(project, Target)
    elsewhere = project.root.parent / "elsewhere"
    elsewhere.mkdir()
    (project.root / "_state").mkdir()
    (project.root / "_state" / "runs").symlink_to(elsewhere)
    said = words(Trial(project).run())
    assert project.vendor.asked == []
    assert list(elsewhere.iterdir()) == []
    return said


# --- what leaves


def answered(answer: Callable[[Asked, Handler], Any], asked: int = 1) -> Callable[[Project], str]:
    def tried(project: Project) -> str:
        assert isinstance(project, Target)
        project.vendor.answer = answer
        return failed(Trial(project), asked)

    return tried


def byte_by_byte(project: Project) -> str:
    """A vendor that always says a little more: no single read ever takes long."""
    assert isinstance(project, Target)
    over = threading.Event()

    def answer(asked: Asked, handler: Handler) -> None:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nx-slow: ")
        with suppress(OSError):
            while not over.wait(0.05):
                handler.wfile.write(b"y")

    project.skill(timeout="4s")
    project.vendor.answer = answer
    try:
        return failed(Trial(project), 1)
    finally:
        over.set()


def large_plan(trial: Trial) -> None:
    trial.authorization()
    trial.data = b'{"plan_id":"' + b"x" * (2 * 1024 * 1024) + b'"}'


def deep_plan(trial: Trial) -> None:
    trial.authorization()
    trial.data = b'{"inputs":' + b"[" * 100_000 + b"]" * 100_000 + b"}"


def redirect(where: str) -> Callable[[Asked, Handler], Any]:
    def answer(asked: Asked, handler: Handler) -> Any:
        return 302, {"location": where}, b""

    return answer


def followed_elsewhere(project: Project) -> str:
    assert isinstance(project, Target)
    project.skill(http__method="GET", http__body=None, networkPolicy__redirects=True)
    project.vendor.answer = redirect("https://api.openai.com/steal")
    return failed(Trial(project), 1)


def secret_follows_redirect(project: Project) -> str:
    assert isinstance(project, Target)
    project.skill(
        http__method="GET", http__body=None, networkPolicy__redirects=True,
        networkPolicy__domains=["vendor.test", "slack.com"],
    )  # fmt: skip
    there = redirect("https://slack.com/other")
    project.vendor.answer = lambda asked, handler: (
        there(asked, handler) if asked.path.startswith("/ping") else (404, {}, b"")
    )
    said = failed(Trial(project), 2)
    first, second = project.vendor.asked
    assert CANARY in first.headers["authorization"]
    assert "authorization" not in second.headers
    return said


def unpinned(project: Project) -> None:
    """The runner looks names up, as it does where nothing is pinned."""
    assert isinstance(project, Bench)
    project.runner = {**project.runner, "addresses": {}, "private_addresses": []}
    project.settle()


def looked_up(*found: str) -> Callable[[Project], str]:
    def tried(project: Project) -> str:
        unpinned(project)
        assert isinstance(project, Target)
        trial = Trial(project)
        trial.lookup = lambda host: addresses(*found)
        connections = project.vendor.connections
        said = failed(trial)
        assert project.vendor.connections == connections, "nothing was connected to"
        return said

    return tried


def rebinding(project: Project) -> str:
    """The name stands for an allowed address once, and for another one whenever it is looked up again."""
    assert isinstance(project, Target)
    project.runner = {**project.runner, "addresses": {}, "private_addresses": ["127.0.0.2"]}
    project.settle()
    calls: list[str] = []

    async def lookup(host: str) -> list[str]:
        calls.append(host)
        return ["127.0.0.2"] if len(calls) == 1 else ["127.0.0.1"]

    trial = Trial(project)
    trial.lookup = lookup
    said = failed(trial)
    assert calls == ["vendor.test"], "the name is looked up once, and the connection goes to what was checked"
    return said


def wrong_name(project: Project) -> str:
    """A server that has taken over the address, with a certificate for another name."""
    assert isinstance(project, Target)
    with vendor("other.test") as impostor:
        project.runner = {**project.runner, "addresses": {"vendor.test": f"127.0.0.1:{impostor.port}"}}
        project.settle()
        said = failed(Trial(project))
        assert impostor.asked == []
    return said


def plain_http(project: Project) -> str:
    """A server that does not speak TLS gets no byte of the request."""
    assert isinstance(project, Target)
    got: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with suppress(OSError):
                connection, _ = server.accept()
                connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")
                got.append(connection.recv(65536))
                connection.close()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        project.runner = {**project.runner, "addresses": {"vendor.test": f"127.0.0.1:{server.getsockname()[1]}"}}
        project.settle()
        said = failed(Trial(project))
        thread.join(5)
    assert CANARY.encode() not in b"".join(got)
    return said


def compressed(asked: Asked, handler: Handler) -> Any:
    import gzip

    return 200, {"content-encoding": "gzip"}, gzip.compress(b"x" * 10_000_000)


def echo(asked: Asked, handler: Handler) -> Any:
    """A vendor that repeats the secret in every form it can think of, as an error."""
    import base64

    secret = asked.headers["authorization"].removeprefix("Bearer ")
    forms = [secret, base64.b64encode(secret.encode()).decode(), secret.encode().hex(), secret[::-1]]
    return 500, {"x-echo": secret, "set-cookie": f"k={secret}"}, json.dumps({"error": forms[:3]}).encode()


def says(data: bytes) -> Callable[[Asked, Handler], Any]:
    return lambda asked, handler: (200, {}, data)


def cut_in_the_secret(project: Project) -> str:
    """The vendor repeats the secret so that the limit falls into the middle of it."""
    assert isinstance(project, Target)
    project.secret.write_text(f"{CANARY[:8]}é{CANARY[8:]}")
    for at in (4, 9, 20):  # the second is in the middle of a character
        data = b"x" * (4096 - at) + f"{CANARY[:8]}é{CANARY[8:]}".encode() * 2
        project.vendor.answer = says(data)
        project.vendor.asked.clear()
        trial = Trial(project, f"plan-{at}")
        said = failed(trial, 1)
        assert CANARY[:4] not in trial.artifact("response")["exchanges"][0]["body"]
    return said


def repeated_in_a_header(project: Project) -> str:
    """A secret that is not ASCII comes back as UTF-8 in a header, where it is not the text that was sent."""
    assert isinstance(project, Target)
    project.secret.write_text(f"{CANARY}-é")
    project.skill(http__headers={}, http__body={"key": "{{ .secret.token }}"})
    project.vendor.answer = lambda asked, handler: (
        500, {"x-echo": asked.json["key"].encode().decode("latin-1")}, b"{}"
    )  # fmt: skip
    return failed(Trial(project), 1)


def decoded_basic(project: Project) -> str:
    import base64

    assert isinstance(project, Target)
    project.secret.write_text(base64.b64encode(f"ann:{CANARY}".encode()).decode())
    project.skill(http__headers={"authorization": "Basic {{ .secret.token }}"})
    project.vendor.answer = lambda asked, handler: (401, {"x-why": f"not {CANARY}"}, f"no {CANARY}".encode())
    return failed(Trial(project), 1)


def body_follows_redirect(project: Project) -> str:
    assert isinstance(project, Target)
    project.skill(
        http__method="GET", http__headers={}, http__body={"key": "{{ .secret.token }}"}, networkPolicy__redirects=True,
        networkPolicy__domains=["vendor.test", "slack.com"],
    )  # fmt: skip
    there = redirect("https://slack.com/other")
    project.vendor.answer = lambda asked, handler: (
        there(asked, handler) if asked.path.startswith("/ping") else (404, {}, b"")
    )
    trial = Trial(project)
    said = failed(trial, 2)
    first, second = project.vendor.asked
    assert CANARY.encode() in first.body
    assert second.body == b""
    assert trial.artifact("response")["exchanges"][0]["answered_by"] == "https://slack.com/other"
    return said


def marks_another_plan(project: Project) -> str:
    """A plan whose record would be the mark that another plan is spent."""
    assert isinstance(project, Target)
    said = refused(Trial(project).change(artifacts=artifacts(record="_state/spent/plan-2.json")))
    assert Trial(project, "plan-2").run().exit_code == 0
    return said


def pipe_for_a_mark(project: Project) -> str:
    assert isinstance(project, Target)
    (project.root / "_state/spent").mkdir(parents=True)
    os.mkfifo(project.root / "_state/spent/plan-1.json")
    said = words(Trial(project).run())
    assert project.vendor.asked == []
    return said


def env_when_dispatched(project: Project) -> str:
    assert isinstance(project, Target)
    project.allow = [{"skills": ["S.vendor.**"], "secret_refs": ["env://TOKEN"], "scopes": ["**"]}]
    project.settle()
    trial = Trial(project, secret_ref="env://TOKEN")
    trial.given["dispatched"] = True
    return refused(trial)


def input_no_header_can_hold(project: Project) -> str:
    assert isinstance(project, Target)
    project.skill(http__headers={"authorization": "Bearer {{ .secret.token }}", "x-word": "{{ .word }}"})
    assert "line break" in refused(Trial(project, inputs={"word": "a\r\nx-evil: 1"}))
    return refused(Trial(project, inputs={"word": "€"}))


def header_injection(project: Project) -> str:
    assert isinstance(project, Target)
    project.secret.write_text(f"{CANARY}\r\nx-evil: 1\r\n")
    return failed(Trial(project))


def input_leaves_path(project: Project) -> str:
    assert isinstance(project, Target)
    return refused(Trial(project, inputs={"word": ".."}))


def input_is_a_reference(project: Project) -> str:
    """An input that looks like gert's own mark of the secret, or like a half of it, does not become the secret."""
    assert isinstance(project, Target)
    assert Trial(project, inputs={"word": "\ufdd0token"}).run().exit_code == 0
    (asked,) = project.vendor.asked
    assert CANARY not in asked.path
    assert CANARY.encode() not in asked.body
    with pytest.raises(Refused) as refusal:
        Trial(project, inputs={"word": "\ufdd0token\ufdd1"})
    return refusal.value.message


# --- secrets


def secret_case(prepare: Callable[[Target], str]) -> Callable[[Project], str]:
    def tried(project: Project) -> str:
        assert isinstance(project, Target)
        reference = prepare(project)
        project.allow = [{"skills": ["S.vendor.**"], "secret_refs": [reference], "scopes": ["**"]}]
        project.settle()
        trial = Trial(project, secret_ref=reference)
        trial.resolving = Resolving(
            environ={"TOKEN": CANARY, "GERT_PLAN_SIGNING_KEY": CANARY, "PATH": os.environ["PATH"]},
            sources=trial.project.runners["local"].secrets,
            dispatched=project.root.joinpath("dispatched").exists(),
        )
        return failed(trial)

    return tried


def readable_by_others(project: Target) -> str:
    project.secret.chmod(0o644)
    return project.ref


def through_a_link(project: Target) -> str:
    (project.root / "link").symlink_to(project.secret)
    return f"file://{project.root}/link"


def from_env_when_dispatched(project: Target) -> str:
    (project.root / "dispatched").touch()
    return "env://TOKEN"


def option_in_a_path(project: Target) -> str:
    project.runner = {**project.runner, "secrets": {"cmd": {"echo": ["echo", "{path}"]}}}
    return "cmd://echo/-n"


# --- programs


def program_needs_sandbox(project: Project) -> str:
    assert isinstance(project, Target)
    project.skill(http=None, program={"argv": ["/bin/true"], "headers": {"x": "{{ .secret.token }}"}}, extract=None)
    trial = Trial(project)
    trial.probe = machine("user namespaces are closed")
    return refused(trial)


def grant_without_capability(project: Project) -> str:
    assert isinstance(project, Target)
    project.skill(http=None, program={"argv": ["/bin/true"], "headers": {"x": "{{ .secret.token }}"}}, extract=None)
    return refused(Trial(project, unsandboxed=True))


def exchanged_program(project: Project) -> str:
    assert isinstance(project, Target)
    project.write("skills/run.py", "print('{}')")
    digest = "sha256:" + "0" * 64
    program = {
        "argv": ["python3", "/skill/run.py"],
        "files": {"run.py": digest},
        "headers": {"x": "{{ .secret.token }}"},
    }
    project.skill(http=None, program=program, extract=None)
    trial = Trial(project)
    trial.probe = machine(None)
    return refused(trial)


# --- a run that calls a skill


def secret_as_an_input(project: Project) -> str:
    """A step hands a secret output of another tool to a skill, by a way that validation does not see."""
    assert isinstance(project, Target)
    project.runner_tool()
    project.runbook(ping(word="{{ .token }}"), tools=["ping"], inputs={"token": {"type": "string", "secret": True}})
    ran = project.exec("--var", f"token={CANARY}", **KEYS)
    assert ran.code == 1
    assert project.vendor.asked == []
    return ran.err


def denied_step(project: Project) -> str:
    assert isinstance(project, Target)
    project.runner_tool()
    # The tool declares no effects of its own; those of the skill are judged.
    deny = {"rules": [{"effects": ["network"], "action": "deny"}, {"default": "allow"}]}
    project.runbook(ping(), tools=["ping"], governance=deny)
    ran = project.exec("--json", **KEYS).ended(3)
    assert project.vendor.asked == []
    return str(ran.said["failure"])


def tool_loosens_skill(project: Project) -> str:
    assert isinstance(project, Target)
    project.runner_tool(contract={"effects": [], "writes": [], "idempotent": True})
    deny = {"rules": [{"writes": ["vendor"], "action": "deny"}, {"default": "allow"}]}
    project.runbook(ping(), tools=["ping"], governance=deny)
    ran = project.exec("--json", **KEYS).ended(3)
    assert project.vendor.asked == []
    return str(ran.said["failure"])


def no_plan_key(project: Project) -> str:
    assert isinstance(project, Target)
    project.runner_tool()
    project.runbook(ping(), tools=["ping"])
    ran = project.exec().ended(2)
    assert project.vendor.asked == []
    assert project.runs() == [], "nothing began"
    return ran.err


ATTACKS = [
    Attack("the authorization is not signed", "RK2", attempt(unsigned), "11 authorization/signature"),
    Attack("the algorithm is `none`", "the key decides, not the signature", attempt(none_algorithm), "is unknown"),
    Attack(
        "the public key is used as a shared secret", "a public key is known", attempt(public_key_as_secret), "is for"
    ),
    Attack("a foreign key signs", "RK2", attempt(foreign_key), "11 authorization/signature"),
    Attack(
        "the runner has no key", "a check that cannot be made fails closed", attempt(no_keys), "11 authorization/key"
    ),
    Attack(
        "the authorization of another plan",
        "it is over the bytes",
        attempt(signature_of_another),
        "not the one that was authorized",
    ),
    Attack("the expiry is changed after signing", "it is signed", attempt(longer_life), "11 authorization/signature"),
    Attack(
        "the authorization outlives the plan's ttl", "the ttl was approved", attempt(signed_too_long), "12 expiry/ttl"
    ),
    Attack(
        "an approval is added after signing", "it is signed", attempt(verdict_flipped), "11 authorization/signature"
    ),
    Attack("a denied plan is signed", "the verdict counts", attempt(denied_and_signed), "11 authorization/verdict"),
    Attack("the authorization has ended", "ttl", attempt(expired), "12 expiry/expired"),
    Attack(
        "the authorization is dated ahead",
        "it could be kept for a better moment",
        attempt(from_the_future),
        "12 expiry/future",
    ),
    Attack(
        "the authorization has an unknown field",
        "two readers must not differ",
        attempt(extra_field),
        "11 authorization/form",
    ),
    Attack("the plan is edited: other inputs", "digest", flipped("inputs", {"word": "no"}), "11 authorization/digest"),
    Attack(
        "the plan is edited: more domains",
        "digest",
        flipped("network_policy", msgspec.to_builtins(policy(domains=("evil.test",)))),
        "11 authorization/digest",
    ),
    Attack(
        "the plan is edited: another secret",
        "digest",
        flipped("secret_ref", "file:///etc/shadow"),
        "11 authorization/digest",
    ),
    Attack(
        "the plan is edited: a later id, to spend it again",
        "digest",
        flipped("plan_id", "plan-9"),
        "11 authorization/digest",
    ),
    Attack("the plan has an unknown field", "two readers must not differ", flipped("also", True), "10 plan/form"),
    Attack(
        "the plan in other bytes of the same meaning",
        "the digest is over bytes",
        attempt(same_meaning_other_bytes),
        "10 plan/form",
    ),
    Attack("a plan of two megabytes", "nothing is unbounded", attempt(large_plan), "10 plan/form"),
    Attack("a plan that is nested without end", "nothing is unbounded", attempt(deep_plan), "10 plan/form"),
    Attack("the plan with a key twice", "two readers must not differ", attempt(duplicate_key), "10 plan/form"),
    Attack(
        "a signed plan with a domain the skill has not",
        "network policy",
        signed_plan(network_policy=policy(domains=("vendor.test", "evil.test"))),
        "17 network-policy/wider",
    ),
    Attack(
        "a signed plan with a method the skill has not",
        "network policy",
        signed_plan(network_policy=policy(methods=("DELETE",))),
        "17 network-policy/wider",
    ),
    Attack(
        "a signed plan with a larger response",
        "network policy",
        signed_plan(network_policy=policy(max_response_bytes=4097)),
        "17 network-policy/wider",
    ),
    Attack(
        "a signed plan that follows redirects",
        "network policy",
        signed_plan(network_policy=policy(redirects=True)),
        "17 network-policy/wider",
    ),
    Attack(
        "a signed plan with more requests",
        "network policy",
        signed_plan(network_policy=policy(max_requests=2)),
        "17 network-policy/wider",
    ),
    Attack(
        "a signed plan with a wider scope than the skill", "scope", signed_plan(scope=("admin:all",)), "14 scope/wider"
    ),
    Attack(
        "a signed plan for another version of the skill",
        "skill",
        signed_plan(skill_id="S.vendor.test.ping.v0.2.0"),
        "16 skill/absent",
    ),
    Attack("a signed plan for another runner", "runner", signed_plan(runner_id="codex"), "13 runner/id"),
    Attack(
        "an artifact above the state directory",
        "artifacts stay inside",
        signed_plan(artifacts=artifacts(request="_state/../../x")),
        "18 artifacts/path",
    ),
    Attack(
        "an artifact at an absolute path",
        "artifacts stay inside",
        signed_plan(artifacts=artifacts(log="/etc/cron.d/x")),
        "18 artifacts/path",
    ),
    Attack(
        "an artifact beside `_state`",
        "it could be the ledger",
        signed_plan(artifacts=artifacts(response="runs/ledger.db")),
        "18 artifacts/path",
    ),
    Attack(
        "an artifact in the place of another plan's mark",
        "a plan spends nothing but itself",
        marks_another_plan,
        "18 artifacts/path",
    ),
    Attack("a pipe in the place of a plan's mark", "a runner does not wait", pipe_for_a_mark, "18 artifacts/path"),
    Attack(
        "a signed plan with a line break after its secret_ref",
        "two readers must not differ",
        signed_plan(secret_ref="file:///etc/passwd\n"),
        "10 plan/secret-ref",
    ),
    Attack(
        "an artifact with a backslash and a NUL",
        "artifacts stay inside",
        signed_plan(artifacts=artifacts(record="_state/a\\b\0c")),
        "18 artifacts/path",
    ),
    Attack(
        "two artifacts of one path",
        "the record must not replace the response",
        signed_plan(artifacts=artifacts(record="_state/runs/x/response")),
        "18 artifacts/path",
    ),
    Attack("the runner is started under another id", "runner", started_with(runner_id="codex"), "13 runner/id"),
    Attack(
        "the runner is started with a wider scope",
        "scope",
        started_with(scope=("test:ping", "admin:all")),
        "14 scope/wider",
    ),
    Attack("the runner is started without a scope", "scope", started_with(scope=()), "14 scope/empty"),
    Attack(
        "the runner is started with another secret",
        "secret",
        started_with(secret_ref="file:///etc/shadow"),
        "14 scope/secret",
    ),
    Attack("the runner is started with a longer ttl", "ttl", started_with(ttl_seconds=10**6), "12 expiry/ttl"),
    Attack("the skill file was changed after approval", "skill", newer_skill, "16 skill/digest"),
    Attack("the runner was given more reach after approval", "runner", wider_runner, "13 runner/capabilities"),
    Attack("the secrets policy no longer allows the secret", "secrets", no_secrets_policy, "14 secrets-policy/allow"),
    Attack("the plan is executed a second time", "single use", replayed, "15 spent/plan"),
    Attack("two runners with one plan at once", "single use", two_at_once, "15 spent/plan"),
    Attack("the plan is spent elsewhere than it says", "single use", attempt(another_ledger), "15 spent/ledger"),
    Attack(
        "a plan names the artifacts of another execution",
        "evidence is not replaced",
        artifact_of_another_plan,
        "18 artifacts/exists",
    ),
    Attack("the state directory is a link", "artifacts stay inside", linked_state, "is a symbolic link"),
    Attack("a folder of the state directory is a link", "artifacts stay inside", linked_folder, "is a symbolic link"),
    Attack(
        "the vendor redirects to another domain",
        "no redirects",
        answered(redirect("https://evil.test/")),
        "22 network/redirect",
    ),
    Attack("the vendor redirects to itself", "no redirects", answered(redirect("/again")), "22 network/redirect"),
    Attack("a followed redirect leaves the domains", "each hop is checked", followed_elsewhere, "22 network/policy"),
    Attack(
        "a followed redirect takes the secret to another domain",
        "the secret goes to the first host",
        secret_follows_redirect,
        "23 vendor/status",
    ),
    Attack("the name stands for this machine", "private addresses", looked_up("127.0.0.1"), "22 network/address"),
    Attack(
        "the name stands for a cloud's metadata service",
        "private addresses",
        looked_up("169.254.169.254"),
        "22 network/address",
    ),
    Attack(
        "the name stands for a private and a public address",
        "one private address refuses all",
        looked_up("93.184.216.34", "10.0.0.1"),
        "22 network/address",
    ),
    Attack(
        "the name stands for IPv6 that carries a private IPv4",
        "private addresses",
        looked_up("::ffff:10.0.0.1"),
        "22 network/address",
    ),
    Attack(
        "the name stands for NAT64 of a private IPv4",
        "private addresses",
        looked_up("64:ff9b::a00:1"),
        "22 network/address",
    ),
    Attack(
        "the name stands for a link-local address with a zone",
        "private addresses",
        looked_up("fe80::1%eth0"),
        "22 network/address",
    ),
    Attack(
        "the name stands for a network's own NAT64 of a private IPv4",
        "private addresses",
        looked_up("64:ff9b:1::a00:1"),
        "22 network/address",
    ),
    Attack(
        "the name stands for IPv6 that translates to this machine",
        "private addresses",
        looked_up("::ffff:0:127.0.0.1"),
        "22 network/address",
    ),
    Attack(
        "the name stands for IPv6 that is compatible with this machine",
        "private addresses",
        looked_up("::127.0.0.1"),
        "22 network/address",
    ),
    Attack("the name stands for a site-local address", "private addresses", looked_up("fec0::1"), "22 network/address"),
    Attack("the name is bound to another address after the check", "DNS rebinding", rebinding, "24 transport/connect"),
    Attack("another server has taken the address", "TLS", wrong_name, "24 transport/tls"),
    Attack("a server without TLS", "TLS", plain_http, "24 transport/tls"),
    Attack("a response without end", "the response is cut", answered(forever), "26 response/size"),
    Attack("a response that comes byte by byte", "a timeout over the whole", byte_by_byte, "25 timeout/limit"),
    Attack(
        "a compressed response that would unpack to 10 MB",
        "identity encoding",
        answered(compressed),
        "26 response/encoding",
    ),
    Attack(
        "the vendor repeats the secret in its error", "artifacts hold no secret", answered(echo), "23 vendor/status"
    ),
    Attack(
        "the limit of a response falls into a repeated secret",
        "artifacts hold no part of a secret",
        cut_in_the_secret,
        "26 response/size",
    ),
    Attack(
        "the vendor repeats a secret that is not ASCII in a header",
        "artifacts hold no secret",
        repeated_in_a_header,
        "23 vendor/status",
    ),
    Attack(
        "the vendor repeats the password of `Basic` decoded",
        "artifacts hold no secret",
        decoded_basic,
        "23 vendor/status",
    ),
    Attack(
        "a followed redirect takes a body with the secret to another domain",
        "the secret goes to the first host",
        body_follows_redirect,
        "23 vendor/status",
    ),
    Attack(
        "an input that a header cannot hold",
        "it is known before the plan is spent",
        input_no_header_can_hold,
        "10 plan/inputs",
    ),
    Attack("a secret with a line break in a header", "header injection", header_injection, "20 secret/form"),
    Attack(
        "an input that climbs in the path",
        "inputs do not change where a request goes",
        input_leaves_path,
        "10 plan/inputs",
    ),
    Attack(
        "an input in the form of gert's mark for the secret",
        "a reference comes from the skill only",
        input_is_a_reference,
        "an input holds a secret",
    ),
    Attack("a secret file that others can read", "owner-only", secret_case(readable_by_others), "20 secret/mode"),
    Attack("a secret file behind a link", "owner-only", secret_case(through_a_link), "20 secret/file"),
    Attack(
        "`env://` under gert's own dispatch",
        "clean environment",
        secret_case(from_env_when_dispatched),
        "20 secret/env",
    ),
    Attack(
        "`env://` in a plan that gert itself starts a runner for",
        "an approved plan is not spent in vain",
        env_when_dispatched,
        "14 scope/env",
    ),
    Attack(
        "`env://` of gert's own keys",
        "keys of gert are never sent",
        secret_case(lambda _: "env://GERT_PLAN_SIGNING_KEY"),
        "20 secret/env",
    ),
    Attack(
        "`kv://` without a resolver", "fails closed", secret_case(lambda _: "kv://openai/dev/key"), "20 secret/resolver"
    ),
    Attack(
        "an option hidden in a secret's path", "argument injection", secret_case(option_in_a_path), "20 secret/resolver"
    ),
    Attack("a program where no sandbox can be made", "refuse", program_needs_sandbox, "19 isolation/sandbox"),
    Attack(
        "an unsandboxed grant that the runner does not take", "refuse", grant_without_capability, "19 isolation/grant"
    ),
    Attack("a program file that was exchanged", "digest", exchanged_program, "16 skill/file"),
    Attack(
        "a runbook's secret becomes an input of a skill",
        "plans hold no secrets",
        secret_as_an_input,
        "would be written into a plan",
    ),
    Attack("a step calls a skill whose effects are denied", "the same decide()", denied_step, "is denied by"),
    Attack("a tool declares less than its skill", "contracts only tighten", tool_loosens_skill, "is denied by"),
    Attack("a run without a key to authorize plans", "RK2", no_plan_key, "no key to authorize plans"),
]


@pytest.mark.parametrize("attack", table(ATTACKS))
def test_attack_fails(attack: Attack, project: Target) -> None:
    attack.fails(project)


def test_the_environment_cannot_make_a_session_readable(project: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    log = project.root / "keys.log"
    monkeypatch.setenv("SSLKEYLOGFILE", str(log))
    assert Trial(project).run().exit_code == 0
    assert not log.exists()


def test_a_proxy_of_the_environment_is_not_used(project: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("https_proxy", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert Trial(project).run().exit_code == 0
    assert len(project.vendor.asked) == 1
