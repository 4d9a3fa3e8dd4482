"""What a vendor's refusal comes to: again later, never, and in which words."""

import json
import math
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any, cast

import pytest
from tests.ecosystem.models.vendors import KEY, anthropic_error, openai_error

from gert.ecosystem.models.errors import MAX_SHOWN, excerpt, of_event, of_status, retry_after
from gert.ecosystem.models.keys import Key, checked_base_url
from gert.ecosystem.models.limits import Limits
from gert.ecosystem.models.prices import Price, Pricing, Tokens
from gert.ecosystem.models.retry import pause_after
from gert.errors import InputError, ModelError, ModelPermanentError, ModelTransientError
from gert.kernel.foundation.redaction import Redactor

NO_SECRETS = Redactor()


@pytest.mark.parametrize(
    ("status", "body", "kind", "category"),
    [
        (429, openai_error("Slow down", "requests", "rate_limit_exceeded"), ModelTransientError, "rate_limit"),
        (429, openai_error("Spent", "insufficient_quota", "insufficient_quota"), ModelPermanentError, "quota"),
        (429, anthropic_error("rate_limit_error", "Slow down"), ModelTransientError, "rate_limit"),
        (
            429,
            anthropic_error("rate_limit_error", "Spent", details={"error_code": "enforced_spend_limit_reached"}),
            ModelPermanentError,
            "quota",
        ),
        (529, anthropic_error("overloaded_error", "Overloaded"), ModelTransientError, "overloaded"),
        (500, anthropic_error("api_error", "Oops"), ModelTransientError, "server"),
        (502, b"<html>Bad Gateway</html>", ModelTransientError, "server"),
        (503, b"", ModelTransientError, "server"),
        (504, b"upstream", ModelTransientError, "server"),
        (408, b"", ModelTransientError, "server"),
        (501, b"", ModelPermanentError, "unsupported"),
        (405, b"", ModelPermanentError, "unsupported"),
        (400, openai_error("Bad schema"), ModelPermanentError, "request"),
        (400, openai_error("This model is not supported with the Responses API."), ModelPermanentError, "unsupported"),
        (400, openai_error("No", code="content_filter"), ModelPermanentError, "content_filter"),
        (400, openai_error("Too long", code="context_length_exceeded"), ModelPermanentError, "too_large"),
        (400, openai_error("Incorrect API key", code="invalid_api_key"), ModelPermanentError, "auth"),
        (401, openai_error("Incorrect API key", code="invalid_api_key"), ModelPermanentError, "auth"),
        (402, b"", ModelPermanentError, "quota"),
        (403, {"error": "forbidden"}, ModelPermanentError, "auth"),
        (404, openai_error("No such model", code="model_not_found"), ModelPermanentError, "model_not_found"),
        (404, {"detail": "Not Found"}, ModelPermanentError, "not_found"),
        (413, anthropic_error("request_too_large", "Too big"), ModelPermanentError, "too_large"),
        (418, [1], ModelPermanentError, "request"),
        (302, b"", ModelPermanentError, "redirect"),
    ],
)
def test_which_error_a_status_is(status: int, body: object, kind: type[ModelError], category: str) -> None:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    error = of_status(status, data, {}, NO_SECRETS)
    assert type(error) is kind
    assert (error.status, error.category) == (status, category)
    assert "\n" not in error.message
    assert not error.message.endswith(".") or "`" in error.message or ":" in error.message


@pytest.mark.parametrize(
    ("told", "kind", "category"),
    [
        (anthropic_error("overloaded_error", "Overloaded"), ModelTransientError, "overloaded"),
        ({"code": "server_error", "message": "An error occurred"}, ModelTransientError, "server"),
        ({"code": "rate_limit_exceeded", "message": "x"}, ModelTransientError, "rate_limit"),
        ({"code": "invalid_prompt", "message": "x"}, ModelPermanentError, "request"),
        ({"error": "just words"}, ModelTransientError, "server"),
        ({}, ModelTransientError, "server"),
        (None, ModelTransientError, "server"),
    ],
)
def test_which_error_is_told_in_a_stream(told: object, kind: type[ModelError], category: str) -> None:
    error = of_event(told, NO_SECRETS)
    assert (type(error), error.category) == (kind, category)


def test_a_vendors_words_are_bounded_harmless_and_without_the_key() -> None:
    words = f"bad\x1b[31m\nrequest with {KEY} " + "x" * 5000
    error = of_status(400, json.dumps(openai_error(words)).encode(), {}, Key(KEY).redactor())
    assert KEY not in error.message
    assert error.message.isprintable()
    assert len(error.message) < MAX_SHOWN + 100


@pytest.mark.parametrize(
    "said",
    [
        "Invalid parameter: 'response_format' of type 'json_schema' is not supported with this model.",
        "The compiled grammar is too large, which would cause performance issues.",
        "output_config.format: not supported for this model",
    ],
)
def test_whose_schema_is_refused_is_told_of_another_way(said: str) -> None:
    error = of_status(400, json.dumps(openai_error(said)).encode(), {}, NO_SECRETS)
    assert "structured_output" in (error.hint or "")
    assert of_status(400, json.dumps(openai_error("Bad")).encode(), {}, NO_SECRETS).hint is None


def test_who_refuses_a_key_is_not_quoted() -> None:
    body = b'{"error":{"message":"Incorrect API key provided: sk-c4nar*****cdef.","code":"invalid_api_key"}}'
    for status in (400, 401):
        assert "c4nar" not in of_status(status, body, {}, NO_SECRETS).message


@pytest.mark.parametrize(
    ("headers", "least", "most"),
    [
        pytest.param({"retry-after": "2"}, 2, 2, id="seconds"),
        pytest.param({"retry-after": "1.5"}, 1.5, 1.5, id="a fraction"),
        pytest.param({"retry-after-ms": "250", "retry-after": "9"}, 0.25, 0.25, id="milliseconds win"),
        pytest.param({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0, 0, id="a date that is over"),
    ],
)
def test_how_long_to_wait(headers: dict[str, str], least: float, most: float) -> None:
    waits = retry_after(headers)
    assert waits is not None
    assert least <= waits <= most


def test_how_long_to_wait_until_a_date() -> None:
    later = format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True)
    waits = retry_after({"retry-after": later})
    assert waits is not None
    assert 3000 <= waits <= 3600


@pytest.mark.parametrize("value", ["", "soon", "-1", "1e9", "nan", "٣", "9" * 40, "Wed, 99 Foo 2015 07:28:00 GMT"])
def test_what_is_no_time_to_wait(value: str) -> None:
    assert retry_after({"retry-after": value}) is None


@pytest.mark.parametrize(
    ("told", "made", "least", "most"),
    [(None, 0, 0.5, 1.0), (None, 2, 2.0, 4.0), (None, 50, 4.0, 8.0), (30.0, 0, 30.0, 30.0), (0.0, 0, 0.5, 1.0)],
)
def test_waits_grow_and_are_bounded(told: float | None, made: int, least: float, most: float) -> None:
    limits = Limits(initial_backoff_seconds=1, max_backoff_seconds=8, max_retry_after_seconds=30)
    waits = pause_after(ModelTransientError("x", retry_after=told), made, limits)
    assert waits is not None
    assert least <= waits <= most


def test_a_call_waits_no_longer_than_allowed() -> None:
    assert pause_after(ModelTransientError("x", retry_after=61.0), 0, Limits(max_retry_after_seconds=60)) is None


@pytest.mark.parametrize(
    "url",
    [
        "",
        "api.example.com/v1",
        "ftp://api.example.com",
        "http://api.example.com/v1",
        "http://127.0.0.1.example.com/v1",
        "http://[::2]/v1",
        "https://user:pass@api.example.com/v1",
        "https://api.example.com/v1?key=1",
        "https://api.example.com/v1#x",
        "https://api.example.com/v1?",
        "https://api.example.com/v1#",
        "https://",
        "http://localhost:99999/v1",
        "file:///etc/passwd",
    ],
)
def test_addresses_a_key_is_not_sent_to(url: str) -> None:
    with pytest.raises(InputError) as caught:
        checked_base_url(url)
    assert "pass@" not in caught.value.message


@pytest.mark.parametrize(
    "url", ["https://api.example.com/v1/", "http://localhost:1/v1", "http://[::1]:1", "http://127.9.9.9"]
)
def test_addresses_it_is_sent_to(url: str) -> None:
    assert str(checked_base_url(url)) == url.rstrip("/")


def test_a_key_does_not_show_itself() -> None:
    key = Key(KEY)
    assert KEY not in f"{key!r} {key} {key.redactor()!r}"
    for wrong in ("a\nb", "ключ", "a\x00b"):
        with pytest.raises(InputError):
            Key(wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        {"timeout_seconds": 0},
        {"connect_seconds": 0},
        {"stream_seconds": -1},
        {"max_retries": -1},
        {"max_response_bytes": 0},
        {"max_stream_bytes": 0},
        {"initial_backoff_seconds": -0.1},
    ],
)
def test_limits_that_are_none(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        Limits(**wrong)


def test_costs() -> None:
    price = Price(prompt=2.0, completion=10.0, cached=0.5, cache_write=3.0)
    pricing = Pricing({"m": price})
    assert pricing.usage("m", None, Tokens(1_000_000, 100_000)).cost_usd == 3.0
    assert pricing.usage("m", None, Tokens(1_000_000, 0, 400_000, 100_000)).cost_usd == 1.0 + 0.2 + 0.3
    assert pricing.usage("alias", "m", Tokens(1_000_000, 0)).cost_usd == 2.0
    assert pricing.usage("other", None, Tokens(1, 1)).cost_usd == 0.0
    assert pricing.usage("m", None, None).cost_usd == 0.0


def test_an_unknown_cost_can_be_refused() -> None:
    pricing = Pricing({"m": Price(prompt=1, completion=1)}, fail_on_unknown_cost=True)
    for model, tokens in (("other", Tokens(1, 1)), ("m", None)):
        with pytest.raises(ModelPermanentError) as caught:
            pricing.usage(model, None, tokens)
        assert caught.value.category == "unknown_cost"
    with pytest.raises(InputError):
        Price(prompt=-1, completion=1)


@pytest.mark.parametrize(
    ("said", "secret"),
    [
        ("Incorrect API key provided: sk-proj-abcdef1234567890abcdef.", "abcdef"),
        ("upstream https://u:hunter2@gateway failed", "hunter2"),
        ("got header Authorization: Bearer abc.def-123456", "abc.def"),
    ],
)
def test_credentials_a_vendor_repeats_are_not_ours_to_repeat(said: str, secret: str) -> None:
    for error in (
        of_status(400, json.dumps(openai_error(said)).encode(), {}, NO_SECRETS),
        of_event({"error": {"message": said}}, NO_SECRETS),
    ):
        assert secret not in error.message
        assert "[REDACTED]" in error.message


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(" " * 3985 + KEY, id="behind much white space"),
        pytest.param("x" * 100 + f" {KEY}" * 40, id="behind much that is masked"),
    ],
)
def test_no_half_of_a_key_stays_where_words_are_cut(words: str) -> None:
    key = "c4nary-" + "0123456789abcdef" * 12
    said = excerpt(words.replace(KEY, key), Key(key).redactor())
    assert "c4nary" not in said


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_price_is_a_number(value: float) -> None:
    for field in ("prompt", "completion", "cached", "cache_write"):
        with pytest.raises(InputError):
            Price(**{"prompt": 1.0, "completion": 1.0, field: value})


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize(
    "field",
    [
        "timeout_seconds",
        "connect_seconds",
        "stream_seconds",
        "initial_backoff_seconds",
        "max_backoff_seconds",
        "max_retry_after_seconds",
    ],
)
def test_a_limit_has_an_end(field: str, value: float) -> None:
    with pytest.raises(InputError):
        Limits(**cast("Any", {field: value}))
    with pytest.raises(InputError):
        Limits(max_retry_after_seconds=-1)
