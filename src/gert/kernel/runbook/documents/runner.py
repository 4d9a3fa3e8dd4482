"""The `runners` of a project: processes that may execute plans, and what each can reach."""

from typing import Final

from gert.kernel.runbook.documents.skill import DOMAIN, NETWORKS, VENDOR
from gert.kernel.runbook.kinds import BOOL, NAME, NONEMPTY, TEXT, ListOf, MapOf, Nested, Word, words
from gert.kernel.runbook.model import Model, optional, required

ANY: Final = "*"
# Brackets around IPv6, a port where it is not 443.
ADDRESS: Final = r"^([0-9]{1,3}(\.[0-9]{1,3}){3}|\[[0-9A-Fa-f:.]+\])(:[1-9][0-9]{0,4})?$"
COMMAND: Final = ListOf(Word("a word of a command", minLength=1), minItems=1)


class VaultBlock(Model):
    """A HashiCorp Vault with a KV version 2 engine; needs the extra `vault`."""

    url: str = required(Word("an https URL", pattern=r"^https://[^\s/]+"), "address of the server")
    mount: str = optional(NONEMPTY, "mount point of the engine", default="secret")
    token_file: str = required(NONEMPTY, "file with the token; only its owner may read it")
    ca_file: str | None = optional(NONEMPTY, "certificates that the server is verified with")


class KeyValueBlock(Model):
    """How `kv://PATH/FIELD` is resolved: by a command, or by Vault."""

    command: tuple[str, ...] | None = optional(
        COMMAND, "command that prints the secret; `{path}` and `{field}` are replaced by the parts of the reference"
    )
    vault: VaultBlock | None = optional(Nested(VaultBlock), "a Vault server")


class SecretSourcesBlock(Model):
    """How the runner resolves secrets. `file://` and `env://` need no settings."""

    kv: KeyValueBlock | None = optional(Nested(KeyValueBlock), "resolves `kv://`")
    cmd: dict[str, tuple[str, ...]] = optional(
        MapOf(COMMAND, keys=NAME),
        "commands by name: `cmd://NAME/PATH` runs one, with `{path}` for the path",
        default={},
    )


class RunnerBlock(Model):
    """A runner and its capabilities; a plan names their digest, so a change makes it void."""

    description: str | None = optional(TEXT, "what the runner is for")
    network: str = optional(words(*NETWORKS), "`none`, or `https`", default="https")
    vendors: tuple[str, ...] = required(
        ListOf(Word("a vendor, or `*`", pattern=rf"{VENDOR}|^\*$"), minItems=1, uniqueItems=True),
        "vendors whose skills it runs; `*` for any",
    )
    domains: tuple[str, ...] = required(
        ListOf(Word("a domain, or `*`", pattern=rf"{DOMAIN}|^\*$"), uniqueItems=True),
        "hosts it can reach; `*` for any",
    )
    programs: bool = optional(BOOL, "runs skills that are programs, in a sandbox", default=False)
    unsandboxed: bool = optional(
        BOOL, "runs a program without a sandbox, where a plan grants that explicitly", default=False
    )
    private_addresses: tuple[str, ...] = optional(
        ListOf(Word("a network such as `10.1.0.0/16`", pattern=r"^[0-9A-Fa-f:.]+(/[0-9]{1,3})?$")),
        "addresses that are not public and may still be connected to",
        default=(),
    )
    addresses: dict[str, str] = optional(
        MapOf(Word("an address such as `10.1.2.3:8443`", pattern=ADDRESS), keys=DOMAIN),
        "addresses of domains that are not looked up",
        default={},
    )
    ca_file: str | None = optional(NONEMPTY, "certificates that vendors are verified with (default: the system's)")
    secrets: SecretSourcesBlock | None = optional(Nested(SecretSourcesBlock), "how secrets are resolved")


RUNNERS: Final = MapOf(Nested(RunnerBlock), keys=NAME)
