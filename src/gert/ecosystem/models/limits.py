"""Limits of time, retries and size for a model call."""

import math

import msgspec

from gert.errors import InputError


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of one call.

    timeout_seconds: for one attempt; for a streamed answer, the longest silence. Models may think for minutes
    connect_seconds: for opening a connection
    stream_seconds: for a whole streamed answer
    max_retries: how often a transient failure is retried
    max_retry_after_seconds: a longer `Retry-After` fails the call instead
    max_response_bytes: for an answer, and for one event of a streamed one
    max_stream_bytes: for a streamed answer, whose pieces carry much overhead
    """

    timeout_seconds: float = 600.0
    connect_seconds: float = 10.0
    stream_seconds: float = 1800.0
    max_retries: int = 2
    initial_backoff_seconds: float = 0.25
    max_backoff_seconds: float = 8.0
    max_retry_after_seconds: float = 60.0
    max_response_bytes: int = 16 * 1024 * 1024
    max_stream_bytes: int = 128 * 1024 * 1024

    def __post_init__(self) -> None:
        times = (self.timeout_seconds, self.connect_seconds, self.stream_seconds)
        if min(*times, self.max_response_bytes, self.max_stream_bytes) <= 0:
            raise InputError("a model's time and size limits must be greater than zero")
        waits = (self.initial_backoff_seconds, self.max_backoff_seconds, self.max_retry_after_seconds)
        if min(self.max_retries, *waits) < 0:
            raise InputError("a model's retries and waits cannot be negative")
        if not all(map(math.isfinite, (*times, *waits))):
            raise InputError("a model's time limits and waits must be finite")
