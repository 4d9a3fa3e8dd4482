"""`gert keys` as a process: keys that work, and secrets that do not show."""

import json
import os
from pathlib import Path

import pytest
from tests.ecosystem.surfaces.cli.workbench import Project, mode_of

from gert.kernel.foundation.signature import Keys, parse_key, sign, verify

SEED = "ed25519:YmNkZWZBQkNERUZHSElKS0xNTk9QUVJTVFVWV1hZWmE="
SECRET = "base64:c2hhcmVkIHNlY3JldCBvZiB0aGUgc2VydmljZQ=="


@pytest.mark.parametrize("alg", ["ed25519", "hmac-sha256"])
def test_a_new_key_signs_and_verifies(project: Project, alg: str) -> None:
    ran = project.gert("keys", "new", "--alg", alg).ended(0)
    key = parse_key(ran.out, "me")
    assert key.alg == alg
    verify(Keys([key]), sign(key, b"x"), b"x")
    assert (f"public: {key.public_text}" in ran.err) is (alg == "ed25519")
    assert ran.out.strip() not in ran.err


def test_two_new_keys_are_two(project: Project) -> None:
    assert project.gert("keys", "new").out != project.gert("keys", "new").out


def test_a_key_in_a_file_is_only_for_its_owner_and_is_not_shown(project: Project) -> None:
    file = project.root / "ann.key"
    ran = project.gert("keys", "new", "--out", file).ended(0)
    text = file.read_text()
    if os.name == "posix":
        assert mode_of(file) == 0o600
    key = parse_key(text, "ann")
    assert text.strip().partition(":")[2] not in ran.out + ran.err
    assert f"GERT_APPROVAL_KEY_ANN={key.public_text}" in ran.out
    shown = project.gert("keys", "show", file).ended(0)
    assert key.public_text is not None
    assert key.public_text in shown.out
    assert text.strip().partition(":")[2] not in shown.out + shown.err


def test_a_file_that_is_there_is_not_written_over(project: Project) -> None:
    file = project.root / "ann.key"
    file.write_text("precious")
    assert "already exists" in project.gert("keys", "new", "--out", file).ended(2).err
    assert file.read_text() == "precious"


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(["new", "--alg", "rs256"], id="an unknown algorithm"),
        pytest.param(["new", "--out", "no/such/folder/key"], id="no folder"),
        pytest.param(["new", "--json"], id="json without a file"),
        pytest.param(["show", "nothing"], id="no such key"),
        pytest.param(["show", SECRET], id="the key itself"),
        pytest.param(["show"], id="no name"),
        pytest.param(["show", "."], id="a folder"),
    ],
)
def test_wrong_usage_exits_with_2_and_repeats_no_secret(project: Project, words: list[str]) -> None:
    ran = project.gert("keys", *words).ended(2)
    assert SECRET not in ran.out + ran.err
    assert not ran.out or ran.said["error"]["code"] == "usage"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (SEED, {"id": "k", "algorithm": "ed25519", "can_sign": True, "weak": False}),
        (parse_key(SEED).public_text, {"id": "k", "algorithm": "ed25519", "can_sign": False, "weak": False}),
        (SECRET, {"id": "k", "algorithm": "hmac-sha256", "can_sign": True, "weak": False, "public": None}),
        ("password1", {"id": "k", "algorithm": "hmac-sha256", "can_sign": True, "weak": True, "public": None}),
    ],
    ids=["private", "public", "shared", "weak"],
)
def test_what_can_be_shown_of_a_key(project: Project, text: str, expected: dict[str, object]) -> None:
    (project.root / "k.key").write_text(text)
    ran = project.gert("keys", "show", "k.key", "--json").ended(0)
    said = json.loads(ran.out)
    assert {name: said[name] for name in expected} == expected
    assert "public:" in text or text.partition(":")[2] not in ran.out or not text.partition(":")[2]
    assert "password1" not in ran.out


def test_all_keys_that_are_set_are_listed_and_weak_and_broken_ones_marked(project: Project) -> None:
    environ = {
        "GERT_TRACE_SIGNING_KEY": SEED,
        "GERT_TRACE_SIGNING_KEY_ID": "prod",
        "GERT_TRACE_KEY_OLD": "password1",
        "GERT_APPROVAL_VERIFY_KEY": parse_key(SEED).public_text or "",
        "GERT_APPROVAL_KEY_ANN": "ed25519:AAAA",
        "GERT_APPROVAL_OWNER_ANN": "ann",
    }
    ran = project.gert("keys", "list", "--json", **environ).ended(1)
    found = {each["variable"]: each for each in json.loads(ran.out)}
    assert list(found) == [
        "GERT_TRACE_KEY_OLD",
        "GERT_TRACE_SIGNING_KEY",
        "GERT_APPROVAL_KEY_ANN",
        "GERT_APPROVAL_VERIFY_KEY",
    ]
    assert found["GERT_TRACE_KEY_OLD"]["weak"]
    assert found["GERT_TRACE_SIGNING_KEY"]["id"] == "prod"
    assert found["GERT_APPROVAL_VERIFY_KEY"]["can_sign"] is False
    assert "must be 32 bytes" in found["GERT_APPROVAL_KEY_ANN"]["flaw"]
    table = project.gert("keys", "list", **environ).ended(1).out
    for secret in (SEED.partition(":")[2], "password1"):
        assert secret not in ran.out + table
    assert "weak" in table


def test_no_keys_are_said_to_be_none(project: Project) -> None:
    assert project.gert("keys", "list").ended(0).out == "no keys are set\n"


def test_a_key_made_here_verifies_an_approval(project: Project, tmp_path: Path) -> None:
    file = tmp_path / "ann.key"
    made = project.gert("keys", "new", "--out", file, "--json").ended(0).said
    assert made["file"] == str(file)
    shown = project.gert("keys", "show", "GERT_APPROVAL_KEY_ANN", "--json", GERT_APPROVAL_KEY_ANN=made["public"])
    assert shown.ended(0).said["id"] == "ann"


@pytest.mark.parametrize(
    ("owner", "remark"),
    [
        pytest.param({"GERT_APPROVAL_OWNER_ANN": "ann@example.com"}, "owner ann@example.com", id="with an owner"),
        pytest.param({"GERT_APPROVAL_OWNER_BOB": "bob@example.com"}, "no owner", id="another's owner"),
        pytest.param({}, "no owner: it can approve as anyone", id="without one"),
    ],
)
def test_whom_a_key_for_approvals_speaks_for_is_said(project: Project, owner: dict[str, str], remark: str) -> None:
    project.gert("keys", "new", "--out", project.root / "ann.key").ended(0)
    secret = (project.root / "ann.key").read_text().strip()
    assert remark in project.gert("keys", "list", GERT_APPROVAL_KEY_ANN=secret, **owner).ended(0).out


def test_a_new_key_says_how_approvals_and_traces_are_verified_with_it(project: Project) -> None:
    out = project.gert("keys", "new", "--out", project.root / "ann.key").ended(0).out
    for name in ("GERT_APPROVAL_KEY_ANN=ed25519-public:", "GERT_APPROVAL_OWNER_ANN=", "GERT_TRACE_KEY_ANN"):
        assert name in out
