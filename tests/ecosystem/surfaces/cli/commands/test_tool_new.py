"""`gert tool new` and `gert tool try`: a tool file from an example or a help text, and one action of it, run."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from tests.ecosystem.surfaces.cli.terminal import Terminal
from tests.ecosystem.surfaces.cli.workbench import Project, until

from gert.ecosystem.host.tools.example_command import action_of
from gert.ecosystem.host.tools.help_text import read_help
from gert.errors import UsageError

POD_HELP = """Control pods from here.

Usage:
  pod [flags] <command>

Basic Commands:
  get         Show pods
  delete      Delete a pod
  help        Show help

Options:
  -n, --namespace string   namespace to use
      --dry-run            only say what would happen

Examples:
  foo    bar
"""
CUT_HELP = """Usage: cutter [OPTION]... SOURCE <target>
Cut a file in two.

  -b, --bytes=LIST        select only these bytes
      --complement        complement the set
"""
TABLE_HELP = """help:

Standard commands
asn1parse         ca                s_client          help
req               x509

Message Digest commands (see the `dgst' command for more details)
md5               sha3-256
"""
UNITS_HELP = """units [OPTIONS...] COMMAND ...

Control the units. They are many.

Unit Commands:
  list-units [PATTERN...]             List units currently in memory,
                                      ordered by path
  restart UNIT...                     Restart one or more units
  set-property UNIT PROPERTY=VALUE... (a single space)
  set-property UNIT PROPERTY=VALUE...  Sets one or more properties of a unit
  remove <unit name>                  Remove it
"""
CALL_HELP = """unknown option -- -
usage: call [-46Aa] [-B bind_interface]
           [-D [bind_address:]port] [-p port]
           destination [command [argument ...]]
"""


class TestExamples:
    @pytest.mark.parametrize(
        ("command", "name", "argv", "inputs"),
        [
            (
                "kubectl get pods -n NAMESPACE",
                "get_pods",
                ["kubectl", "get", "pods", "-n", "{{ .namespace }}"],
                ["namespace"],
            ),
            ("git -C <dir> log --oneline", "log", ["git", "-C", "{{ .dir }}", "log", "--oneline"], ["dir"]),
            (
                "tail --lines N /var/log/FILE",
                "run",
                ["tail", "--lines", "{{ .lines }}", "/var/log/{{ .file }}"],
                ["lines", "file"],
            ),
            (
                "openssl s_client -connect {host}",
                "s_client",
                ["openssl", "s_client", "-connect", "{{ .host }}"],
                ["host"],
            ),
            ("redis-cli GET {key}", "run", ["redis-cli", "GET", "{{ .key }}"], ["key"]),
            ("ssh {user}@{host-name}", "run", ["ssh", "{{ .user }}@{{ .host_name }}"], ["user", "host_name"]),
            ("jq .a{{x {{ .f }}", "run", ["jq", '.a{{ "{{" }}x', "{{ .f }}"], ["f"]),
            ("df", "run", ["df"], []),
        ],
    )
    def test_words_that_stand_for_values_become_inputs(
        self, command: str, name: str, argv: list[str], inputs: list[str]
    ) -> None:
        words = command.split(" ") if "{{ " not in command else ["jq", ".a{{x", "{{ .f }}"]
        made = action_of(words)
        assert (made.name, made.argv, list(made.inputs)) == (name, argv, inputs)

    @pytest.mark.parametrize(
        ("word", "wanted"),
        [
            ("<days>", {"type": "int", "required": True}),
            ("<name>", {"type": "string", "required": True}),
            ("<size>", {"type": "string", "required": True}),
            ("<keep=30>", {"type": "int", "default": 30}),
            ("{keep=30}", {"type": "int", "default": 30}),
            ("<keep=30d>", {"type": "string", "default": "30d"}),
            ("<keep=007>", {"type": "string", "default": "007"}),
        ],
    )
    def test_a_value_is_a_number_where_its_example_or_its_name_says_so(self, word: str, wanted: dict[str, Any]) -> None:
        [found] = action_of(["x", "--opt", word]).document({})["contract"]["inputs"].values()
        assert found == wanted

    @pytest.mark.parametrize("words", [["-days", "FOO"], ["--days=FOO"]], ids=["apart", "in one word"])
    def test_a_value_is_a_number_where_the_help_of_its_option_says_so(self, words: list[str]) -> None:
        made = action_of(["x", *words]).document({}, takes_number=lambda option: option.strip("-") == "days")
        assert made["contract"]["inputs"]["foo"]["type"] == "int"

    def test_an_example_needs_a_program(self) -> None:
        with pytest.raises(UsageError):
            action_of([])

    @pytest.mark.parametrize("words", [["ls | wc"], ["ls", "|", "wc"], ["ls", ">", "list"], ["ls", "&&", "df"]])
    def test_a_line_for_a_shell_is_refused(self, words: list[str]) -> None:
        with pytest.raises(UsageError) as raised:
            action_of(words)
        assert raised.value.hint

    def test_a_semicolon_is_an_argument(self) -> None:
        assert action_of(["find", ".", "-exec", "stat", "{}", ";"]).argv[-1] == ";"


class TestHelpTexts:
    def test_commands_with_their_descriptions(self) -> None:
        found = read_help(POD_HELP, "pod")
        assert {name: each.about for name, each in found.commands.items()} == {
            "get": "Show pods",
            "delete": "Delete a pod",
        }
        assert found.description == "Control pods from here."
        assert "-n, --namespace string" in found.options

    def test_required_arguments_where_there_are_no_commands(self) -> None:
        found = read_help(CUT_HELP, "cutter")
        assert found.commands == {}
        assert found.arguments == ["SOURCE", "target"]
        assert found.options["-b, --bytes=LIST"] == "select only these bytes"

    def test_names_in_a_table_are_commands(self) -> None:
        found = read_help(TABLE_HELP, "seal")
        assert list(found.commands) == ["asn1parse", "ca", "s_client", "req", "x509", "md5", "sha3-256"]
        assert found.description is None

    def test_commands_have_the_arguments_that_they_require(self) -> None:
        found = read_help(UNITS_HELP, "units")
        assert {name: each.arguments for name, each in found.commands.items()} == {
            "list-units": [],
            "restart": ["UNIT"],
            "set-property": ["UNIT", "PROPERTY=VALUE"],
            "remove": ["unit name"],
        }
        assert found.commands["list-units"].about == "List units currently in memory, ordered by path"
        assert (found.usage, found.description) == ("units [OPTIONS...] COMMAND ...", "Control the units.")

    def test_a_usage_of_several_lines_has_arguments_and_options(self) -> None:
        found = read_help(CALL_HELP, "call")
        assert found.arguments == ["destination"]
        assert list(found.options) == ["-46Aa", "-B bind_interface", "-D [bind_address:]port", "-p port"]
        assert found.description is None, "a complaint about the option `--help` describes nothing"

    @pytest.mark.parametrize(
        ("usage", "arguments"),
        [
            ("Usage:\tjq [options] <jq filter> [file...]\n\tjq [options] --args <jq filter>", ["jq filter"]),
            ("Usage: /usr/bin/jq [OPTIONS] FILENAME [SQL]", ["FILENAME"]),
            ("Usage: jq [ OPTIONS ] OBJECT { COMMAND | help }\n       jq [ -force ] -batch filename", ["OBJECT"]),
            ("Usage: jq [-Z] file[.zip] [list]\n  Default action is to extract files in list;", ["file"]),
            ("usage: jq one two three four words of prose", []),
            ("Usage:\n  jq [options] <destination>\n\nOptions:", ["destination"]),
        ],
    )
    def test_what_a_usage_requires(self, usage: str, arguments: list[str]) -> None:
        assert read_help(usage, "jq").arguments == arguments

    def test_an_option_may_be_described_in_the_next_lines(self) -> None:
        found = read_help("OPTIONS\n       -l, --local\n           Use a local\n           copy.\n", "x")
        assert found.options == {"-l, --local": "Use a local copy."}

    @pytest.mark.parametrize(
        ("line", "option", "is_number"),
        [
            (" -days int       Number of days", "-days", True),
            (" -set_serial val  Serial number to use", "-set_serial", False),
            (" -checkend intmax   Exit 1 if it expires in the next arg seconds", "-checkend", True),
            ("  -n, --lines=NUM   output the last NUM lines", "--lines", True),
            ("  --retry <num>   Retry request if transient problems occur", "--retry", True),
            ("  -c VALUE   Number of pings to send", "-c", True),
            ("  -B, --block-size=SIZE   scale sizes by SIZE", "-B", False),
            ("  -v   number of lines", "-x", False),
        ],
    )
    def test_an_option_takes_a_number_where_the_help_says_so(self, line: str, option: str, is_number: bool) -> None:
        assert read_help(f"Options:\n{line}\n", "x").takes_number(option) is is_number

    @pytest.mark.parametrize("text", [" " * 300_000 + "-", "-a " * 90_000, "  a" * 90_000, "Usage: " + "<" * 90_000])
    def test_a_hostile_text_is_read_quickly_enough(self, text: str) -> None:
        read_help(text, "x")

    @pytest.mark.parametrize("text", ["", "\x00\x1b[31m", "Usage:", "a" * 100_000, "usage: " + "[" * 5000])
    def test_any_text_is_survived(self, text: str) -> None:
        read_help(text, "x")


class TestNew:
    def test_a_file_from_an_example_is_valid_and_its_effects_are_unknown(self, project: Project) -> None:
        ran = project.gert("tool", "new", "pods", "--", "kubectl", "get", "pods", "-n", "NAMESPACE").ended(0)
        assert "effects or writes are unknown" in ran.out
        assert "gert tool try pods get_pods --input namespace=VALUE" in ran.out
        project.gert("validate", "tools").ended(0)
        [shown] = project.gert("tool", "show", "pods", "--json").said["actions"]
        assert shown["risk_level"] == "critical"
        assert shown["contract"]["effects"] == ["unknown"]
        # Until it was reviewed, a strict check of the project does not pass.
        project.gert("validate", "tools", "--strict").ended(1)

    def test_effects_without_writes_stay_unknown_so_that_nothing_is_allowed_as_a_read(self, project: Project) -> None:
        ran = project.gert("tool", "new", "g", "--effects", "filesystem", "--", "git", "branch", "-D", "NAME").ended(0)
        assert "effects or writes are unknown" in ran.out
        [shown] = project.gert("tool", "show", "g", "--json").said["actions"]
        assert shown["contract"]["effects"] == ["filesystem", "unknown"]
        assert shown["risk_level"] == "critical"
        project.gert("validate", "tools", "--strict").ended(1)

    @pytest.mark.parametrize("words", [["--effects", "none"], ["--effects", "network", "--writes", "none"]])
    def test_an_action_that_only_reads_is_known(self, project: Project, words: list[str]) -> None:
        assert "unknown" not in project.gert("tool", "new", "g", *words, "--", "git", "log").ended(0).out
        [shown] = project.gert("tool", "show", "g", "--json").said["actions"]
        assert (shown["contract"]["writes"], shown["risk_level"]) == ([], "low")

    def test_what_the_author_says_is_in_the_contract(self, project: Project) -> None:
        words = ["--effects", "network", "--writes", "pods,nodes", "--idempotent"]
        project.gert(
            "tool", "new", "pods", *words, "--example", "kubectl delete pod {pod}", "--", "kubectl", "get", "pods"
        ).ended(0)
        project.gert("validate", "tools", "--strict").ended(0)
        get, delete = project.gert("tool", "show", "pods", "--json").said["actions"]
        assert get["contract"]["writes"] == ["nodes", "pods"]
        assert delete["contract"]["idempotent"] is True
        assert delete["contract"]["inputs"]["pod"]["required"] is True

    @pytest.mark.parametrize(
        ("text", "actions"), [(POD_HELP, {"get": [], "delete": []}), (CUT_HELP, {"run": ["source", "target"]})]
    )
    def test_a_file_from_the_help_of_a_program(self, project: Project, text: str, actions: dict[str, Any]) -> None:
        program = project.write("prog", f"#!/bin/sh\n[ \"$1\" = --help ] && cat <<'E'\n{text}\nE\n")
        program.chmod(0o755)
        made = project.gert("tool", "new", "p", "--from-help", "--program", program, "--json").ended(0).said
        assert made["actions"] == actions
        project.gert("validate", "tools").ended(0)
        assert "# Options of `prog`; add those you need" in (project.root / "tools/p.tool.yaml").read_text()

    def test_the_help_of_a_command_that_the_program_lists_is_read(self, project: Project) -> None:
        script = f"""#!/bin/sh
case "$*" in
  --help) cat <<'E'
{TABLE_HELP}
E
;;
  "x509 --help") printf 'Usage: x509 [options]\\n\\nOptions:\\n -left int   Days that are left\\n' ;;
  *) touch called ;;
esac
"""
        program = project.write("seal", script)
        program.chmod(0o755)
        words = ["tool", "new", "s", "--from-help", "-o", "-"]
        made = project.gert(*words, "--", program, "x509", "-left", "FOO").ended(0).out
        assert "foo: { type: int, required: true }" in made
        assert "# Options of `seal x509`; add those you need to `argv`:\n#   -left int  Days that are left\n" in made
        # A word that the program does not call a command might be acted upon.
        project.gert(*words, "--", program, "delete", "FOO").ended(0)
        assert not (project.root / "called").exists()

    def test_a_table_of_commands_makes_an_action_of_each(self, project: Project) -> None:
        program = project.write("seal", f"#!/bin/sh\ncat <<'E'\n{TABLE_HELP}\nE\n")
        program.chmod(0o755)
        made = project.gert("tool", "new", "s", "--from-help", "--program", program, "--json").ended(0).said
        assert list(made["actions"]) == ["asn1parse", "ca", "s_client", "req", "x509", "md5", "sha3_256"]
        project.gert("validate", "tools").ended(0)

    def test_more_commands_than_are_written_are_counted(self, project: Project) -> None:
        rows = "\n".join(f"  cmd{number}   Do {number}" for number in range(45))
        program = project.write("many", f"#!/bin/sh\ncat <<'E'\nCommands:\n{rows}\nE\n")
        program.chmod(0o755)
        made = project.gert("tool", "new", "many", "--from-help", "--program", program, "-o", "-").ended(0).out
        assert made.count("argv:") == 40
        assert "# It has 5 more commands: see `many --help`." in made

    @pytest.mark.parametrize(
        "program",
        ["git", "tar", "df", "sh", "openssl", "sqlite3", "curl", "jq", "ssh", "psql", "systemctl", "find", "gzip"],
    )
    def test_real_programs(self, project: Project, program: str) -> None:
        ran = project.gert("tool", "new", program, "--from-help")
        assert ran.code == 0 or "--help` printed" in ran.err or "was not found on PATH" in ran.err
        if ran.code == 0:
            project.gert("validate", "tools").ended(0)

    @pytest.mark.parametrize(
        ("words", "why"),
        [
            (["x"], "expected an example"),
            (["../x", "--", "true"], "cannot be the name"),
            (["x", "--from-help", "--program", "no-such-program"], "was not found on PATH"),
            (["x", "--from-help", "--program", "true"], "printed nothing"),
            (["x", "--example", "git log", "--", "df"], "another program"),
            (["x", "--example", "df -h", "--", "df"], "two examples"),
            (["x", "--example", "'", "--", "df"], "cannot be split"),
            (["note", "--from-help"], "exists already"),
            (["note", "--from-help", "--", "df"], "the tool names no program"),
            (["note", "--", "df"], "the tool names no program"),
        ],
    )
    def test_mistakes_write_nothing(self, project: Project, words: list[str], why: str) -> None:
        if why == "printed nothing":
            words[-1] = str(project.write("quiet", "#!/bin/sh\n"))
            Path(words[-1]).chmod(0o755)
        before = sorted(os.listdir(project.root / "tools"))
        assert why in project.gert("tool", "new", *words).ended(2).err
        assert sorted(os.listdir(project.root / "tools")) == before

    def test_a_program_that_hangs_is_ended_with_everything_that_it_started(self, project: Project) -> None:
        """Also a process that left its session and closed its output."""
        daemon = 'setsid sh -c "echo \\$\\$ > daemon.pid; exec sleep 300" >/dev/null 2>&1 </dev/null &'
        program = project.write("hang", f"#!/bin/sh\n{daemon}\necho $$ > own.pid\nsleep 300\n")
        program.chmod(0o755)
        ran = project.gert("tool", "new", "h", "--from-help", "--program", program).ended(2)
        assert "printed nothing within 10 seconds, and was ended" in ran.err
        for name in ("own.pid", "daemon.pid"):
            until(lambda name=name: not Path(f"/proc/{(project.root / name).read_text().strip()}").exists())  # type: ignore[misc]

    def test_a_program_that_leaves_a_daemon_is_read_and_the_daemon_ended(self, project: Project) -> None:
        daemon = 'setsid sh -c "echo \\$\\$ > daemon.pid; exec sleep 300" >/dev/null 2>&1 </dev/null &'
        wait = "while [ ! -s daemon.pid ]; do sleep 0.05; done"
        program = project.write("leave", f"#!/bin/sh\n{daemon}\n{wait}\necho 'Usage: leave SOURCE'\n")
        program.chmod(0o755)
        made = project.gert("tool", "new", "l", "--from-help", "--program", program, "--json").ended(0).said
        assert made["actions"] == {"run": ["source"]}
        until(lambda: not Path(f"/proc/{(project.root / 'daemon.pid').read_text().strip()}").exists())

    def test_a_tool_without_a_program_of_its_own_gets_no_action(self, project: Project) -> None:
        project.write("tools/say.tool.yaml", "apiVersion: tool/v0\nmeta: {name: say}\nactions: {go: {argv: [echo]}}\n")
        ran = project.gert("tool", "new", "say", "--", "rm", "X").ended(2)
        assert "the tool names no program of its own" in ran.err
        assert "None" not in ran.err

    def test_what_to_do_next_names_a_file_that_is_not_found_by_name(self, project: Project) -> None:
        ran = project.gert("tool", "new", "git", "-o", "elsewhere.yaml", "--", "git", "log").ended(0)
        assert "gert tool try elsewhere.yaml log" in ran.out
        project.gert("tool", "try", "elsewhere.yaml", "log", "--dry-run").ended(0)

    def test_an_action_is_added_to_a_file_that_exists(self, project: Project) -> None:
        project.gert("tool", "new", "git", "--", "git", "log").ended(0)
        before = (project.root / "tools/git.tool.yaml").read_text()
        added = project.gert("tool", "new", "git", "--effects", "none", "--", "git", "status", "-s").ended(0)
        assert "added to tools/git.tool.yaml" in added.out
        assert (project.root / "tools/git.tool.yaml").read_text().startswith(before)
        assert set(project.gert("tool", "show", "git", "--json").said["actions"][1]) >= {"name", "contract"}
        again = project.gert("tool", "new", "git", "--", "git", "log", "-n", "COUNT").ended(2)
        assert "has an action `log` already" in again.err
        project.gert("tool", "new", "git", "--action", "recent", "--", "git", "log", "-n", "COUNT").ended(0)

    def test_a_file_for_another_program_is_named_and_nothing_is_run(self, project: Project) -> None:
        project.gert("tool", "new", "git", "--", "git", "log").ended(0)
        before = (project.root / "tools/git.tool.yaml").read_text()
        program = project.write("other", f"#!/bin/sh\n: > '{project.root}/called'\necho 'Usage: other'\n")
        program.chmod(0o755)
        refused = project.gert("tool", "new", "git", "--from-help", "--", program, "X").ended(2).err
        file = project.root / "tools/git.tool.yaml"
        assert f"`{file}` exists and is a tool for the program `git`, not `{program}`\n" in refused
        assert "hint: choose another NAME than `git`, or edit the file if it is wrong" in refused
        assert not (project.root / "called").exists()
        assert file.read_text() == before
        renamed = project.gert("tool", "new", "df", "-o", file, "--", "df").ended(2).err
        assert f"`{file}` exists and is the tool `git`, not `df`" in renamed

    def test_what_is_run_for_its_help_is_printed_before_and_gets_no_input(self, project: Project) -> None:
        source = f"#!/bin/sh\ncat > '{project.root}/read'\ncat <<'E'\n{POD_HELP}\nE\n"
        program = project.write("pod", source)
        program.chmod(0o755)
        words = ["tool", "new", "pod", "-o", "-"]
        ran = project.gert(*words, "--from-help", "--", program, "get", "NAME", stdin="typed\n").ended(0)
        assert ran.err == f"running: {program} --help\nrunning: {program} get --help\n"
        assert (project.root / "read").read_text() == ""
        assert project.gert(*words, "--", program, "get", "NAME").ended(0).err == ""

    def test_it_is_printed_instead(self, project: Project) -> None:
        assert "argv: [df, -P]" in project.gert("tool", "new", "x", "-o", "-", "--", "df", "-P").ended(0).out
        assert not (project.root / "tools/x.tool.yaml").exists()


TOOL = """
apiVersion: tool/v0
meta: {name: words, binary: sh}
contract: {effects: [], writes: []}
actions:
  count:
    argv: [sh, -c, 'echo "$1" | wc -w; echo warned >&2', sh, "{{ .text }}"]
    contract:
      inputs: {text: {type: string, required: true}}
      outputs: {count: {type: int, required: true}}
    extract: {count: {from: stdout, pattern: '(\\d+)'}}
  wrong:
    argv: [sh, -c, "echo no number"]
    contract: {outputs: {count: {type: int, required: true}}}
    extract: {count: {from: stdout, pattern: '(\\d+)'}}
  lacking:
    argv: [sh, -c, "echo no number"]
    contract: {outputs: {count: {type: int}, word: {type: string}}}
    extract: {word: {from: stdout, pattern: 'no'}, count: {from: stdout, pattern: '(\\d+)'}}
  fails: {argv: [sh, -c, "exit 7"]}
  waits:
    argv: [sleep, "{{ .secs }}"]
    contract: {inputs: {secs: {type: int, required: true, max: 5}}}
  opens:
    argv: ["true"]
    contract: {inputs: {pin: {type: string, secret: true, required: true, pattern: '^[0-9]{4}$'}}}
  hides:
    argv: [sh, -c, 'echo "token=$TOKEN"']
    env: {TOKEN: "{{ .token }}"}
    contract: {inputs: {token: {type: string, secret: true, required: true}}}
  deletes:
    argv: [sh, -c, ': > "$1"', sh, "{{ .path }}"]
    contract: {effects: [files], writes: [disk], inputs: {path: {type: string, default: gone}}}
    preview: {argv: [printf, 'would delete %s', "{{ .path }}"]}
  quiet:
    argv: ["true"]
    contract: {effects: [files], writes: [disk]}
    preview: {argv: ["true"]}
  vague:
    argv: ["true"]
    contract: {effects: [unknown], writes: [disk]}
    preview: {argv: [printf, 'would do']}
"""
FLOOR = """
apiVersion: policy/v0
meta: {name: floor}
governance: {rules: [{writes: [disk], action: %s}, {default: allow}]}
"""


@pytest.fixture
def words(project: Project) -> Project:
    project.write("tools/words.tool.yaml", TOOL)
    return project


class TestTry:
    def test_it_shows_the_command_the_output_the_extraction_and_the_contract(self, words: Project) -> None:
        ran = words.gert("tool", "try", "words", "count", "--input", "text=a b c").ended(0)
        for part in ("sh -c", "'a b c'", "allow, low risk", "│ 3", "│ warned", "count = 3 (int)", "✓ it gave what"):
            assert part in ran.out
        assert not list(words.root.glob("try-*"))

    def test_as_json(self, words: Project) -> None:
        said = words.gert("tool", "try", "words", "count", "--var", "text=x {{ y", "--json").ended(0).said
        assert said["call"]["arguments"][-1] == "x {{ y"
        assert (said["stdout"].strip(), said["stderr"].strip(), said["exit_code"]) == ("3", "warned", 0)
        assert said["outputs"] == {"count": 3}
        assert said["contract_holds"] is True
        assert words.gert("run", "show", said["run_id"], "--json").said["runbook_name"] == "try-words-count"

    def test_a_broken_contract_is_a_failed_check(self, words: Project) -> None:
        wrong = words.gert("tool", "try", "words", "wrong", "--json").ended(3)
        assert wrong.said["contract_holds"] is False
        lacking = words.gert("tool", "try", "words", "lacking").ended(1)
        assert "count was not found in what it printed" in lacking.out
        assert "✗ missing_output" in lacking.out

    def test_a_tool_that_fails(self, words: Project) -> None:
        ran = words.gert("tool", "try", "words", "fails").ended(3)
        assert "exited with 7" in ran.out

    def test_a_dry_run_starts_nothing(self, words: Project) -> None:
        ran = words.gert("tool", "try", "words", "deletes", "--dry-run").ended(0)
        assert "not run" in ran.out
        assert not (words.root / "gone").exists()
        assert """sh -c ': > "$1"' sh gone""" in ran.out
        assert "│ would delete gone" in ran.out

    @pytest.mark.parametrize(
        ("action", "why"),
        [
            ("count", "the action declares none"),
            ("vague", "its contract does not say what it touches"),
            ("deletes", "policy says `require-approval`"),
        ],
    )
    def test_a_dry_run_says_why_it_has_no_preview(self, words: Project, action: str, why: str) -> None:
        words.write("gert-project.yaml", {"name": "p", "policies": ["floor.policy.yaml"]})
        words.write("floor.policy.yaml", FLOOR.replace("writes: [disk]", "effects: [files]") % "require-approval")
        given = ["--var", "text=x"] if action == "count" else []
        ran = words.gert("tool", "try", "words", action, *given, "--dry-run").ended(0)
        assert f"not made: {why}" in ran.out
        said = words.gert("tool", "try", "words", action, *given, "--dry-run", "--json").ended(0).said
        assert said["preview"] is None
        assert why in said["no_preview"]

    def test_a_preview_that_printed_nothing_says_so(self, words: Project) -> None:
        ran = words.gert("tool", "try", "words", "quiet", "--dry-run").ended(0)
        assert "preview   (printed nothing)\n" in ran.out

    def test_only_a_dry_run_or_an_approval_lacks_a_preview(self, words: Project) -> None:
        said = words.gert("tool", "try", "words", "count", "--var", "text=x", "--json").ended(0).said
        assert said["no_preview"] is None

    def test_signed_approvals_come_from_elsewhere_with_wait(self, words: Project) -> None:
        words.write("gert-project.yaml", {"name": "p", "policies": ["floor.policy.yaml"]})
        words.write(
            "floor.policy.yaml", FLOOR.replace("{rules", "{require_signed_approvals: true, rules") % "require-approval"
        )
        ran = words.gert("tool", "try", "words", "deletes").ended(3)
        assert "the terminal cannot sign, add --wait" in ran.out

    @pytest.mark.parametrize(("command", "code"), [("approve", 0), ("reject", 3)])
    def test_approvals_come_from_elsewhere_with_wait(self, words: Project, command: str, code: int) -> None:
        words.write("gert-project.yaml", {"name": "p", "policies": ["floor.policy.yaml"]})
        words.write("floor.policy.yaml", FLOOR % "require-approval")
        with Terminal(words, command=("tool", "try", "words", "deletes", "--wait")) as terminal:
            terminal.expect("approval requested")
            [ticket] = json.loads(words.gert("approvals", "list", "--json").ended(0).out)
            words.gert(command, ticket["ticket_id"], "--as", "ann", "--reason", "tried").ended(0)
            terminal.ended(code)
        assert (words.root / "gone").exists() is (code == 0)

    @pytest.mark.parametrize("mode", [[], ["--dry-run"]], ids=["real", "dry-run"])
    def test_secrets_are_not_shown(self, words: Project, mode: list[str]) -> None:
        ran = words.gert("tool", "try", "words", "hides", "--input", "token=h1dd3n-v4lue", *mode, "--json").ended(0)
        assert "h1dd3n" not in ran.out + ran.err

    def test_policies_of_the_project_deny(self, words: Project) -> None:
        words.write("gert-project.yaml", {"name": "p", "policies": ["floor.policy.yaml"]})
        words.write("floor.policy.yaml", FLOOR % "deny")
        ran = words.gert("tool", "try", "words", "deletes", "--json").ended(3)
        assert ran.said["decision"] == "deny"
        assert not (words.root / "gone").exists()

    @pytest.mark.parametrize("strict", ["here", "there"])
    def test_policies_of_the_project_you_are_in_and_of_the_tool_both_decide(self, words: Project, strict: str) -> None:
        here = Project(words.root / "here")
        for place, name in (("here", "a"), ("there", "b")):
            floor = ["floor.policy.yaml"] if place == strict else []
            words.write(f"{place}/gert-project.yaml", {"name": name, "policies": floor})
            words.write(f"{place}/floor.policy.yaml", FLOOR % "deny")
        words.write("there/tools/words.tool.yaml", (words.root / "tools/words.tool.yaml").read_text())
        ran = here.gert("tool", "try", "../there/tools/words.tool.yaml", "deletes", "--json")
        assert ran.ended(3).said["decision"] == "deny"
        assert not list(words.root.rglob("gone"))

    def test_a_run_can_be_rerun_although_its_runbook_was_never_a_file(self, words: Project) -> None:
        run_id = words.gert("tool", "try", "words", "count", "--var", "text=a b", "--json").ended(0).said["run_id"]
        again = words.gert("rerun", run_id, "--from", "try", "--json").ended(0).said
        assert again["outputs"]["try"] == {"count": 2}

    @pytest.mark.parametrize(("answer", "code"), [("y", 0), ("n", 3)])
    def test_approval_is_asked_for(self, words: Project, answer: str, code: int) -> None:
        words.write("gert-project.yaml", {"name": "p", "policies": ["floor.policy.yaml"]})
        words.write("floor.policy.yaml", FLOOR % "require-approval")
        with Terminal(words, command=("tool", "try", "words", "deletes")) as terminal:
            terminal.expect("""command:       sh -c ': > "$1"' sh gone""")
            terminal.answer("approve?", answer)
            # A step that did not start has the defaults of its inputs, too.
            terminal.expect("""command   sh -c ': > "$1"' sh gone""")
            terminal.ended(code)
        assert (words.root / "gone").exists() is (answer == "y")

    @pytest.mark.parametrize(
        ("given", "why", "hint"),
        [
            (["words"], "expected an action", "`count`"),
            (["words", "cuont"], "no action `cuont`", "did you mean `count`?"),
            (["words", "count"], "needs the input `text`", "--input text=VALUE"),
            (["words", "fails", "--input", "x=1"], "has no input `x`", "none"),
            (["nope", "x"], "there is no tool `nope`", ""),
            (["words", "waits", "--input", "secs=abc"], "the input `secs`: expected an int, found `abc`", ""),
            (["words", "waits", "--input", "secs=9"], "the input `secs`: expected at most 5", ""),
        ],
    )
    def test_mistakes(self, words: Project, given: list[str], why: str, hint: str) -> None:
        ran = words.gert("tool", "try", *given, "--json").ended(2)
        assert why in ran.err
        assert hint in (json.loads(ran.out)["error"]["hint"] or "")
        assert json.loads(words.gert("run", "list", "--all", "--json").ended(0).out) == []

    def test_a_secret_that_does_not_fit_is_not_shown(self, words: Project) -> None:
        ran = words.gert("tool", "try", "words", "opens", "--input", "pin=h1dd3n", "--json").ended(2)
        assert "the input `pin`: " in ran.err
        assert "h1dd3n" not in ran.err + ran.out

    def test_a_number_is_text_where_text_is_declared(self, words: Project) -> None:
        words.gert("tool", "try", "words", "count", "--input", "text=5").ended(0)
