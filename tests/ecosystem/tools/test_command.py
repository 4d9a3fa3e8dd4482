"""Commands: what an action's templates come to, where its program is found, and what its environment holds."""

import os
from pathlib import Path
from typing import Any

import pytest
from tests.ecosystem.process.calls import PYTHON, SH, call, failed, finished, run, stdio, tool_of

from gert.kernel.foundation.secret_refs import secret_ref

ARGUMENTS = [*PYTHON, "import sys, json; print(json.dumps(sys.argv[1:]))"]
ALL = {"it": {"from": "json"}}
TEXT = {"it": {"from": "stdout", "trim": False}}


def script(folder: Path, name: str, text: str, mode: int = 0o755) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
    return path


# --- arguments


@pytest.mark.parametrize(
    ("word", "given", "argument"),
    [
        pytest.param("{{ .x }}", "a", "a", id="a value"),
        pytest.param("{{ .x }}", "", "", id="an empty one stays an argument"),
        pytest.param("{{ .x }}", "a b  c", "a b  c", id="spaces do not part arguments"),
        pytest.param("{{ .x }}", "$(touch pwned); `id` | cat > x && $HOME *", None, id="no shell ever reads it"),
        pytest.param("{{ .x }}", "-rf", "-rf", id="what looks like an option"),
        pytest.param("{{ .x }}", "line\nline\ttab", "line\nline\ttab", id="control characters"),
        pytest.param("{{ .x }}", "日本 🦀 é", "日本 🦀 é", id="any script"),
        pytest.param("{{ .x }}", "{{ .y }}", "{{ .y }}", id="a value is not a template"),
        pytest.param("--n={{ .x }}", 7, "--n=7", id="a number"),
        pytest.param("{{ .x }}", True, "true", id="a boolean"),
        pytest.param("{{ .x }}", {"b": [1], "a": None}, '{"a":null,"b":[1]}', id="a map as JSON"),
        pytest.param("a{{ .optional }}", "a", "a", id="a declared input that is not given is nothing"),
        pytest.param("{{ .x }}", "x" * 100_000, "x" * 100_000, id="a long one"),
    ],
)
def test_each_word_is_one_argument(word: str, given: Any, argument: str | None) -> None:
    contract: dict[str, Any] = {"inputs": {"optional": {}}}
    answer = run([*ARGUMENTS, word, "end"], inputs={"x": given}, extract=ALL, action={"contract": contract})
    assert answer.failure is None
    assert answer.outputs["it"] == [given if argument is None else argument, "end"]


@pytest.mark.parametrize(
    ("argv", "arguments"),
    [
        pytest.param(["python", "-c", "{{ .code }}", "a"], ["a"], id="the program's name is dropped"),
        pytest.param(["something-else", "-c", "{{ .code }}", "a"], ["a"], id="whatever it is"),
        pytest.param(["-c", "{{ .code }}", "a"], ["a"], id="an option is kept"),
        pytest.param(["{{ .option }}", "{{ .code }}", "a"], ["a"], id="a template is kept"),
    ],
)
def test_binary_replaces_the_first_word(argv: list[str], arguments: list[str]) -> None:
    """DECISIONS 11."""
    inputs = {"code": ARGUMENTS[-1], "option": "-c"}
    answer = run(argv, inputs=inputs, extract=ALL, tool={"meta": {"binary": PYTHON[0]}})
    assert answer.outputs == {"it": arguments}


@pytest.mark.parametrize(
    ("argv", "action", "given", "kind", "message"),
    [
        pytest.param(["echo", "{{ .x }}"], {}, "a\0b", "invalid_input", "`argv[1]` contains a NUL", id="NUL in argv"),
        pytest.param(["{{ .x }}"], {}, "e\0", "invalid_input", "`argv[0]` contains a NUL", id="NUL in the program"),
        pytest.param(["{{ .x }}"], {}, "", "invalid_input", "the name of the program is empty", id="no program"),
        pytest.param(["echo"], {"env": {"A": "{{ .x }}"}}, "\0", "invalid_input", "`env.A` contains", id="NUL in env"),
        pytest.param(["echo"], {"cwd": "{{ .x }}"}, "\0", "invalid_input", "`cwd` contains a NUL", id="NUL in cwd"),
        pytest.param(["echo", "{{ .x }}"], {}, "\ud800", "invalid_input", "lone surrogate", id="half a character"),
        pytest.param(["cat"], {"stdin": "{{ .x }}"}, "\ud800", "invalid_input", "`stdin`", id="half of one on stdin"),
        pytest.param(["echo", "{{ .x }}"], {}, "x" * 3_000_000, "invalid_input", "too long", id="a huge argument"),
        pytest.param(["echo", "{{ div 1 .x }}"], {}, 0, "evaluation", "`argv[1]`: ", id="a template that fails"),
        pytest.param(["cat"], {"stdin": "{{ div 1 .x }}"}, 0, "evaluation", "`stdin`: ", id="in stdin"),
        pytest.param(["cat"], {"env": {"A": "{{ div 1 .x }}"}}, 0, "evaluation", "`env.A`: ", id="in env"),
        pytest.param(["cat"], {"cwd": "{{ div 1 .x }}"}, 0, "evaluation", "`cwd`: ", id="in cwd"),
        pytest.param(["rm", "/b/{{ .y }}"], {}, 0, "evaluation", "`argv[1]`: the tool declares no", id="a name"),
        pytest.param(["rm", "/b/{{ .x.y }}"], {}, {"z": 1}, "evaluation", "there is no `y` in a map", id="a key"),
        pytest.param(["rm"], {"stdin": "{{ .x.y }}"}, {"z": 1}, "evaluation", "there is no `y`", id="a key in stdin"),
        pytest.param(["cat"], {"cwd": "{{ .x }}"}, "no/such", "invalid_input", "no folder `no/such`", id="no folder"),
        pytest.param(["cat"], {"cwd": "{{ .x }}"}, "x" * 5000, "invalid_input", "no folder", id="no possible folder"),
    ],
)
def test_what_cannot_be_a_command(argv: list[str], action: Any, given: Any, kind: str, message: str) -> None:
    answer = run(argv, inputs={"x": given}, action=action)
    failed(answer, kind, message)
    assert answer.exit_code is None
    assert answer.failure is not None
    assert len(answer.failure.message) < 1100


def test_a_huge_list_of_arguments_is_refused() -> None:
    failed(run(["echo", *["x" * 1000] * 5000]), "invalid_input", "pass large values on `stdin`")


def test_a_binary_with_a_nul_is_refused() -> None:
    failed(run(["echo"], tool={"meta": {"binary": "ec\0ho"}}), "invalid_input", "`binary` contains a NUL")


# --- the program


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        pytest.param({"PATH": "/nowhere"}, "`no-such-thing` was not found on PATH", id="not on the PATH"),
        pytest.param({"PATH": ""}, "`no-such-thing` was not found on PATH", id="an empty PATH"),
        pytest.param({}, "`no-such-thing` was not found on PATH", id="no PATH"),
    ],
)
def test_a_program_that_is_not_there(environment: dict[str, str], message: str) -> None:
    failed(run(["no-such-thing"], environment=environment), "not_found", message)


def test_an_empty_path_is_not_the_path_of_gert() -> None:
    failed(run(["sh", "-c", "exit 0"], environment={"PATH": ""}), "not_found", "`sh` was not found on PATH")


def test_without_a_path_the_system_has_one() -> None:
    assert run(["sh", "-c", "exit 0"], environment={}).failure is None


def test_a_name_is_looked_up_on_the_path_of_the_process(tmp_path: Path) -> None:
    script(tmp_path, "hello", "#!/bin/sh\necho from the folder\n")
    answer = run(["hello"], extract=TEXT, action={"env": {"PATH": f"{tmp_path}:/usr/bin:/bin"}})
    assert answer.outputs == {"it": "from the folder\n"}


def test_a_path_is_meant_from_the_folder_it_runs_in(tmp_path: Path) -> None:
    script(tmp_path, "sub/bin/hello", "#!/bin/sh\npwd\n")
    answer = run(["bin/hello"], extract=TEXT, action={"cwd": "sub"}, working=str(tmp_path))
    assert answer.outputs == {"it": f"{tmp_path}/sub\n"}
    failed(run(["bin/hello"], working=str(tmp_path)), "not_found", f"`bin/hello` was not found in `{tmp_path}/bin`")


@pytest.mark.parametrize(
    ("text", "mode", "kind", "message"),
    [
        pytest.param("#!/bin/sh\n", 0o644, "not_found", "`./it` is not executable", id="not executable"),
        pytest.param("#!/no/such/interpreter\n", 0o755, "not_found", "its interpreter was not found", id="no shell"),
        pytest.param(
            "echo hi\n", 0o755, "transport", "neither a program for this machine nor a script", id="no #! line"
        ),
        pytest.param("\x7fELF garbage", 0o755, "transport", "`./it` cannot be started", id="a broken program"),
        pytest.param("", 0o755, "transport", "`./it` cannot be started", id="an empty file"),
    ],
)
def test_a_file_that_cannot_be_started(tmp_path: Path, text: str, mode: int, kind: str, message: str) -> None:
    script(tmp_path, "it", text, mode)
    failed(run(["./it"], working=str(tmp_path)), kind, message)


def test_a_folder_is_not_a_program(tmp_path: Path) -> None:
    failed(run(["./"], working=str(tmp_path)), "not_found", "`./` is a folder, not a program")


def test_a_name_does_not_find_what_lies_in_the_working_folder(tmp_path: Path) -> None:
    script(tmp_path, "hello-here", "#!/bin/sh\n")
    failed(run(["hello-here"], working=str(tmp_path)), "not_found", "was not found on PATH")


def test_a_program_that_moves_between_calls_is_found_again(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        script(tmp_path, f"{folder}/hello", f"#!/bin/sh\necho {folder}\n")
    transport = stdio(environment={"PATH": f"{tmp_path}/a:{tmp_path}/b:/usr/bin:/bin"})
    tool = tool_of({"argv": ["hello"], "extract": TEXT}, outputs={"it": {}})

    async def calls() -> list[Any]:
        first = await call(transport, tool)
        (tmp_path / "a/hello").unlink()
        second = await call(transport, tool)
        (tmp_path / "b/hello").unlink()
        return [first, second, await call(transport, tool)]

    first, second, third = finished(calls)
    assert (first.outputs, second.outputs) == ({"it": "a\n"}, {"it": "b\n"})
    failed(third, "not_found", "`hello` was not found on PATH")


@pytest.mark.parametrize(
    ("platforms", "running", "remark"),
    [
        pytest.param(
            ["windows"], "linux", "; the tool is made for `windows`, but this is `linux`", id="another system"
        ),
        pytest.param(["linux"], "linux", "", id="this system"),
        pytest.param(["windows"], None, "", id="a system that is not named"),
    ],
)
def test_a_missing_program_of_another_system_says_so(platforms: list[str], running: str | None, remark: str) -> None:
    answer = run(["no-such.exe"], tool={"meta": {"platform": platforms}}, platform=running)
    assert answer.failure is not None
    assert answer.failure.message == f"`no-such.exe` was not found on PATH{remark}"


def test_a_tool_of_another_system_runs_where_its_program_is_found() -> None:
    """kernel-v0 §12.1: execution proceeds regardless."""
    assert run(["true"], tool={"meta": {"platform": ["windows"]}}, platform="linux").failure is None


# --- the environment


def test_a_tool_inherits_the_environment_without_what_is_not_its_business() -> None:
    """DECISIONS 12."""
    environment = {
        "PATH": os.environ["PATH"],
        "PLAIN": "1",
        "MINE": "mine-secret",
        "THEIRS": "their-secret",
        "GERT_TRACE_SIGNING_KEY": "key",
        "GERT_ANYTHING": "x",
    }
    answer = run(
        [*PYTHON, "import os, json; print(json.dumps(sorted(os.environ)))"],
        extract=ALL,
        environment=environment,
        withheld=frozenset({"MINE", "THEIRS"}),
        tool={"secrets": [{"env": "MINE"}]},
    )
    assert set(answer.outputs["it"]) - {"LC_CTYPE"} == {"PATH", "PLAIN", "MINE", "_GERT_CALL"}


def test_an_action_adds_to_the_environment() -> None:
    answer = run(
        [*SH, 'printf "%s|%s|%s" "$A" "$B" "${C-unset}"'],
        inputs={"x": "a b"},
        extract=TEXT,
        action={"env": {"A": "<{{ .x }}>", "B": ""}},
        environment={"PATH": os.environ["PATH"], "A": "old", "B": "old"},
    )
    assert answer.outputs == {"it": "<a b>||unset"}


@pytest.mark.parametrize("where", ["tool", "meta"])
@pytest.mark.parametrize("environment", [{}, {"TOKEN": ""}], ids=["not set", "empty"])
def test_a_missing_secret_stops_a_call_before_anything_starts(
    tmp_path: Path, where: str, environment: dict[str, str]
) -> None:
    declared = {"secrets": [{"env": "TOKEN"}]}
    answer = run(
        ["touch", str(tmp_path / "started")],
        environment={"PATH": os.environ["PATH"], **environment},
        tool=declared if where == "tool" else {"meta": declared},
    )
    assert answer.failure is not None
    assert (answer.failure.kind, answer.failure.message) == ("missing_secret", "tool `t` requires secret `TOKEN`")
    assert not (tmp_path / "started").exists()


def test_a_secret_that_is_not_required_may_be_missing() -> None:
    assert run(["true"], tool={"secrets": [{"env": "TOKEN", "required": False}]}).failure is None


def test_a_secret_of_gert_itself_is_never_handed_over() -> None:
    answer = run(
        ["true"],
        environment={"PATH": os.environ["PATH"], "GERT_KEY": "k"},
        tool={"secrets": [{"env": "GERT_KEY"}]},
    )
    failed(answer, "missing_secret", "`GERT_KEY`")


def test_an_action_may_supply_its_secret_from_an_input() -> None:
    answer = run(
        [*SH, 'test "$TOKEN" = s3cret-value'],
        inputs={"token": secret_ref("token")},
        secrets={"token": "s3cret-value"},
        action={"env": {"TOKEN": "{{ .token }}"}},
        tool={"secrets": [{"env": "TOKEN"}]},
    )
    assert answer.failure is None


# --- references to secrets


@pytest.mark.parametrize(
    ("argv", "action"),
    [
        pytest.param([*SH, 'test "$0" = "Bearer s3cret-value"', "Bearer {{ .token }}"], {}, id="in argv"),
        pytest.param([*SH, 'test "$A" = s3cret-value'], {"env": {"A": "{{ .token }}"}}, id="in env"),
        pytest.param([*SH, 'test "$(cat)" = s3cret-value'], {"stdin": "{{ .token }}"}, id="in stdin"),
        pytest.param([*SH, "pwd | grep -q s3cret-value"], {"cwd": "{{ .token }}"}, id="in cwd"),
        pytest.param(["./{{ .token }}/run"], {}, id="in the program"),
    ],
)
def test_a_process_gets_the_value_of_a_secret(tmp_path: Path, argv: list[str], action: Any) -> None:
    script(tmp_path, "s3cret-value/run", "#!/bin/sh\nexit 0\n")
    answer = run(
        argv,
        inputs={"token": secret_ref("token")},
        secrets={"token": "s3cret-value"},
        action=action,
        working=str(tmp_path),
    )
    assert answer.failure is None


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{{ upper .token }}", "`argv[1]`: `upper` cannot look into a secret"),
        ("{{ slice .token 0 3 }}", "`argv[1]`: `slice` cannot look into a secret"),
        ('{{ printf "%.3s" .token }}', "`argv[1]`: a secret can only be passed whole"),
        ("{{ .unknown }}", "`argv[1]`: a secret can only be passed whole"),
    ],
)
def test_a_secret_can_only_be_handed_over_whole(template: str, message: str) -> None:
    answer = run(
        ["echo", template],
        inputs={"token": secret_ref("token"), "unknown": secret_ref("nobody")},
        secrets={"token": "s3cret-value"},
    )
    assert answer.failure is not None
    assert answer.failure.message == message


@pytest.mark.parametrize(
    ("argv", "action", "kind"),
    [
        pytest.param(["{{ .token }}"], {}, "not_found", id="a program that is not found"),
        pytest.param(["./{{ .token }}/x"], {}, "not_found", id="a path that is not found"),
        pytest.param(["true"], {"cwd": "no/{{ .token }}"}, "invalid_input", id="a folder that is not there"),
    ],
)
def test_a_failure_does_not_tell_a_secret(argv: list[str], action: Any, kind: str) -> None:
    answer = run(argv, inputs={"token": secret_ref("token")}, secrets={"token": "s3cret-value"}, action=action)
    failed(answer, kind, "[REDACTED]")
    assert "s3cret" not in repr(answer)
