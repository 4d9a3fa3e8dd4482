"""From what a vendor says when it refuses, to the error a run sees: again later, never, or not in time."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from gert.errors import ModelError, ModelPermanentError, ModelTransientError
from gert.kernel.foundation.credentials import without_credentials
from gert.kernel.foundation.redaction import Redactor
from gert.kernel.foundation.text import printable

MAX_SHOWN: Final = 500
"""How much of a vendor's words an error shows."""

_CATEGORIES: Final[Mapping[int, str]] = {
    400: "request", 401: "auth", 402: "quota", 403: "auth", 404: "not_found", 405: "unsupported", 408: "server",
    409: "server", 413: "too_large", 422: "request", 425: "server", 429: "rate_limit", 501: "unsupported",
    529: "overloaded",
}  # fmt: skip
_TRANSIENT: Final = frozenset({"rate_limit", "overloaded", "server", "connection", "malformed"})

# What vendors call it, in a body or in the middle of a stream.
_WORDS: Final[Mapping[str, tuple[str, ...]]] = {
    "quota": ("insufficient_quota", "billing_error", "billing_hard_limit_reached", "enforced_spend_limit_reached"),
    "rate_limit": ("rate_limit_error", "rate_limit_exceeded"),
    "overloaded": ("overloaded_error",),
    "server": ("api_error", "server_error", "internal_error", "timeout_error"),
    "request": ("invalid_request_error", "invalid_prompt"),
    "model_not_found": ("model_not_found",),
    "auth": ("authentication_error", "invalid_api_key", "permission_error"),
    "too_large": ("request_too_large", "context_length_exceeded"),
    "content_filter": ("content_policy_violation", "content_filter"),
    "unsupported": ("unsupported_api", "unsupported_endpoint"),
}
_KINDS: Final = {word: category for category, words in _WORDS.items() for word in words}
# These are said with a status that means something else.
_OVERRULES: Final = frozenset({"quota", "model_not_found", "content_filter", "unsupported", "auth", "too_large"})


class Said(msgspec.Struct, frozen=True):
    """What a vendor's error says about itself, most telling word first.

    status: the HTTP status it says it stands for, where it came with another
    """

    kinds: tuple[str, ...] = ()
    message: str = ""
    status: int | None = None

    @property
    def category(self) -> str | None:
        """What kind of error the vendor's own words make it."""
        if "unexpected endpoint or method" in self.message.lower():
            return "not_found"  # as LM Studio says it, with a status of success
        return next((_KINDS[kind] for kind in self.kinds if kind in _KINDS), None)

    @property
    def denies_responses(self) -> bool:
        """Whether the message says that there is no Responses API here, or not for this model."""
        words = self.message.lower()
        return "responses" in words and any(
            mark in words for mark in ("not supported", "unsupported", "does not support", "not in v1/responses")
        )


def read_error(body: object) -> Said:
    """Read the several shapes vendors and compatible servers put an error in; anything else says nothing."""
    if not isinstance(body, Mapping):
        return Said()
    error = body.get("error", body)
    if isinstance(error, str):
        return Said(message=error)
    if not isinstance(error, Mapping):
        return Said()
    details = error.get("details")
    told = (
        details.get("error_code") if isinstance(details, Mapping) else None,
        error.get("code"),
        error.get("type"),
    )
    message, code = error.get("message", error.get("detail", "")), error.get("code")
    return Said(
        tuple(kind for kind in told if isinstance(kind, str)),
        message if isinstance(message, str) else "",
        code if isinstance(code, int) and 400 <= code < 600 else None,
    )


def of_status(status: int, body: bytes, headers: Mapping[str, str], redactor: Redactor) -> ModelError:
    """The error for an answer that is not a success."""
    said = read_error(_json(body))
    category = _category(status)
    if 300 <= status < 400:
        return ModelPermanentError(
            f"the model's server answered {status}, and redirects are not followed",
            status=status,
            category="redirect",
            hint="give the address it redirects to as the base URL",
        )
    if said.category in _OVERRULES:
        category = said.category or category
    elif status in (400, 422) and said.denies_responses:
        category = "unsupported"
    return _error(category, f"the model's server answered {status}", said, redactor, status, retry_after(headers))


def of_event(error: object, redactor: Redactor) -> ModelError:
    """The error for a failure that is told in an answer, or in the middle of one."""
    said = read_error(error)
    # Without a word that is known it is the server's trouble rather than ours: the request was accepted.
    category = said.category or ("server" if said.status is None else _category(said.status))
    if category in ("request", "server") and said.denies_responses:
        category = "unsupported"
    return _error(category, "the model's server broke off its answer", said, redactor, None, None)


def too_large(most: int) -> ModelPermanentError:
    """The error for an answer nobody wants to hold."""
    return ModelPermanentError(f"the model's answer is larger than {most} bytes", category="too_large")


def malformed(what: str) -> ModelTransientError:
    """The error for an answer that cannot be read; the next one may be."""
    return ModelTransientError(what, category="malformed")


def _category(status: int) -> str:
    return _CATEGORIES.get(status, "server" if status >= 500 else "request")


def _error(
    category: str, what: str, said: Said, redactor: Redactor, status: int | None, after: float | None
) -> ModelError:
    kind = next(iter(said.kinds), "")
    text = f"{what} (`{shown(kind, redactor, 80)}`)" if kind else what
    # Who refuses a key likes to repeat parts of it.
    if said.message and category != "auth":
        text = f"{text}: {shown(said.message, redactor)}"
    hint = _HINTS.get(category)
    if category == "request" and any(word in said.message.lower() for word in _OF_SCHEMAS):
        hint = "where it is the output's schema that is refused, another `structured_output` may do"
    raised = ModelTransientError if category in _TRANSIENT else ModelPermanentError
    return raised(text, status=status, category=category, retry_after=after, hint=hint)


_OF_SCHEMAS: Final = ("json_schema", "response_format", "text.format", "output_config", "grammar")
_HINTS: Final = {
    "auth": "check the API key and what it may be used for",
    "quota": "the account has spent what it may",
    "model_not_found": "check the model's name",
    "not_found": "check the base URL and the model's name",
}


def shown(text: str, redactor: Redactor, most: int = MAX_SHOWN) -> str:
    """A stranger's words as an error may hold them: one line, bounded, harmless, without secrets.

    Our own key is masked whatever it looks like, and what looks like anybody's.
    """
    # Cut twice, first so that little is searched. What stands at that cut and may be half a secret is held back.
    masking = redactor.stream()
    seen = masking.feed(text[: most * 8]) + ("" if len(text) > most * 8 else masking.close())
    clean = printable(" ".join(without_credentials(seen).split()))
    return clean if len(clean) <= most else f"{clean[:most]}…"


def retry_after(headers: Mapping[str, str]) -> float | None:
    """How many seconds a vendor wants to be left alone."""
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    value = headers.get("retry-after")
    seconds = _number(value)
    if seconds is not None or not value:
        return seconds
    from email.utils import parsedate_to_datetime

    try:
        at = parsedate_to_datetime(value)
        return max(0.0, (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() - datetime.now(UTC).timestamp())
    except (TypeError, ValueError, OverflowError):
        return None


def _number(text: str | None) -> float | None:
    text = (text or "").strip()
    digits = text.replace(".", "", 1)
    return float(text) if digits.isascii() and digits.isdigit() and len(digits) < 16 else None


def _json(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
