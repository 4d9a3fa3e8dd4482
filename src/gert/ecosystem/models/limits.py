"""How long, how often and how much an adapter asks and reads."""

import math

import msgspec

from gert.errors import InputError


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of one call.

    timeout_seconds: for one attempt; of a streamed answer, the longest silence. Models think for minutes
    connect_seconds: of it, for a connection
    stream_seconds: for all of a streamed answer
    max_retries: how often a transient failure is tried again
    max_retry_after_seconds: a vendor that wants to be left alone for longer is not waited for
    max_response_bytes: the most that is read of an answer, and of one event of a streamed one
    max_stream_bytes: the most that is read of a streamed answer; there is much around each of its many pieces
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
            raise InputError("a model's time and size limits must be more than 0")
        waits = (self.initial_backoff_seconds, self.max_backoff_seconds, self.max_retry_after_seconds)
        if min(self.max_retries, *waits) < 0:
            raise InputError("a model's retries and waits cannot be negative")
        if not all(map(math.isfinite, (*times, *waits))):
            raise InputError("a model's time limits and waits must have an end")
