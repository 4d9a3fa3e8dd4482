"""Secrets reach the tool that is meant to have them, and nothing that is kept or shown."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.ecosystem.surfaces.cli.canaries import CANARIES, DECOY, Cage, found_in
from tests.ecosystem.surfaces.cli.workbench import Project, call, completed, files_under, note, of_type

APPROVE = {"name": "ask", "effects": ["restart"], "action": "require-approval"}
GOVERNANCE = {"rules": [APPROVE, {"default": "allow"}]}
MANUAL = {"effects": [], "idempotent": True}
ALL = " and ".join(secret.replace("\n", " ") for secret in CANARIES.values())


@pytest.fixture
def cage(tmp_path: Path) -> Cage:
    return Cage(tmp_path)


def spilling(cage: Cage) -> None:
    """A runbook that lets every secret out in every way there is."""
    text = {"a": {"from": "stdout"}, "b": {"from": "stderr", "pattern": "(?s)(.*)"}}
    cage.spill_tool("text", "text", extract=text)
    cage.spill_tool("fail", "fail", extract=text)
    cage.spill_tool("slow", "slow", extract=text)
    cage.spill_tool(
        "json",
        "json",
        extract={
            "a": {"from": "json", "path": "$"},
            "b": {"from": "json", "path": "number"},
            "c": {"from": "json", "path": "deep[0]"},
        },
    )
    cage.project.tool(
        "echo",
        ["printf", "%s\\n", "{{ .text }}"],
        inputs={"text": {"type": "any", "required": True}},
        extract={"back": {"from": "stdout", "pattern": "(?s)(.*)"}},
    )

    def step(name: str, **more: Any) -> dict[str, Any]:
        return {"id": name, "type": "tool", "tool": name, "inputs": cage.handed(), **more}

    def echo(name: str, text: Any, **more: Any) -> dict[str, Any]:
        return {"id": name, "type": "tool", "tool": "echo", "inputs": {"text": text}, **more}

    cage.project.runbook(
        step("text", title="with {{ .given }}", scope="spilled"),
        step("json", contract={"effects": ["files", "restart"]}),
        step("fail", continue_on_fail=True),
        step("slow", continue_on_fail=True, timeout="500ms"),
        echo("again", "{{ .step.json.a }} {{ .step.text.a }}"),
        echo("by_argv", "{{ .given }}{{ .asked }} {{ .from_file }}"),
        echo("each", "{{ .item }}", for_each={"as": "item", "over": ["{{ .pin }}", "{{ .given }}", "x{{ .asked }}"]}),
        {
            "id": "look",
            "type": "manual",
            "instructions": "log in with {{ .given }} and {{ .from_file }}",
            "contract": MANUAL,
            "required_evidence": [{"kind": "text", "name": "seen"}],
        },
        {
            "id": "refuse",
            "type": "manual",
            "instructions": "no",
            "contract": MANUAL,
            "continue_on_fail": True,
        },
        {
            "id": "check",
            "type": "assert",
            "continue_on_fail": True,
            "assert": [
                {"type": "equals", "value": "{{ .given }}", "expected": "{{ .asked }}", "message": "not {{ .pin }}"},
                {"type": "contains", "value": "{{ .seen }}", "expected": CANARIES["given"][:3] + "{{ .pin }}"},
            ],
        },
        {
            "type": "end",
            "outcome": {
                "category": "resolved",
                "code": "{{ .seen }}",
                "meta": {"all": "{{ .step.json.a }}", "given": "{{ .given }}", "{{ .pin }}": 1},
            },
        },
        tools=["text", "fail", "slow", "json", "echo"],
        governance=GOVERNANCE,
        ends=False,
        inputs=cage.inputs,
        secrets=[{"env": "BOOK_KEY"}],
        constants={"login": "user:{{ .given }}"},
    )


@pytest.mark.parametrize(
    ("words", "recorded"),
    [
        pytest.param(["--verbose"], "runs/*/trace.jsonl", id="shown as it comes, kept in the project"),
        pytest.param(["--json", "--verbose"], "runs/*/trace.jsonl", id="as JSON"),
        pytest.param(["--trace", "t.jsonl", "--state-dir", "elsewhere", "--quiet"], "t.jsonl", id="kept in a file"),
        pytest.param(["--db", "runs.db", "-v", "--sync", "none"], "runs.db", id="kept in a database"),
    ],
)
def test_no_canary_sings(cage: Cage, words: list[str], recorded: str) -> None:
    spilling(cage)
    evidence = cage.vault / "evidence.yaml"
    evidence.write_text("refuse: {reject: " + repr("no: " + ALL.replace("'", "")) + "}\n")
    stdin = f"{CANARIES['asked']}\ny because {ALL}\ny\nseen {ALL}\n"
    ran = cage.run("--evidence", evidence, *words, "--var", f"open={DECOY}", stdin=stdin)
    ran.ended(0)
    for way in ("text", "json", "fail", "slow"):
        assert cage.got(way) == set(CANARIES), way
    (kept,) = cage.project.root.glob(recorded)
    cage.silent(ran)
    everything = b"".join(path.read_bytes() for path in files_under(cage.project.root))
    assert DECOY.encode() in everything, "the search would not have found anything"
    assert kept.stat().st_size > 10_000


def test_masked_outputs_are_what_the_run_goes_on_with(cage: Cage) -> None:
    spilling(cage)
    evidence = cage.vault / "evidence.yaml"
    evidence.write_text("refuse: {reject: no}\n")
    ran = cage.run("--evidence", evidence, stdin=f"{CANARIES['asked']}\ny\ny\nok\n").ended(0)
    assert "log in with [REDACTED] and [REDACTED]" in ran.err
    events = cage.project.run().events()
    assert "[REDACTED]" in str(completed(events, "again")["outputs"]["back"])
    assert completed(events, "json")["outputs"]["b"] == "[REDACTED]"
    assert completed(events, "by_argv")["outputs"]["back"].count("[REDACTED]") >= 3
    assert {event["data"]["step_id"] for event in of_type(events, "redaction_applied")} >= {"text", "json", "fail"}
    resolved = {event["data"]["name"]: event["data"] for event in of_type(events, "input_resolved")}
    assert resolved["asked"]["source"] == "prompt"
    assert {resolved[name].get("value") for name in CANARIES if name in resolved} <= {None, "[REDACTED]"}


def test_the_keys_of_gert_are_masked_even_where_a_tool_reads_the_memory_of_its_parent(cage: Cage) -> None:
    cage.project.script("snoop", "tr '\\000' '\\n' < /proc/$PPID/environ; cat /proc/$PPID/environ >&2; exit 1")
    cage.project.runbook(
        {"id": "snoop", "type": "tool", "tool": "snoop"},
        tools=["snoop"],
        inputs=cage.inputs,
        secrets=[{"env": "BOOK_KEY"}, {"env": "TOOL_KEY"}],
    )
    keys = {"GERT_TRACE_SIGNING_KEY": "sK8signing-canary", "GERT_TRACE_KEY_OLD": "oK9old-key-canary"}
    ran = cage.run("--verbose", stdin=f"{CANARIES['asked']}\n", **keys).ended(3)
    assert "DECOY" in ran.out
    cage.silent(ran)
    everything = ran.out.encode() + b"".join(path.read_bytes() for path in files_under(cage.project.root))
    assert not found_in(everything, keys)


@pytest.mark.parametrize(
    ("name", "key", "printed"),
    [
        pytest.param(
            "GERT_TRACE_KEY_PROD_ID", "kA5shared-canary", "kA5shared-canary", id="a key whose label ends in id"
        ),
        pytest.param("GERT_TRACE_KEY_OLD", "non-public:kB6canary", "non-public:kB6canary", id="a secret called public"),
        pytest.param(
            "GERT_APPROVAL_KEY_BOB",
            "ed25519:QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVphYmNkZWY=",
            "QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVphYmNkZWY=",
            id="without what says that it is one",
        ),
        pytest.param("GERT_TRACE_KEY_OLD", "base64:a0M3LWNhbmFyeS1rZXk=", "kC7-canary-key", id="without its encoding"),
    ],
)
def test_a_key_of_gert_is_masked_whatever_it_is_called(cage: Cage, name: str, key: str, printed: str) -> None:
    (cage.vault / "printed").write_text(f"before {printed} after\n")
    cage.project.script("shows", f"cat {cage.vault}/printed", extract={"a": {"from": "stdout"}})
    cage.project.runbook(call("shows", "shows"), tools=["shows"])
    ran = cage.project.exec("--verbose", **{name: key}).ended(0)
    kept = b"".join(path.read_bytes() for path in files_under(cage.project.root / "runs"))
    assert "before [REDACTED] after" in ran.out
    assert printed.encode() not in kept


@pytest.mark.parametrize(
    ("action", "step"),
    [
        pytest.param({"argv": ["{{ .given }}"]}, {}, id="a program of that name"),
        pytest.param({"argv": ["./{{ .given }}/x", "y"]}, {}, id="a program in a folder of that name"),
        pytest.param({"argv": ["sh", "-c", ":"], "cwd": "{{ .given }}"}, {}, id="a folder of that name"),
        pytest.param({"argv": ["sh", "-c", ":"], "cwd": "/dev/{{ .given }}"}, {}, id="a path with it"),
        pytest.param({"argv": ["sh", "-c", "{{ .given }}"]}, {}, id="a command"),
        pytest.param({"argv": ["cat", "{{ .given }}"]}, {}, id="a file that is not there"),
        pytest.param({"argv": ["cat", "{{ .given }}"]}, {"retry": {"max": 2}}, id="an attempt that is made again"),
        pytest.param({"argv": ["cat", "{{ .given }}"]}, {"scope": "a/{{ .given }}/b"}, id="a scope"),
        pytest.param(
            {"argv": ["cat", "{{ .given }}"]}, {"principal": {"kind": "agent", "id": "{{ .given }}"}}, id="an actor"
        ),
        pytest.param(
            {"argv": ["cat", "{{ .given }}"]},
            {"for_each": {"as": "item", "key": "{{ .item }}", "over": ["{{ .given }}", "b"], "parallel": True}},
            id="the key of an item",
        ),
        pytest.param(
            {"argv": ["cat", "{{ .given }}"]}, {"extensions": {"x-note": "{{ .given }}"}}, id="free words of a step"
        ),
        pytest.param({"argv": ["printf", "%s", "{{ .given }}"], "extract": {"a": {"from": "json"}}}, {}, id="no JSON"),
    ],
)
def test_a_failure_does_not_name_it(cage: Cage, action: dict[str, Any], step: dict[str, Any]) -> None:
    cage.project.tool(
        "fails",
        action["argv"],
        inputs={"given": {"type": "any", "required": True}},
        extract=action.get("extract"),
        action={"cwd": action["cwd"]} if "cwd" in action else {},
    )
    failing = call("fails", "fails", inputs={"given": "{{ .given }}"}, continue_on_fail=True, **step)
    lanes = [{"steps": [{**failing, "id": "lane", "continue_on_fail": False}]}, {"steps": [note("other")]}]
    block = {"id": "block", "type": "parallel", "branches": lanes}
    has_lane = not {"scope", "for_each"} & set(step)
    cage.project.runbook(
        failing, *([block] if has_lane else []), tools=["note", "fails"], inputs={"given": cage.inputs["given"]}
    )
    ran = cage.project.exec("--var", f"given={CANARIES['given']}", "--verbose", "--json")
    assert ran.code == (3 if has_lane else 0), ran
    assert completed(cage.project.run().events(), "fails")["status"] in ("failed", "error", "success")
    cage.silent(ran)


@pytest.mark.parametrize(
    ("secret", "printed"),
    [
        pytest.param("wS4+canary/text\n", "wS4+canary/text", id="a line break at its end is not printed"),
        pytest.param("  wS4+canary/text\t", "wS4+canary/text", id="white space around it is not printed"),
        pytest.param("wS4+canary/text", "wS4+canary\\/text", id="as JSON with slashes escaped"),
        pytest.param("wS4+canary/text", "d1M0K2NhbmFyeS90ZXh0", id="in base64"),
        pytest.param("wS4'canary<text", "wS4&#39;canary&lt;text", id="in HTML"),
        pytest.param("wS4'canary$text", "wS4'\\''canary$text", id="as a shell shows what it does"),
        pytest.param('{"region": "eu", "private_key": "wS4+canary/text"}', "wS4+canary/text", id="a key in a document"),
        pytest.param("wS4canarytext", "wS4\x1b[1;31mcanary\x1b[m\x1b[Ktext", id="partly coloured"),
    ],
)
def test_a_secret_is_known_in_other_clothes(cage: Cage, secret: str, printed: str) -> None:
    (cage.vault / "printed").write_text(f"before {printed} after\n")
    show = f"cat {cage.vault}/printed; cat {cage.vault}/printed >&2"
    cage.project.script("shows", show, secrets=[{"env": "TOOL_KEY"}], extract={"a": {"from": "stdout"}})
    cage.project.runbook(call("shows", "shows"), tools=["shows"])
    ran = cage.project.exec("--verbose", TOOL_KEY=secret).ended(0)
    kept = b"".join(path.read_bytes() for path in files_under(cage.project.root / "runs"))
    escaped = json.dumps(printed)[1:-1].encode()
    assert escaped not in kept
    assert printed not in ran.out
    assert "before [REDACTED] after" in ran.out


# --- who sees what


def seen_by(cage: Cage, *, declares: list[str], book: list[str], **environ: str) -> dict[str, str]:
    """The environment of a tool."""
    seen = cage.vault / "seen"
    cage.project.script("look", f"env -0 > {seen}", secrets=[{"env": name} for name in declares])
    cage.project.script("other", ":", secrets=[{"env": "TOOL_KEY"}, {"env": "OPTIONAL_KEY", "required": False}])
    cage.project.runbook(
        {"id": "look", "type": "tool", "tool": "look"},
        tools=["look", "other"],
        secrets=[{"env": name} for name in book],
    )
    cage.project.exec(**cage.environ, **environ).ended(0)
    return dict(line.split("=", 1) for line in seen.read_text().split("\0") if line)


def test_a_tool_does_not_see_what_only_others_declare(cage: Cage) -> None:
    seen = seen_by(cage, declares=[], book=["BOOK_KEY"], OPTIONAL_KEY="oP4optional")
    assert {"TOOL_KEY", "BOOK_KEY", "OPTIONAL_KEY"}.isdisjoint(seen)
    assert seen["DECOY"] == DECOY
    assert not found_in(repr(seen).encode(), {"x": "oP4optional", "y": CANARIES["TOOL_KEY"]})


@pytest.mark.parametrize("name", ["TOOL_KEY", "BOOK_KEY"])
def test_a_tool_sees_what_it_declares_and_no_more(cage: Cage, name: str) -> None:
    seen = seen_by(cage, declares=[name], book=["BOOK_KEY"])
    assert [each for each in ("TOOL_KEY", "BOOK_KEY") if each in seen] == [name]
    assert seen[name] == CANARIES[name]


def test_nothing_of_gert_is_inherited_but_the_id_of_the_run(cage: Cage, tmp_path: Path) -> None:
    ours = {
        "GERT_TRACE_SIGNING_KEY": "sK8signing-canary",
        "GERT_STATE_DIR": str(tmp_path / "state"),
        "GERT_APPROVAL_VERIFY_KEY": "vK7verify-canary",
        "GERT_ANYTHING": "aT6anything",
    }
    seen = seen_by(cage, declares=[], book=[], **ours)
    assert [name for name in seen if name.startswith("GERT_")] == ["GERT_PARENT_RUN_ID"]
    assert not set(ours.values()) & set(seen.values())


def test_the_keys_of_channels_and_notices_are_neither_inherited_nor_shown(cage: Cage) -> None:
    ours = {
        name: f"{name.lower()}-canary-4711"
        for name in ("SLACK_HOOK", "SLACK_SIGNING", "TEAMS_HOOK", "ASK_KEY", "HOOK", "PAGER_KEY")
    }
    cage.project.write(
        "gert-config.yaml",
        {
            "approvals": {
                "slack": {"webhook": "${SLACK_HOOK}", "signing_secret": "${SLACK_SIGNING}"},
                "teams": {"webhook": "https://teams.example.com/${TEAMS_HOOK}"},
                "http": {"url": "https://ask.example.com/?key=${ASK_KEY}"},
            },
            "on_outcome": {"escalated": {"webhook": "https://hooks.example.com/${HOOK}"}},
            "webhook_hosts": ["events.pagerduty.com"],
        },
    )
    seen = cage.vault / "seen"
    cage.project.script("look", f"env -0 > {seen}; cat {cage.vault}/ours", extract={"all": {"from": "stdout"}})
    cage.project.script("pages", f"echo $PAGER_KEY > {cage.vault}/pager", secrets=[{"env": "PAGER_KEY"}])
    (cage.vault / "ours").write_text("\n".join(ours.values()))
    notice = {"escalated": {"pagerduty_severity": "error", "pagerduty_routing_key": "${PAGER_KEY}"}}
    cage.project.runbook(call("look", "look"), call("pages", "pages"), tools=["look", "pages"], on_outcome=notice)
    ran = cage.project.exec("--verbose", **ours).ended(0)
    names = {line.split("=", 1)[0] for line in seen.read_text().split("\0")}
    assert names.isdisjoint(ours)
    kept = b"".join(path.read_bytes() for path in files_under(cage.project.root / "runs"))
    assert not [name for name, value in ours.items() if value.encode() in kept or value in ran.out + ran.err]
    # Whoever declares one has it.
    assert (cage.vault / "pager").read_text().strip() == ours["PAGER_KEY"]


def test_a_tool_without_its_secret_is_not_started(cage: Cage) -> None:
    cage.project.note_tool("needs", secrets=[{"env": "NOT_SET"}])
    cage.project.runbook(note("x", tool="needs"), tools=["needs"])
    said = cage.project.exec("--json").ended(3).said
    assert said["failure"]["kind"] == "missing_secret"
    assert "NOT_SET" in said["failure"]["message"]
    assert cage.project.noted() == []


@pytest.mark.parametrize("mode", [[], ["--wait"], ["--detach"]], ids=["terminal", "wait", "detach"])
def test_no_approver_is_asked_for_a_call_without_its_secret(cage: Cage, mode: list[str]) -> None:
    cage.project.note_tool("needs", secrets=[{"env": "NOT_SET"}])
    ask = {"rules": [{"default": "require-approval"}]}
    cage.project.runbook(note("x", tool="needs"), tools=["needs"], governance=ask)
    said = cage.project.exec("--json", *mode, stdin="y\n").ended(3).said
    assert said["failure"] == {"kind": "missing_secret", "message": "tool `needs` requires secret `NOT_SET`"}
    events = cage.project.run().events()
    assert of_type(events, "governance_decision")
    assert not of_type(events, "approval_submitted")
    assert "x" not in [event.get("path") for event in of_type(events, "step_start")]
    assert cage.project.noted() == []


@pytest.mark.parametrize("value", [pytest.param({}, id="not set"), pytest.param({"BOOK_KEY": ""}, id="empty")])
def test_a_runbook_without_its_secret_does_not_begin(cage: Cage, value: dict[str, str]) -> None:
    cage.project.runbook(note("x"), secrets=[{"env": "BOOK_KEY"}])
    ran = cage.project.exec(**value).ended(2)
    assert "BOOK_KEY" in ran.err
    assert cage.project.runs() == []


# --- references cannot be forged


FORGED = "\ufdd0given\ufdd1"


@pytest.mark.parametrize(
    ("place", "text", "may_be_refused"),
    [
        pytest.param("stderr", "{{ .step.forger.a }}", False, id="printed by a tool"),
        pytest.param("json", "{{ .step.forger.b }}", False, id="printed by a tool as JSON"),
        pytest.param("--var", "{{ .open }}", False, id="given as an ordinary input"),
        pytest.param("--var", "{{ .step.each.forged.back }}", False, id="given back for an item of a loop"),
        pytest.param("--var", "{{ .open }}{{ .given }}", True, id="beside the secret itself"),
        pytest.param("values", "{{ .listed }}", True, id="given in a file of values"),
        pytest.param("evidence", "{{ .seen }}", True, id="given as evidence"),
        pytest.param("runbook", FORGED, True, id="written in the runbook"),
        pytest.param("constant", "{{ .constant }}", True, id="a constant"),
        pytest.param("default", "{{ .defaulted }}", True, id="a default"),
        pytest.param("tool", "", True, id="written in a tool file"),
        pytest.param("runbook", '{{ printf "%s%s" "\ufdd0given" "\ufdd1" }}', True, id="put together in a template"),
        pytest.param("runbook", '{{ "\\ufdd0given\\ufdd1" }}', True, id="written with escapes"),
        pytest.param("json", "{{ .step.forger.c }}given{{ .step.forger.d }}", False, id="put together of two outputs"),
        pytest.param("json", '{{ fromJson (printf "%s" .step.forger.e) }}', True, id="escaped twice"),
        pytest.param("json", '{{ printf "%cgiven%c" .step.forger.f .step.forger.g }}', True, id="made of numbers"),
    ],
)
def test_no_reference_to_a_secret_can_be_forged(cage: Cage, place: str, text: str, may_be_refused: bool) -> None:
    got = cage.vault / "got"
    project = cage.project

    def at(name: str) -> str:
        return FORGED if name == place else "innocent"

    printed = {
        "b": "\\ufdd0given\\ufdd1",
        "c": "\\ufdd0",
        "d": "\\ufdd1",
        "e": '\\"\\\\ufdd0given\\\\ufdd1\\"',
    }
    quoted = [f'"{name}": "{value}"' for name, value in printed.items()]
    numbers = {"f": 0xFDD0, "g": 0xFDD1}
    numbered = [f'"{name}": {value}' for name, value in numbers.items()]
    (cage.vault / "printed").write_text("{" + ", ".join([*quoted, *numbered]) + "}")
    (cage.vault / "stderr").write_text(at("stderr"))
    project.script(
        "forger",
        f"cat {cage.vault}/printed; cat {cage.vault}/stderr >&2",
        extract={"a": {"from": "stderr"}, **{name: {"from": "json", "path": name} for name in (*printed, *numbers)}},
    )
    argument = "{{ .text }}" if text else FORGED
    project.tool("take", ["sh", "-c", f'printf %s "$1" > {got}', "sh", argument], inputs={"text": {"type": "any"}})
    project.tool(
        "echo", ["printf", "{{ .text }}"], inputs={"text": {"type": "any"}}, extract={"back": {"from": "stdout"}}
    )
    project.runbook(
        call("forger", "forger"),
        {
            "id": "look",
            "type": "manual",
            "instructions": "look",
            "contract": MANUAL,
            "required_evidence": [{"kind": "text", "name": "seen"}],
        },
        call(
            "each",
            "echo",
            inputs={"text": "{{ .item.text }}"},
            for_each={"as": "item", "key": "forged", "over": [{"text": "{{ .open }}"}]},
        ),
        call("take", "take", inputs={"text": text}),
        tools=["forger", "take", "echo"],
        inputs={**cage.inputs, "listed": {"type": "any"}, "defaulted": {"type": "string", "default": at("default")}},
        constants={"constant": at("constant")},
    )
    evidence = project.write("evidence.yaml", {"look": {"seen": at("evidence")}})
    values = project.write("values.yaml", {"listed": [at("values"), {"a": at("values")}]})
    words = ("--evidence", evidence, "--vars-file", values, "--var", f"open={at('--var')}", "--trace", "t.jsonl")
    ran = project.exec("book.yaml", *cage.words, *words, stdin=f"{CANARIES['asked']}\n", **cage.environ)
    # What the world says is handed over as other characters; what a document says may be refused.
    assert ran.code == 0 or (may_be_refused and ran.code in (1, 2, 3)), ran
    assert got.exists() or may_be_refused
    handed = got.read_bytes() if got.exists() else b""
    allowed = 1 if "{{ .given }}" in text else 0
    assert handed.count(CANARIES["given"].encode()) <= allowed
    assert not any(found_in(path.read_bytes()) for path in files_under(project.root))


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("{{ upper .given }}", id="in capitals"),
        pytest.param("{{ slice .given 0 3 }}", id="cut"),
        pytest.param('{{ replace "g" "h" .given }}', id="changed"),
        pytest.param("{{ toJson .given }}", id="as JSON"),
        pytest.param("{{ len .given }}", id="measured"),
        pytest.param('{{ regexFind "." .given }}', id="searched"),
    ],
)
def test_a_secret_that_a_template_changes_is_not_handed_over(cage: Cage, text: str) -> None:
    got = cage.vault / "got"
    cage.project.tool(
        "take", ["sh", "-c", f'printf %s "$1" > {got}', "sh", "{{ .text }}"], inputs={"text": {"type": "any"}}
    )
    cage.project.runbook(
        {"id": "take", "type": "tool", "tool": "take", "inputs": {"text": text}},
        tools=["take"],
        inputs={"given": {"type": "string", "secret": True, "required": True}},
    )
    secret = 'gV5 "given", "admin": true'
    ran = cage.project.exec("--var", f"given={secret}", "--verbose")
    handed = got.read_text() if got.exists() else ""
    # Refused, or as JSON what it should be; a length is that of the reference, and tells nothing.
    assert handed in ("", json.dumps(secret)) or ("len" in text and handed != str(len(secret))), handed
    kept = b"".join(path.read_bytes() for path in files_under(cage.project.root))
    assert not found_in(kept + ran.out.encode() + ran.err.encode(), {"given": secret})


# --- errors do not tell


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(["--var", "CANARY"], id="a value without a name"),
        pytest.param(["--input", "CANARY"], id="a native value without a name"),
        pytest.param(["--input", "given=[CANARY"], id="a value that is no YAML"),
        pytest.param(["--var", "given=CANARY", "--var", "given=CANARY"], id="a value given twice"),
        pytest.param(["--var", "number=CANARY"], id="a value of another type"),
        pytest.param(["--var", "patterned=CANARY"], id="a value that does not match"),
        pytest.param(["--var", "chosen=CANARY"], id="a value that is none of the choices"),
        pytest.param(["--var", "short=CANARY"], id="a value that is too long"),
        pytest.param(["--vars-file", "values.yaml"], id="a file that holds only the value"),
        pytest.param(["--vars-file", "broken.yaml"], id="a file that is no YAML"),
        pytest.param(["--input", "given=@@CANARY"], id="the value for the name of its file"),
    ],
)
def test_an_input_that_does_not_fit_is_not_repeated(cage: Cage, words: list[str]) -> None:
    secret = CANARIES["given"]
    (cage.project.root / "values.yaml").write_text(secret)
    (cage.project.root / "broken.yaml").write_text(f"given: [{secret}\nother: {secret}")
    plain = {"type": "string", "secret": True}
    cage.project.runbook(
        note("x"),
        inputs={
            "given": plain,
            "number": {"type": "int", "secret": True},
            "patterned": {**plain, "pattern": "^[0-9]+$"},
            "chosen": {**plain, "enum": ["one", "two"]},
            "short": {**plain, "max": 3},
        },
    )
    ran = cage.project.exec(*(word.replace("CANARY", secret) for word in words))
    assert ran.code in (1, 2)
    assert not found_in((ran.out + ran.err).encode()) or "@@" in words[-1]
    assert cage.project.runs() == []


def test_nothing_of_a_secret_is_left_when_the_run_is_not_recorded(cage: Cage) -> None:
    spilling(cage)
    ran = cage.run("--mode", "dry-run", "--verbose", stdin=f"{CANARIES['asked']}\n").ended(0)
    cage.silent(ran)
    assert not list(cage.vault.glob("got-*"))


@pytest.mark.parametrize(
    ("limits", "value"),
    [
        pytest.param({"type": "string", "pattern": "^[a-z]+$"}, "../../s3cr3t;x", id="a pattern"),
        pytest.param({"type": "string", "enum": ["web", "db"]}, "s3cr3tgamma", id="a choice"),
        pytest.param({"type": "int"}, "s3cr3t-four", id="a type"),
        pytest.param({"type": "int", "max": 5}, "9000013", id="a maximum"),
    ],
)
@pytest.mark.parametrize("governance", [None, {"rules": [{"default": "require-approval"}]}], ids=["free", "approved"])
def test_a_secret_is_checked_by_the_contract_of_the_tool(
    project: Project, limits: dict[str, Any], value: str, governance: dict[str, Any] | None
) -> None:
    """A runbook that marks its input as secret does not switch off what guards the tool."""
    project.tool("guarded", ["touch", "ran-{{ .what }}"], inputs={"what": {**limits, "required": True}})
    project.runbook(
        {"id": "go", "type": "tool", "tool": "guarded", "inputs": {"what": "{{ .given }}"}},
        inputs={"given": {"type": "string", "secret": True, "required": True}},
        tools=["guarded"],
        governance=governance,
    )
    ran = project.exec("--var", f"given={value}", "--json").ended(3)
    assert ran.said["failure"]["kind"] == "invalid_input"
    assert "the value is secret and not shown" in ran.said["failure"]["message"]
    assert not list(project.root.glob("ran-*"))
    # The person is not asked to approve a call that is refused anyway.
    assert of_type(project.run().events(), "approval_submitted") == []
    assert value not in ran.out + ran.err


def test_a_secret_that_fits_reaches_the_tool(project: Project) -> None:
    project.tool("guarded", ["touch", "ran-{{ .what }}"], inputs={"what": {"type": "int", "max": 5, "required": True}})
    project.runbook(
        {"id": "go", "type": "tool", "tool": "guarded", "inputs": {"what": "{{ .given }}"}},
        inputs={"given": {"type": "string", "secret": True, "required": True}},
        tools=["guarded"],
    )
    project.exec("--var", "given=4").ended(0)
    assert (project.root / "ran-4").exists()
