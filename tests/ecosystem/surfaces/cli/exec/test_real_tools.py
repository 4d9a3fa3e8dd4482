"""The bundled runbooks for real: curl, dig, jq and ping against services that the tests start on this machine."""

import json
import os
import socketserver
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.ecosystem.surfaces.cli.workbench import Project, Ran, completed, of_type

EXAMPLES = Path(__file__).resolve().parents[5] / "examples"

pytestmark = pytest.mark.needs("curl", "dig", "jq", "ping")


@dataclass
class Site:
    """An HTTP service: what its pages answer, and what it was asked."""

    pages: dict[str, tuple[int, str]] = field(default_factory=dict)
    asked: list[tuple[str, str, str]] = field(default_factory=list)
    port: int = 0

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{path}"


@pytest.fixture
def site() -> Iterator[Site]:
    """A service on any free port; a page it does not know ends the connection without an answer."""
    served = Site()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
            served.asked.append((self.command, f"{self.headers['Host']}{self.path}", body))
            if self.path in served.pages:
                status, text = served.pages[self.path]
                self.send_response(status)
                self.send_header("Content-Length", str(len(text.encode())))
                self.end_headers()
                self.wfile.write(b"" if self.command == "HEAD" else text.encode())

        do_POST = do_HEAD = do_GET

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        served.port = server.server_port
        yield from _serving(server, served)


A, CNAME, MX = 1, 5, 15
RECORDS = {
    "www.shop.test": {A: bytes([127, 0, 0, 1])},
    "mail.shop.test": {MX: b"\x00\x0a\x04mail\x00"},
}
ALIASES = {"shop.test": "www.shop.test"}


class Zone(socketserver.BaseRequestHandler):
    """A DNS server that knows a handful of names (RFC 1035, section 4)."""

    def handle(self) -> None:
        query, socket = self.request
        labels, at = [], 12
        while query[at]:
            labels.append(query[at + 1 : at + 1 + query[at]].decode().lower())
            at += 1 + query[at]
        question = query[12 : at + 5]
        kind = int.from_bytes(query[at + 1 : at + 3])
        name = ".".join(labels)
        target = ALIASES.get(name, name)
        answers = []
        if target != name:
            answers.append(_record(name, CNAME, _name(target)))
        if kind in RECORDS.get(target, {}):
            answers.append(_record(target, kind, RECORDS[target][kind]))
        code = 0 if target in RECORDS else 3
        flags = (0x8580 | code).to_bytes(2)
        counts = b"".join(each.to_bytes(2) for each in (1, len(answers), 0, 0))
        socket.sendto(query[:2] + flags + counts + question + b"".join(answers), self.client_address)


def _name(name: str) -> bytes:
    return b"".join(bytes([len(label)]) + label.encode() for label in name.split(".")) + b"\0"


def _record(name: str, kind: int, data: bytes) -> bytes:
    return _name(name) + kind.to_bytes(2) + b"\0\x01" + (60).to_bytes(4) + len(data).to_bytes(2) + data


@pytest.fixture
def dns_port() -> Iterator[int]:
    with socketserver.UDPServer(("127.0.0.1", 0), Zone) as server:
        yield from _serving(server, server.server_address[1])


def _serving(server: Any, value: Any) -> Iterator[Any]:
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield value
    finally:
        server.shutdown()
        thread.join()


def unused_port() -> int:
    """A port on which nobody listens."""
    with socketserver.TCPServer(("127.0.0.1", 0), socketserver.BaseRequestHandler) as server:
        return int(server.server_address[1])


def bundled(project: Project, name: str, *words: str | Path, stdin: str | None = None, **environ: str) -> Ran:
    """`gert exec` of a bundled runbook, recorded in the project."""
    # Whatever proxy is set for others: what listens on this machine is not behind it.
    environ = {"NO_PROXY": "*", **environ}
    runbook = EXAMPLES / "runbooks" / f"{name}.yaml"
    return project.exec(runbook, *words, "--json", "--state-dir", project.root, stdin=stdin, **environ)


def given(**inputs: Any) -> list[str]:
    return [word for name, value in inputs.items() for word in ("--input", f"{name}={json.dumps(value)}")]


class TestDnsHttpChain:
    def follow(self, project: Project, site: Site, port: int, **inputs: Any) -> dict[str, Any]:
        site.pages = {"/": (200, "<h1>Welcome to the shop</h1>"), "/broken": (502, "bad gateway")}
        here = {"scheme": "http", "port": site.port, "dns_server": "127.0.0.1", "dns_port": port, **inputs}
        said = bundled(project, "dns-http-chain", *given(**here)).ended(0).said
        project.verifies()
        outcome: dict[str, Any] = said["outcome"]
        return outcome

    @pytest.mark.parametrize("domain", ["www.shop.test", "shop.test"], ids=["a name", "an alias of it"])
    def test_a_name_only_this_server_knows_leads_to_the_page(
        self, project: Project, site: Site, dns_port: int, domain: str
    ) -> None:
        outcome = self.follow(project, site, dns_port, domain=domain, expected_text="Welcome to the shop")
        assert (outcome["category"], outcome["code"]) == ("no_action", "chain_is_whole")
        assert outcome["meta"]["ipv4"].splitlines()[-1] == "127.0.0.1"
        assert outcome["meta"]["status_code"] == 200
        assert site.asked == [("GET", f"{domain}:{site.port}/", "")]

    @pytest.mark.parametrize(
        ("inputs", "code"),
        [
            pytest.param({"domain": "gone.shop.test"}, "dns_wrong_answer", id="a name that does not exist"),
            pytest.param({"domain": "mail.shop.test"}, "dns_no_address", id="a name without an address"),
            pytest.param({"domain": "shop.test", "path": "/broken"}, "http_server_error", id="a broken server"),
            pytest.param({"domain": "shop.test", "expected_text": "Casino"}, "http_wrong_page", id="another page"),
            pytest.param({"domain": "shop.test", "path": "/silent"}, "http_unreachable", id="a server that hangs up"),
        ],
    )
    def test_the_broken_link_is_found(
        self, project: Project, site: Site, dns_port: int, inputs: dict[str, Any], code: str
    ) -> None:
        assert self.follow(project, site, dns_port, **inputs)["code"] == code

    def test_without_a_dns_server_nothing_else_is_asked(self, project: Project, site: Site) -> None:
        assert self.follow(project, site, unused_port(), domain="shop.test")["code"] == "dns_unreachable"
        assert site.asked == []
        assert completed(project.run().events(), "ask_dns")["exit_code"] == 9


class TestMultiEndpointSweep:
    def sweep(self, project: Project, endpoints: dict[str, str], **inputs: Any) -> dict[str, Any]:
        listed = [{"name": name, "url": url} for name, url in endpoints.items()]
        words = given(endpoints=listed, hosts="127.0.0.1", **inputs)
        outcome: dict[str, Any] = bundled(project, "multi-endpoint-sweep", *words).ended(0).said["outcome"]
        return outcome

    def test_the_unhealthy_ones_are_named(self, project: Project, site: Site) -> None:
        site.pages = {"/web": (200, "ok"), "/api": (503, "no database")}
        gone = f"http://127.0.0.1:{unused_port()}/"
        outcome = self.sweep(project, {"web": site.url("/web"), "api": site.url("/api"), "gone": gone})
        assert outcome["code"] == "endpoints_unhealthy"
        assert outcome["meta"]["checked"] == 3
        assert sorted(outcome["meta"]["unhealthy"]) == ["api", "gone"]
        pinged = completed(project.run().events(), "reach[0]")["outputs"]
        assert (pinged["transmitted"], pinged["received"], pinged["loss_percent"]) == (2, 2, 0.0)
        assert pinged["rtt_avg_ms"] > 0

    def test_all_healthy_is_no_action(self, project: Project, site: Site) -> None:
        site.pages = {"/web": (200, "ok"), "/api": (204, "")}
        outcome = self.sweep(project, {"web": site.url("/web"), "api": site.url("/api")})
        assert (outcome["category"], outcome["meta"]["unhealthy"]) == ("no_action", [])

    def test_a_recorded_sweep_replays_where_there_are_no_tools(self, project: Project, site: Site) -> None:
        site.pages = {"/web": (500, "broken")}
        words = given(endpoints=[{"name": "web", "url": site.url("/web")}], hosts="127.0.0.1")
        folder = project.root / "recorded"
        live = bundled(project, "multi-endpoint-sweep", *words, "--record", folder).ended(0).said
        again = bundled(project, "multi-endpoint-sweep", "--mode", "replay", "--scenario", folder, PATH="").ended(0)
        assert again.said["outcome"] == live["outcome"]
        assert live["outcome"]["code"] == "everything_is_down"


class TestServiceHealthDiagnostic:
    """With a `systemctl` of ours: restarting units of this machine is no test."""

    def diagnose(self, project: Project, site: Site, *words: str | Path, stdin: str = "") -> Ran:
        folder = project.root / "bin"
        folder.mkdir()
        script = folder / "systemctl"
        # What a restart does is asked of the service, so that it happens when it happens.
        script.write_text(
            f'#!/bin/sh\nprintf "%s\\n" "$*" >> "{project.effects}"\n'
            f'[ "$1" != restart ] || exec curl --silent --noproxy "*" --output /dev/null {site.url("/restart")}\n'
            "printf 'LoadState=loaded\\nActiveState=active\\nSubState=running\\n'\n"
        )
        script.chmod(0o755)
        path = f"{folder}{os.pathsep}{os.environ['PATH']}"
        inputs = given(url=site.url("/healthz"), service="web")
        return bundled(project, "service-health-diagnostic", *inputs, *words, stdin=stdin, PATH=path)

    def restarts(self, project: Project) -> list[str]:
        return [line for line in project.noted() if line.startswith("restart")]

    def test_a_healthy_service_is_left_alone(self, project: Project, site: Site) -> None:
        site.pages = {"/healthz": (200, "ok")}
        assert self.diagnose(project, site).ended(0).said["outcome"]["code"] == "healthy"
        assert self.restarts(project) == []

    def test_every_restart_is_approved_and_two_are_enough(self, project: Project, site: Site) -> None:
        class Pages(dict[str, tuple[int, str]]):
            """A service that is back after its second restart."""

            def __getitem__(self, path: str) -> tuple[int, str]:
                done = sum(asked.endswith("/restart") for _, asked, _ in site.asked)
                return (200, "ok") if path == "/restart" or done >= 2 else (503, "down")

        site.pages = Pages({"/healthz": (0, ""), "/restart": (0, "")})
        outcome = self.diagnose(project, site, stdin="y pager 4711\ny once more\n").ended(0).said["outcome"]
        assert (outcome["code"], outcome["meta"]["further_restarts"]) == ("service_restarted", 1)
        assert len(self.restarts(project)) == 2
        answered = of_type(project.run().events(), "approval_response")
        assert [event["data"]["reason"] for event in answered] == ["pager 4711", "once more"]

    @pytest.mark.parametrize("stdin", ["n not now\n", ""], ids=["rejected", "no answer"])
    def test_without_approval_nothing_is_restarted(self, project: Project, site: Site, stdin: str) -> None:
        site.pages = {"/healthz": (503, "down")}
        said = self.diagnose(project, site, stdin=stdin).ended(3).said
        assert (said["status"], said["failed_step"]) == ("failed", "triage/down/restart")
        assert len(site.asked) == 1
        assert self.restarts(project) == []

    def test_a_refusal_goes_to_a_person(self, project: Project, site: Site) -> None:
        site.pages = {"/healthz": (401, "who are you?")}
        evidence = project.write("evidence.yaml", {"check_request": {"cause": "the token expired"}})
        outcome = self.diagnose(project, site, "--evidence", evidence).ended(0).said["outcome"]
        assert (outcome["code"], outcome["meta"]["cause"]) == ("client_error", "the token expired")
        assert self.restarts(project) == []


class TestIncidentTriage:
    def triage(self, project: Project, site: Site, severity: str, evidence: dict[str, Any]) -> dict[str, Any]:
        inputs = given(incident_id="INC-4711", severity=severity, host="127.0.0.1", url=site.url("/healthz"))
        file = project.write("evidence.yaml", evidence)
        outcome: dict[str, Any] = (
            bundled(project, "incident-triage", *inputs, "--evidence", file).ended(0).said["outcome"]
        )
        return outcome

    def test_a_minor_one_of_a_healthy_service_is_closed(self, project: Project, site: Site) -> None:
        site.pages = {"/healthz": (200, "ok")}
        outcome = self.triage(project, site, "sev4", {})
        assert (outcome["code"], outcome["meta"]["status_code"]) == ("cannot_reproduce", 200)

    def test_the_service_is_watched_and_its_timeline_attached(self, project: Project, site: Site) -> None:
        site.pages = {"/healthz": (503, "down")}
        project.write("timeline.md", "09:30 first alert\n")
        found = {"findings": "the cache is full", "conclusion": "Mitigated", "timeline": "timeline.md"}
        outcome = self.triage(project, site, "sev2", {"investigate": found})
        assert (outcome["category"], outcome["code"]) == ("needs_rca", "mitigated")
        # Once to begin with, three rounds, and once when we leave.
        assert len(site.asked) == 5
        assert len(of_type(project.run().events(), "repeat_iteration")) == 3
        project.verifies()


class TestToolsTakeNothingForAnOption:
    """What an input says reaches the tool as data, whatever it looks like."""

    def call(self, project: Project, tool: str, action: str, **inputs: Any) -> Ran:
        # By inputs of the runbook: of what stands in the runbook itself, validation says that it does not fit.
        handed = {name: f"{{{{ .{name} }}}}" for name in inputs}
        step = {"id": "go", "type": "tool", "tool": tool, "action": action, "inputs": handed}
        project.runbook(step, tools=[tool], inputs={name: {"type": "any", "required": True} for name in inputs})
        # The bundled files themselves, looked up by name as users do.
        (project.root / "tools" / f"{tool}.tool.yaml").symlink_to(EXAMPLES / "tools" / f"{tool}.tool.yaml")
        return project.exec("--json", *given(**inputs), NO_PROXY="*")

    def outputs(self, project: Project) -> dict[str, Any]:
        found: dict[str, Any] = completed(project.run().events(), "go")["outputs"]
        return found

    def test_curl_sends_a_payload_that_looks_like_a_file(self, project: Project, site: Site) -> None:
        site.pages = {"/hook": (202, "taken")}
        self.call(project, "curl", "post", url=site.url("/hook"), payload="@/etc/hostname").ended(0)
        assert site.asked == [("POST", f"127.0.0.1:{site.port}/hook", "@/etc/hostname")]
        assert (self.outputs(project)["status_code"], self.outputs(project)["body"]) == (202, "taken")

    def test_curl_asks_for_headers_only(self, project: Project, site: Site) -> None:
        site.pages = {"/page": (200, "text")}
        self.call(project, "curl", "head", url=site.url("/page")).ended(0)
        assert [method for method, _, _ in site.asked] == ["HEAD"]
        assert self.outputs(project)["headers"].startswith("HTTP/1.0 200 OK\r\n")

    def test_curl_does_not_expand_a_range_in_the_url(self, project: Project, site: Site) -> None:
        self.call(project, "curl", "get", url=site.url("/[1-3]")).ended(3)
        assert len(site.asked) == 1

    @pytest.mark.parametrize(
        ("tool", "inputs"),
        [
            pytest.param("curl:get", {"url": "file:///etc/hostname"}, id="a file for curl"),
            pytest.param("curl:get", {"url": "--version"}, id="an option for curl"),
            pytest.param("dig:query", {"name": "-f"}, id="an option for dig"),
            pytest.param("dig:query", {"name": "shop.test", "server": "-h"}, id="an option as the server"),
            pytest.param("ping:ping", {"host": "-V"}, id="an option for ping"),
        ],
    )
    def test_what_is_no_such_value_is_not_started(self, project: Project, tool: str, inputs: dict[str, Any]) -> None:
        name, action = tool.split(":")
        said = self.call(project, name, action, **inputs).ended(3).said
        assert said["failure"]["kind"] == "invalid_input"

    @pytest.mark.parametrize(
        ("action", "filter_", "result"),
        [
            pytest.param("query", "map(. * 2)", "[2,4,6]", id="a list"),
            pytest.param("query", "--version", None, id="a filter that looks like an option"),
            pytest.param("text", '"\\(length) items"', "3 items", id="a text"),
            pytest.param("test", "length == 3", "true", id="a test that holds"),
            pytest.param("test", "length == 4", None, id="a test that does not"),
        ],
    )
    def test_jq_filters(self, project: Project, action: str, filter_: str, result: str | None) -> None:
        said = self.call(project, "jq", action, json=[1, 2, 3], filter=filter_).ended(0 if result else 3).said
        if result is not None:
            assert self.outputs(project)["result"] == result
        else:
            assert said["failure"]["kind"] == "exit_code"
