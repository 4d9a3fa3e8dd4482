"""Every documented name of the agent kernel is importable from `gert.agent`, and takes what it is said to take."""

import abc
import builtins
import dataclasses
import enum
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, get_args

import pydantic
import pytest
from typing_extensions import TypeAliasType

import gert.agent

PAGE = (Path(__file__).parent / "fixtures" / "agent_names.md").read_text(encoding="utf-8").splitlines()
OPTIONAL_NAME = "namespace"
"""Documented both as `StepKey(ns)` and as `StepKey(*, namespace)`; both work."""


class Parameter(NamedTuple):
    """A parameter or a field as it is documented."""

    name: str
    default: str | None
    by_name: bool


def documented() -> Iterator[Any]:
    """Each name with its line, and each method with those of its class."""
    owner = ""
    for line in PAGE:
        if (name := re.match(r"- \*\*(\w+)\*\*", line)) is not None:
            owner = name[1]
            yield pytest.param(owner, line[name.end() :].strip(), id=owner)
        elif (method := re.match(r"  - `(?:async )?(\w+)", line)) is not None:
            yield pytest.param(f"{owner}.{method[1]}", line[4:], id=f"{owner}.{method[1]}")


def parts(text: str, mark: str) -> list[str]:
    """A text cut at a mark, except inside brackets."""
    found, depth = [""], 0
    for letter in text:
        depth += (letter in "([{") - (letter in ")]}")
        if letter == mark and not depth:
            found.append("")
        else:
            found[-1] += letter
    return [each.strip() for each in found if each.strip()]


def parameters(signature: str) -> list[Parameter]:
    """What stands in the first parentheses of a signature."""
    depth, start = 0, signature.index("(")
    for end in range(start, len(signature)):
        depth += (signature[end] == "(") - (signature[end] == ")")
        if not depth:
            break
    found, by_name = [], False
    for each in parts(signature[start + 1 : end], ","):
        if each == "*":
            by_name = True
        elif each not in ("self", "cls") and not each.startswith("*"):
            name, _, default = each.partition(" = ")
            found.append(Parameter(name.partition(":")[0], default or None, by_name))
    return found


def same(default: Any, said: str) -> bool:
    """Whether a default is the one that is documented."""
    value = default.value if isinstance(default, enum.Enum) else default
    return said == "…" or repr(value) == said or str(value) == said.strip("'")


def check_signature(signed: Any, said: list[Parameter]) -> None:
    """Everything documented can be given as documented, and nothing else has to be."""
    taken = {name: each for name, each in inspect.signature(signed).parameters.items() if name not in ("self", "cls")}
    for place, each in enumerate(said):
        found = taken[each.name]
        if each.by_name:
            assert found.kind is found.KEYWORD_ONLY or each.name == OPTIONAL_NAME
        else:
            assert found.kind is found.POSITIONAL_OR_KEYWORD
            assert list(taken).index(each.name) == place
        assert (found.default is found.empty) == (each.default is None), each
        assert each.default is None or same(found.default, each.default), each
    for name in taken.keys() - {each.name for each in said}:
        assert taken[name].default is not inspect.Parameter.empty or taken[name].kind is inspect.Parameter.VAR_KEYWORD


def check_fields(model: type[pydantic.BaseModel], said: str) -> None:
    """A model has the documented fields with the documented defaults, and needs no others."""
    names = set()
    for each in parts(said, ";"):
        name, _, default = each.partition(" = ")
        name = name.partition(":")[0]
        names.add(name)
        field = model.model_fields[name]
        assert field.is_required() == (not default), each
        assert not default or same(field.default, default), each
    assert not any(field.is_required() for name, field in model.model_fields.items() if name not in names)


def check_base(found: type, base: str) -> None:
    """A class is what it is documented to be; the stores are event stores by their methods."""
    if base == "EventStore":
        methods = [name for name in vars(gert.agent.EventStore) if not name.startswith("_")]
        assert methods
        assert all(callable(getattr(found, name)) for name in methods)
    else:
        known = (getattr(module, base, None) for module in (builtins, abc, pydantic, gert.agent))
        kind = next(each for each in known if each is not None)
        assert issubclass(found, kind)


@pytest.mark.parametrize(("name", "said"), list(documented()))
def test_a_name_is_what_it_is_documented_to_be(name: str, said: str) -> None:
    owner, _, method = name.partition(".")
    found: Any = getattr(gert.agent, owner)
    if method:
        held, signature = inspect.getattr_static(found, method), said.strip("`").partition("` (")
        assert isinstance(held, property) == (signature[2] == "property)")
        assert isinstance(held, staticmethod) == (signature[2] == "static method)")
        assert isinstance(held, classmethod) == (signature[2] == "class method)")
        if not isinstance(held, property):
            assert inspect.iscoroutinefunction(getattr(found, method)) == said.startswith("`async ")
            check_signature(getattr(found, method), parameters(signature[0]))
        return
    if (base := re.match(r"\((\w+)\)(?!:)\s*", said)) is not None:
        check_base(found, base[1])
        said = said[base.end() :]
    kind = re.match(r"[^\s:(`]*", said)[0]  # type: ignore[index]
    if said.startswith("model:"):
        check_fields(found, said.removeprefix("model:"))
    elif said.startswith("(enum):"):
        members = dict(each.split("=") for each in parts(said.removeprefix("(enum):"), ","))
        assert {word: found[word].value for word in members} == members
    elif kind == "exception":
        assert issubclass(found, gert.agent.GertError)
        if said == "exception":
            assert str(found("what went wrong")) == "what went wrong"
        else:
            check_signature(found.__init__, parameters(said))
    elif kind in ("class", "dataclass"):
        assert dataclasses.is_dataclass(found) == (kind == "dataclass")
        if "(" in said and "*args" not in said:
            check_signature(found, parameters(said))
    elif said.startswith("`("):
        check_signature(found, parameters(said))
    else:
        check_alias(found, said.strip("= `"), owner)


def check_alias(found: Any, said: str, name: str) -> None:
    """A type that has a name, or a constant."""
    if said.startswith("Literal["):
        assert ", ".join(get_args(found)) == said.removeprefix("Literal[").removesuffix("]")
    elif isinstance(found, str):
        assert found == said
    else:
        assert said == name
        assert isinstance(found, TypeVar | TypeAliasType | type) or get_args(found)


def test_what_is_documented_is_listed() -> None:
    names = {each.values[0].partition(".")[0] for each in documented()}
    assert len(names) == 161
    assert names <= set(gert.agent.__all__)
