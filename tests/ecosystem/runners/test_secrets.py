"""Where secrets come from: each source, what it refuses, and that no refusal repeats what it found."""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest
from tests.ecosystem.runners.vendors import vendor, write_ca

from gert.ecosystem.runners.secrets import Resolving, Secret, resolve
from gert.errors import Refused
from gert.kernel.runbook.documents.runner import KeyValueBlock, SecretSourcesBlock, VaultBlock

SECRET = "s3cr3t-of-the-bench"


def resolved(reference: str, *, dispatched: bool = False, **sources: Any) -> str:
    environ = {"TOKEN": SECRET, "PATH": os.environ["PATH"], "EMPTY": "  ", "OTHER": "not passed on"}
    resolving = Resolving(environ=environ, sources=SecretSourcesBlock(**sources), dispatched=dispatched)
    found = asyncio.run(resolve(reference, resolving))
    assert SECRET not in repr(found)
    assert SECRET not in f"{found}"
    return found.value


def refused(reference: str, **given: Any) -> str:
    with pytest.raises(Refused) as refusal:
        resolved(reference, **given)
    assert SECRET not in refusal.value.message
    assert refusal.value.__cause__ is None, "what a library said is not kept"
    return refusal.value.rule


def private(tmp_path: Path, data: bytes, mode: int = 0o600) -> Path:
    file = tmp_path / "token"
    file.write_bytes(data)
    file.chmod(mode)
    return file


class TestEnvironment:
    def test_a_variable_is_taken_out_when_it_is_used(self) -> None:
        environ = {"TOKEN": SECRET}
        resolving = Resolving(environ=environ)
        assert asyncio.run(resolve("env://TOKEN", resolving)).value == SECRET
        assert environ == {}

    @pytest.mark.parametrize(
        ("reference", "rule"),
        [
            pytest.param("env://MISSING", "secret/absent", id="not set"),
            pytest.param("env://EMPTY", "secret/empty", id="white space"),
            pytest.param("env://A/B", "secret/env", id="not a variable"),
            pytest.param("env://GERT_PLAN_SIGNING_KEY", "secret/env", id="gert's own"),
        ],
    )
    def test_what_is_refused(self, reference: str, rule: str) -> None:
        assert refused(reference) == rule

    def test_a_runner_that_gert_starts_has_no_secrets_in_its_environment(self) -> None:
        assert refused("env://TOKEN", dispatched=True) == "secret/env"


class TestFile:
    def test_one_line_break_at_the_end_is_not_part_of_it(self, tmp_path: Path) -> None:
        file = private(tmp_path, SECRET.encode() + b"\r\n")
        assert resolved(f"file://{file}") == SECRET

    @pytest.mark.parametrize(
        ("data", "mode", "rule"),
        [
            pytest.param(b"", 0o600, "secret/empty", id="empty"),
            pytest.param(SECRET.encode(), 0o640, "secret/mode", id="readable by the group"),
            pytest.param(SECRET.encode(), 0o602, "secret/mode", id="writable by others"),
            pytest.param(b"\xff\xfe", 0o600, "secret/form", id="not UTF-8"),
            pytest.param(b"a\0b", 0o600, "secret/form", id="NUL"),
            pytest.param(b"x" * 70_000, 0o600, "secret/form", id="too long"),
        ],
    )
    def test_what_is_refused(self, tmp_path: Path, data: bytes, mode: int, rule: str) -> None:
        assert refused(f"file://{private(tmp_path, data, mode)}") == rule

    def test_pipes_folders_links_and_relative_paths_are_refused(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "pipe", 0o600)
        (tmp_path / "link").symlink_to(private(tmp_path, SECRET.encode()))
        for path in ("pipe", "link", "gone", "."):
            assert refused(f"file://{tmp_path}/{path}") == "secret/file"
        assert refused("file://token") == "secret/file"


class TestCommands:
    def test_a_command_prints_the_secret_and_gets_only_its_path(self, tmp_path: Path) -> None:
        seen = tmp_path / "seen"
        script = f'echo "$0 $1 $(env | sort | cut -d= -f1 | tr "\\n" " ")" > {seen}; printf %s "$SECRET"'
        command = ("env", f"SECRET={SECRET}", "sh", "-c", script, "vault", "{path}")
        assert resolved("cmd://op/prod/db", cmd={"op": command}) == SECRET
        said = seen.read_text()
        assert said.startswith("vault prod/db ")
        assert "TOKEN" not in said
        assert "OTHER" not in said

    def test_kv_splits_path_and_field(self) -> None:
        block = KeyValueBlock(command=("printf", "%s", "{path}|{field}"), vault=None)
        assert resolved("kv://openai/dev/api_key", kv=block) == "openai/dev|api_key"

    @pytest.mark.parametrize(
        ("command", "rule"),
        [
            pytest.param(("false",), "secret/command", id="it fails"),
            pytest.param(
                ("sh", "-c", f"echo {SECRET} >&2; exit 3"), "secret/command", id="it prints the secret as error"
            ),
            pytest.param(("no-such-program-at-all",), "secret/command", id="it is not there"),
            pytest.param(("true",), "secret/empty", id="it prints nothing"),
            pytest.param(("sh", "-c", "yes"), "secret/form", id="it prints without end"),
        ],
    )
    def test_what_is_refused(self, command: tuple[str, ...], rule: str) -> None:
        assert refused("cmd://op/x", cmd={"op": command}) == rule

    @pytest.mark.parametrize("reference", ["cmd://other/x", "cmd://op/-x", "kv://a/b", "kv://a"])
    def test_what_is_not_configured_or_looks_like_an_option_is_refused(self, reference: str) -> None:
        assert refused(reference, cmd={"op": ("echo",)}) == "secret/resolver"


class TestVault:
    """A server that speaks the KV version 2 engine of Vault, and the client of the extra `vault`."""

    def block(self, tmp_path: Path, port: int, **changes: Any) -> KeyValueBlock:
        pytest.importorskip("hvac")
        token = private(tmp_path, b"hvs.token\n")
        given = {"url": f"https://localhost:{port}", "token_file": str(token), "ca_file": str(write_ca(tmp_path))}
        return KeyValueBlock(command=None, vault=VaultBlock(**{**given, **changes}))

    def test_a_field_of_a_secret_is_read_with_the_token_of_the_file(self, tmp_path: Path) -> None:
        with vendor("localhost") as served:
            document = {"data": {"data": {"api_key": SECRET}, "metadata": {"version": 1, "deletion_time": ""}}}
            served.answer = lambda asked, handler: (
                200,
                {"content-type": "application/json"},
                json.dumps(document).encode(),
            )
            assert resolved("kv://openai/dev/api_key", kv=self.block(tmp_path, served.port)) == SECRET
            (asked,) = served.asked
            assert asked.path == "/v1/secret/data/openai/dev"
            assert asked.headers["x-vault-token"] == "hvs.token"

    @pytest.mark.parametrize(
        ("status", "document"),
        [
            pytest.param(403, {"errors": [f"permission denied for {SECRET}"]}, id="not allowed"),
            pytest.param(404, {"errors": []}, id="not there"),
            pytest.param(200, {"data": {"data": {"other": SECRET}, "metadata": {}}}, id="another field"),
            pytest.param(200, {"data": {"data": {"api_key": 7}, "metadata": {}}}, id="a number"),
        ],
    )
    def test_what_is_refused(self, tmp_path: Path, status: int, document: Any) -> None:
        with vendor("localhost") as served:
            served.answer = lambda asked, handler: (
                status, {"content-type": "application/json"}, json.dumps(document).encode()
            )  # fmt: skip
            assert refused("kv://openai/dev/api_key", kv=self.block(tmp_path, served.port)) == "secret/vault"

    def test_a_token_that_others_can_read_is_refused(self, tmp_path: Path) -> None:
        block = self.block(tmp_path, 9)
        (tmp_path / "token").chmod(0o644)
        assert refused("kv://openai/dev/api_key", kv=block) == "secret/mode"


def test_a_secret_does_not_show_itself() -> None:
    assert f"{Secret(SECRET)!r} {Secret(SECRET)}" == "Secret(…) Secret(…)"
