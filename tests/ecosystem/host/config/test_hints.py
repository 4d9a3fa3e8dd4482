"""What hints suggest for mistakes that look like something else, and that a cause is reported once."""

from pathlib import Path

from gert.ecosystem.host.config.workspace import Workspace

END = "  - { type: end, outcome: { category: resolved, code: ok } }\n"
TOOL = """apiVersion: tool/v0
meta: {name: logarchive}
contract: {effects: [], writes: []}
actions: {go: {argv: [ls]}}
"""


def found(folder: Path, tools: str, steps: str) -> list[tuple[str, str | None]]:
    file = folder / "book.yaml"
    file.write_text(f"apiVersion: kernel/v0\nmeta: {{ name: a }}\n{tools}steps:\n{steps}{END}")
    return [(each.rule, each.hint) for each in Workspace(str(folder)).check(str(file)).findings]


def test_a_misspelt_entry_of_tools_is_reported_once(tmp_path: Path) -> None:
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "logarchive.tool.yaml").write_text(TOOL)
    steps = "".join(f"  - {{ type: tool, id: s{n}, tool: logarchive }}\n" for n in range(4))
    [(rule, hint)] = found(tmp_path, "tools: [logarchiv]\n", steps)
    assert rule == "D15"
    assert (hint or "").startswith("did you mean `logarchive`, which steps use? searched: ")


def test_an_arm_with_a_misspelt_default_gets_that_word(tmp_path: Path) -> None:
    arms = (
        "  - type: branch\n    branches:\n"
        "      - { condition: defualt, steps: [{ type: manual, id: m, instructions: x }] }\n"
    )
    assert ("D09", "did you mean `default`?") in found(tmp_path, "", arms)


def test_a_loop_over_a_path_without_braces_gets_the_template(tmp_path: Path) -> None:
    step = "  - { type: manual, id: m, instructions: x, for_each: { as: f, over: .find.files } }\n"
    assert found(tmp_path, "", step) == [("D20", "use `'{{ .find.files }}'`")]
