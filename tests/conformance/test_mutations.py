"""Whatever is done to a document, validation gives findings: never an exception, in no format."""

import contextlib
import io
import json
import random
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.conformance.cases import ROOT, files, objections
from tests.soak import examples

from gert.ecosystem.host.config.workspace import Workspace
from gert.ecosystem.surfaces.cli.main import main
from gert.kernel.runbook.document import DOCUMENT_KINDS, Document, load
from gert.kernel.runbook.reader import read
from gert.kernel.runbook.validate import validate

CI = settings(
    settings.get_profile("conformance"),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
SEEDS: Final = sorted((ROOT / "examples").rglob("*.yaml")) + files("good", "bad", "tools")
SOURCES: Final[Mapping[Path, bytes]] = {file: file.read_bytes() for file in SEEDS}
LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
DUMPER: Final = getattr(yaml, "CSafeDumper", yaml.SafeDumper)

ODD: Final = (
    "null", "~", "''", '""', "true", "yes", "0", "-1", "1e400", ".nan", "-.inf", "9" * 30, "0x" + "f" * 40, "1" * 500,
    "[]", "{}", "[[]]", "[{a: [b]}]", "{a: {b: {c: d}}}", "[1, two, null]", "{? [a] : b}", "&a [*a]", "*nothing",
    "!!python/name:os.system", "!x y", "<<", "{<<: [1]}", "{<<: {a: 1}}", "|", ">-", "'", '"', "# gone", "---", "...",
    "{{", "}}", '"{{ . }}"', '"{{ .a.b.c }}"', "'{{ index . 0 \"x\" }}'", "'{{ .step }}'", "'{{ .scope }}'",
    "'{{ .step.a }}'", "'{{ .scope.a/0.b }}'", "'{{ .repeat }}'", "'{{ range . }}{{ . }}{{ end }}'",
    "'{{ with $x := .a }}{{ $x.y }}{{ end }}'", "'{{ 1 }}'", "'{{ printf \"%d\" . }}'", "'{{ index .a \"b\" .c }}'",
    "größe", "\U0001f680", "\u202eabc", "\u00a0", "a\u0301", "'\\ud800'", '"\\ud800"', '"\\0"', '"\\x1b[31m"', "\u2028",
    "default", "kernel/v0", "tool/v0", "policy/v0", "mcp", "jsonrpc", "resolved", "99999999d", "1s", "'('", "'(?<x>'",
    "'[a-'", "'a{1000000}'", "'(a+)+$'", "a" * 5000, "/", "..", "../../../etc/passwd", "a:b", "step", "scope", "repeat",
)  # fmt: skip
NATIVE: Final[tuple[Any, ...]] = (
    None, True, False, 0, -1, 2**53, 10**30, 1.5, float("inf"), float("nan"), "", " ", "x", "{{", "{{ .a }}", "{{ . }}",
    "{{ .step.a.b }}", "{{ .scope.a }}", "default", "\U0001f680", "\x85", "a" * 2000, [], {}, [[]], [{}], [None],
    {"": ""}, {"a": {"b": []}}, [1, "two", None], "99999999d", "(", "group:", "env/", "provider/.", "step", "..",
    "/", "\\",
)  # fmt: skip
KEYS: Final = (
    *dict.fromkeys(key for kind in DOCUMENT_KINDS.values() for key in kind.model.fields),
    "type", "id", "when", "next", "for_each", "as", "over", "key", "scope", "export", "visibility", "allow", "deny",
    "principal", "timeout", "retry", "max", "backoff", "max_backoff", "on", "contract", "effects", "reads", "writes",
    "outputs", "inputs_from", "tool", "action", "instructions", "required_evidence", "kind", "items", "assert", "value",
    "expected", "branches", "condition", "label", "outcome", "category", "code", "extension", "repeat", "until",
    "pattern", "min", "enum", "default", "required", "secret", "from", "argv", "stdin", "env", "cwd", "extract",
    "path", "preview", "transport", "binary", "connect", "args", "platform", "rules", "risk", "approvers", "<<", "",
    "größe",
)  # fmt: skip

LONG: Final = (
    b"a" * 100_000, "ä".encode() * 5000, b"x-" * 2000, b"9" * 5000, b"a." * 3000, b"a/" * 3000,
    "\U0001f680".encode() * 300,
)  # fmt: skip
LINE_BREAKS: Final = (b"\r\n", b"\r", "\u2028".encode(), "\x85".encode(), b"\n\n", b"\n\x00", b"\x0c\n")
TOWERS: Final = (
    "a: &a0 [x]\n" + "".join(f"b{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12)),
    "z: &q {k: *q}", "z: " + "[" * 60, "z: " + "[" * 20_000, "z: " + "{a: " * 5000,
    "".join(" " * depth + "k:\n" for depth in range(300)),
)  # fmt: skip
PIECES: Final = (
    b"(", b")", b".", b"|", b" ", b"$", b'"', b"`", b"-", b"if ", b"end", b"range ", b"/*", b":=", b"0x", b"1e9", b"'",
    b"index ", b"\\", b"\x07",
)  # fmt: skip

WORD: Final = re.compile(r"[\w.-]+")

Mutation = Callable[[bytes, random.Random, bytes], bytes]


def by_lines(change: Callable[[list[str], random.Random, list[str]], None]) -> Mutation:
    """A mutation of the lines of a document."""

    def mutate(source: bytes, chance: random.Random, other: bytes) -> bytes:
        lines = source.decode("utf-8", "replace").split("\n")
        change(lines, chance, other.decode("utf-8", "replace").split("\n"))
        return "\n".join(lines).encode("utf-8", "replace")

    return mutate


def delete_line(lines: list[str], chance: random.Random, _: list[str]) -> None:
    lines[chance.randrange(len(lines))] = ""


def repeat_line(lines: list[str], chance: random.Random, _: list[str]) -> None:
    lines.insert(chance.randrange(len(lines)), chance.choice(lines))


def swap_lines(lines: list[str], chance: random.Random, _: list[str]) -> None:
    one, other = chance.randrange(len(lines)), chance.randrange(len(lines))
    lines[one], lines[other] = lines[other], lines[one]


def indent_line(lines: list[str], chance: random.Random, _: list[str]) -> None:
    at = chance.randrange(len(lines))
    lines[at] = chance.choice(["  ", " ", "\t", "- ", "    "]) + lines[at]


def outdent_line(lines: list[str], chance: random.Random, _: list[str]) -> None:
    at = chance.randrange(len(lines))
    lines[at] = lines[at][chance.randrange(1, 5) :]


def replace_scalar(lines: list[str], chance: random.Random, _: list[str]) -> None:
    with_value = [at for at, line in enumerate(lines) if ": " in line]
    if with_value:
        at = chance.choice(with_value)
        lines[at] = lines[at].partition(": ")[0] + ": " + chance.choice(ODD)


def swap_words(lines: list[str], chance: random.Random, _: list[str]) -> None:
    """Put a word of the document in the place of another; the document mostly stays one."""
    words = [(at, word) for at, line in enumerate(lines) for word in WORD.finditer(line)]
    if words:
        at, word = chance.choice(words)
        lines[at] = lines[at][: word.start()] + chance.choice(words)[1].group() + lines[at][word.end() :]


def splice(lines: list[str], chance: random.Random, other: list[str]) -> None:
    start = chance.randrange(len(other))
    piece = other[start : start + chance.randrange(1, 12)]
    at = chance.randrange(len(lines))
    lines[at : at + chance.randrange(3)] = piece


def by_tree(change: Callable[[Any, random.Random], None]) -> Mutation:
    """A mutation of the values of a document, written out again."""

    def mutate(source: bytes, chance: random.Random, other: bytes) -> bytes:
        if any(finding.rule == "Y01" for finding in read(source).findings):
            return source  # PyYAML's own loader recurses in C, without a bound
        try:
            tree = yaml.load(source, LOADER)
        except (yaml.YAMLError, ValueError, RecursionError):
            return source
        nodes = [node for node in _nodes(tree) if node]
        if not nodes:
            return source
        change(chance.choice(nodes), chance)
        try:
            return yaml.dump(tree, Dumper=DUMPER, allow_unicode=True, sort_keys=False, encoding="utf-8")
        except (yaml.YAMLError, ValueError, RecursionError):
            return source

    return mutate


def _nodes(tree: Any) -> list[Any]:
    found, waiting, seen = [], [tree], set()
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict | list) and id(node) not in seen:
            seen.add(id(node))
            found.append(node)
            waiting.extend(node.values() if isinstance(node, dict) else node)
    return found


def _place(node: Any, chance: random.Random) -> Any:
    return chance.choice(list(node)) if isinstance(node, dict) else chance.randrange(len(node))


def delete_value(node: Any, chance: random.Random) -> None:
    del node[_place(node, chance)]


def replace_value(node: Any, chance: random.Random) -> None:
    node[_place(node, chance)] = chance.choice(NATIVE)


def insert_value(node: Any, chance: random.Random) -> None:
    if isinstance(node, dict):
        node[chance.choice(KEYS)] = chance.choice(NATIVE)
    else:
        node.insert(chance.randrange(len(node) + 1), chance.choice(NATIVE))


def move_value(node: Any, chance: random.Random) -> None:
    """Put a value where its sibling or parent stands, nesting it into itself by reference where that may be."""
    one, other = _place(node, chance), _place(node, chance)
    node[one] = [node[other]] if chance.random() < 0.3 else node[other]


def rename_key(node: Any, chance: random.Random) -> None:
    if isinstance(node, dict):
        node[chance.choice(KEYS)] = node.pop(_place(node, chance))


def truncate(source: bytes, chance: random.Random, _: bytes) -> bytes:
    return source[: chance.randrange(len(source) + 1)]


def flip_bytes(source: bytes, chance: random.Random, _: bytes) -> bytes:
    changed = bytearray(source)
    for _each in range(chance.randrange(1, 4)):
        if changed:
            changed[chance.randrange(len(changed))] = chance.randrange(256)
    return bytes(changed)


def drop_bytes(source: bytes, chance: random.Random, _: bytes) -> bytes:
    start = chance.randrange(len(source) + 1)
    return source[:start] + source[start + chance.randrange(1, 40) :]


def lengthen(source: bytes, chance: random.Random, _: bytes) -> bytes:
    """Put something very long in the place of a word."""
    words = list(re.finditer(rb"[\w-]+", source))
    if not words:
        return source
    word = chance.choice(words)
    return source[: word.start()] + chance.choice(LONG) + source[word.end() :]


def change_line_breaks(source: bytes, chance: random.Random, _: bytes) -> bytes:
    return source.replace(b"\n", chance.choice(LINE_BREAKS))


def insert_tower(lines: list[str], chance: random.Random, _: list[str]) -> None:
    """Put in what is deep, refers to itself, or grows beyond all bounds where aliases are followed."""
    lines.insert(chance.randrange(len(lines)), chance.choice(TOWERS))


def alias_line(lines: list[str], chance: random.Random, _: list[str]) -> None:
    """Let one value stand for another, which may lie inside of it."""
    keyed = [at for at, line in enumerate(lines) if ": " in line or line.rstrip().endswith(":")]
    if len(keyed) > 1:
        first, second = sorted(chance.sample(keyed, 2))
        key, _colon, value = lines[first].partition(":")
        lines[first] = f"{key}: &named{value}"
        lines[second] = lines[second].partition(":")[0] + ": *named"


def change_template(source: bytes, chance: random.Random, _: bytes) -> bytes:
    """Put pieces of the template language into a template."""
    templates = list(re.finditer(rb"\{\{.*?\}\}", source))
    if not templates:
        return source
    found = chance.choice(templates)
    inside = bytearray(found.group())
    for _each in range(chance.randrange(1, 4)):
        at = chance.randrange(2, len(inside) - 1)
        inside[at : at + chance.randrange(3)] = chance.choice(PIECES)
    return source[: found.start()] + bytes(inside) + source[found.end() :]


MUTATIONS: Final[tuple[Mutation, ...]] = (
    *map(by_lines, (delete_line, repeat_line, swap_lines, indent_line, outdent_line)),
    *map(by_lines, (replace_scalar, replace_scalar, splice, splice, swap_words, swap_words, swap_words, swap_words)),
    *map(by_tree, (delete_value, replace_value, replace_value, replace_value)),
    *map(by_tree, (insert_value, insert_value, move_value, rename_key)),
    *map(by_lines, (insert_tower, alias_line, alias_line)),
    truncate,
    flip_bytes,
    drop_bytes,
    lengthen,
    change_line_breaks,
    change_template,
    change_template,
)


@st.composite
def mutated(draw: st.DrawFn) -> tuple[Path, bytes]:
    """A document after one to four mutations, with the file it came from."""
    file = draw(st.sampled_from(SEEDS))
    source = SOURCES[file]
    for mutation, seed in draw(
        st.lists(st.tuples(st.sampled_from(MUTATIONS), st.integers(0, 2**32)), min_size=1, max_size=4)
    ):
        chance = random.Random(seed)
        source = mutation(source, chance, SOURCES[chance.choice(SEEDS)])
    return file, source


KIND: Final = st.one_of(st.none(), st.none(), st.sampled_from(list(DOCUMENT_KINDS)))


@settings(CI, max_examples=examples(150))
@given(mutated(), KIND)
def test_a_mutated_document_is_read_and_judged(case: tuple[Path, bytes], kind: str | None) -> None:
    file, source = case
    checked = Workspace().check(str(file), source=source, kind=kind)
    assert isinstance(checked.document, Document)
    assert objections(checked.findings) == []
    assert (checked.document.model is not None) or checked.findings
    # Lines end as YAML has them end, and in older YAML.
    lines = re.split("\r\n|[\n\r\x85\u2028\u2029]", source.decode("utf-8", "replace"))
    for finding in checked.findings:
        assert finding.line <= len(lines), finding
        assert finding.column <= len(lines[finding.line - 1]) + 2, finding
        assert len(finding.message) < 1000, finding


@settings(CI, max_examples=examples(100))
@given(st.binary(max_size=400), KIND)
def test_any_bytes_are_read_and_judged(source: bytes, kind: str | None) -> None:
    document = validate(load(source, kind=kind))
    assert objections(document.findings) == []


@settings(CI, max_examples=examples(25))
@given(mutated())
@pytest.mark.parametrize("form", ["text", "json", "sarif"])
def test_findings_are_printed_in_every_format(form: str, case: tuple[Path, bytes]) -> None:
    code, printed = gert("validate", "-", "--format", form, stdin=case[1])
    assert code in (0, 1)
    if form == "text":
        assert all(character.isprintable() or character == "\n" for character in printed)
        return
    report = json.loads(printed)
    results = report["runs"][0]["results"] if form == "sarif" else report["files"][0]["findings"]
    assert form == "sarif" or report["valid"] is (code == 0)
    assert bool(results) or code == 0


def gert(*arguments: str, stdin: bytes) -> tuple[int, str]:
    """Run a command in this process; an error inside gert is raised, not printed."""
    printed, before = io.StringIO(), sys.stdin
    sys.stdin = io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8")
    try:
        with contextlib.redirect_stdout(printed):
            return main(list(arguments)), printed.getvalue()
    finally:
        sys.stdin = before
