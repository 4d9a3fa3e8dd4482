"""`gert skill`, `gert plan`, `gert runner` and `gert-runner`, as people and jobs use them."""

import hashlib
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.ecosystem.runners.bench import KEYS, OTHER, PING, PUBLIC, SEED, Bench, bench, listed
from tests.ecosystem.runners.vendors import Asked, Handler, Vendor, vendor
from tests.ecosystem.surfaces.cli.workbench import environment, is_alive, until

from gert.ecosystem.surfaces.runner.command import main as runner_main

POLICY = {
    "apiVersion": "policy/v0",
    "meta": {"name": "house"},
    "governance": {"rules": [{"effects": ["network"], "action": "require-approval"}, {"default": "allow"}]},
}


@pytest.fixture
def place(tmp_path: Path) -> Iterator[tuple[Bench, Vendor]]:
    with bench(tmp_path / "project") as (made, served):
        yield made, served


@pytest.fixture
def made(tmp_path: Path) -> Bench:
    return Bench(tmp_path / "project")


class TestSkill:
    def test_skills_of_the_project_and_bundled_ones_are_listed(self, made: Bench) -> None:
        rows = {row["id"]: row for row in listed(made.gert("skill", "list", "--json").ended(0))}
        assert rows[PING]["runners"] == ["local"]
        assert len(rows) == 6
        assert PING in made.gert("skill", "list").ended(0).out

    def test_a_skill_is_shown_with_what_it_reaches(self, made: Bench) -> None:
        out = made.gert("skill", "show", PING).ended(0).out
        assert "POST GET vendor.test" in out
        assert "token, scope test:ping test:more" in out
        said = made.gert("skill", "show", PING, "--json").ended(0).said
        assert said["http"]["url"] == "https://vendor.test/ping/{{ .word }}"
        assert said["digest"].startswith("sha256:")

    def test_a_misspelt_skill_is_an_error_with_a_hint(self, made: Bench) -> None:
        ran = made.gert("skill", "show", "S.vendor.test.pin.v0.1.0").ended(1)
        assert f"did you mean `{PING}`?" in ran.err

    def test_check_names_the_rule_that_refuses(self, made: Bench) -> None:
        made.gert("skill", "check", PING, "--secret-ref", made.ref).ended(0)
        out = made.gert("skill", "check", PING, "--secret-ref", "kv://prod/key").ended(1).out
        assert "secrets-policy/allow" in out
        made.runner["domains"] = ["api.openai.com"]
        made.settle()
        (said,) = listed(made.gert("skill", "check", PING, "--json").ended(1))
        assert said["router"].startswith("router/capability")
        made.skill(networkPolicy__domains=None)
        assert "not valid" in made.gert("skill", "check", PING).ended(1).err

    def test_check_without_ids_is_about_the_project(self, made: Bench) -> None:
        made.runner = {**made.runner, "vendors": ["test", "slack"]}
        made.settle()
        said = listed(made.gert("skill", "check", "--json").ended(0))
        assert [each["id"] for each in said] == [PING, "S.vendor.slack.post.v0.1.0"]

    def test_check_reports_a_file_that_is_no_skill(self, made: Bench) -> None:
        made.write("skills/broken.skill.yaml", "apiVersion: skill/v0\nid: [\n")
        out = made.gert("skill", "check").ended(1).out
        assert "✗ broken.skill.yaml" in out
        assert "gert validate" in out

    def test_a_changed_file_of_a_program_is_found_before_anything_is_approved(self, made: Bench) -> None:
        made.write("skills/run.py", "print(1)")
        files = {"run.py": f"sha256:{hashlib.sha256(b'print(1)').hexdigest()}"}
        headers = {"x-key": "{{ .secret.token }}"}
        made.skill(http=None, program={"argv": ["python3", "run.py"], "files": files, "headers": headers}, extract=None)
        file = made.authorized()
        made.gert("plan", "verify", file, **KEYS).ended(0)
        made.write("skills/run.py", "print(2)")
        assert "skill/file" in made.gert("skill", "check", PING).ended(1).out
        assert "✗ 7 skill: skill/file" in made.gert("plan", "verify", file, **KEYS).ended(1).out
        words = ("plan", "create", PING, "--var=word=hi", "--secret-ref", made.ref)
        ran = made.gert(*words, **KEYS).ended(1)
        assert hashlib.sha256(b"print(2)").hexdigest() in ran.err, "the hint has the digest to write"

    def test_two_files_with_one_id_are_refused(self, made: Bench) -> None:
        made.write("skills/again.skill.yaml", (made.root / "skills/ping.skill.yaml").read_text())
        assert "is defined in" in made.gert("skill", "list").ended(1).err

    def test_the_schema_is_printed(self, made: Bench) -> None:
        assert made.gert("schema", "skill").ended(0).said["title"] == "gert skill"
        assert made.gert("schema", "secrets-policy").ended(0).said["title"] == "gert secrets policy"


class TestPlan:
    def test_a_folder_is_no_plan(self, made: Bench) -> None:
        ran = made.gert("plan", "show", made.root).ended(2)
        assert f"`{made.root}` is not a regular file" in ran.err

    def test_the_digest_of_a_plan_is_that_of_its_file(self, made: Bench) -> None:
        file = made.create()
        said = made.gert("plan", "show", file, "--json").ended(0).said
        assert said["digest"] == f"sha256:{hashlib.sha256(file.read_bytes()).hexdigest()}"
        assert said["authorization"] is None
        assert file.stat().st_mode & 0o777 == 0o600

    @pytest.mark.parametrize(
        ("words", "code", "message"),
        [
            pytest.param(["--input", "wrod=x"], 2, "has no input `wrod`", id="an unknown input"),
            pytest.param([], 2, "no value for the required input `word`", id="a missing input"),
            pytest.param(["--input", "word=[1]"], 2, "the input `word`", id="an input of another type"),
            pytest.param(["--input", "word=x", "--runner", "codex"], 1, "no runner `codex`", id="another runner"),
            pytest.param(["--input", "word=x", "--scope", "admin"], 1, "is not one of the skill's", id="a wider scope"),
            pytest.param(
                ["--input", "word=x", "--secret-ref", "kv://x/y"], 1, "no secrets policy lets", id="another secret"
            ),
            pytest.param(["--input", "word=x", "--ttl", "soon"], 2, "--ttl", id="a ttl that is none"),
        ],
    )
    def test_what_cannot_be_planned_is_said_at_once(
        self, made: Bench, words: list[str], code: int, message: str
    ) -> None:
        reference = [] if "--secret-ref" in words else ["--secret-ref", made.ref]
        ran = made.gert("plan", "create", PING, *words, *reference).ended(code)
        assert message in ran.err
        assert not (made.root / "_state").exists()

    def test_a_plan_without_a_file_is_kept_in_the_state_directory(self, made: Bench) -> None:
        said = made.gert(
            "plan", "create", PING, "--input", "word=x", "--secret-ref", made.ref, "--json"
        ).ended(0).said  # fmt: skip
        assert Path(said["file"]).is_relative_to(made.root / "_state" / "plans")
        assert said["decision"] == "allow"
        assert "unspent" in made.gert("runner", "recover").ended(0).out

    def test_an_ordinary_ticket_approves_a_plan(self, place: tuple[Bench, Vendor]) -> None:
        made, served = place
        made.write("house.policy.yaml", POLICY)
        made.settle(policies=["house.policy.yaml"])
        file = made.create(word="{{ .x }} }} {{")
        said = made.approve(file, "--detach", "--as", "ann", "--json").ended(0).said
        (pending,) = said["pending"]
        assert pending["plan"] == json.loads(file.read_text())
        assert pending["inputs"] == {"word": "{{ .x }} }} {{"}
        assert "✗ 2 authorization: authorization/absent" in made.gert("plan", "verify", file, **KEYS).ended(1).out
        made.execute(file).ended(1)
        assert served.asked == []
        # Asked again, the same run waits for the same ticket.
        assert "authorization" not in said
        again = made.approve(file, "--detach", "--json").ended(0).said
        assert (again["run_id"], again["pending"][0]["ticket_id"]) == (said["run_id"], pending["ticket_id"])
        made.gert("approve", pending["ticket_id"], "--as", "bob").ended(0)
        made.approve(file, "--detach").ended(0)
        out = made.gert("plan", "show", file).ended(0).out
        assert "approved, until" in out
        assert "bob" in out
        assert all(line.startswith("✓") for line in made.gert("plan", "verify", file, **KEYS).ended(0).out.splitlines())
        made.execute(file).ended(0)
        assert len(served.asked) == 1

    def test_a_denied_plan_is_not_signed(self, made: Bench) -> None:
        deny = {**POLICY, "governance": {"rules": [{"effects": ["network"], "action": "deny"}]}}
        made.write("house.policy.yaml", deny)
        made.settle(policies=["house.policy.yaml"])
        file = made.create()
        made.approve(file).ended(3)
        assert "approved  no" in made.gert("plan", "show", file).ended(0).out
        assert list(made.root.glob("*.auth.json")) == []

    def test_a_plan_that_is_changed_while_it_waits_needs_another_approval(self, made: Bench) -> None:
        made.write("house.policy.yaml", POLICY)
        made.settle(policies=["house.policy.yaml"])
        file = made.create()
        (pending,) = made.approve(file, "--detach", "--as", "ann", "--json").ended(0).said["pending"]
        other = made.create(name="q", word="hi")
        file.write_bytes(other.read_bytes())
        made.gert("approve", pending["ticket_id"], "--as", "bob").ended(0)
        run = json.loads(made.gert("run", "list", "--json").out)[0]["run_id"]
        said = made.gert("resume", "--run", run, "--detach", "--json", **KEYS).ended(0).said
        assert said["pending"][0]["ticket_id"] != pending["ticket_id"]
        assert list(made.root.glob("*.auth.json")) == []

    def test_without_a_key_nothing_is_authorized(self, made: Bench) -> None:
        ran = made.gert("plan", "approve", made.create()).ended(2)
        assert "no key to authorize plans" in ran.err
        assert "gert keys new" in ran.err

    @pytest.mark.parametrize(
        ("harm", "check"),
        [
            pytest.param(lambda file: file.write_text("{}"), "1 read", id="no plan"),
            pytest.param(
                lambda file: file.write_bytes(file.read_bytes().replace(b'"hi"', b'"ho"')),
                "2 authorization",
                id="edited",
            ),
        ],
    )
    def test_verify_says_which_check_fails(self, made: Bench, harm: object, check: str) -> None:
        file = made.authorized()
        harm(file)  # type: ignore[operator]
        out = made.gert("plan", "verify", file, **KEYS).ended(1).out
        assert f"✗ {check}" in out
        assert "- 9 artifacts" in out, "what comes after a failure is not checked"

    def test_a_foreign_key_does_not_verify(self, made: Bench) -> None:
        file = made.authorized()
        out = made.gert("plan", "verify", file, GERT_PLAN_VERIFY_KEY=OTHER).ended(1).out
        assert "authorization/signature" in out
        said = made.gert("plan", "verify", file, "--json", **PUBLIC).ended(0).said
        assert [check["passed"] for check in said["checks"]] == [True] * 9


class TestRunner:
    def test_a_plan_is_executed_once(self, place: tuple[Bench, Vendor]) -> None:
        made, served = place
        file = made.authorized()
        said = made.execute(file, "--json").ended(0).said
        assert (said["exit_code"], said["outputs"]) == (0, {"path": "/ping/hi"})
        again = made.execute(file).ended(1)
        assert "was executed before (spent/plan)" in again.err
        refused = made.execute(file, "--json").ended(1).said["refused"]
        assert (refused["exit_code"], refused["rule"]) == (15, "spent/plan")
        assert len(served.asked) == 1

    def test_a_failed_execution_says_where_to_look(self, place: tuple[Bench, Vendor]) -> None:
        made, served = place
        served.answer = lambda asked, handler: (500, {}, b"")
        ran = made.execute(made.authorized()).ended(3)
        assert "the vendor answered with status 500 (vendor/status)" in ran.err
        assert "run.md" in ran.err

    def test_runners_are_listed_with_their_capabilities(self, made: Bench) -> None:
        (row,) = listed(made.gert("runner", "list", "--json").ended(0))
        assert row["id"] == "local"
        assert PING in row["skills"]
        made.settle(runners={})
        assert "no runner is registered" in made.gert("runner", "list").ended(0).out

    def test_doctor_says_what_is_missing(self, made: Bench) -> None:
        said = {each["name"]: each for each in listed(made.gert("runner", "doctor", "--json"))}
        assert said["verify key"]["ok"] is False
        assert said["runner local"]["ok"] is True
        made.runner["secrets"] = {"cmd": {"op": ["no-such-program"]}}
        made.settle(secrets_policies=[])
        ran = made.gert("runner", "doctor", PATH="/nowhere", **KEYS).ended(1)
        assert "✗ bubblewrap: not found" in ran.out
        assert "✗ sandbox: bubblewrap (`bwrap`) is not installed; programs are refused" in ran.out
        assert "✗ runner local: the program `no-such-program`" in ran.out
        assert "✗ secrets: none" in ran.out

    def test_keys_for_plans_are_listed(self, made: Bench) -> None:
        rows = listed(made.gert("keys", "list", "--json", **KEYS).ended(0))
        assert [(row["variable"], row["use"]) for row in rows] == [("GERT_PLAN_SIGNING_KEY", "plans")]


class TestProcess:
    """`gert-runner` itself, in this process."""

    def words(self, made: Bench, file: Path, *more: str) -> list[str]:
        usual = ["run", "--plan", str(file), "--runner-id", "local", "--secret-ref", made.ref, "--ttl-seconds", "60"]
        return [*usual, "--scope", "test:ping", "--project", str(made.root), "--state-dir", str(made.root), *more]

    @pytest.fixture
    def verifying(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("GERT_PLAN_VERIFY_KEY", PUBLIC["GERT_PLAN_VERIFY_KEY"])

    def test_it_prints_json_and_its_exit_code(
        self, place: tuple[Bench, Vendor], verifying: None, capsys: pytest.CaptureFixture[str]
    ) -> None:
        made, served = place
        file = made.authorized()
        assert runner_main(self.words(made, file, "--json")) == 0
        said = json.loads(capsys.readouterr().out)
        assert (said["exit_code"], said["requests"], said["rule"]) == (0, 1, None)
        assert runner_main(self.words(made, file)) == 15
        assert "was executed before" in capsys.readouterr().err
        assert len(served.asked) == 1

    def test_a_plan_for_a_state_directory_needs_no_ledger(
        self, place: tuple[Bench, Vendor], verifying: None, capsys: pytest.CaptureFixture[str]
    ) -> None:
        made, served = place
        file = made.authorized("--no-ledger")
        assert runner_main(self.words(made, file)) == 15, "it is not spent in a ledger"
        assert runner_main(self.words(made, file, "--no-ledger")) == 0
        assert runner_main(self.words(made, file, "--no-ledger")) == 15
        assert len(served.asked) == 1
        ledgered = made.authorized(name="q")
        assert runner_main(self.words(made, ledgered, "--no-ledger")) == 15, "a plan says where it is spent"
        assert runner_main(self.words(made, ledgered, "--db", str(made.root / "fresh.db"))) == 15
        assert len(served.asked) == 1
        capsys.readouterr()

    @pytest.mark.parametrize(
        ("words", "code"),
        [
            pytest.param(["run"], 2, id="no plan"),
            pytest.param(
                ["run", "--plan", "gone", "--runner-id", "x", "--ttl-seconds", "9"], 2, id="a plan that is gone"
            ),
            pytest.param(["--version"], 0, id="the version"),
            pytest.param(["run", "--help"], 0, id="help"),
        ],
    )
    def test_how_it_is_called(self, words: list[str], code: int, capsys: pytest.CaptureFixture[str]) -> None:
        assert runner_main(words) == code
        out, err = capsys.readouterr()
        assert ("error:" in err) is (code == 2)
        assert "Traceback" not in out + err

    def test_what_resolves_a_secret_cannot_keep_the_runner(self, place: tuple[Bench, Vendor], tmp_path: Path) -> None:
        """A command whose descendant holds its output, and outlives its session."""
        made, served = place
        pid = tmp_path / "pid"
        script = f"sh -c 'echo $$ > {pid}; exec sleep 600' & setsid sh -c 'exec sleep 20' & wait"
        made.runner["secrets"] = {"cmd": {"slow": ["sh", "-c", script]}}
        made.allow = [{"skills": ["S.**"], "secret_refs": ["cmd://slow/*"], "scopes": ["**"]}]
        made.settle()
        made.skill(timeout="6s")
        file = made.authorized("--secret-ref", "cmd://slow/x")
        assert self.process(made, file, "cmd://slow/x") == 25
        assert served.asked == []
        assert made.record()["rule"] == "timeout/limit"
        until(lambda: not is_alive(int(pid.read_text())))

    def test_a_vault_that_answers_without_end_cannot_keep_the_runner(self, place: tuple[Bench, Vendor]) -> None:
        pytest.importorskip("hvac")
        made, _ = place
        over = threading.Event()

        def drip(asked: Asked, handler: Handler) -> None:
            handler.wfile.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n")
            with suppress(OSError):
                while not over.wait(0.2):
                    handler.wfile.write(b" ")

        with vendor("localhost") as vault:
            vault.answer = drip
            url = f"https://localhost:{vault.port}"
            block = {"url": url, "token_file": str(made.secret), "ca_file": str(made.ca)}
            made.runner["secrets"] = {"kv": {"vault": block}}
            made.allow = [{"skills": ["S.**"], "secret_refs": ["kv://**"], "scopes": ["**"]}]
            made.settle()
            made.skill(timeout="6s")
            file = made.authorized("--secret-ref", "kv://a/b")
            try:
                assert self.process(made, file, "kv://a/b") == 25
            finally:
                over.set()
            assert len(vault.asked) == 1

    def test_certificates_come_from_the_runner_and_not_from_the_environment(self, place: tuple[Bench, Vendor]) -> None:
        made, served = place
        trusted = made.runner.pop("ca_file")
        made.settle()
        file = made.authorized()
        assert self.process(made, file, made.ref, SSL_CERT_FILE=str(made.root / str(trusted))) == 24
        assert made.record()["rule"] == "transport/tls"
        assert served.asked == []

    def process(self, made: Bench, file: Path, reference: str, **environ: str) -> int:
        """Start `gert-runner`; it ends in time."""
        words = self.words(made, file)
        words[words.index("--secret-ref") + 1] = reference
        command = [sys.executable, "-m", "gert.ecosystem.surfaces.runner", *words]
        known = environment({**PUBLIC, **environ})
        return subprocess.run(command, env=known, capture_output=True, check=False, timeout=50).returncode

    def test_an_unexpected_error_says_nothing_but_its_kind(
        self, made: Bench, verifying: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        from gert.ecosystem.surfaces.runner import command

        def fail(*_: object, **__: object) -> None:
            raise RuntimeError(SEED)

        monkeypatch.setattr(command, "run_once", fail)
        assert runner_main(self.words(made, made.create())) == 30
        assert capsys.readouterr().err == "error: internal error: RuntimeError\n"
