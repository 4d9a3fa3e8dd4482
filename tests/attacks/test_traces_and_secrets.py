"""Attempts to change a sealed record, to pass off a key, and to get a secret past redaction."""

import base64
import json
from collections.abc import Callable

import pytest
from tests.attacks.attack import Attack, table
from tests.ecosystem.surfaces.cli.workbench import Project, note, of_type

from gert.kernel.foundation.canonical import sha256_hex
from gert.kernel.foundation.signature import parse_key

SEED = "ed25519:QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVphYmNkZWY="
PUBLIC = parse_key(SEED).public_text or ""
SECRET = "Zebra-7741-Ünïcode-key"


def after_the_seal(change: Callable[[bytes], bytes]) -> Callable[[Project], str]:
    """Append a notification to a sealed trace, changed, with a chain that holds."""

    def attempt(project: Project) -> str:
        project.runbook(note("one"))
        project.exec("--trace", project.root / "t.jsonl", GERT_TRACE_SIGNING_KEY=SEED).ended(0)
        trace = project.root / "t.jsonl"
        lines = trace.read_bytes().splitlines()
        last = json.loads(lines[-1])
        event = {
            "seq": last["seq"] + 1,
            "run_id": last["run_id"],
            "type": "webhook_sent",
            "timestamp": last["timestamp"],
            "prev_hash": sha256_hex(lines[-1]),
            "data": {"url": "https://example.com/", "delivered": True, "attempts": 1},
        }
        line = json.dumps(event, separators=(",", ":")).encode()
        trace.write_bytes(b"".join(each + b"\n" for each in [*lines, line]))
        project.gert("trace", "verify", trace, GERT_TRACE_SIGNING_KEY=PUBLIC).ended(0)
        trace.write_bytes(b"".join(each + b"\n" for each in [*lines, change(line)]))
        return project.gert("trace", "verify", trace, GERT_TRACE_SIGNING_KEY=PUBLIC).ended(1).out

    return attempt


def verified_with(
    text: str, *words: str, code: int = 1, name: str = "GERT_TRACE_SIGNING_KEY"
) -> Callable[[Project], str]:
    """Verify a trace that is signed with an Ed25519 key."""

    def attempt(project: Project) -> str:
        project.runbook(note("one"))
        project.exec(
            "--trace", project.root / "t.jsonl", GERT_TRACE_SIGNING_KEY=SEED, GERT_TRACE_SIGNING_KEY_ID="prod"
        ).ended(0)
        ran = project.gert("trace", "verify", project.root / "t.jsonl", *words, **{name: text}).ended(code)
        return ran.out + ran.err

    return attempt


def forged_response(project: Project) -> str:
    """Answer a ticket without a key, in a project that denies contract violations."""
    rules = [
        {"contract_violations": "deny"},
        {"effects": ["restart"], "action": "require-approval"},
        {"default": "allow"},
    ]
    project.note_tool("restart", contract={"effects": ["restart"]})
    project.runbook(
        note("fix", tool="restart"), tools=("restart",), governance={"rules": rules, "require_signed_approvals": True}
    )
    key = {"GERT_APPROVAL_KEY_BOB": SEED}
    said = project.gert("exec", project.root / "book.yaml", "--detach", "--json", **key).ended(0).said
    ticket = said["pending"][0]["ticket_id"]
    refused = project.gert("approve", ticket, "--as", "bob")
    assert refused.code != 0
    assert project.noted() == []
    project.gert("approve", ticket, "--as", "bob", "--key", "GERT_APPROVAL_KEY_BOB", **key).ended(0)
    project.gert("resume", "--run", said["run_id"], **key).ended(0)
    assert project.noted() == ["fix"]
    assert of_type(project.run().events(), "contract_violation") == []
    return refused.out + refused.err


ATTACKS = [
    Attack(
        "a key twice in a line after the seal",
        why="two JSON parsers read the line differently",
        attempt=after_the_seal(lambda line: line.replace(b'"data":{', b'"data":{"url":"x",')),
        reason="`url` occurs twice",
    ),
    Attack(
        "a key twice deep inside a line after the seal",
        why="duplicate keys count at any depth",
        attempt=after_the_seal(lambda line: line.replace(b'"data":{', b'"data":{"a":[{"b":1,"b":2}],')),
        reason="is not as gert writes it",
    ),
    Attack(
        "an unknown field after the seal",
        why="nothing after the seal may say more than a notification does",
        attempt=after_the_seal(lambda line: line[:-2] + b',"outcome":"resolved"}}'),
        reason="is not as gert writes it",
    ),
    Attack(
        "a huge number after the seal",
        why="readers round it differently",
        attempt=after_the_seal(lambda line: line.replace(b'"attempts":1', b'"attempts":9007199254740993')),
        reason="Chain broken",
    ),
    Attack(
        "a public key in base64 as the key to verify with",
        why="as a shared secret, everybody who knows the public key could sign",
        attempt=verified_with(PUBLIC.partition(":")[2]),
        reason="base64 of 32 bytes",
    ),
    Attack(
        "a public key with a byte order mark",
        why="it is not plain text",
        attempt=verified_with("\ufeff" + PUBLIC),
        reason="byte order mark",
    ),
    Attack(
        "a public key with a comment before it",
        why="it is not plain text",
        attempt=verified_with("# prod\n" + PUBLIC),
        reason="has something around it",
    ),
    Attack(
        "a demand for the key prod, met by a key without a label",
        why="the default key is not the key prod",
        attempt=verified_with(PUBLIC, "--key-id", "prod"),
        reason="no key of that id is listed",
    ),
    Attack(
        "a demand for the key prod, met by a key of another id",
        why="the demand names one key",
        attempt=verified_with(PUBLIC, "--key-id", "prod", name="GERT_TRACE_KEY_DEV"),
        reason="no key of that id is listed",
    ),
    Attack(
        "a demand for an id that reads like prod",
        why="key ids are ASCII without white space (DECISIONS 82)",
        attempt=verified_with(PUBLIC, "--key-id", "pr\u043ed", name="GERT_TRACE_KEY_PR_D"),
        reason="expected a signature by key",
    ),
    Attack(
        "an unsigned response halts a run that denies contract violations",
        why="one forged response could stop any run (DECISIONS 69)",
        attempt=forged_response,
        reason="sign",
    ),
]


@pytest.mark.parametrize("attack", table(ATTACKS))
def test_attack_fails(attack: Attack, project: Project) -> None:
    attack.fails(project)


SPELLINGS = {
    "as UTF-16": SECRET.encode("utf-16"),
    "as UTF-16, the other way round": SECRET.encode("utf-16-be"),
    "as codes": "".join(f"\\u{ord(char):04x}" for char in SECRET).encode(),
    "as codes in capitals": "".join(f"\\u{ord(char):04X}" for char in SECRET).encode(),
    "as entities": "".join(f"&#{ord(char)};" for char in SECRET).encode(),
    "as padded entities without semicolons": "".join(f"&#{ord(char):06d}" for char in SECRET).encode(),
    "as percent": "".join(f"%{octet:02x}" for octet in SECRET.encode()).encode(),
    "as octal": "".join(f"\\{octet:03o}" for octet in SECRET.encode()).encode(),
    "as base64 in a URL": base64.b64encode(SECRET.encode()).replace(b"=", b"%3D").replace(b"+", b"%2B"),
}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_tool_cannot_print_its_secret(spelling: str, project: Project) -> None:
    data = SPELLINGS[spelling]
    (project.root / "said").write_bytes(b"it is " + data + b".\n")
    project.script(
        "leak",
        f"cat '{project.root}/said'",
        extract={"said": {"from": "stdout", "pattern": "(?s)(.*)"}},
        secrets=[{"env": "LEAKED"}],
    )
    project.runbook({"id": "one", "type": "tool", "tool": "leak", "inputs": {}}, tools=("leak",))
    ran = project.exec(LEAKED=SECRET)
    kept = project.run().trace.read_text(encoding="utf-8") + ran.out + ran.err
    assert "[REDACTED]" in kept
    left = data.decode("utf-8", "replace")
    assert left[2:-2] not in kept
    assert json.dumps(left[2:-2])[1:-1] not in kept
