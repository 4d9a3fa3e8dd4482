"""`gert-input-servicenow`: fields of ServiceNow records (Table API).

The settings name the records; the first word of a path is such a name, the rest is a field, which may be dot-walked:
`incident.short_description`, `incident.caller_id.email`, `servers.name` (a list, for a record with `many: true`).
"""

import base64
import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from gert.ecosystem.inputs.vendors.rest import Rest, VendorError
from gert.ecosystem.inputs.vendors.serve import Field, Resolved, by_record, serve, settings_as, variable
from gert.errors import InputError
from gert.kernel.foundation.names import listing

_TABLE: Final = re.compile(r"[a-z0-9_]{1,80}")
_WORD: Final = re.compile(r"[A-Za-z0-9_-]{1,80}")
_PATH: Final = re.compile(r"[A-Za-z0-9_]{1,80}(\.[A-Za-z0-9_]{1,80}){0,5}")
_PAGE: Final = 100


class Record(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Which record of which table: by `sys_id`, by `number`, by the variable that holds its number, or by a query.

    many: the query may match several; each field is then a list
    limit: how many it may match at most
    """

    table: str
    sys_id: str | None = None
    number: str | None = None
    number_variable: str | None = None
    query: str | None = None
    many: bool = False
    limit: int = 100


class Config(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The settings of the provider.

    instance: the address of the instance
    username, password_env: for basic authentication; `password_env` names the environment variable
    token_env: the environment variable that holds an OAuth token, in place of the two
    display_value: give the words that people see, in place of the stored values
    """

    instance: str
    records: dict[str, Record]
    username: str | None = None
    password_env: str | None = None
    token_env: str | None = None
    display_value: bool = True


class ServiceNow:
    """Reads records; each in one request, or page by page where there may be many."""

    def __init__(self, config: Config) -> None:
        self._config = config
        headers = {"Authorization": _authorization(config)}
        self.rest = Rest("ServiceNow", config.instance, headers, lambda body: body["error"]["message"])

    async def record(self, name: str, fields: list[Field]) -> Resolved:
        """The fields of one of the records that the settings name."""
        record = self._config.records.get(name)
        if record is None:
            known = listing(self._config.records)
            raise VendorError(f"the settings name no record `{name}`; known: {known or 'none'}")
        for each in fields:
            if each.path and not _PATH.fullmatch(each.path):
                raise InputError(f"`{each.path}` is not a field: expected names with dots between them")
        rows = await self._rows(name, record, [each.path for each in fields])
        if record.many:
            return Resolved({each.input: [_field(row, each.path) for row in rows] for each in fields})
        found = {each.input: _field(rows[0], each.path) for each in fields}
        # ServiceNow gives empty text for a field without a value.
        return Resolved({name: value for name, value in found.items() if value not in (None, "")})

    async def _rows(self, name: str, record: Record, paths: list[str]) -> list[dict[str, Any]]:
        params = [
            ("sysparm_display_value", "true" if self._config.display_value else "false"),
            ("sysparm_exclude_reference_link", "true"),
        ]
        if record.sys_id is not None:
            params += _chosen(paths)
            found = await self.rest.get(f"{_table(record)}/{_word(record.sys_id, 'sys_id')}", params)
            return _rows_in({"result": [found.get("result") if isinstance(found, dict) else None]})
        number = _number(record)
        # Of an invalid query ServiceNow ignores a part, so the number is compared with what was found.
        params += _chosen([*paths, "number"] if number is not None else paths)
        params.append(("sysparm_query", f"number={number}" if number is not None else _query(name, record)))
        rows = await self._pages(record, params)
        if number is not None and any(row.get("number") != number for row in rows):
            raise VendorError(f"ServiceNow answered with another record than `{number}`")
        if not rows and not record.many:
            raise VendorError(f"ServiceNow has no record for `{name}`")
        return rows

    async def _pages(self, record: Record, params: list[tuple[str, str]]) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        limit = record.limit if record.many else 1
        while True:
            # One more than is wanted: then it is known whether there are more.
            size = min(_PAGE, limit + 1 - len(rows))
            page = await self.rest.get(
                _table(record), [*params, ("sysparm_limit", str(size)), ("sysparm_offset", str(len(rows)))]
            )
            found = _rows_in(page)
            rows += found
            if len(rows) > limit:
                raise VendorError(f"the query matches more than {limit} of `{record.table}`")
            if len(found) < size:
                return rows


def _chosen(paths: list[str]) -> list[tuple[str, str]]:
    """The fields to ask for; all of them where a whole record is wanted."""
    return [("sysparm_fields", ",".join(dict.fromkeys(paths)))] if all(paths) else []


def _field(row: Mapping[str, Any], path: str) -> Any:
    # A dot-walked field comes back under its whole path.
    return row.get(path) if path else dict(row)


def _rows_in(body: Any) -> list[dict[str, Any]]:
    found = body.get("result") if isinstance(body, dict) else None
    if not isinstance(found, list) or not all(isinstance(row, dict) for row in found):
        raise VendorError("ServiceNow answered without `result`")
    return found


def _table(record: Record) -> str:
    if not _TABLE.fullmatch(record.table):
        raise InputError(f"`{record.table}` is not the name of a table")
    return f"/api/now/table/{record.table}"


def _number(record: Record) -> str | None:
    said = record.number
    if said is None and record.number_variable is not None:
        said = variable(record.number_variable, "the number of the record")
    return _word(said, "number") if said is not None else None


def _query(name: str, record: Record) -> str:
    if record.query is None:
        raise InputError(f"the record `{name}` needs `sys_id`, `number`, `number_variable` or `query`")
    return record.query


def _word(text: str, what: str) -> str:
    # In a query, `^` would begin another condition; in an address, `/` another resource.
    if not _WORD.fullmatch(text):
        raise InputError(f"the `{what}` of a record has characters that it cannot have")
    return text


def _authorization(config: Config) -> str:
    if config.token_env is not None:
        return f"Bearer {variable(config.token_env, 'the token')}"
    if config.username is None or config.password_env is None:
        raise InputError("the settings need `username` and `password_env`, or `token_env`")
    both = f"{config.username}:{variable(config.password_env, 'the password')}"
    return f"Basic {base64.b64encode(both.encode()).decode()}"


async def fetch(config: Mapping[str, Any], fields: list[Field]) -> Resolved:
    """Resolve fields."""
    servicenow = ServiceNow(settings_as(Config, config))
    async with servicenow.rest:
        return await by_record(fields, servicenow.record)


def main() -> None:
    """Serve as a provider."""
    serve(fetch)


if __name__ == "__main__":
    main()
