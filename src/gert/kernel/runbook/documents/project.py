"""The project file `gert-project.yaml`, and the configuration it shares with `gert-config.yaml`."""

from collections.abc import Iterator
from typing import Any, Final

from gert.kernel.runbook.documents.policy import GROUPS
from gert.kernel.runbook.documents.runner import RUNNERS, RunnerBlock
from gert.kernel.runbook.documents.shared import KEY_REFERENCE, WEBHOOK_URL, Notify, OnOutcome
from gert.kernel.runbook.finding import Path
from gert.kernel.runbook.kinds import (
    BOOL,
    EXTENSIONS,
    NAME_WORD,
    NONEMPTY,
    TEXT,
    TEXTS,
    TIMEOUT,
    ListOf,
    MapOf,
    Nested,
    Word,
    words,
)
from gert.kernel.runbook.model import Model, optional, required

ENV_SUFFIX: Final = "_env"
"""The end of a key, in the settings of a provider, that names an environment variable with a credential."""
PROJECT_FILE: Final = "gert-project.yaml"
PROVIDER_NAME: Final = "^[A-Za-z0-9_][A-Za-z0-9_-]{0,127}$"
"""Without a dot: in `provider/NAME.PATH` the first one ends the name."""
CONFIG_FILES: Final = ("gert-config.yaml", ".gert/config.yaml")


class ProviderBlock(Model):
    """A program that resolves inputs bound to `provider/NAME.PATH`."""

    transport: str = optional(words("jsonrpc"), "how it is reached", default="jsonrpc")
    binary: str = required(NONEMPTY, "program to start")
    args: tuple[str, ...] = optional(TEXTS, "its arguments", default=())
    config: dict[str, Any] = optional(
        EXTENSIONS, "settings passed to it; a key that ends in `_env` names a variable with a credential", default={}
    )
    timeout: str | None = optional(TIMEOUT, "time limit for its answer (default: `30s`)")

    @property
    def variables(self) -> frozenset[str]:
        """The environment variables with credentials that the settings name."""
        return frozenset(value for _, key, value in settings_in(self.config) if key.endswith(ENV_SUFFIX))


def settings_in(config: Any, path: Path = ()) -> Iterator[tuple[Path, str, str]]:
    """Yield every text in nested settings: its path, its key and its value."""
    items = config.items() if isinstance(config, dict) else enumerate(config) if isinstance(config, list) else ()
    for key, value in items:
        if isinstance(value, str):
            yield (*path, key), str(key), value
        else:
            yield from settings_in(value, (*path, key))


class TracesBlock(Model):
    """Where traces are written."""

    dir: str | None = optional(NONEMPTY, "folder for traces")


class LedgerBlock(Model):
    """How the ledger of runs is witnessed."""

    witness: str | None = optional(
        NONEMPTY, "file or URL that every sealed head is appended to: https, or http on loopback; needs a signing key"
    )
    witness_required: bool = optional(BOOL, "stop a run whose witness cannot be written", default=False)


class TelemetryBlock(Model):
    """Export of runs to OpenTelemetry; `OTEL_EXPORTER_OTLP_*` say where to."""

    export: bool = optional(BOOL, "export runs as spans and metrics; GERT_OTEL overrides it", default=False)
    capture_content: bool = optional(
        BOOL, "also export prompts, answers, arguments, results and messages of errors", default=False
    )


# Loopback only: a public address must be given when the server is started, not in a file.
LOOPBACK_ADDRESS: Final = r"^(localhost|127\.0\.0\.1|\[::1\]):[1-9][0-9]{0,4}$"
BASE_URL: Final = r"^(https://|http://(localhost|127\.0\.0\.1|\[::1\])([:/]|$))[^?#]*$"
STATUS_URL: Final = r"^(https://|http://(localhost|127\.0\.0\.1|\[::1\])([:/]|$)|\$\{).*\{ticket_id\}"
HOST: Final = r"^([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:[1-9][0-9]{0,4})?$"
SLACK_USER: Final = "^[A-Z0-9]{2,64}$"

_URL: Final = Word("a URL", pattern=WEBHOOK_URL)


class HttpApprovals(Model):
    """Your own service, which receives approval requests and responds with signed answers."""

    url: str = required(_URL, "URL the signed request is posted to: https, or http on loopback; `${NAME}` as elsewhere")
    status_url: str | None = optional(
        Word("a URL with `{ticket_id}`", pattern=STATUS_URL), "URL to poll for responses while a run waits"
    )
    signing_key: str | None = optional(
        NAME_WORD, "id of the key requests are signed with; `GERT_APPROVAL_SIGNING_KEY` when left out"
    )


class SlackApprovals(Model):
    """A Slack app that shows approval requests with two buttons."""

    webhook: str = required(_URL, "the app's incoming webhook, for example `${SLACK_WEBHOOK}`")
    signing_secret: str | None = optional(
        Word("a reference such as `${SLACK_SIGNING_SECRET}`", pattern=KEY_REFERENCE),
        "the app's signing secret, taken from the environment; without it there are no buttons",
    )
    users: dict[str, str] = optional(
        MapOf(NONEMPTY, keys=SLACK_USER), "approvers by Slack user id; other users cannot respond", default={}
    )


class TeamsApprovals(Model):
    """A Teams workflow that shows approval requests with a link to their page."""

    webhook: str = required(_URL, "the workflow's webhook, for example `${TEAMS_WEBHOOK}`")


class ApprovalsBlock(Model):
    """How approvers are notified, and where they respond."""

    listen: str | None = optional(
        Word("an address of this machine such as `127.0.0.1:8765`", pattern=LOOPBACK_ADDRESS),
        "address at which a waiting run serves the approval page and accepts responses",
    )
    base_url: str | None = optional(
        Word("a URL without query", pattern=BASE_URL),
        "public URL of that address, for links (default: the address itself)",
    )
    drop_box: str | None = optional(
        NONEMPTY, "folder in which other users of this machine read requests and leave signed responses"
    )
    http: HttpApprovals | None = optional(Nested(HttpApprovals), "your own service")
    slack: SlackApprovals | None = optional(Nested(SlackApprovals), "a Slack app")
    teams: TeamsApprovals | None = optional(Nested(TeamsApprovals), "a Teams workflow")


class Config(Model):
    """Settings of gert on this machine or in this project."""

    providers: dict[str, ProviderBlock] = optional(
        MapOf(Nested(ProviderBlock), keys=PROVIDER_NAME), "programs that resolve inputs, by name", default={}
    )
    policies: tuple[str, ...] = optional(TEXTS, "policy files or folders that apply to every run", default=())
    groups: dict[str, tuple[str, ...]] = optional(GROUPS, "people by group, for `group:` in rules", default={})
    traces: TracesBlock | None = optional(Nested(TracesBlock), "where traces are written")
    ledger: LedgerBlock | None = optional(Nested(LedgerBlock), "how the ledger is witnessed")
    telemetry: TelemetryBlock | None = optional(Nested(TelemetryBlock), "export of runs to OpenTelemetry")
    on_outcome: OnOutcome | None = optional(Nested(OnOutcome), "whom to notify, by outcome category")
    notify: Notify | None = optional(Nested(Notify), "whom to notify of runs that failed, were denied or rejected")
    webhook_hosts: tuple[str, ...] = optional(
        ListOf(Word("a host such as `hooks.example.com` or `127.0.0.1:8080`", pattern=HOST)),
        "hosts that webhooks of runbooks may be sent to; without a port, any port",
        default=(),
    )
    mcp_http_hosts: tuple[str, ...] = optional(
        ListOf(Word("a host such as `mcp.internal` or `10.0.0.7:8080`", pattern=HOST)),
        "hosts that MCP servers may be reached at by plain http; without a port, any port",
        default=(),
    )
    approvals: ApprovalsBlock | None = optional(Nested(ApprovalsBlock), "how approvals are requested")
    runners: dict[str, RunnerBlock] = optional(RUNNERS, "runners by id, and what each can reach", default={})
    skills: tuple[str, ...] = optional(TEXTS, "folders of skills beside `skills/` and the bundled ones", default=())
    secrets_policies: tuple[str, ...] = optional(
        TEXTS, "files that say which skills may use which secrets; without one, none may", default=()
    )
    extensions: dict[str, Any] = optional(EXTENSIONS, "free metadata", default={})


class Project(Config):
    """The root of a project: shared tools are looked up beside this file."""

    name: str = required(NAME_WORD, "name of the project")
    description: str | None = optional(TEXT, "what the project contains")
