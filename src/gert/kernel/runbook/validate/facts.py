"""Facts about the environment for validation; the host collects them."""

from collections.abc import Collection, Container, Mapping
from typing import Final

import msgspec

from gert.kernel.governance.contract import NO_TAGS, Contract, Tags


class Supported(msgspec.Struct, frozen=True, kw_only=True):
    """What the installation can run, by name: transports of tools, extensions, and providers of inputs.

    tools: tools that can be called with any transport
    """

    transports: Container[str]
    extensions: Container[str]
    providers: Container[str]
    tools: Container[str] = ()
    hints: Mapping[str, str] = {}
    """How to add a transport that is missing."""


class ContractTags(msgspec.Struct, frozen=True):
    """The tags of a contract that rules match."""

    effects: Tags = NO_TAGS
    writes: Tags = NO_TAGS
    reads: Tags = NO_TAGS

    @classmethod
    def of(cls, contract: Contract) -> "ContractTags":
        """Return the tags of a contract."""
        return cls(contract.effect_tags, contract.writes, contract.reads)


class Governed(msgspec.Struct, frozen=True):
    """What rules apply to: the tags of each contract.

    is_complete: whether that is everything; not if a file could not be read, or a program calls tools by itself
    """

    contracts: frozenset[ContractTags]
    is_complete: bool = True


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """The system, the names of the environment variables that are set, and what the project configures.

    `None` means unknown, and what is unknown is not reported.
    """

    platform: str | None = None
    environment: Container[str] | None = None
    providers: Container[str] | None = None
    groups: Mapping[str, tuple[str, ...]] | None = None
    supported: Supported | None = None
    webhook_hosts: Collection[str] | None = None
    mcp_http_hosts: Collection[str] = ()
    absent: Container[str] = frozenset()
    """Paths in a project or configuration that do not exist."""
    refused: Mapping[str, str] = {}
    """Paths of its policies that would make every run fail, with the reason."""
    is_unapplied: bool = False
    """Whether the file is a policy in a project that does not name it."""
    governed: Governed | None = None
    """The contracts of the projects that name the file, which is a policy."""
    rules: tuple[ContractTags, ContractTags] | None = None
    """For a tool: the tags that rules of its projects name, and those that contracts there have."""


NO_FACTS: Final = Facts()
