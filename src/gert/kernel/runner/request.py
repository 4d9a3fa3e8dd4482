"""The declared request of a skill, rendered from its inputs; the place of the secret stays a reference.

Inputs can change what a request says, never where it goes: the host is fixed text, whatever stands in the path is
percent-encoded, and a reference to the secret cannot be made from an input.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import quote, urlencode

import msgspec

from gert.errors import GertError, Refused
from gert.kernel.foundation.canonical import require_canonical
from gert.kernel.foundation.json_path import Absent, follow
from gert.kernel.foundation.lenient_json import json_or
from gert.kernel.foundation.secret_refs import refs_in, secret_ref, without_marks
from gert.kernel.foundation.values import coerce
from gert.kernel.runbook.documents.skill import PLACE, HttpBlock, Skill
from gert.kernel.template import Template, condition, render, render_value

MAX_URL: Final = 8192
MAX_BODY: Final = 8 * 1024 * 1024
MAX_HEADER: Final = 16 * 1024
_PREFIX: Final = re.compile(r"https://([^/]+)/")
_CONTROL: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")

Fill = Callable[[str], str]
"""Puts something in the place of a reference: the secret where the request leaves, its `secret_ref` in artifacts."""


class HttpRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request as it is sent, but for the secret: texts may hold references to it.

    body: None, a text, or a value that is sent as JSON
    """

    method: str
    host: str
    target: str
    headers: tuple[tuple[str, str], ...] = ()
    body: Any = None

    @property
    def url(self) -> str:
        """The whole address."""
        return f"https://{self.host}{self.target}"


def render_request(skill: Skill, http: HttpBlock, inputs: Mapping[str, Any]) -> HttpRequest:
    """Render the request of a skill; Refused where an input does not fit into it."""
    data = skill_data(skill, inputs)
    try:
        url = render(http.url, _encoded(data))
        query = {name: render(each, data) for name, each in http.query.items()}
        body = _present(http.body, render_value(http.body, data))
    except GertError as problem:
        raise Refused("plan/inputs", f"the request cannot be rendered: {problem.message}") from None
    host, target = _split(url, http.url)
    target += f"?{urlencode(query)}" if query else ""
    if len(target) > MAX_URL:
        raise Refused("plan/inputs", f"the URL is longer than {MAX_URL} characters")
    return HttpRequest(method=http.method, host=host, target=target, headers=render_headers(skill, inputs), body=body)


def render_headers(skill: Skill, inputs: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Render the headers of a skill, with references to its secret."""
    data = skill_data(skill, inputs)
    try:
        found = tuple((name.lower(), render(each, data)) for name, each in skill.headers.items())
    except GertError as problem:
        raise Refused("plan/inputs", f"a header cannot be rendered: {problem.message}") from None
    for name, value in found:
        check_header(name, value)
    return found


def check_header(name: str, value: str) -> None:
    """Refuse a header that would not be one header."""
    try:
        shown_secret(None)(value).encode("latin-1")
    except UnicodeEncodeError:
        raise Refused("plan/inputs", f"the header `{name}` holds a character that a header cannot hold") from None
    if _CONTROL.search(value) or len(value) > MAX_HEADER:
        raise Refused("plan/inputs", f"the header `{name}` holds a line break or a control character, or is too long")


def skill_data(skill: Skill, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the templates of a skill see: its inputs, and a reference in place of each secret."""
    plain: dict[str, Any] = without_marks(dict(inputs))
    return {**plain, PLACE: {each.name: secret_ref(each.name) for each in skill.required_secrets}}


def _present(template: Any, rendered: Any) -> Any:
    """Leave out the keys whose templates yield nothing: an optional input that was not given."""
    if isinstance(template, Mapping) and isinstance(rendered, Mapping):
        pairs = ((key, each, rendered[key]) for key, each in template.items() if key in rendered)
        return {
            key: _present(each, value)
            for key, each, value in pairs
            if not (isinstance(each, Template) and (value is None or (each.is_value and value == "")))
        }
    if isinstance(template, list | tuple) and isinstance(rendered, list | tuple):
        return [_present(each, value) for each, value in zip(template, rendered, strict=True)]
    return rendered


def is_success(http: HttpBlock, status: int, text: str) -> bool:
    """Whether a response says that it worked: by its status, or as the skill says."""
    if http.success is None:
        return 200 <= status < 300
    try:
        return condition(http.success, {"status": status, "body": json_or(text, text)})
    except GertError:
        return False


def _encoded(value: Any) -> Any:
    """Percent-encode every text, so that an input is one part of a path and nothing else."""
    if isinstance(value, Mapping):
        return {key: _encoded(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_encoded(each) for each in value]
    return quote(value, safe="") if isinstance(value, str) else value


def _split(url: str, template: Template) -> tuple[str, str]:
    """Return the host and the rest of a URL; refuse one that leads elsewhere than its template says."""
    fixed, rendered = _PREFIX.match(template.source), _PREFIX.match(url)
    if fixed is None or rendered is None or fixed[0] != rendered[0]:
        raise Refused("network/host", "the host of the request is not the one of the skill")
    target = url[rendered.end() - 1 :]
    if not target.isascii() or any(character <= " " or character in '\\"<>^`{|}?#' for character in target):
        raise Refused("plan/inputs", "the path of the request holds a character that a path cannot hold")
    parts = target[1:].split("/")
    if any(part in (".", "..") for part in parts) or "" in parts[:-1]:
        raise Refused("plan/inputs", "an input is empty, `.` or `..`, and stands in the path of the request")
    return rendered[1], target


def body_bytes(body: Any, fill: Fill) -> tuple[bytes, str | None]:
    """Return the bytes of a body and their content type; `fill` handles each text before it is encoded."""
    if body is None:
        return b"", None
    if isinstance(body, str):
        return fill(body).encode(), "text/plain; charset=utf-8"
    return msgspec.json.encode(filled(body, fill)), "application/json"


def filled(value: Any, fill: Fill) -> Any:
    """Return a value with every text handled, keys included."""
    if isinstance(value, str):
        return fill(value)
    if isinstance(value, Mapping):
        return {fill(str(key)): filled(each, fill) for key, each in value.items()}
    return [filled(each, fill) for each in value] if isinstance(value, list | tuple) else value


def shown_secret(reference: str | None) -> Fill:
    """Return a filling for artifacts and approvers: the secret is marked by its `secret_ref`."""
    from gert.kernel.foundation.secret_refs import reveal

    def fill(text: str) -> str:
        names = refs_in(text)
        return reveal(text, dict.fromkeys(names, f"{{{{secret_ref {reference}}}}}")) if names else text

    return fill


def take_outputs(skill: Skill, text: str, status: int | None) -> dict[str, Any]:
    """Take the declared outputs from a response; Refused where a required one is not there or does not fit."""
    found: dict[str, Any] = {}
    for name, block in skill.extract.items():
        parameter = skill.contract.outputs[name].parameter()
        try:
            value = coerce(_taken(block.from_, block.json_path, text, status), parameter.type)
            require_canonical(value)
        except Absent as problem:
            if parameter.required:
                raise Refused("response/output", f"output `{name}`: {problem}") from None
            if parameter.has_default:
                found[name] = parameter.default
            continue
        except GertError as problem:
            raise Refused("response/output", f"output `{name}`: {problem.message}") from None
        found[name] = value
    return found


def _taken(source: str, path: str | None, text: str, status: int | None) -> Any:
    if source == "status":
        return status
    if source == "text":
        return text
    try:
        document = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        raise Refused("response/output", "the response is not JSON") from None
    return follow(document, path or "$")
