"""Convert a vendor's error to a model error: transient, permanent or timeout."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

import msgspec

from gert.errors import ModelError, ModelPermanentError, ModelTransientError
from gert.kernel.foundation.credentials import without_credentials
from gert.kernel.foundation.lenient_json import json_or
from gert.kernel.foundation.redaction import Redactor
from gert.kernel.foundation.text import printable

MAX_SHOWN: Final = 500
"""Characters of a vendor's message that an error shows."""

_CATEGORIES: Final[Mapping[int, str]] = {
    400: "request", 401: "auth", 402: "quota", 403: "auth", 404: "not_found", 405: "unsupported", 408: "server",
    409: "server", 413: "too_large", 422: "request", 425: "server", 429: "rate_limit", 501: "unsupported",
    529: "overloaded",
}  # fmt: skip
_TRANSIENT: Final = frozenset({"rate_limit", "overloaded", "server", "connection", "malformed"})

# The codes of vendors, in a body or in a stream.
_VENDOR_CODES: Final[Mapping[str, tuple[str, ...]]] = {
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
_CODES: Final = {word: category for category, words in _VENDOR_CODES.items() for word in words}
# These are sent with a status that means something else.
_OVERRIDES_STATUS: Final = frozenset({"quota", "model_not_found", "content_filter", "unsupported", "auth", "too_large"})


class VendorError(msgspec.Struct, frozen=True):
    """The codes of a vendor's error, most specific first, and its message.

    status: the HTTP status that the error reports in its body
    """

    kinds: tuple[str, ...] = ()
    message: str = ""
    status: int | None = None

    @property
    def category(self) -> str | None:
        """Return the category of the vendor's codes."""
        if "unexpected endpoint or method" in self.message.lower():
            return "not_found"  # LM Studio sends this with a status of success
        return next((_CODES[kind] for kind in self.kinds if kind in _CODES), None)

    @property
    def denies_responses(self) -> bool:
        """Whether the message denies the Responses API, for the server or for this model."""
        words = self.message.lower()
        return "responses" in words and any(
            mark in words for mark in ("not supported", "unsupported", "does not support", "not in v1/responses")
        )


def read_error(body: object) -> VendorError:
    """Read an error in the shapes of vendors and compatible servers; other shapes give an empty error."""
    if not isinstance(body, Mapping):
        return VendorError()
    error = body.get("error", body)
    if isinstance(error, str):
        return VendorError(message=error)
    if not isinstance(error, Mapping):
        return VendorError()
    details = error.get("details")
    codes = (
        details.get("error_code") if isinstance(details, Mapping) else None,
        error.get("code"),
        error.get("type"),
    )
    message, code = error.get("message", error.get("detail", "")), error.get("code")
    return VendorError(
        tuple(kind for kind in codes if isinstance(kind, str)),
        message if isinstance(message, str) else "",
        code if isinstance(code, int) and 400 <= code < 600 else None,
    )


def of_status(status: int, body: bytes, headers: Mapping[str, str], redactor: Redactor) -> ModelError:
    """Return the error for a response whose status is not a success."""
    vendor = read_error(json_or(body))
    category = _category(status)
    if 300 <= status < 400:
        return ModelPermanentError(
            f"the model's server answered {status}, and redirects are not followed",
            status=status,
            category="redirect",
            hint="use the address it redirects to as the base URL",
        )
    if vendor.category in _OVERRIDES_STATUS:
        category = vendor.category or category
    elif status in (400, 422) and vendor.denies_responses:
        category = "unsupported"
    return _error(category, f"the model's server answered {status}", vendor, redactor, status, retry_after(headers))


def of_event(error: object, redactor: Redactor) -> ModelError:
    """Return the error for a failure that is reported inside an answer."""
    vendor = read_error(error)
    # Without a known code it is a server error: the request was accepted.
    category = vendor.category or ("server" if vendor.status is None else _category(vendor.status))
    if category in ("request", "server") and vendor.denies_responses:
        category = "unsupported"
    return _error(category, "the model's server broke off its answer", vendor, redactor, None, None)


def too_large(most: int) -> ModelPermanentError:
    """Return the error for an answer that exceeds its limit."""
    return ModelPermanentError(f"the model's answer is larger than {most} bytes", category="too_large")


def malformed(what: str) -> ModelTransientError:
    """Return the error for an answer that cannot be read; a retry may succeed."""
    return ModelTransientError(what, category="malformed")


def _category(status: int) -> str:
    return _CATEGORIES.get(status, "server" if status >= 500 else "request")


def _error(
    category: str, what: str, vendor: VendorError, redactor: Redactor, status: int | None, after: float | None
) -> ModelError:
    kind = next(iter(vendor.kinds), "")
    text = f"{what} (`{excerpt(kind, redactor, 80)}`)" if kind else what
    # A message about a refused key often repeats parts of it.
    if vendor.message and category != "auth":
        text = f"{text}: {excerpt(vendor.message, redactor)}"
    hint = _HINTS.get(category)
    if category == "request" and any(word in vendor.message.lower() for word in _SCHEMA_FIELDS):
        hint = "if the output's schema is refused, try another `structured_output`"
    raised = ModelTransientError if category in _TRANSIENT else ModelPermanentError
    return raised(text, status=status, category=category, retry_after=after, hint=hint)


_SCHEMA_FIELDS: Final = ("json_schema", "response_format", "text.format", "output_config", "grammar")
_HINTS: Final = {
    "auth": "check the API key and its permissions",
    "quota": "the account has used up its quota",
    "model_not_found": "check the model's name",
    "not_found": "check the base URL and the model's name",
}


def excerpt(text: str, redactor: Redactor, most: int = MAX_SHOWN) -> str:
    """Return foreign text for an error: one line, bounded, printable, without secrets.

    The configured key is masked, and so is any text that looks like a credential.
    """
    # Cut twice, first to limit the search. Text at that cut that may be half a secret is dropped.
    masking = redactor.stream()
    seen = masking.feed(text[: most * 8]) + ("" if len(text) > most * 8 else masking.close())
    clean = printable(" ".join(without_credentials(seen).split()))
    return clean if len(clean) <= most else f"{clean[:most]}…"


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds a vendor asks to wait."""
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
