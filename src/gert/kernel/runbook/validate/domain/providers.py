"""Providers of inputs: their credentials are named, never written, and their programs are found."""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from gert.kernel.runbook.documents.project import ENV_SUFFIX, ProviderBlock, settings_in
from gert.kernel.runbook.finding import Finding, Path, error, warning
from gert.kernel.runbook.kinds import ENVIRONMENT_NAME
from gert.kernel.runbook.validate.facts import Facts

_CREDENTIAL: Final = re.compile(r"(?:^|_)(?:(?:api|access|secret|private)_?key|token|pass(?:word|wd)?|secret)s?$", re.I)
_VARIABLE: Final = re.compile(ENVIRONMENT_NAME)


def provider_blocks(providers: Mapping[str, ProviderBlock], facts: Facts) -> Iterator[Finding]:
    """D50, D73, D74: programs are found, and credentials are named by environment variables."""
    for name, block in providers.items():
        if facts.supported is not None and name not in facts.supported.providers:
            message = f"this installation cannot start the provider `{name}`: `{block.binary}` was not found"
            yield warning("D50", block.at("binary"), message, "a name is looked up on PATH, a path beside this file")
        for path, key, value in settings_in(block.config):
            where = block.at("config", *path)
            if _CREDENTIAL.search(key) and value:
                hint = f"set an environment variable, and name it: `{key}{ENV_SUFFIX}: NAME`"
                yield warning("D73", where, f"`{key}` of the provider `{name}` is written in the file", hint)
            elif key.endswith(ENV_SUFFIX):
                yield from _variable(where, key, value)


def _variable(where: Path, key: str, value: str) -> Iterator[Finding]:
    if not _VARIABLE.match(value):
        message = f"`{key}` expects the name of an environment variable"
        yield error("D74", where, message, "the name, for example `PAGERDUTY_API_KEY`; never the value")
    elif value.upper().startswith("GERT_"):
        yield error("D74", where, f"`{value}` is one of gert's own variables, which no provider gets")
