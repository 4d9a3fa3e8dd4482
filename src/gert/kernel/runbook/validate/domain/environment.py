"""The environment: secrets that are missing here, platforms that differ, inputs bound to sources."""

from collections.abc import Iterator
from typing import Final
from urllib.parse import urlsplit

import msgspec

from gert.kernel.foundation.names import did_you_mean, listing
from gert.kernel.runbook.documents.contract import InputBlock
from gert.kernel.runbook.documents.shared import SecretBlock
from gert.kernel.runbook.finding import Finding, Path, error, note, warning
from gert.kernel.runbook.program import Program
from gert.kernel.runbook.validate.case import Case
from gert.kernel.runbook.validate.domain.contracts import parameter_limits
from gert.kernel.runbook.validate.facts import Facts

SOURCES: Final = ("prompt", "env/NAME", "file/PATH", "provider/NAME.PATH")


class SecretNeed(msgspec.Struct, frozen=True):
    """A secret that a run needs, what needs it, and whether it is set here (None if unknown)."""

    env: str
    required: bool
    needed_by: str
    path: Path
    description: str | None = None
    present: bool | None = None


def secrets_needed(program: Program, facts: Facts) -> Iterator[SecretNeed]:
    """Yield every secret of a runbook and its tools, once each; names only, never values."""
    needs: dict[str, SecretNeed] = {}
    for who, path, secret in _secrets(program):
        before = needs.get(secret.env)
        # A secret is required if anything requires it.
        if before is None or (secret.required and not before.required):
            present = None if facts.environment is None else secret.env in facts.environment
            needs[secret.env] = SecretNeed(secret.env, secret.required, who, path, secret.description, present)
    yield from needs.values()


def _secrets(program: Program) -> Iterator[tuple[str, Path, SecretBlock]]:
    for index, secret in enumerate(program.runbook.meta.secrets):
        yield "the runbook", ("meta", "secrets", index), secret
    for index, entry in enumerate(program.runbook.tools):
        lookup = program.lookups.get(entry)
        tool = lookup.tool if lookup is not None else None
        for secret in tool.all_secrets if tool is not None else ():
            yield f"the tool `{entry}`", ("tools", index), secret


def missing_secrets(case: Case) -> Iterator[Finding]:
    """D22: note secrets that are not set here; the run may be meant for another machine, and is refused on this one."""
    for need in secrets_needed(case.program, case.facts):
        if need.present is not False:
            continue
        verb = "requires" if need.required else "can use"
        message = f"{need.needed_by} {verb} the secret `{need.env}`, which is not set here"
        yield note("D22", need.path, message, need.description)


def tool_platforms(case: Case) -> Iterator[Finding]:
    """D41: note a tool for other systems; the runbook may be meant for one of them."""
    if case.facts.platform is None:
        return
    for index, entry in enumerate(case.program.runbook.tools):
        lookup = case.program.lookups.get(entry)
        tool = lookup.tool if lookup is not None else None
        if tool is not None and tool.meta.platform and case.facts.platform not in tool.meta.platform:
            message = (
                f"the tool `{entry}` runs on {listing(tool.meta.platform)}, and this system is `{case.facts.platform}`"
            )
            yield note("D41", ("tools", index), message)


def input_bindings(case: Case) -> Iterator[Finding]:
    """D42: `from` names a known source."""
    for block in case.program.runbook.meta.inputs.values():
        if block.from_ is not None:
            yield from _binding(block, case)


def _binding(block: InputBlock, case: Case) -> Iterator[Finding]:
    source = block.from_ or ""
    prefix, slash, rest = source.partition("/")
    path = block.at("from")
    hint = f"one of {listing(SOURCES)}"
    if source == "prompt":
        return
    if prefix in {"env", "file"} and slash:
        if not rest:
            yield error("D42", path, f"`{source}` does not name what to read", hint)
        elif prefix == "env" and rest.upper().startswith("GERT_"):
            yield error("D42", path, f"`{rest}` is one of gert's own variables, which cannot be inputs")
        return
    # `provider/cmdb.server.hostname` and the short form `cmdb.server.hostname` mean the same.
    provider, dot, field = (rest if prefix == "provider" and slash else source).partition(".")
    if not (provider and dot and field) or (slash and prefix != "provider"):
        guess = did_you_mean(prefix, ["prompt", "env", "file", "provider"])
        yield error(
            "D42",
            path,
            f"`{source}` is not a source of inputs",
            f"did you mean `{guess}`?" if guess else hint,
        )
    elif case.facts.providers is not None and provider not in case.facts.providers:
        yield warning("D42", path, f"no provider `{provider}` is configured", "add it under `providers` in the project")
    elif case.facts.supported is not None and provider not in case.facts.supported.providers:
        message = f"this installation cannot ask the provider `{provider}`: its program was not found"
        yield warning("D50", path, message, "install it, or give the input with --var or --input")


def webhook_hosts(case: Case) -> Iterator[Finding]:
    """D49: a runbook's own webhook needs a host that the configuration allows; a host in `${NAME}` is unknown here."""
    block, hosts = case.program.runbook.meta.on_outcome, case.facts.webhook_hosts
    for category in block.fields if block is not None and hosts is not None else ():
        notice = getattr(block, category)
        url = urlsplit((notice.webhook if notice is not None else None) or "")
        if hosts is None or not url.hostname or "$" in url.netloc:
            continue
        if not {url.hostname, url.netloc.rpartition("@")[2].lower()} & {each.lower() for each in hosts}:
            message = f"no configuration allows the host `{url.hostname}`, so a run is refused"
            yield warning("D49", notice.at("webhook"), message, "add it to `webhook_hosts` in the project")


def input_limits(case: Case) -> Iterator[Finding]:
    """D43: an input's own limits make sense, and its default respects them."""
    for block in case.program.runbook.meta.inputs.values():
        yield from parameter_limits(block)
        if block.has_default and block.required:
            message = "an input with a `default` is never missing, so `required` has no effect"
            yield warning("D43", block.at("required"), message)
