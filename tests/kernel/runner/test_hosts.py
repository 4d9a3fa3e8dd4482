"""Names that look like another: what is no domain, no host of a URL and no id of a runner is found in the document."""

import json
from typing import Any

import pytest

from gert.kernel.runbook.document import load
from gert.kernel.runbook.validate import validate


def skill(domain: str, url: str) -> dict[str, Any]:
    return {
        "apiVersion": "skill/v0",
        "id": "S.vendor.acme.ping.v0.1.0",
        "vendor": "acme",
        "permissions": {"network": "https"},
        "networkPolicy": {"domains": [domain], "methods": ["GET"]},
        "requiredSecrets": [{"name": "token", "scope": ["ping"]}],
        "contract": {"effects": ["network"], "writes": []},
        "http": {"method": "GET", "url": url, "headers": {"x": "{{ .secret.token }}"}},
    }


def is_sound(kind: str, document: dict[str, Any]) -> bool:
    return validate(load(json.dumps(document).encode(), kind=kind, file_name="x")).is_sound


def test_a_plain_domain_is_one() -> None:
    assert is_sound("skill", skill("api.acme.example", "https://api.acme.example/ping"))
    assert is_sound("skill", skill("xn--bcher-kva.example", "https://xn--bcher-kva.example/ping"))


@pytest.mark.parametrize(
    "domain",
    [
        pytest.param("*", id="any"),
        pytest.param("*.acme.example", id="any below"),
        pytest.param("API.acme.example", id="capitals"),
        pytest.param("api.acme.example.", id="a dot at the end"),
        pytest.param("api.acme.example\n", id="a line break at the end"),
        pytest.param("api.\u0430cme.example", id="a Cyrillic letter"),
        pytest.param("bücher.example", id="not ASCII"),
        pytest.param("127.0.0.1", id="an address"),
        pytest.param("2130706433", id="an address as a number"),
        pytest.param("0x7f000001", id="an address in hexadecimal"),
        pytest.param("127.1", id="a short address"),
        pytest.param("[::1]", id="an IPv6 address"),
        pytest.param("::ffff:127.0.0.1", id="IPv4 in IPv6"),
        pytest.param("localhost", id="one label"),
        pytest.param("ann@api.acme.example", id="a user"),
        pytest.param("api.acme.example:8443", id="a port"),
        pytest.param("api.acme.example/x", id="a path"),
    ],
)
def test_what_is_no_domain(domain: str) -> None:
    assert not is_sound("skill", skill(domain, f"https://{domain}/ping"))
    if domain != "*":  # a runner may reach any host, within what skills declare
        runner = {"vendors": ["acme"], "domains": [domain]}
        assert not is_sound("project", {"name": "p", "runners": {"local": runner}})


@pytest.mark.parametrize(
    "url",
    [
        pytest.param("http://api.acme.example/ping", id="no TLS"),
        pytest.param("https://ann:word@api.acme.example/ping", id="a user"),
        pytest.param("https://evil.example@api.acme.example/ping", id="another host as a user"),
        pytest.param("https://api.acme.example:8443/ping", id="a port"),
        pytest.param("https://API.acme.example/ping", id="capitals"),
        pytest.param("https://api.acme.example./ping", id="a dot"),
        pytest.param("https://api.acme.example", id="no path"),
        pytest.param("https://api.acme.example\\@evil.example/ping", id="a backslash"),
        pytest.param("https://{{ .host }}/ping", id="an input as host"),
        pytest.param("https://api.acme.example{{ .more }}/ping", id="an input in the host"),
        pytest.param("https://api.acme.example/ping?key={{ .secret.token }}", id="the secret in a query"),
        pytest.param("https://api.acme.example/{{ .secret.token }}", id="the secret in a path"),
    ],
)
def test_what_is_no_url_of_a_request(url: str) -> None:
    document = skill("api.acme.example", url)
    document["contract"]["inputs"] = {"host": {"type": "string"}, "more": {"type": "string"}}
    assert not is_sound("skill", document)


@pytest.mark.parametrize("name", ["l\u043ecal", "local ", "../local", "lo\u200bcal", ""])
def test_what_is_no_id_of_a_runner(name: str) -> None:
    runner = {"vendors": ["acme"], "domains": ["api.acme.example"]}
    assert is_sound("project", {"name": "p", "runners": {"local": runner}})
    assert not is_sound("project", {"name": "p", "runners": {name: runner}})
