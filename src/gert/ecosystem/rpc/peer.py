"""One end of a JSON-RPC connection: it makes calls and answers them, many at a time, over bytes that others carry.

A strict peer is one whose other end gert started: a line that is no message, an answer to a request that was not made,
or a flood ends the connection, because nothing that follows can be trusted. Where gert is the server, a bad line is
answered with an error instead.
"""

import asyncio
import inspect
import sys
import traceback
from collections.abc import Awaitable, Callable, Mapping
from itertools import count
from typing import Any, Final, TypeAlias

from gert.ecosystem.rpc.lines import MAX_LINE, Lines, LineTooLong
from gert.ecosystem.rpc.messages import (
    CANCEL,
    CANCELLED,
    INTERNAL_ERROR,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    Call,
    Id,
    Malformed,
    Reply,
    call_line,
    decode,
    fault_line,
    result_line,
)
from gert.errors import GertError, InputError, RpcFault, RpcLost, RpcTimeout
from gert.kernel.engine.clock import format_seconds
from gert.kernel.foundation.names import listing
from gert.kernel.foundation.text import one_line

Handler: TypeAlias = Callable[[Any], Awaitable[Any] | Any]
"""Answers a request with a result, or raises `RpcFault`; it may be asynchronous."""

Listener: TypeAlias = Callable[[str, Any], None]
"""Receives a notification: its method and params."""

GRACE: Final = 2.0
"""Seconds in which a cancelled call should be answered."""

MAX_SERVING: Final = 256
"""Requests of the other end that are answered at the same time."""

MAX_UNASKED: Final = 100_000
"""Messages that a strict peer takes between two answers."""

_SHOWN: Final = 80
_MASKED: Final = 64 * 1024
"""Bytes of a bad line that are searched for secrets."""


class Peer:
    """One end of a connection.

    title: what the other end is called in messages
    send: sends bytes in order without blocking; False if the other end does not take them
    handlers: answer requests of the other end, by method
    on_notification: receives notifications of the other end
    on_end: called once when the connection ends
    mask: removes secrets from what is quoted of the other end
    """

    def __init__(
        self,
        title: str,
        send: Callable[[bytes], bool],
        *,
        handlers: Mapping[str, Handler] | None = None,
        on_notification: Listener | None = None,
        on_end: Callable[[], None] = lambda: None,
        is_strict: bool = True,
        mask: Callable[[str], str] = str,
        limit: int = MAX_LINE,
        grace: float = GRACE,
    ) -> None:
        self.title = title
        self.handlers = dict(handlers or {})
        self.lost: RpcLost | None = None
        """Why the connection ended."""
        self.is_stuck = False
        """A cancelled call was not answered: the other end may still be working on it."""
        self._send = send
        self._on_notification = on_notification
        self._on_end = on_end
        self._is_strict = is_strict
        self._mask = mask
        self._grace = grace
        self._lines = Lines(limit)
        self._numbers = count(1)
        self._pending: dict[Id, asyncio.Future[Any]] = {}
        self._cancelled: dict[Id, asyncio.Future[Any]] = {}
        self._serving: dict[Id, asyncio.Task[None]] = {}
        self._unasked = 0
        self._loop = asyncio.get_running_loop()
        self._ended = asyncio.Event()

    @property
    def is_idle(self) -> bool:
        """Whether no call is in flight."""
        return not self._pending

    async def ended(self) -> None:
        """Wait until the connection ends."""
        await self._ended.wait()

    # --- calls

    async def call(self, method: str, params: Any = None, *, timeout: float | None = None) -> Any:
        """Call the other end and return its result; RpcFault, RpcTimeout or RpcLost where there is none.

        A call that is cancelled or times out is cancelled at the other end, which has a moment to answer.
        """
        if self.lost is not None:
            raise RpcLost(self.lost.message, sent=False, by_exit=self.lost.by_exit)
        number = next(self._numbers)
        line = call_line(number, method, params)
        if len(line) > self._lines.limit:
            raise InputError(f"the call of `{method}` is {len(line)} bytes, more than the limit of {self._lines.limit}")
        answer = self._pending[number] = self._loop.create_future()
        self._write(line)
        timer = self._loop.call_later(timeout, self._expire, answer, method, timeout) if timeout is not None else None
        try:
            return await answer
        except (asyncio.CancelledError, RpcTimeout):
            await self._cancel(number)
            raise
        finally:
            if timer is not None:
                timer.cancel()
            self._pending.pop(number, None)

    def _expire(self, answer: "asyncio.Future[Any]", method: str, timeout: float) -> None:
        if not answer.done():
            reason = f"{self.title} did not answer `{method}` within {format_seconds(timeout)}"
            answer.set_exception(RpcTimeout(reason))

    def notify(self, method: str, params: Any = None) -> None:
        """Send a notification; it is dropped if the connection has ended."""
        if self.lost is None:
            self._write(call_line(None, method, params))

    async def _cancel(self, number: Id) -> None:
        """Cancel a call at the other end; if it is not answered in a moment, the other end counts as stuck."""
        if self._pending.pop(number, None) is None or self.lost is not None:
            return  # it was answered meanwhile
        settled = self._cancelled[number] = self._loop.create_future()
        self.notify(CANCEL, {"id": number})
        try:
            await asyncio.wait([settled], timeout=self._grace)
        finally:
            self.is_stuck = self.is_stuck or not settled.done()

    # --- what arrives

    def feed(self, data: bytes) -> None:
        """Take bytes of the other end."""
        if self.lost is not None:
            return
        try:
            for line in self._lines.feed(data):
                self._take(line)
        except LineTooLong:
            reason = f"a line is longer than {self._lines.limit} bytes"
            if not self._is_strict:
                self._write(fault_line(None, RpcFault(reason, code=INVALID_REQUEST)))
            self.end(f"{self.title} broke the protocol: {reason}")

    def end(self, reason: str, *, by_exit: bool = False) -> None:
        """End the connection: every call in flight fails with this reason, and later messages are ignored."""
        if self.lost is not None:
            return
        self.lost = RpcLost(reason, by_exit=by_exit)
        for answer in (*self._pending.values(), *self._cancelled.values()):
            if not answer.done():
                answer.set_exception(RpcLost(reason, by_exit=by_exit))
                answer.exception()  # a cancelled call may no longer be awaited
        self._pending.clear()
        for task in list(self._serving.values()):
            task.cancel()
        self._ended.set()
        self._on_end()

    async def finish(self, reason: str) -> None:
        """End the connection after the requests that are being answered, which have a moment."""
        if self._serving:
            await asyncio.wait(list(self._serving.values()), timeout=self._grace)
        self.end(reason, by_exit=True)

    def _take(self, line: bytes) -> None:
        if self.lost is not None or not line.strip():
            return
        try:
            message = decode(line)
        except Malformed as problem:
            self._malformed(line, problem)
            return
        if isinstance(message, Reply):
            self._replied(message)
            return
        self._unasked += 1
        if self._is_strict and self._unasked > MAX_UNASKED:
            self.end(f"{self.title} broke the protocol: it sent {MAX_UNASKED} messages without an answer")
        elif message.id is None:
            self._notified(message)
        else:
            self._serve(message.id, message)

    def _malformed(self, line: bytes, problem: Malformed) -> None:
        if self._is_strict:
            # Masked before it is cut: half a secret would not be found.
            shown = one_line(self._mask(line[:_MASKED].decode("utf-8", "replace")), _SHOWN)
            hint = "" if line.lstrip().startswith(b"{") else "; print to standard error instead"
            self.end(f"{self.title} broke the protocol: {problem.reason}: `{shown}`{hint}")
        else:
            self._write(fault_line(None, RpcFault(problem.reason, code=problem.code)))

    def _replied(self, reply: Reply) -> None:
        answer = self._pending.pop(reply.id, None) if reply.id is not None else None
        if answer is not None:
            self._unasked = 0
            if answer.done():
                return  # it is being cancelled
            if reply.fault is not None:
                answer.set_exception(reply.fault)
            else:
                answer.set_result(reply.result)
            return
        late = self._cancelled.pop(reply.id, None) if reply.id is not None else None
        if late is not None:
            if not late.done():
                late.set_result(None)
        elif self._is_strict:
            about = f"a request that was not made (id `{reply.id}`)" if reply.id is not None else "no request"
            said = f": {reply.fault.message}" if reply.fault is not None else ""
            self.end(f"{self.title} broke the protocol: it answered {about}{said}")

    def _notified(self, message: Call) -> None:
        if message.method == CANCEL and isinstance(message.params, dict):
            number = message.params.get("id")
            task = self._serving.get(number) if isinstance(number, int | str) else None
            if task is not None:
                task.cancel()
        elif self._on_notification is not None:
            self._on_notification(message.method, message.params)

    # --- requests of the other end

    def _serve(self, number: Id, message: Call) -> None:
        handler = self.handlers.get(message.method)
        if handler is None:
            known = listing(sorted(self.handlers)) or "none"
            fault = RpcFault(f"unknown method `{message.method[:_SHOWN]}`; known: {known}", code=METHOD_NOT_FOUND)
            self._write(fault_line(number, fault))
        elif number in self._serving:
            fault = RpcFault(f"a request with the id `{number}` is already in flight", code=INVALID_REQUEST)
            self._write(fault_line(number, fault))
        elif len(self._serving) >= MAX_SERVING:
            self._write(fault_line(number, RpcFault(f"more than {MAX_SERVING} requests at once")))
        else:
            task = self._serving[number] = self._loop.create_task(self._answer(number, handler, message.params))
            task.add_done_callback(lambda ended: self._served(number, ended))

    def _served(self, number: Id, ended: "asyncio.Task[None]") -> None:
        self._serving.pop(number, None)
        if ended.cancelled():  # before it began: its cancellation came with it
            self._write(fault_line(number, RpcFault("the request was cancelled", code=CANCELLED)))

    async def _answer(self, number: Id, handler: Handler, params: Any) -> None:
        try:
            result = handler(params)
            line = result_line(number, await result if inspect.isawaitable(result) else result)
        except asyncio.CancelledError:
            line = fault_line(number, RpcFault("the request was cancelled", code=CANCELLED))
        except RpcFault as fault:
            line = fault_line(number, fault)
        except GertError as problem:
            hint = {"hint": problem.hint} if problem.hint else None
            line = fault_line(number, RpcFault(problem.message, data=hint))
        except Exception as problem:
            traceback.print_exc(file=sys.stderr)
            what = one_line(f"{type(problem).__name__}: {problem}", 200)
            line = fault_line(number, RpcFault(what, code=INTERNAL_ERROR))
        if len(line) > self._lines.limit:
            line = fault_line(number, RpcFault(f"the result is longer than {self._lines.limit} bytes"))
        self._write(line)

    def _write(self, line: bytes) -> None:
        if self.lost is None and not self._send(line):
            self.end(f"{self.title} does not read its standard input")
