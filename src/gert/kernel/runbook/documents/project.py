"""The project file `gert-project.yaml`, and the configuration it shares with `gert-config.yaml`."""

from typing import Any, Final

from gert.kernel.runbook.documents.policy import GROUPS
from gert.kernel.runbook.documents.shared import OnOutcome
from gert.kernel.runbook.kinds import EXTENSIONS, NAME, NAME_WORD, NONEMPTY, TEXT, TEXTS, MapOf, Nested, words
from gert.kernel.runbook.model import Model, optional, required

PROJECT_FILE: Final = "gert-project.yaml"
CONFIG_FILES: Final = ("gert-config.yaml", ".gert/config.yaml")


class ProviderBlock(Model):
    """A program that answers for inputs bound to `provider/NAME.PATH`."""

    transport: str = optional(words("jsonrpc"), "how it is reached", default="jsonrpc")
    binary: str = required(NONEMPTY, "program to start")
    args: tuple[str, ...] = optional(TEXTS, "its arguments", default=())
    config: dict[str, Any] = optional(EXTENSIONS, "settings handed to it", default={})


class TracesBlock(Model):
    """Where traces are kept."""

    dir: str | None = optional(NONEMPTY, "folder for traces")


class Config(Model):
    """Settings of gert on this machine or in this project."""

    providers: dict[str, ProviderBlock] = optional(
        MapOf(Nested(ProviderBlock), keys=NAME), "programs that resolve inputs, by name", default={}
    )
    policies: tuple[str, ...] = optional(TEXTS, "policy files or folders that are the floor for every run", default=())
    groups: dict[str, tuple[str, ...]] = optional(GROUPS, "people by group, for `group:` in rules", default={})
    traces: TracesBlock | None = optional(Nested(TracesBlock), "where traces are kept")
    on_outcome: OnOutcome | None = optional(Nested(OnOutcome), "whom to tell, by outcome category")
    extensions: dict[str, Any] = optional(EXTENSIONS, "free metadata", default={})


class Project(Config):
    """The root of a project: shared tools are looked up beside this file."""

    name: str = required(NAME_WORD, "name of the project")
    description: str | None = optional(TEXT, "what the project holds")
