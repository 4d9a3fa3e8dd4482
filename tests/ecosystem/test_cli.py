"""The command line as people and scripts use it: output, exit codes, and what it must not do."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import jsonschema_rs
import pytest

from gert.ecosystem.host.config.workspace import Workspace
from gert.ecosystem.surfaces.cli.main import COMMANDS, group, main
from gert.ecosystem.surfaces.cli.render.output import error_document, print_json_line

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
GERT = [sys.executable, "-m", "gert"]

GOOD = """apiVersion: kernel/v0
meta: {name: t}
steps:
  - {type: end, outcome: {category: resolved, code: ok}}
"""
WARNED = GOOD.replace("meta: {name: t}", "meta: {name: t, inputs: {a: {required: true, default: 1}}}")
BROKEN = GOOD.replace("resolved", "solved")


def gert(*arguments: str, stdin: bytes = b"", cwd: Path = ROOT) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([*GERT, *arguments], input=stdin, capture_output=True, cwd=cwd, timeout=60, check=False)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


class TestValidate:
    def test_a_valid_runbook_exits_with_0(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        (folder / "a.yaml").write_text(GOOD)
        assert main(["validate", "a.yaml"]) == 0
        assert capsys.readouterr().out == "✓ a.yaml (runbook)\n"

    def test_a_broken_one_exits_with_1_and_points_at_the_place(
        self, folder: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (folder / "a.yaml").write_text(BROKEN)
        assert main(["validate", "a.yaml"]) == 1
        lines = capsys.readouterr().out.splitlines()
        assert lines[0].startswith("a.yaml:4:37: error[J02]: expected one of `resolved`")
        assert lines[1] == "  4 |   - {type: end, outcome: {category: solved, code: ok}}"
        assert lines[2].index("^") == lines[1].index("solved")
        assert lines[3] == "    = hint: did you mean `resolved`?"

    def test_the_caret_stands_under_wide_characters(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        (folder / "a.yaml").write_text(GOOD.replace("{type: end,", "{description: 障害対応, type: ned,"))
        assert main(["validate", "a.yaml"]) == 1
        _, source, caret, _ = capsys.readouterr().out.splitlines()[:4]
        assert caret.index("^") == source.index("ned") + len("障害対応")

    def test_warnings_fail_only_when_strict(self, folder: Path) -> None:
        (folder / "a.yaml").write_text(WARNED)
        assert main(["validate", "a.yaml"]) == 0
        assert main(["validate", "a.yaml", "--strict"]) == 1

    def test_json_carries_everything_a_finding_has(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        (folder / "a.yaml").write_text(BROKEN)
        assert main(["validate", "a.yaml", "--json"]) == 1
        report = json.loads(capsys.readouterr().out)
        [file] = report["files"]
        [finding] = file["findings"]
        assert (report["valid"], file["kind"], file["valid"]) == (False, "runbook", False)
        assert finding == {
            "rule": "J02",
            "severity": "error",
            "path": "steps[0].outcome.category",
            "line": 4,
            "column": 37,
            "message": "expected one of `resolved`, `escalated`, `no_action`, `needs_rca`, found the text `solved`",
            "hint": "did you mean `resolved`?",
        }
        assert report["summary"] == {"errors": 1, "warnings": 0, "notes": 0, "skipped": 0, "unfinished": 1}

    def test_errors_that_prevent_further_checks_are_said_once_at_the_end(
        self, folder: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        sources = {
            "a.yaml": BROKEN,
            "b.yaml": GOOD.replace("steps:", "stepz:"),
            "c.yaml": GOOD,
            "d.yaml": GOOD.replace("  - {type: end", "  - {type: end, id: step"),
        }
        for name, source in sources.items():
            (folder / name).write_text(source)
        assert main(["validate", *sources]) == 1
        last = "fix the errors first: they prevented further checks of 2 files"
        assert capsys.readouterr().out.splitlines()[-1] == last
        assert main(["validate", *sources, "--json"]) == 1
        assert json.loads(capsys.readouterr().out)["summary"]["unfinished"] == 2
        assert main(["validate", "d.yaml"]) == 1
        assert "further checks" not in capsys.readouterr().out

    def test_a_hint_says_what_to_write(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        meta = "meta: {name: t, timeout: 300, inputs: {a: {type: integer}, b: {type: dict}}}"
        (folder / "a.yaml").write_text(GOOD.replace("meta: {name: t}", meta))
        (folder / "b.policy.yaml").write_text(
            "apiVersion: policy/v0\nmeta: {name: b}\ngovernance:\n"
            "  rules: [{risk: high, action: require-approval, approval_timeout: 5m}]\n"
        )
        assert main(["validate", "a.yaml", "b.policy.yaml", "--json"]) == 1
        found = [each for file in json.loads(capsys.readouterr().out)["files"] for each in file["findings"]]
        assert {each["path"]: each["hint"] for each in found} == {
            "meta.timeout": "write `300s` for seconds",
            "meta.inputs.a.type": "did you mean `int`?",
            "meta.inputs.b.type": "did you mean `object`?",
            "governance.rules[0].approval_timeout": (
                "it applies to all rules: move `approval_timeout` to `governance`, beside `rules`"
            ),
        }

    def test_a_rule_that_matches_nothing_because_of_a_typo_fails_only_when_strict(
        self, folder: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (folder / "policies").mkdir()
        (folder / "tools").mkdir()
        (folder / "gert-project.yaml").write_text("name: p\npolicies: [policies]\n")
        (folder / "tools" / "cache.tool.yaml").write_text(
            "apiVersion: tool/v0\nmeta: {name: cache, transport: stdio, binary: x}\n"
            "contract: {effects: [filesystem], writes: [cache]}\nactions: {clear: {argv: [x]}}\n"
        )
        policy = folder / "policies" / "a.policy.yaml"
        text = (
            "apiVersion: policy/v0\nmeta: {name: a}\ngovernance:\n  rules:\n"
            "    - {writes: [caches], action: require-approval}\n    - {default: require-approval}\n"
        )
        policy.write_text(text)
        assert main(["validate", "."]) == 0
        assert "policies/a.policy.yaml:5:17: warning[D57]: rule 1 matches no tool" in capsys.readouterr().out
        assert main(["validate", ".", "--strict"]) == 1
        policy.write_text(text.replace("caches", "cache"))
        assert main(["validate", ".", "--strict"]) == 0
        policy.write_text(text.replace("caches", "billing"))
        assert main(["validate", ".", "--strict"]) == 0
        said = capsys.readouterr().out
        assert "note[D57]: rule 1 matches no tool" in said
        assert "3 files: 0 errors, 0 warnings, 1 note\n" in said

    def test_sarif_says_the_same(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        (folder / "ä b.yaml").write_text(BROKEN)
        assert main(["validate", "ä b.yaml", "--format", "sarif"]) == 1
        log = json.loads(capsys.readouterr().out)
        [run] = log["runs"]
        [result] = run["results"]
        assert log["version"] == "2.1.0"
        assert result["ruleId"] == run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == "J02"
        place = result["locations"][0]["physicalLocation"]
        assert place["artifactLocation"]["uri"] == "%C3%A4%20b.yaml"
        assert place["region"] == {"startLine": 4, "startColumn": 37}

    def test_a_folder_is_searched_and_other_yaml_is_passed_over(
        self, folder: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (folder / "books" / "deep").mkdir(parents=True)
        (folder / "books" / "a.yaml").write_text(GOOD)
        (folder / "books" / "deep" / "b.yml").write_text(BROKEN)
        (folder / "books" / "ci.yaml").write_text("on: push\n")
        (folder / "books" / "junk.yaml").write_bytes(b"\xff\xfe\x00")
        assert main(["validate", "books", "--json"]) == 1
        files = {file["file"]: file["valid"] for file in json.loads(capsys.readouterr().out)["files"]}
        assert files == {os.path.join("books", "a.yaml"): True, os.path.join("books", "deep", "b.yml"): False}

    @pytest.mark.parametrize(
        ("name", "source"),
        [
            pytest.param("a.yaml", b"apiVersion: kernel/v0\nmeta: [\n", id="a runbook that does not parse"),
            pytest.param("a.yaml", b"apiVersion: kernel/v0\nx: \xff\n", id="a runbook that is not UTF-8"),
            pytest.param("a.yaml", b"apiVersion: kernel/v1\n", id="a runbook of another version"),
            pytest.param("a.tool.yaml", b"{", id="a tool by its name alone"),
        ],
    )
    def test_a_broken_document_of_ours_is_never_passed_over(self, folder: Path, name: str, source: bytes) -> None:
        (folder / name).write_bytes(source)
        (folder / "fine.yaml").write_text(GOOD)
        assert main(["validate", "."]) == 1

    def test_a_file_that_cannot_be_read_does_not_hide_the_others(
        self, folder: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (folder / "dead.yaml").symlink_to("nowhere")
        (folder / "fine.yaml").write_text(GOOD)
        assert main(["validate", ".", "--json"]) == 1
        files = json.loads(capsys.readouterr().out)["files"]
        assert [(file["kind"], file["valid"]) for file in files] == [("unreadable", False), ("runbook", True)]
        assert files[0]["findings"][0]["rule"] == "Y02"

    def test_a_folder_that_contains_itself_is_searched_once(self, folder: Path) -> None:
        (folder / "fine.yaml").write_text(GOOD)
        (folder / "loop").symlink_to(folder, target_is_directory=True)
        assert len(list(Workspace().check_all(["."]))) == 1

    def test_the_configuration_in_our_own_hidden_folder_is_checked(self, folder: Path) -> None:
        (folder / "fine.yaml").write_text(GOOD)
        for hidden, code in ((".other", 0), (".gert", 1)):
            (folder / hidden).mkdir()
            (folder / hidden / "config.yaml").write_text("provders: {}\n")
            assert main(["validate", "."]) == code

    def test_standard_input_is_a_document_too(self) -> None:
        done = gert("validate", "-", stdin=BROKEN.encode())
        assert done.returncode == 1
        assert done.stdout.startswith(b"<stdin>:4:37: error[J02]")

    def test_a_terminal_without_unicode_is_spoken_to_all_the_same(self, folder: Path) -> None:
        (folder / "ä.yaml").write_text(BROKEN.replace("ok", "äöü"))
        environment = {**os.environ, "PYTHONIOENCODING": "latin-1", "PYTHONUTF8": "0"}
        outputs = []
        for arguments in (["validate", "ä.yaml"], ["validate", "ä.yaml", "--json"]):
            done = subprocess.run([*GERT, *arguments], capture_output=True, env=environment, timeout=60, check=False)
            assert (done.returncode, done.stderr) == (1, b"")
            outputs.append(done.stdout)
        assert outputs[0].splitlines()[-2] == "\\u2717 ä.yaml (runbook)".encode("latin-1")
        assert json.loads(outputs[1].decode("ascii"))["files"][0]["file"] == "ä.yaml"

    def test_the_searched_places_are_in_the_error(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """kernel-v0 §12.3 and DECISIONS 10: the order of lookup is told when nothing is found."""
        (folder / "gert-project.yaml").write_text("name: p\n")
        books = folder / "team" / "books"
        books.mkdir(parents=True)
        (books / "a.yaml").write_text(GOOD.replace("steps:", "tools: [nope]\nsteps:"))
        main(["validate", "team", "--json"])
        [file] = json.loads(capsys.readouterr().out)["files"]
        hint = next(finding["hint"] for finding in file["findings"] if finding["rule"] == "D15")
        assert hint == "searched: team/books/tools/nope.tool.yaml; tools/nope.tool.yaml"

    @pytest.mark.parametrize("place", ["team/books/tools", "team/tools", "tools"])
    def test_tools_are_found_in_each_documented_place(self, folder: Path, place: str) -> None:
        books = folder / "team" / "books"
        books.mkdir(parents=True)
        (folder / "team" / "gert-project.yaml").write_text("name: p\n")
        (books / "a.yaml").write_text(
            GOOD.replace("steps:", "tools: [echo]\nsteps:\n  - {id: e, type: tool, tool: echo}\n")
        )
        (folder / place).mkdir(parents=True)
        tool = "apiVersion: tool/v0\nmeta: {name: echo}\ncontract: {effects: []}\nactions: {say: {argv: [echo]}}\n"
        (folder / place / "echo.tool.yaml").write_text(tool)
        assert main(["validate", "team/books/a.yaml", "--strict"]) == 0

    def test_the_nearest_tool_wins(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        (folder / "books" / "tools").mkdir(parents=True)
        (folder / "tools").mkdir()
        (folder / "books" / "a.yaml").write_text(
            GOOD.replace("steps:", "tools: [echo]\nsteps:\n  - {id: e, type: tool, tool: echo, action: near}\n")
        )
        for place, action in (("books/tools", "near"), ("tools", "far")):
            (folder / place / "echo.tool.yaml").write_text(
                "apiVersion: tool/v0\nmeta: {name: echo}\ncontract: {effects: []}\n"
                f"actions: {{{action}: {{argv: [echo]}}}}\n"
            )
        assert main(["validate", "books/a.yaml"]) == 0

    def test_secrets_are_listed_by_name_and_never_by_value(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """ecosystem-v0 §12."""
        monkeypatch.setenv("HERE", "hunter2")
        monkeypatch.delenv("GONE", raising=False)
        (folder / "a.yaml").write_text(GOOD.replace("{name: t}", "{name: t, secrets: [{env: HERE}, {env: GONE}]}"))
        assert main(["validate", "a.yaml"]) == 0
        out = capsys.readouterr().out
        assert "requires 2 secrets: HERE (set), GONE (missing)" in out
        assert "note[D22]: the runbook requires the secret `GONE`" in out
        assert "hunter2" not in out

    def test_what_this_machine_lacks_does_not_fail_a_strict_check(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """A pipeline has no credentials, and is not the machine that the tool is for."""
        monkeypatch.delenv("GONE", raising=False)
        (folder / "tools").mkdir()
        (folder / "tools" / "t.tool.yaml").write_text(
            "apiVersion: tool/v0\nmeta: {name: t, platform: [aix], secrets: [{env: GONE}]}\n"
            "contract: {effects: [], writes: []}\nactions: {go: {argv: [echo]}}\n"
        )
        text = GOOD.replace("steps:", "tools: [t]\nsteps:\n  - {id: a, type: tool, tool: t}")
        (folder / "a.yaml").write_text(text)
        assert main(["validate", ".", "--strict"]) == 0
        assert "requires 1 secret: GONE (missing)" in capsys.readouterr().out

    @pytest.mark.parametrize(
        ("path", "text", "said"),
        [
            pytest.param(
                "runbooks/b.yaml",
                GOOD.partition("\n")[2],
                "begin the file with `apiVersion: kernel/v0`",
                id="a runbook",
            ),
            pytest.param(
                "b.yaml",
                GOOD.partition("\n")[2],
                "begin the file with `apiVersion: kernel/v0`",
                id="a runbook elsewhere",
            ),
            pytest.param(
                "b.yaml", GOOD.replace("apiVersion", "apiversion"), "write `apiVersion: kernel/v0`", id="another case"
            ),
            pytest.param("runbooks/b.yaml", "\0\x01\x02", "error[", id="bytes"),
            pytest.param("tools/sub/b.yml", "- a\n", "expected a gert document, found a list", id="a list in tools"),
            pytest.param("policies/b.yaml", "a: 1\n", "`apiVersion` is missing", id="a map in policies"),
        ],
    )
    def test_a_document_without_its_version_is_not_skipped(
        self, folder: Path, path: str, text: str, said: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (folder / "gert-project.yaml").write_text("name: p\n")
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
        assert main(["validate", "."]) == 1
        out = capsys.readouterr().out
        assert f"{path}:1:" in out
        assert said in out
        assert "2 files: 1 error" in out

    def test_what_belongs_to_other_programs_is_counted(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        (folder / "gert-project.yaml").write_text("name: p\n")
        (folder / "compose.yaml").write_text("services: {}\n")
        (folder / "steps.yaml").write_text("steps: [{script: make}]\n")
        (folder / "policies").mkdir()
        (folder / "policies" / "kyverno.yaml").write_text("apiVersion: kyverno.io/v1\nkind: ClusterPolicy\n")
        (folder / "runbooks" / "scenarios" / "a" / "b").mkdir(parents=True)
        (folder / "runbooks" / "scenarios" / "a" / "b" / "evidence.yaml").write_text("a: 1\n")
        assert main(["validate", "."]) == 0
        assert "1 file: 0 errors, 0 warnings; skipped 4 YAML files of other programs" in capsys.readouterr().out
        assert main(["validate", ".", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["summary"]["skipped"] == 4

    def test_two_formats_are_refused(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        (folder / "a.yaml").write_text(GOOD)
        assert main(["validate", ".", "--json", "--format", "sarif"]) == 2
        assert "expected `--json` or `--format sarif`" in capsys.readouterr().err

    @pytest.mark.parametrize(
        ("named", "hint"),
        [
            pytest.param("books/restrat.yaml", "did you mean `books/restart.yaml`?", id="misspelt"),
            pytest.param("books/restart.yml", "did you mean `books/restart.yaml`?", id="another ending"),
            pytest.param("books/other-thing-entirely.yaml", "", id="nothing like it"),
            pytest.param("nowhere/restart.yaml", "", id="no such folder"),
        ],
    )
    def test_a_file_that_is_not_there_may_be_misspelt(
        self, folder: Path, capsys: pytest.CaptureFixture[str], named: str, hint: str
    ) -> None:
        (folder / "books").mkdir(exist_ok=True)
        (folder / "books" / "restart.yaml").write_text(GOOD)
        assert main(["validate", named]) == 2
        error = capsys.readouterr().err
        assert f"there is no file `{named}`" in error
        assert ("did you mean" in error) is bool(hint)
        assert hint in error

    def test_a_secret_that_may_be_missing_is_not_required(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setenv("HERE", "hunter2")
        monkeypatch.delenv("MAYBE", raising=False)
        secrets = "[{env: MAYBE, required: false}, {env: HERE}]"
        (folder / "a.yaml").write_text(GOOD.replace("{name: t}", f"{{name: t, secrets: {secrets}}}"))
        assert main(["validate", "a.yaml", "--strict"]) == 0
        assert "  requires 1 secret: HERE (set)\n  can use 1 secret: MAYBE (missing)\n" in capsys.readouterr().out

    def test_data_cannot_steer_the_terminal(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        (folder / "a.yaml").write_text(GOOD + '"\\e[2J\\e]0;owned\\a\\u202eevil": 1\n')
        assert main(["validate", "a.yaml"]) == 1
        out = capsys.readouterr().out
        assert "\x1b" not in out
        assert "\u202e" not in out

    @pytest.mark.parametrize(
        ("arguments", "code", "message"),
        [
            pytest.param(["validate", "gone.yaml"], 2, "there is no file `gone.yaml`", id="a missing file"),
            pytest.param(["validate"], 2, "missing argument", id="no file at all"),
            pytest.param(["validate", "."], 2, "no gert documents", id="an empty folder"),
            pytest.param(["validate", "--format", "xml", "a"], 2, "xml", id="an unknown format"),
            pytest.param(["validate", "/dev/null"], 1, "not a regular file", id="a device"),
            pytest.param(["validate", "a\0b"], 2, "not a path", id="a NUL in the path"),
            pytest.param(["vaildate"], 2, "did you mean `validate`?", id="a misspelt command"),
            pytest.param(["schema", "tol"], 2, "`tol` is not one of", id="an unknown schema"),
            pytest.param(["explain", "gone.yaml"], 2, "there is no file", id="explaining nothing"),
        ],
    )
    def test_wrong_calls_get_a_clear_error(
        self, folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, message: str
    ) -> None:
        """DECISIONS 46."""
        assert main(arguments) == code
        captured = capsys.readouterr()
        assert captured.err.startswith("error: ")
        assert message in captured.err
        assert captured.out == ""


class TestExplain:
    RUNBOOK = str(EXAMPLES / "runbooks" / "kubernetes-pod-restart.yaml")
    POLICY = str(EXAMPLES / "policies" / "production.policy.yaml")

    def test_the_rule_that_would_decide_is_named(self, capsys: pytest.CaptureFixture[str]) -> None:
        """DECISIONS 22: a decision names the rule that made it."""
        assert main(["explain", self.RUNBOOK, "--json"]) == 0
        steps = {step["step"]: step for step in json.loads(capsys.readouterr().out)["steps"]}
        delete = steps["delete_pod"]
        assert (delete["risk_level"], delete["decision"]) == ("critical", "require-approval")
        assert delete["rule"].startswith("runbook rule ")
        assert delete["contract"]["writes"] == ["pods"]

    def test_an_external_policy_is_the_floor(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["explain", self.RUNBOOK, "delete_pod", "--policy", self.POLICY, "--json"]) == 0
        [step] = json.loads(capsys.readouterr().out)["steps"]
        assert [match["policy"] for match in step["considered"]] == ["runbook", "production"]
        assert "production rule" in step["rule"]

    def test_the_policies_of_the_project_are_a_floor(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        (folder / "gert-project.yaml").write_text("name: p\npolicies: [strict.policy.yaml, more]\n")
        policy = "apiVersion: policy/v0\nmeta: {{name: {}}}\ngovernance: {{rules: [{{default: {}}}]}}\n"
        (folder / "strict.policy.yaml").write_text(policy.format("strict", "require-approval"))
        (folder / "more").mkdir()
        (folder / "more" / "never.policy.yaml").write_text(policy.format("never", "deny"))
        (folder / "books").mkdir()
        step = "steps:\n  - {id: look, type: manual, instructions: look, contract: {effects: []}}\n"
        (folder / "books" / "a.yaml").write_text(GOOD.replace("steps:\n", step))
        assert main(["explain", "books/a.yaml", "--json"]) == 0
        [step] = json.loads(capsys.readouterr().out)["steps"]
        assert (step["decision"], step["rule"]) == ("deny", "never rule 1 (default)")

    @pytest.mark.parametrize(
        ("policies", "message"),
        [
            pytest.param("[gone.yaml]", "gert-project.yaml:2:12: there is no policy at", id="a missing policy"),
            pytest.param("[empty]", "gert-project.yaml:2:12: there are no policies", id="an empty folder"),
            pytest.param("[books/a.yaml]", "expected `policy/v0`", id="a runbook for a policy"),
        ],
    )
    def test_a_floor_that_is_not_there_is_never_passed_over(
        self, folder: Path, capsys: pytest.CaptureFixture[str], policies: str, message: str
    ) -> None:
        (folder / "gert-project.yaml").write_text(f"name: p\npolicies: {policies}\n")
        (folder / "empty").mkdir()
        (folder / "books").mkdir()
        (folder / "books" / "a.yaml").write_text(GOOD)
        assert main(["explain", "books/a.yaml"]) in {1, 2}
        assert message in capsys.readouterr().err

    def test_the_table_has_a_row_for_each_step_with_a_contract(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["explain", self.RUNBOOK]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert lines[0].split()[:2] == ["STEP", "DOES"]
        assert any(line.startswith("delete_pod ") and "require-approval" in line for line in lines)

    @pytest.mark.parametrize(
        ("step", "message"),
        [
            pytest.param("delete_pdo", "did you mean `delete_pod`?", id="a misspelt step"),
            pytest.param("zzz", "the runbook has no step `zzz`", id="no such step"),
        ],
    )
    def test_a_step_that_is_not_there(self, capsys: pytest.CaptureFixture[str], step: str, message: str) -> None:
        assert main(["explain", self.RUNBOOK, step]) == 2
        assert message in capsys.readouterr().err

    def test_a_broken_runbook_is_not_explained(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        (folder / "a.yaml").write_text(BROKEN)
        assert main(["explain", "a.yaml"]) == 1
        assert "a.yaml:4:37" in capsys.readouterr().err


class TestSchema:
    @pytest.mark.parametrize("kind", ["runbook", "tool", "policy", "policy-test", "project", "scenario", "test"])
    def test_a_schema_is_printed_and_valid(self, capsys: pytest.CaptureFixture[str], kind: str) -> None:
        assert main(["schema", kind]) == 0
        jsonschema_rs.meta.validate(json.loads(capsys.readouterr().out))

    def test_a_reader_that_leaves_early_is_no_error(self) -> None:
        command = f"{' '.join(GERT)} schema | head -1"
        done = subprocess.run(
            ["bash", "-c", f"set -o pipefail; {command}"], capture_output=True, timeout=60, check=False
        )
        assert done.stdout.strip() == b"{"
        assert done.stderr == b""
        assert done.returncode in {0, 141}  # all written before the reader left, or not

    def test_a_full_disk_is_said(self) -> None:
        with open("/dev/full", "wb") as full:
            done = subprocess.run([*GERT, "schema"], stdout=full, stderr=subprocess.PIPE, timeout=60, check=False)
        assert done.returncode == 4
        message, hint = done.stderr.decode().splitlines()
        assert message == "error: system error: no space left on device"
        assert "free space" in hint

    @pytest.mark.parametrize(
        "words", ["schema", "--help", "--version", "version --json", "validate examples --format sarif"]
    )
    def test_a_result_that_has_nowhere_to_go_is_an_error(self, words: str) -> None:
        command = f"{' '.join(GERT)} {words} >&-"
        done = subprocess.run(["bash", "-c", command], capture_output=True, timeout=60, check=False, cwd=ROOT)
        assert done.returncode == 4
        assert done.stderr.decode().startswith("error: system error: standard output is closed")

    def test_a_command_that_prints_nothing_needs_no_output(self) -> None:
        command = f"{' '.join(GERT)} validate examples/runbooks/restart-pod.yaml -q >&-"
        done = subprocess.run(["bash", "-c", command], capture_output=True, timeout=60, check=False, cwd=ROOT)
        assert (done.returncode, done.stderr) == (0, b"")

    def test_ctrl_c_while_gert_is_being_loaded_ends_it_in_order(self, tmp_path: Path) -> None:
        """The first module that a command needs interrupts itself, as a person might."""
        (tmp_path / "click.py").write_text("raise KeyboardInterrupt\n")
        path = os.pathsep.join([str(tmp_path), str(ROOT / "src")])
        done = subprocess.run(
            [*GERT, "run", "list"], env={**os.environ, "PYTHONPATH": path}, capture_output=True, timeout=60, check=False
        )
        assert (done.returncode, done.stderr) == (130, b"error: interrupted\n")

    @pytest.mark.parametrize(
        ("words", "is_json"), [(["run", "list", "--json"], True), (["tool", "new", "x", "--", "df", "--json"], False)]
    )
    def test_ctrl_c_while_gert_is_being_loaded_is_json_where_it_was_asked_for(
        self, tmp_path: Path, words: list[str], is_json: bool, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (tmp_path / "click.py").write_text("raise KeyboardInterrupt\n")
        path = os.pathsep.join([str(tmp_path), str(ROOT / "src")])
        done = subprocess.run(
            [*GERT, *words], env={**os.environ, "PYTHONPATH": path}, capture_output=True, timeout=60, check=False
        )
        assert (done.returncode, done.stderr) == (130, b"error: interrupted\n")
        print_json_line({"error": error_document("interrupted", "interrupted", None, 130)})
        assert done.stdout.decode() == (capsys.readouterr().out if is_json else "")

    def test_a_mistake_in_the_option_for_json_is_still_json(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["run", "list", "--json=1"]) == 2
        assert json.loads(capsys.readouterr().out)["error"]["code"] == "usage"


class TestVersion:
    @pytest.mark.parametrize("arguments", [["--version"], ["-V"], ["version"]])
    def test_the_version_names_the_commit(self, arguments: list[str]) -> None:
        head = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, cwd=ROOT, check=False)
        line = gert(*arguments).stdout.decode().strip()
        commit = head.stdout.decode().strip()[:12]
        assert line == (f"gert 0.2.0 ({commit})" if commit else "gert 0.2.0")

    def test_machines_read_it_as_json(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["version", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["version"] == "0.2.0"


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_helps_with_an_example(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name, "--help"]) == 0
    assert f"Example: gert {name}" in capsys.readouterr().out


def pages(command: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from pages(below, f"{path} {name}")


@pytest.mark.parametrize("command", [pytest.param(each, id=path) for path, each in pages(group, "gert")])
def test_every_help_page_has_an_example_and_explains_its_options(command: click.Command) -> None:
    assert (command.epilog or "").startswith("Example: ")
    # A name of the code has no place in a sentence for people.
    assert not re.search(r"\b(?!OpenT|[KM]iB)[A-Z][a-z]+[A-Z]\w*", f"{command.help} {command.short_help}")
    options = [each for each in command.params if isinstance(each, click.Option)]
    assert [each.name for each in options if not each.help] == []


@pytest.mark.parametrize(
    ("arguments", "forbidden"),
    [
        pytest.param(["--version"], {"click", "yaml", "msgspec", "json", "typing"}, id="the version needs nothing"),
        pytest.param(["--help"], {"yaml", "msgspec", "rich", "asyncio"}, id="help needs no command"),
        pytest.param(
            ["validate", str(EXAMPLES / "runbooks" / "service-health-check.yaml")],
            {"rich", "httpx2", "asyncio", "pydantic", "cryptography", "subprocess", "rfc8785"},
            id="validation needs no terminal, network or event loop",
        ),
        pytest.param(
            ["validate", str(EXAMPLES / "runbooks" / "service-health-check.yaml")],
            {
                "hashlib",
                "shutil",
                "gert.kernel.engine.requests",
                "gert.kernel.events.runbook",
                "gert.kernel.foundation.redaction",
            },
            id="validation hashes nothing, masks nothing, and runs nothing",
        ),
        pytest.param(["validate", "--help"], {"jsonschema_rs", "re2"}, id="help on validation validates nothing"),
    ],
)
def test_what_a_command_does_not_import(arguments: list[str], forbidden: set[str]) -> None:
    script = (
        "import sys, atexit\n"
        f"sys.argv = ['gert', *{arguments!r}]\n"
        "atexit.register(lambda: sys.stderr.write('\\n'.join(sys.modules)))\n"
        "from gert.__main__ import main\n"
        "main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", _with_path(script)], capture_output=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr.decode()[-500:]
    loaded = set(done.stderr.decode().split())
    assert loaded & forbidden == set()


def _with_path(script: str) -> str:
    # `-S` leaves out what site-packages' own .pth files import.
    return f"import sys\nsys.path[:0] = {[path for path in sys.path if path]!r}\n" + script
