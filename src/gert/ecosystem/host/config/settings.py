"""Settings: the project file, the configuration files and the command line, merged.

Weakest first: `gert-project.yaml`, `gert-config.yaml`, `.gert/config.yaml`, and the file of --config. A stronger file
replaces entries of a weaker one with the same name: a provider, a group, an outcome category, an approval channel.
Policies are never replaced: a floor can only grow. The policies of `GERT_POLICY` are added, and no file removes them.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy, deepcopy
from typing import Final

import msgspec
from msgspec import field

from gert.ecosystem.host.config.files import read_document
from gert.ecosystem.host.config.machine.platform import facts_for
from gert.ecosystem.host.config.providers import Provider, providers_in
from gert.ecosystem.host.config.telemetry import secret_headers
from gert.ecosystem.host.config.workspace import Checked, Workspace
from gert.ecosystem.process.own_process import protect_secrets
from gert.errors import DocumentError, UsageError
from gert.kernel.engine.run import RunResult
from gert.kernel.events.vocabulary import OUTCOME_CATEGORIES
from gert.kernel.foundation.names import is_safe_name
from gert.kernel.foundation.text import os_reason
from gert.kernel.runbook.document import Document, load
from gert.kernel.runbook.documents.project import PROJECT_FILE, ApprovalsBlock, Config, TelemetryBlock
from gert.kernel.runbook.documents.runbook import RunbookMeta
from gert.kernel.runbook.documents.runner import RunnerBlock, VaultBlock
from gert.kernel.runbook.documents.shared import OnOutcome, OutcomeNotice
from gert.kernel.runbook.finding import Severity
from gert.kernel.runbook.validate import validate

TRACES_DIR: Final = "GERT_TRACES_DIR"
POLICY: Final = "GERT_POLICY"

FAILED: Final = "failed"
_ENDINGS: Final = {"governance_denied": "denied", "approval_rejected": "rejected"}


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a folder; paths are absolute.

    on_outcome: whom to notify, by outcome category
    notify: whom to notify of runs without an outcome: `failed`, `denied`, `rejected`
    witness: the file or URL that sealed heads are appended to
    policies: files and folders of the floor
    policy_places: where a file names each of them, as `FILE:LINE:COLUMN`
    webhook_hosts: hosts that a runbook's own webhooks may use
    mcp_http_hosts: hosts that MCP servers may be reached at by plain http; every enclosing project must list them
    outer_hosts: the same for every enclosing project, by its file; each of them must allow a host
    group_files: the file that defines each group
    runners: registered runners by id; paths in them are absolute
    secrets_policies: files of the project, and of each enclosing project that has some; each of them must allow a use
    demanded: the entries of GERT_POLICY, as written
    files: the files that were read, weakest first
    """

    traces_dir: str | None = None
    witness: str | None = None
    witness_required: bool = False
    on_outcome: Mapping[str, OutcomeNotice] = field(default_factory=dict)
    notify: Mapping[str, OutcomeNotice] = field(default_factory=dict)
    policies: tuple[str, ...] = ()
    policy_places: Mapping[str, str] = field(default_factory=dict)
    demanded: tuple[str, ...] = ()
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    providers: Mapping[str, Provider] = field(default_factory=dict)
    approvals: ApprovalsBlock | None = None
    telemetry: TelemetryBlock | None = None
    webhook_hosts: tuple[str, ...] = ()
    mcp_http_hosts: tuple[str, ...] = ()
    outer_hosts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    group_files: Mapping[str, str] = field(default_factory=dict)
    runners: Mapping[str, RunnerBlock] = field(default_factory=dict)
    secrets_policies: tuple[tuple[str, ...], ...] = ((),)
    files: tuple[str, ...] = ()


def settings_for(
    workspace: Workspace,
    folder: str,
    config: str | None = None,
    environ: Mapping[str, str] = os.environ,
    *,
    files: Sequence[str] = (),
) -> Settings:
    """Read the settings of a folder; an unreadable file might set a floor, so it is an error.

    files: a runbook in the folder, then its tools; the projects that enclose them apply as well
    """
    settings = _read(_files(workspace, folder, config))
    # Webhooks belong to the runbook: a project that only provides tools does not restrict their hosts.
    around = _other_roots(workspace, folder, files[:1])
    for place, root in _other_roots(workspace, folder, files).items():
        outer = _read(workspace.config_files(root))
        hosts = {os.path.join(root, PROJECT_FILE): outer.webhook_hosts} if place in around else {}
        settings = _under(settings, outer, hosts)
    # Set but empty differs from not set: a floor was intended and is missing.
    demanded = tuple(environ[POLICY].split(os.pathsep)) if POLICY in environ else ()
    chosen = environ.get(TRACES_DIR)
    traces = _path(workspace.working, chosen) if chosen else settings.traces_dir
    if any("${" in text for text in _addresses(settings) if text is not None):
        protect_secrets()
    return msgspec.structs.replace(settings, traces_dir=traces, demanded=demanded)


def notices_for(meta: RunbookMeta, settings: Settings, result: RunResult) -> list[OutcomeNotice]:
    """The notices that a runbook and the settings define for this result, the runbook's own first."""
    if result.outcome is None:
        ending = ending_of(result)
        notice = settings.notify.get(ending or "") or (settings.notify.get(FAILED) if ending else None)
        return [notice] if notice is not None else []
    places = (notices_of(meta.on_outcome), settings.on_outcome)
    return [place[result.outcome.category] for place in places if result.outcome.category in place]


def ending_of(result: RunResult) -> str | None:
    """How a run without an outcome ended, as `notify` names it; a run that a person cancelled has no notice."""
    if result.status not in ("failed", "error"):
        return None
    return _ENDINGS.get(result.reason or "", FAILED)


def secret_variables(meta: RunbookMeta, settings: Settings) -> Iterator[str]:
    """The variables that hold addresses and keys of channels and notices, and credentials of providers.

    Tools never receive them: a tool with the signing secret of a channel could approve its own calls.
    """
    for provider in settings.providers.values():
        yield from provider.block.variables
    yield from secret_headers(settings.telemetry, os.environ)
    texts = [text for text in _addresses(settings, meta.on_outcome) if text is not None and "${" in text]
    if texts:
        from gert.ecosystem.notify.addresses import secret_references  # most runs have no notices

        for text in texts:
            yield from secret_references(text)


def _addresses(settings: Settings, own: OnOutcome | None = None) -> Iterator[str | None]:
    for notice in (*notices_of(own).values(), *settings.on_outcome.values(), *settings.notify.values()):
        yield from (notice.webhook, notice.pagerduty_routing_key)
    if settings.witness is not None and "://" in settings.witness:
        yield settings.witness
    said = settings.approvals
    if said is None:
        return
    if said.http is not None:
        yield from (said.http.url, said.http.status_url)
    if said.slack is not None:
        yield from (said.slack.webhook, said.slack.signing_secret)
    if said.teams is not None:
        yield said.teams.webhook


def notices_of(block: OnOutcome | None) -> dict[str, OutcomeNotice]:
    """The notices of a block, by outcome category."""
    return _set_in(block, OUTCOME_CATEGORIES)


def _set_in(block: object, names: Iterable[str]) -> dict[str, OutcomeNotice]:
    return {name: notice for name in names if (notice := getattr(block, name, None)) is not None}


def require_sound(checked: Checked) -> Checked:
    """Return a document without errors, or raise its first error."""
    for finding in checked.findings:
        if finding.severity is Severity.ERROR:
            where = f"{checked.file}:{finding.line}:{finding.column}"
            raise DocumentError(
                f"{where}: {finding.message}",
                hint=finding.hint or f"run `gert validate {checked.file}` for all findings",
                findings=[{"file": checked.file, **each.as_json()} for each in checked.findings],
            )
    return checked


def trace_file(folder: str, runbook: str, stamp: str) -> str:
    """The path of a new trace file in a folder of traces; the folder is created if needed."""
    name = f"{runbook}-{stamp}"
    if not is_safe_name(name):
        # The name of the runbook is not a safe file name; the stamp identifies the run.
        name = f"run-{stamp}"
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
    except OSError as problem:
        why = os_reason(problem)
        raise UsageError(
            f"cannot write traces to `{folder}`: {why}", hint=f"set `traces.dir` or {TRACES_DIR} to another folder"
        ) from None
    except ValueError:
        raise UsageError(f"`{folder}` is not a path") from None
    return os.path.join(folder, f"{name}.jsonl")


def _other_roots(workspace: Workspace, folder: str, files: Iterable[str]) -> dict[str, str]:
    """The projects that enclose a folder and files, by real path, without the nearest one of the folder."""
    nearest = workspace.project_root(folder)
    found = (root for place in (folder, *files) for root in workspace.project_roots(place))
    # Links give one project several names.
    roots = {os.path.realpath(root): root for root in found}
    if nearest is not None:
        del roots[os.path.realpath(nearest)]
    return roots


def _under(inner: Settings, outer: Settings, hosts: Mapping[str, tuple[str, ...]]) -> Settings:
    """Merge the settings of an enclosing project: an inner project, or a link into it, removes nothing."""
    for name in sorted(inner.groups.keys() & outer.groups.keys()):
        if set(inner.groups[name]) != set(outer.groups[name]):
            # A policy refers to the group of its own project; another project must not replace its members.
            raise DocumentError(
                f"the group `{name}` is defined in `{outer.group_files[name]}` and, with other people, in "
                f"`{inner.group_files[name]}`",
                hint="an inner project may add groups but not change them; rename one of the two",
            )
    return msgspec.structs.replace(
        inner,
        witness=inner.witness or outer.witness,
        witness_required=inner.witness_required or outer.witness_required,
        telemetry=inner.telemetry or outer.telemetry,
        policies=tuple(dict.fromkeys((*outer.policies, *inner.policies))),
        policy_places={**outer.policy_places, **inner.policy_places},
        groups={**outer.groups, **inner.groups},
        group_files={**outer.group_files, **inner.group_files},
        runners={**outer.runners, **inner.runners},
        secrets_policies=(*inner.secrets_policies, *(each for each in outer.secrets_policies if each)),
        outer_hosts={**inner.outer_hosts, **hosts},
        mcp_http_hosts=tuple(host for host in inner.mcp_http_hosts if host in outer.mcp_http_hosts),
    )


def _read(files: Iterable[tuple[str, str]]) -> Settings:
    settings = Settings()
    for file, kind in files:
        settings = _with(settings, file, _document(file, kind))
    return settings


def _files(workspace: Workspace, folder: str, config: str | None) -> Iterator[tuple[str, str]]:
    yield from workspace.config_files(folder)
    if config is not None:
        # --config may name a project file.
        kind = "project" if os.path.basename(config) == PROJECT_FILE else "config"
        yield os.path.normpath(os.path.join(workspace.working, config)), kind


def _document(file: str, kind: str) -> Document:
    document = load(read_document(file), kind=kind, file_name=file)
    return require_sound(Checked(file, validate(document, None, facts_for(None)))).document


def _with(weaker: Settings, file: str, document: Document) -> Settings:
    stronger: Config = document.model
    folder = os.path.dirname(file)
    said = stronger.traces.dir if stronger.traces is not None else None
    witness = stronger.ledger.witness if stronger.ledger is not None else None
    policies = [os.path.realpath(os.path.join(folder, path)) for path in stronger.policies]
    places = (document.tree.line_column(document.tree.index_of(("policies", at))) for at in range(len(policies)))
    named = {path: f"{file}:{line}:{column}" for path, (line, column) in zip(policies, places, strict=True)}
    return Settings(
        traces_dir=_path(folder, said) if said else weaker.traces_dir,
        witness=weaker.witness if witness is None else witness_place(folder, witness),
        witness_required=weaker.witness_required or (stronger.ledger is not None and stronger.ledger.witness_required),
        on_outcome={**weaker.on_outcome, **notices_of(stronger.on_outcome)},
        notify={**weaker.notify, **_set_in(stronger.notify, (FAILED, *_ENDINGS.values()))},
        policies=tuple(dict.fromkeys((*weaker.policies, *policies))),
        policy_places={**weaker.policy_places, **named},
        groups={**weaker.groups, **stronger.groups},
        providers={**weaker.providers, **providers_in(file, stronger)},
        telemetry=stronger.telemetry or weaker.telemetry,
        approvals=_merged(weaker.approvals, _placed(stronger.approvals, folder)),
        webhook_hosts=(*weaker.webhook_hosts, *stronger.webhook_hosts),
        mcp_http_hosts=(*weaker.mcp_http_hosts, *stronger.mcp_http_hosts),
        group_files={**weaker.group_files, **dict.fromkeys(stronger.groups, file)},
        runners={**weaker.runners, **{name: _located(each, folder) for name, each in stronger.runners.items()}},
        secrets_policies=((*weaker.secrets_policies[0], *(_path(folder, each) for each in stronger.secrets_policies)),),
        files=(*weaker.files, file),
    )


def witness_place(folder: str, witness: str) -> str:
    """A witness as it is recorded: a URL as it is written, or the absolute path of a file."""
    return witness if "://" in witness else _path(folder, witness)


def _merged(weaker: ApprovalsBlock | None, stronger: ApprovalsBlock | None) -> ApprovalsBlock | None:
    """Merge the approval settings, channel by channel."""
    if weaker is None or stronger is None:
        return stronger if weaker is None else weaker
    said = {name: getattr(stronger, name) for name in ApprovalsBlock.fields if getattr(stronger, name) is not None}
    return ApprovalsBlock(**{**{name: getattr(weaker, name) for name in ApprovalsBlock.fields}, **said})


def _placed(said: ApprovalsBlock | None, folder: str) -> ApprovalsBlock | None:
    """The same with the absolute path of the drop box."""
    if said is None or said.drop_box is None:
        return said
    fields = {name: getattr(said, name) for name in ApprovalsBlock.fields}
    return ApprovalsBlock(**{**fields, "drop_box": _path(folder, said.drop_box)})


def _located(runner: RunnerBlock, folder: str) -> RunnerBlock:
    """The same runner with absolute paths."""
    located = copy(runner)
    if runner.ca_file is not None:
        located.ca_file = _path(folder, runner.ca_file)
    vault = runner.secrets.kv.vault if runner.secrets is not None and runner.secrets.kv is not None else None
    if vault is not None:
        located = deepcopy(located)
        placed: VaultBlock = located.secrets.kv.vault  # type: ignore[union-attr, assignment]  # as above
        placed.token_file = _path(folder, vault.token_file)
        placed.ca_file = _path(folder, vault.ca_file) if vault.ca_file is not None else None
    return located


def _path(folder: str, path: str) -> str:
    return os.path.abspath(os.path.join(folder, os.path.expanduser(path)))
