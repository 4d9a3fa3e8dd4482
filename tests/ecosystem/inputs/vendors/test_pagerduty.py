"""`gert-input-pagerduty` against answers in the shape of PagerDuty's REST API v2."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from tests.ecosystem.inputs.vendors.vendor import Vendor, vendor

from gert.ecosystem.inputs.vendors.pagerduty import fetch
from gert.ecosystem.inputs.vendors.serve import Resolved, read_call
from gert.errors import InputError

KEY = "u+read-only-key"
MISSING = {"error": {"message": "Not Found", "code": 2100}}


def incident(number: str = "PT4KHLK", **changes: Any) -> dict[str, Any]:
    return {
        "id": number,
        "type": "incident",
        "summary": "[#1234] The server is on fire.",
        "self": f"https://api.pagerduty.com/incidents/{number}",
        "html_url": f"https://subdomain.pagerduty.com/incidents/{number}",
        "incident_number": 1234,
        "title": "The server is on fire.",
        "created_at": "2015-10-06T21:30:42Z",
        "status": "triggered",
        "service": {"id": "PIJ90N7", "type": "service_reference", "summary": "My Mail Service"},
        "assignments": [{"at": "2015-11-10T00:31:52Z", "assignee": {"id": "PXPGF42", "summary": "Earline Greenholt"}}],
        "urgency": "high",
        "resolved_at": None,
        **changes,
    }


def alerts(query: dict[str, list[str]]) -> dict[str, Any]:
    """Two hundred and thirty alerts, page by page."""
    limit, offset = int(query["limit"][0]), int(query["offset"][0])
    made = [
        {"id": f"A{number}", "summary": f"host{number} is down", "body": {"details": {"host": f"host{number}"}}}
        for number in range(offset, min(offset + limit, 230))
    ]
    return {"alerts": made, "limit": limit, "offset": offset, "more": offset + limit < 230, "total": None}


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAGERDUTY_API_KEY", KEY)


@pytest.fixture
def pagerduty() -> Iterator[Vendor]:
    handlers = {
        "/incidents/PT4KHLK": lambda _: {"incident": incident()},
        "/incidents/PT4KHLK/alerts": alerts,
        "/incidents": lambda query: {
            "incidents": [incident("PNEW", title=f"of {query['service_ids[]'][0]}")]
            if query["service_ids[]"] != ["PQUIET"]
            else [],
            "limit": 1,
            "offset": 0,
            "more": True,
        },
        "/incidents/PNEW/alerts": lambda _: {"alerts": [], "more": False},
        "/incidents/PODD": lambda _: {"incidents": []},
        "/incidents/PBAD": lambda _: (401, {"error": {"message": "Unauthorized", "code": 2006}}),
    }
    with vendor(handlers, MISSING) as api:
        yield api


def ask(api: Vendor, *paths: str, **config: Any) -> Resolved:
    named = {"incident": "PT4KHLK", **config}
    settings = {"api_key_env": "PAGERDUTY_API_KEY", "base_url": api.url, **named}
    params = {"bindings": [{"input": path, "path": path} for path in paths], "config": settings}
    return asyncio.run(fetch(*read_call(params)))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        pytest.param("incident.id", "PT4KHLK", id="the id"),
        pytest.param("incident.title", "The server is on fire.", id="the title"),
        pytest.param("incident.incident_number", 1234, id="a number stays one"),
        pytest.param("incident.service.summary", "My Mail Service", id="a nested field"),
        pytest.param("incident.assignments[0].assignee.summary", "Earline Greenholt", id="an element of a list"),
        pytest.param("incident.assignments.0.at", "2015-11-10T00:31:52Z", id="the same with a dot"),
        pytest.param("alert.summary", "host0 is down", id="the first alert"),
        pytest.param("alerts[0].body.details.host", "host0", id="an alert by its number"),
        pytest.param("alerts[229].id", "A229", id="an alert of the last page"),
        pytest.param("incident.resolved_at", None, id="null is no value"),
        pytest.param("incident.nothing", None, id="a field that is not there has no value"),
        pytest.param("alerts[230].id", None, id="an alert that is not there has no value"),
    ],
)
def test_fields(pagerduty: Vendor, path: str, value: Any) -> None:
    assert ask(pagerduty, path) == Resolved({path: value} if value is not None else {})


def test_an_incident_is_read_once_and_its_alerts_page_by_page(pagerduty: Vendor) -> None:
    found = ask(pagerduty, "incident.id", "incident.urgency", "alerts", "alert.id")
    assert len(found.values["alerts"]) == 230
    paths = [path for path, _ in pagerduty.asked]
    assert paths.count("/incidents/PT4KHLK") == 1
    assert {headers["authorization"] for headers in pagerduty.headers} == {f"Token token={KEY}"}
    assert {headers["accept"] for headers in pagerduty.headers} == {"application/vnd.pagerduty+json;version=2"}


def test_the_incident_may_be_named_by_a_variable(pagerduty: Vendor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INCIDENT", " PT4KHLK \n")
    assert ask(pagerduty, "incident.id", incident=None, incident_variable="INCIDENT").values == {
        "incident.id": "PT4KHLK"
    }


def test_without_an_incident_it_is_the_newest_open_one_of_the_services(pagerduty: Vendor) -> None:
    found = ask(pagerduty, "incident.title", "alert.summary", incident=None, service_ids=["PIJ90N7", "PIJ90N8"])
    assert found == Resolved({"incident.title": "of PIJ90N7"})
    _, query = pagerduty.asked[0]
    assert query == {
        "service_ids[]": ["PIJ90N7", "PIJ90N8"],
        "statuses[]": ["triggered", "acknowledged"],
        "sort_by": ["created_at:desc"],
        "limit": ["1"],
    }


@pytest.mark.parametrize(
    ("path", "config", "message"),
    [
        pytest.param(
            "incident.id", {"incident": "PNONE"}, "PagerDuty has no such record (404): Not Found", id="no such incident"
        ),
        pytest.param(
            "incident.id", {"incident": "PBAD"}, "does not accept the credentials (401): Unauthorized", id="a bad key"
        ),
        pytest.param("incident.id", {"incident": "PODD"}, "PagerDuty answered without `incident`", id="another shape"),
        pytest.param(
            "incident.id", {"incident": "../users"}, "the id of the incident is not one", id="an id that is a path"
        ),
        pytest.param("incident.id", {"incident": None}, "no incident to read: none is named", id="no incident named"),
        pytest.param(
            "incident.id",
            {"incident": None, "incident_variable": "NOT_SET"},
            "the variable `NOT_SET` is not set",
            id="a variable that is not set",
        ),
        pytest.param(
            "incident.id",
            {"incident": None, "service_ids": ["PQUIET"]},
            "is triggered or acknowledged",
            id="none is open",
        ),
        pytest.param(
            "users.name", {}, "there is no record `users`; known: `incident`, `alert`, `alerts`", id="another record"
        ),
    ],
)
def test_what_cannot_be_read(pagerduty: Vendor, path: str, config: dict[str, Any], message: str) -> None:
    found = ask(pagerduty, path, **config)
    assert found.values == {}
    assert message in found.failures[path]
    assert KEY not in found.failures[path]


def test_one_record_that_fails_leaves_the_others(pagerduty: Vendor) -> None:
    found = ask(pagerduty, "incident.id", "users.name")
    assert (found.values, set(found.failures)) == ({"incident.id": "PT4KHLK"}, {"users.name"})


@pytest.mark.parametrize(
    ("config", "message"),
    [
        pytest.param({}, "missing required field `api_key_env`", id="no key"),
        pytest.param(
            {"api_key_env": "NOT_SET"}, "the environment variable `NOT_SET` with the API key is not set", id="not set"
        ),
        pytest.param(
            {"api_key_env": "PAGERDUTY_API_KEY", "incidnt": "x"}, "contains unknown field `incidnt`", id="misspelt"
        ),
        pytest.param({"api_key_env": "PAGERDUTY_API_KEY", "service_ids": "x"}, "service_ids", id="another type"),
        pytest.param(
            {"api_key_env": "PAGERDUTY_API_KEY", "base_url": "http://x.example"}, "https://", id="not encrypted"
        ),
    ],
)
def test_settings_that_are_refused(config: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as raised:
        asyncio.run(fetch(config, []))
    assert message in raised.value.message
