"""Facts about this machine, as the kernel is told them."""

import sys

import pytest

from gert.ecosystem.host.config.machine.platform import facts_for, platform


@pytest.mark.parametrize(
    ("python", "goos"),
    [
        ("linux", "linux"),
        ("darwin", "darwin"),
        ("win32", "windows"),
        ("cygwin", "windows"),
        ("freebsd14", "freebsd"),
        ("openbsd7", "openbsd"),
        ("sunos5", "solaris"),
        ("aix", "aix"),
    ],
)
def test_systems_have_their_goos_name(monkeypatch: pytest.MonkeyPatch, python: str, goos: str) -> None:
    """DECISIONS 13."""
    monkeypatch.setattr(sys, "platform", python)
    assert platform() == goos


def test_without_a_project_providers_and_groups_are_unknown() -> None:
    facts = facts_for(None)
    assert facts.providers is None
    assert facts.groups is None
