"""Attacks beside the steps: ways to take something in, or send it out, that no contract mentions."""

import json
import shutil
from collections.abc import Callable
from typing import Any

import pytest
from tests.attacks.attack import Attack, table
from tests.ecosystem.notify.servers import serving, status
from tests.ecosystem.surfaces.cli.workbench import ALLOW, END, Project, note

OK = status(200)

ENTERS = "what is read for an input is judged by rules that name its effect (DECISIONS 81)"
NOT_ASKED = "no approval can be requested"
LEAVES = "a runbook's own webhook needs a host that the configuration allows, and no rule against it (DECISIONS 81)"


def naming(effect: str, action: str = "deny") -> dict[str, Any]:
    return {"rules": [{"effects": [effect], "action": action}, *ALLOW["rules"]]}


def reading(source: str, governance: dict[str, Any], *words: str) -> Callable[[Project], str]:
    """Read something into an input; the policy is the floor, and the runbook allows itself everything."""

    def attempt(project: Project) -> str:
        project.write("secret.txt", "shadow")
        project.write("floor.yaml", {"apiVersion": "policy/v0", "meta": {"name": "floor"}, "governance": governance})
        project.runbook(note("say", "{{ .it }}"), inputs={"it": {"type": "string", "from": source, "required": True}})
        ran = project.exec("--policy", "floor.yaml", *words, SHADOW="shadow", GERT_TRACE_KEY_X="shadow" * 8)
        assert ran.code != 0
        assert "shadow" not in (ran.out + ran.err).replace("SHADOW", "")
        assert project.noted() == []
        return ran.out + ran.err

    return attempt


def again(project: Project) -> str:
    """A secret input is read again when a run is resumed: the floor is asked again, too."""
    project.write("gert-project.yaml", {"name": "bench", "policies": ["floor.yaml"]})
    floor = {"apiVersion": "policy/v0", "meta": {"name": "floor"}, "governance": {"rules": [{"default": "allow"}]}}
    project.write("floor.yaml", floor)
    it = {"type": "string", "from": "env/SHADOW", "secret": True}
    asking = {"rules": [{"default": "require-approval"}]}
    project.runbook(note("say", "{{ .it }}"), inputs={"it": it}, governance=asking)
    project.exec("--detach", SHADOW="shadow-of-it").ended(0)
    project.write("floor.yaml", {**floor, "governance": naming("environment")})
    run = project.run().folder.name
    ran = project.gert("resume", "--run", run, "--allow-changed", SHADOW="shadow-of-it")
    assert ran.code != 0
    return ran.err


def sending(
    config: dict[str, Any], governance: dict[str, Any] | None = None, path: str = "/", mode: str = "real"
) -> Callable[[Project], str]:
    """Post what an input holds to a server of the runbook's choosing."""

    def attempt(project: Project) -> str:
        with serving(OK) as server:
            url = server.url().rstrip("/") + path
            project.write("gert-project.yaml", {"name": "bench", **config})
            end = {**END, "outcome": {**END["outcome"], "meta": {"it": "{{ .it }}"}}}
            inputs = {"it": {"type": "string", "from": "env/SHADOW"}}
            hook = {"resolved": {"webhook": url}}
            project.runbook(note("a"), end, ends=False, inputs=inputs, on_outcome=hook, governance=governance)
            ran = project.exec("--mode", mode, SHADOW="shadow-of-it")
            assert ran.code == 2
            assert server.requests == []
            assert project.noted() == []
        return ran.err

    return attempt


def elsewhere(url: str, **environ: str) -> Callable[[Project], str]:
    """An address that is not what it looks like: only `hooks.example.com` is allowed."""

    def attempt(project: Project) -> str:
        project.write("gert-project.yaml", {"name": "bench", "webhook_hosts": ["hooks.example.com"]})
        project.runbook(note("a"), on_outcome={"resolved": {"webhook": url}})
        ran = project.exec(**environ)
        assert ran.code == 2
        assert project.noted() == []
        assert "evil" not in ran.err or "evil" in url
        return ran.err

    return attempt


def unset(url: str, mode: str = "real", **notice: str) -> Callable[[Project], str]:
    """An address that names a variable that is not set: only `hooks.example.com` is allowed."""

    def attempt(project: Project) -> str:
        project.write("gert-project.yaml", {"name": "bench", "webhook_hosts": ["hooks.example.com"]})
        project.runbook(note("a"), on_outcome={"resolved": {"webhook": url, **notice}})
        ran = project.exec("--mode", mode)
        assert ran.code == 2
        assert (project.noted(), project.runs()) == ([], [])
        return ran.err

    return attempt


def nested(outer: dict[str, Any], inner: dict[str, Any]) -> Callable[[Project], str]:
    """Send a webhook that the project beside the runbook allows, and the project around it may not."""

    def attempt(project: Project) -> str:
        with serving(OK) as server:
            project.write("gert-project.yaml", {"name": "outer", **outer})
            project.write("team/gert-project.yaml", {"name": "inner", **inner})
            shutil.copytree(project.root / "tools", project.root / "team" / "tools")
            book = project.runbook(note("a"), file="team/book.yaml", on_outcome={"resolved": {"webhook": server.url()}})
            ran = project.exec(book)
            assert ran.code == 2
            assert server.requests == []
            assert project.noted() == []
        return ran.err

    return attempt


def own_key(name: str, text: str, secret: bool, *, by: str = "file") -> Callable[[Project], str]:
    """Hand one of gert's own keys to a tool."""

    def attempt(project: Project) -> str:
        key = project.write("of.key", text)
        key.chmod(0o600)
        project.write("copy.txt", f"first line\n{text}\nlast line")
        source = {"file": f"file/{key}", "copy": "file/copy.txt", "env": "env/SHADOW"}[by]
        project.runbook(note("say", "{{ .it }}"), inputs={"it": {"type": "string", "from": source, "secret": secret}})
        ran = project.exec(**{name: str(key), "SHADOW": text})
        assert ran.code != 0
        assert project.noted() == []
        return ran.err

    return attempt


def own_key_later(project: Project) -> str:
    """The key is gert's only when the run is resumed."""
    key = project.write("of.key", "shadow-of-a-key-1")
    key.chmod(0o600)
    it = {"type": "string", "from": f"file/{key}", "secret": True}
    asking = {"rules": [{"default": "require-approval"}]}
    project.runbook(note("say", "{{ .it }}"), inputs={"it": it}, governance=asking)
    project.exec("--detach").ended(0)
    (ticket,) = json.loads(project.gert("approvals", "list", "--json").out)
    project.gert("approve", ticket["ticket_id"], "--as", "ann").ended(0)
    run = project.run().folder.name
    ran = project.gert("resume", "--run", run, "--allow-changed", GERT_APPROVAL_KEY_OPS_FILE=str(key))
    assert ran.code != 0
    assert project.noted() == []
    return ran.err


def paging(project: Project) -> str:
    """Without an address PagerDuty is told, with any variable for a key."""
    notice = {"pagerduty_severity": "error", "pagerduty_routing_key": "${SHADOW}"}
    project.runbook(note("a"), on_outcome={"resolved": notice})
    ran = project.exec(SHADOW="shadow")
    assert ran.code == 2
    return ran.err


NOT_ALLOWED = "no configuration allows the host of"
NOT_SET = "the environment variable `NOPE_X` is not set"
OWN_KEY = "holds one of gert's own keys"
KEY = "shadow-of-a-key-1"
LOCAL = {"webhook_hosts": ["127.0.0.1"]}

ATTACKS = [
    Attack("a file that a rule denies", ENTERS, reading("file/secret.txt", naming("filesystem")), "denied by floor"),
    Attack("a file by its whole path", ENTERS, reading("file//etc/hostname", naming("filesystem")), "denied by floor"),
    Attack("a variable that a rule denies", ENTERS, reading("env/SHADOW", naming("environment")), "denied by floor"),
    Attack("a rule in capitals", ENTERS, reading("env/SHADOW", naming("Environment")), "denied by floor"),
    Attack(
        "a variable that needs an approval",
        ENTERS,
        reading("env/SHADOW", naming("environment", "require-approval")),
        NOT_ASKED,
    ),
    Attack(
        "a dry run reads nothing either",
        ENTERS,
        reading("file/secret.txt", naming("filesystem"), "--mode", "dry-run"),
        "denied by floor",
    ),
    Attack("one of gert's own variables", ENTERS, reading("env/GERT_TRACE_KEY_X", ALLOW), "gert's own variables"),
    Attack("gert's own in small letters", ENTERS, reading("env/gert_trace_key_x", ALLOW), "gert's own variables"),
    Attack("a secret input of a run that is resumed", ENTERS, again, "denied by floor"),
    Attack("a webhook where nothing is allowed", LEAVES, sending({}), NOT_ALLOWED),
    Attack("a webhook to another port", LEAVES, sending({"webhook_hosts": ["127.0.0.1:1"]}), NOT_ALLOWED),
    Attack("a dry run says so, too", LEAVES, sending({}, mode="dry-run"), NOT_ALLOWED),
    Attack("a webhook that a rule denies", LEAVES, sending(LOCAL, naming("network")), "`network` is denied by"),
    Attack(
        "a webhook that needs an approval",
        LEAVES,
        sending(LOCAL, naming("network", "require-approval")),
        NOT_ASKED,
    ),
    Attack(
        "a variable in the address",
        LEAVES,
        sending(LOCAL, naming("environment"), "/${SHADOW}"),
        "`environment` is denied by",
    ),
    Attack("a host before an `@`", LEAVES, elsewhere("https://hooks.example.com@evil.example/"), NOT_ALLOWED),
    Attack("a host that begins alike", LEAVES, elsewhere("https://hooks.example.com.evil.example/"), NOT_ALLOWED),
    Attack("a host in a variable", LEAVES, elsewhere("${HOOK}", HOOK="https://evil.example/"), NOT_ALLOWED),
    Attack("part of a host in a variable", LEAVES, elsewhere("https://hooks.example.com${X}", X=".evil"), NOT_ALLOWED),
    Attack("an unset variable hides the host", LEAVES, unset("https://evil.example/${NOPE_X}"), NOT_ALLOWED),
    Attack("in a user name, too", LEAVES, unset("https://${NOPE_X}@evil.example/"), NOT_ALLOWED),
    Attack("and in a dry run", LEAVES, unset("https://evil.example/?k=${NOPE_X}", "dry-run"), NOT_ALLOWED),
    Attack("an unset variable in an allowed address", LEAVES, unset("https://hooks.example.com/${NOPE_X}"), NOT_SET),
    Attack("an unset variable for a host", LEAVES, unset("https://${NOPE_X}/", "dry-run"), NOT_SET),
    Attack(
        "an unset routing key",
        LEAVES,
        unset("https://hooks.example.com/", pagerduty_severity="error", pagerduty_routing_key="${NOPE_X}"),
        NOT_SET,
    ),
    Attack("a host that only an inner project allows", LEAVES, nested({}, LOCAL), "does not allow the host of"),
    Attack(
        "a port that only an inner project allows",
        LEAVES,
        nested({"webhook_hosts": ["127.0.0.1:1"]}, LOCAL),
        "does not allow the host of",
    ),
    Attack("a host that only the outer project allows", LEAVES, nested(LOCAL, {}), NOT_ALLOWED),
    Attack("a key file", ENTERS, own_key("GERT_TRACE_SIGNING_KEY_FILE", KEY, False), OWN_KEY),
    Attack("a key file as a secret", ENTERS, own_key("GERT_TRACE_SIGNING_KEY_FILE", KEY, True), OWN_KEY),
    Attack("a key file that ends its line", ENTERS, own_key("GERT_TRACE_SIGNING_KEY_FILE", f"{KEY}\n", True), OWN_KEY),
    Attack("a copy of a key", ENTERS, own_key("GERT_APPROVAL_SIGNING_KEY_FILE", KEY, True, by="copy"), OWN_KEY),
    Attack("a variable with a key", ENTERS, own_key("GERT_APPROVAL_KEY_OPS_FILE", KEY, True, by="env"), OWN_KEY),
    Attack("a key of a run that is resumed", ENTERS, own_key_later, OWN_KEY),
    Attack("PagerDuty with any variable as key", LEAVES, paging, NOT_ALLOWED),
]


@pytest.mark.parametrize("attack", table(ATTACKS))
def test_attack_fails(attack: Attack, project: Project) -> None:
    attack.fails(project)


def test_a_host_is_allowed_where_every_project_around_allows_it(project: Project) -> None:
    with serving(OK) as server:
        port = server.url().split(":")[2].split("/")[0]
        project.write("gert-project.yaml", {"name": "outer", **LOCAL})
        project.write("team/gert-project.yaml", {"name": "inner", "webhook_hosts": [f"127.0.0.1:{port}"]})
        shutil.copytree(project.root / "tools", project.root / "team" / "tools")
        book = project.runbook(note("a"), file="team/book.yaml", on_outcome={"resolved": {"webhook": server.url()}})
        project.exec(book).ended(0)
        assert len(server.requests) == 1


def test_rules_that_do_not_name_the_effect_do_not_judge_what_has_no_step(project: Project) -> None:
    project.write("it.txt", "word")
    rules = {"rules": [{"effects": ["files"], "action": "allow"}, {"default": "deny"}]}
    project.runbook(
        note("say", "{{ .it }}"), inputs={"it": {"type": "string", "from": "file/it.txt"}}, governance=rules
    )
    project.exec().ended(0)
    assert project.noted() == ["word"]


def test_what_the_caller_gives_is_read_from_nowhere(project: Project) -> None:
    inputs = {"it": {"type": "string", "from": "env/SHADOW"}}
    project.runbook(note("say", "{{ .it }}"), inputs=inputs, governance=naming("environment"))
    project.exec("--var", "it=word").ended(0)
    assert project.noted() == ["word"]


def test_an_allowed_host_is_told(project: Project) -> None:
    with serving(OK) as server:
        project.write("gert-project.yaml", {"name": "bench"})
        project.write(".gert/config.yaml", LOCAL)
        project.runbook(note("a"), on_outcome={"resolved": {"webhook": server.url()}})
        project.exec().ended(0)
        assert len(server.requests) == 1


def test_explain_lists_what_enters_and_leaves(project: Project) -> None:
    inputs = {"a": {"type": "string", "from": "env/A"}, "b": {"type": "string", "from": "file/b"}, "c": {}}
    hook = {"resolved": {"webhook": "https://hooks.example.com/${TOKEN}"}}
    governance = naming("filesystem")
    project.runbook(note("go"), inputs=inputs, on_outcome=hook, governance=governance)
    shown = project.gert("explain", "book.yaml").ended(0).out
    assert "WITHOUT A STEP" in shown
    found = project.gert("explain", "book.yaml", "--json", TOKEN="shadow-of-it").ended(0).said["crossings"]
    assert [(each["direction"], each["what"], each["effect"], each["refusal"] is None) for each in found] == [
        ("enters", "a", "environment", True),
        ("enters", "b", "filesystem", False),
        ("leaves", "webhook on resolved", "network", False),
    ]
