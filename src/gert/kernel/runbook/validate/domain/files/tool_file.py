"""Tool files: each action fits its transport and its contract, and hides its secrets."""

from collections.abc import Iterator, Mapping
from typing import Final

from gert.kernel.foundation.names import did_you_mean, listing, suggestion
from gert.kernel.governance.contract import Contract, resolve
from gert.kernel.governance.parameter import Parameter
from gert.kernel.governance.tighten import relaxations
from gert.kernel.runbook.documents.contract import ContractBlock
from gert.kernel.runbook.documents.tool import RUNNER, ActionBlock, ExtractBlock, Tool
from gert.kernel.runbook.finding import Finding, Path, at_offset, error, note, warning
from gert.kernel.runbook.program import declared
from gert.kernel.runbook.validate.domain.contracts import (
    contract_limits,
    deprecated_keys,
    relaxation_finding,
    replaced_defaults,
    retry_delays,
    revoked_flags,
    undeclared_writes,
    unsafe_retry,
)
from gert.kernel.runbook.validate.domain.evidence import check_pattern
from gert.kernel.runbook.validate.domain.files.mcp_server import mcp_server
from gert.kernel.runbook.validate.domain.files.scripts import templates_in_scripts
from gert.kernel.runbook.validate.domain.identity import RESERVED
from gert.kernel.runbook.validate.domain.installation import supported_tool
from gert.kernel.runbook.validate.domain.rule_matches import misspelt_tags
from gert.kernel.runbook.validate.domain.runner_steps import runner_action, runner_meta
from gert.kernel.runbook.validate.domain.secrets import command_line_finding
from gert.kernel.runbook.validate.facts import Facts
from gert.kernel.template import Template

# Keys of an action that mean something only on some transports.
TRANSPORT_KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    "argv": ("stdio",),
    "stdin": ("stdio",),
    "cwd": ("stdio",),
    "env": ("stdio",),
    "method": ("jsonrpc",),
    "mcp_tool": ("mcp",),
    **dict.fromkeys(("skill", "runner", "secret_ref", "ttl", "unsandboxed", "plan"), (RUNNER,)),
    "mcp_arguments": ("mcp",),
}


def tool_file(tool: Tool, facts: Facts) -> Iterator[Finding]:
    """Check a tool document with all rules."""
    yield from _meta(tool, facts)
    yield from supported_tool(tool, facts)
    yield from mcp_server(tool)
    yield from _contract(tool)
    yield from _writes(tool)
    if facts.rules is not None:
        yield from misspelt_tags(tool, *facts.rules)
    yield from _unused_inputs(tool)
    for name, action in tool.actions.items():
        contract = resolve(declared(tool.contract), declared(action.contract))
        yield from _transport(tool, name, action)
        yield from _action_contract(tool, action)
        yield from _extracts(action, contract, tool.meta.transport)
        yield from _templates(action, contract, name)
        yield from templates_in_scripts(tool, action, contract.inputs)
        yield from _command(tool, action)
        yield from _preview(tool, action, contract)
        if tool.meta.transport == RUNNER:
            yield from runner_action(name, action)
        elif action.retry is not None:
            if not contract.idempotent:
                yield unsafe_retry(action.retry, f"the action `{name}`")
            yield from retry_delays(action.retry)


def _meta(tool: Tool, facts: Facts) -> Iterator[Finding]:
    meta = tool.meta
    if not tool.actions:
        yield error("D50", ("actions",), "the tool has no actions")
    if meta.transport == "jsonrpc" and meta.binary is None:
        yield error("D50", ("meta",), "a `jsonrpc` tool needs `binary`", "name the program to start")
    if meta.transport == "mcp":
        if meta.connect is None:
            yield error("D50", ("meta",), "an `mcp` tool needs `connect`", "`stdio`, or the URL of a server")
        elif meta.connect == "stdio" and meta.binary is None:
            yield error("D50", ("meta",), "`connect: stdio` needs `binary`", "name the server to start")
        elif meta.connect != "stdio" and meta.binary is not None:
            yield warning("D50", ("meta", "binary"), "a server with a URL is not started, so `binary` has no effect")
    elif meta.connect is not None:
        yield error("D50", ("meta", "connect"), f"`connect` belongs to `mcp`, and this tool is `{meta.transport}`")
    if meta.args and meta.transport == "stdio":
        yield error("D50", ("meta", "args"), "`args` belongs to long-running programs", "put arguments into `argv`")
    for index, word in enumerate(meta.args):
        for reference in word.references:
            message = f"`{'.'.join(map(str, reference.path))}` is not known when the program is started"
            hint = "the arguments of a long-running program are fixed"
            yield at_offset(reference.offset, error("D52", ("meta", "args", index), message, hint))
    if meta.transport == RUNNER:
        yield from runner_meta(tool)
    if facts.platform is not None and meta.platform and facts.platform not in meta.platform:
        message = f"the tool runs on {listing(meta.platform)}, and this system is `{facts.platform}`"
        yield note("D41", ("meta", "platform"), message)
    for base, secrets in ((("secrets",), tool.secrets), (("meta", "secrets"), meta.secrets)):
        for index, secret in enumerate(secrets):
            if facts.environment is not None and secret.env not in facts.environment:
                yield note("D22", (*base, index), f"the secret `{secret.env}` is not set here", secret.description)


def _contract(tool: Tool) -> Iterator[Finding]:
    yield from deprecated_keys(tool.contract, both_is_error=True)
    if tool.contract is not None:
        yield from contract_limits(tool.contract)
        yield from _reserved(tool.contract)
    unsaid = tool.contract is None or (tool.contract.effects is None and tool.contract.side_effects is None)
    silent = [
        name
        for name, action in tool.actions.items()
        if action.contract is None or (action.contract.effects is None and action.contract.side_effects is None)
    ]
    if unsaid and silent and tool.meta.transport != RUNNER:  # the skill declares them
        message = f"no `effects` are declared for {listing(silent, 4)}, so the risk is critical"
        yield warning("D34", ("contract",) if tool.contract else (), message, "declare `effects`, even if it is `[]`")


def _writes(tool: Tool) -> Iterator[Finding]:
    """D48: the tool's effects apply to every action; an action that adds effects is checked by itself."""
    of_all = tool.contract
    actions = [(name, each.contract) for name, each in tool.actions.items()]
    if of_all is not None and any(each is None or each.writes is None for _, each in actions):
        yield from undeclared_writes(of_all, (), f"the tool `{tool.meta.name}`")
    for name, own in actions:
        if own is not None and not (of_all is not None and of_all.effects):
            yield from undeclared_writes(own, (of_all,), f"the action `{name}`")


def _unused_inputs(tool: Tool) -> Iterator[Finding]:
    """D66: a template uses each declared input; a server is sent all of them."""
    if tool.meta.transport != "stdio":
        return
    used_by = {name: _used_inputs(action) for name, action in tool.actions.items()}
    if tool.contract is not None and tool.actions:
        yield from _unused(tool.contract, "the tool", tuple(used_by.values()))
    for name, action in tool.actions.items():
        if action.contract is not None:
            yield from _unused(action.contract, f"the action `{name}`", (used_by[name],))


def _unused(block: ContractBlock, what: str, used: tuple[set[str] | None, ...]) -> Iterator[Finding]:
    for name in block.inputs:
        if not any(each is None or name in each for each in used):
            message = f"{what} declares the input `{name}`, and nothing uses it"
            yield warning("D66", block.at("inputs", name), message, "use it in `argv`, or remove it", on_key=True)


def _used_inputs(action: ActionBlock) -> set[str] | None:
    """Return the inputs that the templates of an action use; None for all of them."""
    heads = [each.path[0] if each.path else None for _, word, _ in _tool_templates(action) for each in word.references]
    return {str(head) for head in heads} if all(isinstance(head, str) for head in heads) else None


def _action_contract(tool: Tool, action: ActionBlock) -> Iterator[Finding]:
    if action.contract is None:
        return
    yield from deprecated_keys(action.contract, both_is_error=True)
    yield from contract_limits(action.contract)
    yield from _reserved(action.contract)
    outer = declared(tool.contract)
    for relaxation in relaxations(outer, action.contract.declared(), parent_name="the tool"):
        yield relaxation_finding(action.contract, relaxation)
    yield from revoked_flags(outer.inputs, action.contract.inputs, "the tool")
    yield from revoked_flags(outer.outputs, action.contract.outputs, "the tool")
    yield from replaced_defaults(outer.inputs, action.contract.inputs, "the tool")


def _reserved(block: ContractBlock) -> Iterator[Finding]:
    for name in block.outputs:
        if name in RESERVED:
            path = block.at("outputs", name)
            yield error("D02", path, f"`{name}` cannot be the name of an output", RESERVED[name], on_key=True)


def _transport(tool: Tool, name: str, action: ActionBlock) -> Iterator[Finding]:
    transport = tool.meta.transport
    if transport == "stdio" and not action.argv:
        yield error("D50", action.path, f"the action `{name}` has no `argv`", "a `stdio` action needs a command to run")
    for key, transports in TRANSPORT_KEYS.items():
        if getattr(action, key) and transport not in transports:
            message = f"`{key}` belongs to {listing(transports)}, and this tool is `{transport}`"
            yield error("D50", action.at(key), message)


def _extracts(action: ActionBlock, contract: Contract, transport: str) -> Iterator[Finding]:
    for name, extract in action.extract.items():
        if name not in contract.outputs:
            hint = suggestion(name, contract.outputs) or "declare it in `contract.outputs`"
            yield error(
                "D51",
                action.at("extract", name),
                f"`{name}` is not an output of the contract",
                hint,
                on_key=True,
            )
        elif extract.lines and contract.outputs[name].type not in ("list", "any"):
            message = f"`lines` gives a list, and the output `{name}` is declared as {contract.outputs[name].type}"
            yield error("D51", extract.at("lines"), message, "declare the output with `type: list`")
        yield from _extract(extract, transport)
    for name, parameter in contract.outputs.items():
        if transport == "stdio" and parameter.required and name not in action.extract:
            message = f"the output `{name}` is required, and nothing extracts it"
            yield error("D51", action.path, message, "add it to `extract`")


def _extract(extract: ExtractBlock, transport: str) -> Iterator[Finding]:
    if extract.from_ == "json":
        if extract.pattern is not None:
            yield error("D51", extract.at("pattern"), "`json` takes a `path`, not a `pattern`")
    elif extract.json_path is not None:
        yield error("D51", extract.at("path"), f"`path` belongs to `json`, and this is `{extract.from_}`")
    if extract.from_ in {"exit_code", "json"}:
        for name, is_set in (("trim", not extract.trim), ("lines", extract.lines)):
            if is_set:
                yield error("D51", extract.at(name), f"`{name}` applies to text, and this is `{extract.from_}`")
    if extract.from_ in {"exit_code", "stderr"} and transport != "stdio":
        yield error("D51", extract.at("from"), f"`{extract.from_}` belongs to `stdio`, and this tool is `{transport}`")
    elif extract.from_ == "exit_code" and extract.pattern is not None:
        yield error("D51", extract.at("pattern"), "an exit code is a number and takes no `pattern`")
    elif extract.pattern is not None:
        yield from check_pattern("D51", extract.pattern, extract.at("pattern"))
        if extract.lines and any(newline in extract.pattern for newline in ("\n", "\\n", "(?s")):
            message = "`lines` tries the pattern on each line, so it matches no line break"
            hint = "extract the text without `lines`, and write `{{ lines .NAME }}` where you need the list"
            yield error("D51", extract.at("pattern"), message, hint)


def _templates(action: ActionBlock, contract: Contract, name: str) -> Iterator[Finding]:
    """D52: a template in a tool names a declared input. D54: no secret is on a command line."""
    for path, template, exposed in _tool_templates(action):
        for reference in template.references:
            if not reference.path or not isinstance(reference.path[0], str):
                secret = min((name for name, each in contract.inputs.items() if each.secret), default=None)
                if secret is not None and exposed:
                    yield at_offset(reference.offset, command_line_finding(secret, path))
                continue
            head = reference.path[0]
            parameter = contract.inputs.get(head)
            if parameter is None:
                yield at_offset(reference.offset, _undeclared(head, name, contract.inputs, path))
            elif parameter.secret and exposed:
                yield at_offset(reference.offset, command_line_finding(head, path))


def _undeclared(head: str, action: str, known: Mapping[str, Parameter], path: Path) -> Finding:
    guess = did_you_mean(head, known)
    hint = f"did you mean `.{guess}`?" if guess else "declare it in `contract.inputs`"
    return error("D52", path, f"the action `{action}` declares no input `{head}`", hint)


def _tool_templates(action: ActionBlock) -> Iterator[tuple[Path, Template, bool]]:
    """Yield every template of an action, and whether it is part of a command line."""
    for index, word in enumerate(action.argv or ()):
        yield action.at("argv", index), word, True
    for index, word in enumerate((action.preview.argv if action.preview else None) or ()):
        yield action.at("preview", "argv", index), word, True
    for key, value in action.env.items():
        yield action.at("env", key), value, False
    for key in ("stdin", "cwd"):
        template = getattr(action, key)
        if template is not None:
            yield action.at(key), template, False


def _command(tool: Tool, action: ActionBlock) -> Iterator[Finding]:
    """D53: with `binary`, the first word of `argv` is the program's name and is dropped."""
    if tool.meta.binary is None or not action.argv:
        return
    first = action.argv[0]
    if first.source.startswith("-") or not first.is_text:
        message = f"`argv` does not begin with the name of the program, so `{first.source}` is kept as an argument"
        yield warning("D53", action.at("argv", 0), message, f"begin with `{tool.meta.binary}`")
    elif _program(first.source) != _program(tool.meta.binary):
        message = (
            f"`{first.source}` is treated as the name of the program and dropped: `binary` is `{tool.meta.binary}`"
        )
        yield warning("D53", action.at("argv", 0), message, f"begin with `{tool.meta.binary}`, or remove `binary`")


def _program(path: str) -> str:
    return path.replace("\\", "/").rsplit("/", 1)[-1].lower().removesuffix(".exe")


def _preview(tool: Tool, action: ActionBlock, contract: Contract) -> Iterator[Finding]:
    """D56: a preview is one command or one MCP tool, for an action with writes."""
    preview = action.preview
    if preview is None:
        return
    if (preview.argv is None) == (preview.mcp_tool is None):
        yield error("D56", preview.path, "a preview is either `argv` or `mcp_tool`")
    elif preview.argv is not None and tool.meta.transport != "stdio":
        yield error("D56", preview.at("argv"), f"`argv` belongs to `stdio`, and this tool is `{tool.meta.transport}`")
    elif preview.mcp_tool is not None and tool.meta.transport != "mcp":
        yield error(
            "D56",
            preview.at("mcp_tool"),
            f"`mcp_tool` belongs to `mcp`, and this tool is `{tool.meta.transport}`",
        )
    if not contract.writes:
        yield warning("D56", preview.path, "the action writes nothing, so there is nothing to preview")
