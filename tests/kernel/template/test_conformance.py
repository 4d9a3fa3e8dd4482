"""The cases that Go's own text/template answered, and the document that explains the differences."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from gert.errors import TemplateError
from gert.kernel.template import parse, render
from gert.kernel.template.functions import FUNCTIONS

ROOT = Path(__file__).parents[3]
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
GROUPS = yaml.load((ROOT / "conformance/template/cases.yaml").read_text("utf-8"), LOADER)
DOCUMENT = (ROOT / "docs/template-language.md").read_text("utf-8")
CASES = [(group, case) for group in GROUPS for case in group["cases"]]


def given(template: str, data: Any) -> str | dict[str, str]:
    try:
        return render(parse(template), data)
    except TemplateError as error:
        return {"error": error.message}


def expected(case: dict[str, Any]) -> str | dict[str, str]:
    result: str | dict[str, str] = next(case[key] for key in ("ours", "gert", "go") if key in case)
    return result


@pytest.mark.parametrize(
    ("template", "data", "result"),
    [
        pytest.param(
            case["template"],
            case.get("data", group["data"]),
            expected(case),
            id=f"{group['about']}: {case['template']}",
        )
        for group, case in CASES
    ],
)
def test_a_template_gives_what_the_corpus_says(template: str, data: Any, result: str | dict[str, str]) -> None:
    got = given(template, data)
    if isinstance(result, dict):
        assert isinstance(got, dict), f"expected an error, found {got!r}"
    else:
        assert got == result


def test_the_corpus_is_large_and_answered_by_go() -> None:
    answered = [case for _, case in CASES if "go" in case]
    assert len(answered) >= 350
    assert all(("go" in case) != ("ours" in case) for _, case in CASES)


def test_a_difference_is_named_exactly_where_there_is_one() -> None:
    for _, case in CASES:
        go, gert = case.get("go"), case.get("gert")
        assert ("difference" in case) == ("gert" in case)
        if gert is not None:
            assert go != gert
            assert not (isinstance(go, dict) and isinstance(gert, dict))


def section(title: str) -> str:
    return DOCUMENT.split(f"\n## {title}\n")[1].split("\n## ")[0]


def rows(text: str) -> list[list[str]]:
    lines = [line for line in text.splitlines() if line.startswith("| `")]
    return [[cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def test_every_difference_is_explained_and_every_explanation_has_a_case() -> None:
    explained = [row[0].strip("`") for row in rows(section("Differences from Go"))]
    assert len(explained) == len(set(explained))
    assert set(explained) == {case["difference"] for _, case in CASES if "difference" in case}


FUNCTION_ROWS = rows(section("Functions"))


def test_every_function_has_a_row_in_the_document() -> None:
    assert sorted(row[0].strip("`") for row in FUNCTION_ROWS) == sorted(FUNCTIONS)


def test_every_function_has_a_case_in_the_corpus() -> None:
    words = {word for _, case in CASES for word in re.findall(r"\w+", case["template"])}
    assert set(FUNCTIONS) <= words


@pytest.mark.parametrize(
    ("example", "result"),
    [pytest.param(row[2].strip("`"), row[3].strip("`"), id=row[0].strip("`")) for row in FUNCTION_ROWS],
)
def test_the_example_of_a_function_runs(example: str, result: str) -> None:
    data = yaml.safe_load(section("Functions").split("```yaml\n")[1].split("```")[0])
    assert render(parse(example), data) == result.replace("⏎", "\n")


@pytest.mark.parametrize("example", re.findall(r"`(\{\{.*?\}\})`", DOCUMENT))
def test_a_template_in_the_document_parses_or_is_named_as_an_error(example: str) -> None:
    named = section("Differences from Go")
    try:
        parse(example.replace("\\|", "|"))
    except TemplateError:
        assert example in named
