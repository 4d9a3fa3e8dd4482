"""Models that need no network and always answer alike: `echo` and `script`."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from gert.ecosystem.host.config.files import read_document
from gert.errors import DocumentError, InputError
from gert.kernel.runbook.reader import read

_KEYS: Final = frozenset({"when", "response"})


class Rule(msgspec.Struct, frozen=True):
    """A scripted answer: it is given to a prompt that contains all of these texts."""

    when: tuple[str, ...]
    response: str


def echo(prompt: str) -> str:
    """Answer with the prompt."""
    return prompt


def scripted(prompt: str, rules: tuple[Rule, ...], file: str) -> str:
    """Answer with the response of the first rule that matches."""
    for rule in rules:
        if all(text in prompt for text in rule.when):
            return rule.response
    raise InputError(f"no rule of `{file}` matches the prompt", hint="add a rule, or one without `when` at the end")


def load_script(file: str) -> tuple[Rule, ...]:
    """Read a script: a YAML list of rules with `when` (a text or several) and `response`."""
    document = read(read_document(file))
    if document.findings:
        raise DocumentError(f"`{file}`: {document.findings[0].message}")
    root = document.tree.root
    if not isinstance(root, list) or not root:
        raise DocumentError(f"`{file}`: expected a list of rules", hint="begin each rule with `- when: …`")
    return tuple(_rule(each, f"`{file}`: rule {number}") for number, each in enumerate(root, 1))


def _rule(value: Any, place: str) -> Rule:
    if not isinstance(value, Mapping) or not set(value) <= _KEYS or not isinstance(value.get("response"), str):
        raise DocumentError(f"{place}: expected `response`, and `when` or nothing else")
    when = value.get("when", [])
    texts = [when] if isinstance(when, str) else when
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise DocumentError(f"{place}: expected `when` to be a text or a list of texts")
    return Rule(tuple(texts), value["response"])
