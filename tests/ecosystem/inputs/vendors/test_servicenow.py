"""`gert-input-servicenow` against answers in the shape of ServiceNow's Table API."""

import asyncio
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.ecosystem.inputs.vendors.vendor import Vendor, vendor
from tests.ecosystem.surfaces.cli.workbench import Project

from gert.ecosystem.inputs.vendors.serve import Resolved, read_call
from gert.ecosystem.inputs.vendors.servicenow import fetch
from gert.errors import InputError

PASSWORD = "pass-0123456789"
MISSING = {
    "error": {"message": "No Record found", "detail": "Record doesn't exist or ACL restricts"},
    "status": "failure",
}
RECORDS = {
    "INC0010001": {
        "number": "INC0010001",
        "short_description": "Mail is down",
        "caller_id.email": "ann@example.com",
        "close_notes": "",
    },
    "INC0010002": {"number": "INC0010003", "short_description": "Another one"},
}


def rows(query: dict[str, list[str]]) -> dict[str, Any]:
    """The records that a query matches, with the fields that were asked for."""
    said = query["sysparm_query"][0]
    limit, offset = int(query["sysparm_limit"][0]), int(query["sysparm_offset"][0])
    found: list[dict[str, Any]] = []
    if said.startswith("number="):
        found = [RECORDS[said.removeprefix("number=")]] if said.removeprefix("number=") in RECORDS else []
    elif said.startswith("many"):
        found = [{"name": f"srv{number}", "ip_address": f"10.0.0.{number}"} for number in range(int(said[4:]))]
    wanted = query.get("sysparm_fields", [""])[0].split(",")
    page = found[offset : offset + limit]
    return {"result": [{name: row[name] for name in row if wanted == [""] or name in wanted} for row in page]}


@pytest.fixture(autouse=True)
def password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SNOW_PASSWORD", PASSWORD)


@pytest.fixture
def servicenow() -> Iterator[Vendor]:
    handlers = {
        "/api/now/table/incident": rows,
        "/api/now/table/cmdb_ci_server": rows,
        "/api/now/table/incident/a1b2": lambda _: {"result": {"number": "INC0010009", "state": "New"}},
        "/api/now/table/locked": lambda _: (401, {"error": {"message": "User Not Authenticated"}, "status": "failure"}),
        "/api/now/table/odd": lambda _: {"results": []},
    }
    with vendor(handlers, MISSING) as api:
        yield api


def ask(api: Vendor, records: dict[str, Any], *paths: str, **config: Any) -> Resolved:
    settings = {"instance": api.url, "username": "gert", "password_env": "SNOW_PASSWORD", "records": records, **config}
    params = {"bindings": [{"input": path, "path": path} for path in paths], "config": settings}
    return asyncio.run(fetch(*read_call(params)))


INCIDENT = {"incident": {"table": "incident", "number": "INC0010001"}}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        pytest.param("incident.short_description", "Mail is down", id="a field"),
        pytest.param("incident.caller_id.email", "ann@example.com", id="a field of the record it refers to"),
        pytest.param("incident.close_notes", None, id="an empty field has no value"),
        pytest.param("incident.nothing", None, id="a field that is not there has no value"),
    ],
)
def test_fields(servicenow: Vendor, path: str, value: Any) -> None:
    assert ask(servicenow, INCIDENT, path) == Resolved({path: value} if value is not None else {})


def test_a_record_is_read_in_one_request_with_only_its_fields(servicenow: Vendor) -> None:
    ask(servicenow, INCIDENT, "incident.short_description", "incident.caller_id.email")
    [(path, query)] = servicenow.asked
    assert path == "/api/now/table/incident"
    assert query == {
        "sysparm_display_value": ["true"],
        "sysparm_exclude_reference_link": ["true"],
        "sysparm_fields": ["short_description,caller_id.email,number"],
        "sysparm_query": ["number=INC0010001"],
        "sysparm_limit": ["2"],
        "sysparm_offset": ["0"],
    }
    assert servicenow.headers[0]["authorization"].startswith("Basic ")


def test_a_record_by_its_id_and_as_a_whole(servicenow: Vendor) -> None:
    records = {"incident": {"table": "incident", "sys_id": "a1b2"}}
    found = ask(servicenow, records, "incident", "incident.state", display_value=False)
    assert found.values == {"incident": {"number": "INC0010009", "state": "New"}, "incident.state": "New"}
    assert servicenow.asked[0][1]["sysparm_display_value"] == ["false"]
    assert "sysparm_fields" not in servicenow.asked[0][1]


def test_a_number_from_a_variable_and_a_token(servicenow: Vendor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TICKET", "INC0010001")
    monkeypatch.setenv("SNOW_TOKEN", "tok")
    records = {"incident": {"table": "incident", "number_variable": "TICKET"}}
    found = ask(servicenow, records, "incident.number", token_env="SNOW_TOKEN", username=None, password_env=None)
    assert found.values == {"incident.number": "INC0010001"}
    assert servicenow.headers[0]["authorization"] == "Bearer tok"


def test_many_records_are_lists_page_by_page(servicenow: Vendor) -> None:
    records = {"servers": {"table": "cmdb_ci_server", "query": "many230", "many": True, "limit": 500}}
    found = ask(servicenow, records, "servers.name", "servers.ip_address")
    assert found.values["servers.name"] == [f"srv{number}" for number in range(230)]
    assert found.values["servers.ip_address"][-1] == "10.0.0.229"
    assert [query["sysparm_offset"] for _, query in servicenow.asked] == [["0"], ["100"], ["200"]]


def test_no_records_are_an_empty_list(servicenow: Vendor) -> None:
    records = {"servers": {"table": "cmdb_ci_server", "query": "many0", "many": True}}
    assert ask(servicenow, records, "servers.name").values == {"servers.name": []}


@pytest.mark.parametrize(
    ("record", "path", "message"),
    [
        pytest.param(
            {"table": "incident", "number": "INC9"}, "r.number", "ServiceNow has no record for `r`", id="no such number"
        ),
        pytest.param(
            {"table": "incident", "number": "INC0010002"},
            "r.number",
            "another record than `INC0010002`",
            id="a query that was ignored",
        ),
        pytest.param(
            {"table": "incident", "number": "INC1^active=true"},
            "r.number",
            "characters that it cannot have",
            id="a number that is a query",
        ),
        pytest.param(
            {"table": "incident", "sys_id": "../user"},
            "r.number",
            "characters that it cannot have",
            id="an id that is a path",
        ),
        pytest.param(
            {"table": "incident", "sys_id": "gone"},
            "r.number",
            "has no such record (404): No Record found",
            id="no such id",
        ),
        pytest.param(
            {"table": "../x", "number": "1"}, "r.number", "is not the name of a table", id="a table that is a path"
        ),
        pytest.param({"table": "incident"}, "r.number", "needs `sys_id`, `number`", id="no way to find it"),
        pytest.param(
            {"table": "locked", "query": "x"}, "r.number", "(401): User Not Authenticated", id="a bad password"
        ),
        pytest.param({"table": "odd", "query": "x"}, "r.number", "answered without `result`", id="another shape"),
        pytest.param(
            {"table": "cmdb_ci_server", "query": "many2"},
            "r.name",
            "matches more than 1 of",
            id="two where one is meant",
        ),
        pytest.param(
            {"table": "cmdb_ci_server", "query": "many101", "many": True},
            "r.name",
            "matches more than 100 of",
            id="more than allowed",
        ),
        pytest.param(
            {"table": "incident", "number_variable": "NOT_SET"},
            "r.number",
            "`NOT_SET` with the number",
            id="a variable that is not set",
        ),
        pytest.param({"table": "incident", "number": "INC0010001"}, "r.a,b", "is not a field", id="two fields in one"),
        pytest.param(
            {"table": "incident", "number": "INC0010001"},
            "other.a",
            "the settings name no record `other`; known: `r`",
            id="another record",
        ),
    ],
)
def test_what_cannot_be_read(servicenow: Vendor, record: dict[str, Any], path: str, message: str) -> None:
    found = ask(servicenow, {"r": record}, path)
    assert found.values == {}
    assert message in found.failures[path]
    assert PASSWORD not in found.failures[path]


@pytest.mark.parametrize(
    ("config", "message"),
    [
        pytest.param({"username": None}, "need `username` and `password_env`, or `token_env`", id="no user"),
        pytest.param({"password_env": "NOT_SET"}, "`NOT_SET` with the password is not set", id="no password"),
        pytest.param({"instance": "http://x.service-now.com"}, "must begin with https://", id="not encrypted"),
        pytest.param({"password": "x"}, "unknown field `password`", id="a password in the file"),
    ],
)
def test_settings_that_are_refused(servicenow: Vendor, config: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as raised:
        ask(servicenow, INCIDENT, "incident.number", **config)
    assert message in raised.value.message


def test_both_are_programs_that_speak_the_protocol(servicenow: Vendor, tmp_path: Path) -> None:
    """As a user configures them: `gert` starts the program, which asks the vendor."""
    project = Project(tmp_path / "project")
    config = {"instance": servicenow.url, "username": "gert", "password_env": "SNOW_PASSWORD", "records": INCIDENT}
    module = "gert.ecosystem.inputs.vendors"
    project.write(
        "gert-project.yaml",
        {
            "name": "bench",
            "providers": {
                "servicenow": {"binary": sys.executable, "args": ["-m", f"{module}.servicenow"], "config": config},
                "pagerduty": {
                    "binary": sys.executable,
                    "args": ["-m", f"{module}.pagerduty"],
                    "config": {"api_key_env": "PD_KEY", "incident": "PX", "base_url": servicenow.url},
                },
            },
        },
    )
    ran = project.gert(
        "input", "check", "servicenow.incident.short_description", "pagerduty.incident.title", "--json",
        SNOW_PASSWORD=PASSWORD, PD_KEY="pd-key-0123456789",
    ).ended(1)  # fmt: skip
    found, refused = json.loads(ran.out)["inputs"]
    assert found["value"] == "Mail is down"
    assert refused["problem"]["kind"] == "tool_error"
    assert "PagerDuty has no such record (404): No Record found" in refused["problem"]["message"]
    assert PASSWORD not in ran.out + ran.err
