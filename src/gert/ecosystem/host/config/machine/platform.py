"""Facts about this machine for the kernel, which performs no I/O."""

import os
import socket
import sys
from collections.abc import Container, Iterable
from typing import Final

from msgspec.structs import replace

from gert.ecosystem.host.config.supported import SUPPORTED
from gert.kernel.runbook.documents.project import Config
from gert.kernel.runbook.validate.facts import Facts, Supported

# GOOS names, as `platform` in a tool file uses them.
GOOS: Final = {"win32": "windows", "cygwin": "windows", "sunos5": "solaris"}


def platform() -> str:
    """The operating system by its GOOS name."""
    name = GOOS.get(sys.platform, sys.platform)
    return name.rstrip("0123456789") or name


def host_name() -> str:
    """The host name of this machine."""
    return socket.gethostname()


def machine_id() -> str:
    """An id of this machine that does not depend on its name; the host name if the system has no id."""
    from gert.kernel.foundation.canonical import sha256_hex  # hashing is not needed to validate

    for path in _MACHINE_IDS:
        try:
            with open(path) as file:
                found = file.read(200).strip()
        except OSError:
            continue
        if found:
            return sha256_hex(f"gert-host\n{found}".encode())[:16]
    return host_name()


_MACHINE_IDS: Final = ("/etc/machine-id", "/var/lib/dbus/machine-id", "/proc/sys/kernel/random/boot_id")


def supported_here(providers: Container[str]) -> Supported | None:
    """What this installation can run; `providers` are those whose programs are there."""
    return replace(SUPPORTED, providers=providers)


def facts_for(
    configs: Iterable[Config] | None, outer: Iterable[Config] = (), found: Container[str] = frozenset()
) -> Facts:
    """Facts about this machine, and the project and configuration that apply to a document, weakest first.

    outer: the enclosing projects, whose groups are known as well
    found: the providers whose programs are there
    """
    if configs is None:
        return Facts(platform=platform(), environment=os.environ, supported=SUPPORTED)
    configs = tuple(configs)
    return Facts(
        platform=platform(),
        environment=os.environ,
        providers=frozenset().union(*(each.providers for each in configs)),
        webhook_hosts=[host for each in configs for host in each.webhook_hosts],
        groups={name: people for each in (*outer, *configs) for name, people in each.groups.items()},
        supported=supported_here(found),
        mcp_http_hosts=[host for each in configs for host in each.mcp_http_hosts],
    )
