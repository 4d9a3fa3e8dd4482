"""`gert-input-pagerduty`: fields of a PagerDuty incident and its alerts (REST API v2).

Paths: `incident.title`, `incident.service.summary`, `alert.summary` (the first alert), `alerts[1].body.details.host`,
`alerts` (the whole list).
"""

import os
import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from gert.ecosystem.inputs.vendors.rest import Params, Rest, VendorError
from gert.ecosystem.inputs.vendors.serve import Field, Resolved, by_record, pick, serve, settings_as, variable
from gert.errors import InputError

_ID: Final = re.compile(r"[A-Za-z0-9]{1,64}")
_PAGE: Final = 100
_MOST_ALERTS: Final = 1000


class Config(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The settings of the provider.

    api_key_env: the environment variable that holds the API key; a read-only key is enough
    incident, incident_variable: the id of the incident, or the environment variable that holds it
    service_ids: without an incident, the newest one of these services is used
    statuses: which incidents of a service count
    """

    api_key_env: str
    incident: str | None = None
    incident_variable: str | None = None
    service_ids: list[str] = msgspec.field(default_factory=list)
    statuses: list[str] = msgspec.field(default_factory=lambda: ["triggered", "acknowledged"])
    base_url: str = "https://api.pagerduty.com"


class PagerDuty:
    """Reads one incident and its alerts, each at most once."""

    def __init__(self, config: Config) -> None:
        self._config = config
        token = variable(config.api_key_env, "the API key")
        headers = {"Authorization": f"Token token={token}", "Accept": "application/vnd.pagerduty+json;version=2"}
        self.rest = Rest("PagerDuty", config.base_url, headers, lambda body: body["error"]["message"])
        self._incident: dict[str, Any] | None = None

    async def record(self, name: str, fields: list[Field]) -> Resolved:
        """The fields of the incident or of its alerts."""
        if name == "incident":
            return pick(await self.incident(), fields)
        if name == "alerts":
            return pick(await self.alerts(), fields)
        if name == "alert":
            first = (await self.alerts())[:1]
            return pick(first[0], fields) if first else Resolved()
        raise VendorError(f"there is no record `{name}`; known: `incident`, `alert`, `alerts`")

    async def incident(self) -> dict[str, Any]:
        """The incident that the settings name."""
        if self._incident is None:
            self._incident = await self._configured_incident() or await self._newest()
        return self._incident

    async def alerts(self) -> list[Any]:
        """All alerts of the incident, in the order of PagerDuty."""
        number = _id(str((await self.incident()).get("id")))
        found: list[Any] = []
        while True:
            page = await self.rest.get(
                f"/incidents/{number}/alerts", [("limit", str(_PAGE)), ("offset", str(len(found)))]
            )
            found += _listed(page, "alerts")
            if not page.get("more") or not page["alerts"]:
                return found
            if len(found) >= _MOST_ALERTS:
                raise VendorError(f"the incident has more than {_MOST_ALERTS} alerts")

    async def _configured_incident(self) -> dict[str, Any] | None:
        said = self._config.incident
        if said is None and self._config.incident_variable is not None:
            said = os.environ.get(self._config.incident_variable, "").strip() or None
        if said is None:
            return None
        found = await self.rest.get(f"/incidents/{_id(said)}")
        return _object(found, "incident")

    async def _newest(self) -> dict[str, Any]:
        config = self._config
        if not config.service_ids:
            named = (
                f"the variable `{config.incident_variable}` is not set" if config.incident_variable else "none is named"
            )
            raise InputError(f"no incident to read: {named}, and `service_ids` is empty")
        params: Params = [
            *(("service_ids[]", each) for each in config.service_ids),
            *(("statuses[]", each) for each in config.statuses),
            ("sort_by", "created_at:desc"),
            ("limit", "1"),
        ]
        found = _listed(await self.rest.get("/incidents", params), "incidents")
        if not found:
            raise VendorError(f"no incident of the services is {' or '.join(config.statuses)}")
        return _object({"incident": found[0]}, "incident")


def _id(text: str) -> str:
    # It becomes part of an address.
    if not _ID.fullmatch(text):
        raise InputError("the id of the incident is not one: expected letters and digits")
    return text


def _object(body: Any, name: str) -> dict[str, Any]:
    found = body.get(name) if isinstance(body, dict) else None
    if not isinstance(found, dict):
        raise VendorError(f"PagerDuty answered without `{name}`")
    return found


def _listed(body: Any, name: str) -> list[Any]:
    found = body.get(name) if isinstance(body, dict) else None
    if not isinstance(found, list):
        raise VendorError(f"PagerDuty answered without `{name}`")
    return found


async def fetch(config: Mapping[str, Any], fields: list[Field]) -> Resolved:
    """Resolve fields."""
    pagerduty = PagerDuty(settings_as(Config, config))
    async with pagerduty.rest:
        return await by_record(fields, pagerduty.record)


def main() -> None:
    """Serve as a provider."""
    serve(fetch)


if __name__ == "__main__":
    main()
