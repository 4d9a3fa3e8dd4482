"""What an execution does between its start and its record: one declared request, or a program behind the gateway."""

from base64 import b64decode
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Final

import msgspec

from gert.ecosystem.process.capture import Capture
from gert.ecosystem.process.own_process import is_closed
from gert.ecosystem.runners.gateway import Exchange, Gateway
from gert.ecosystem.runners.sandbox import Machine, run_sandboxed
from gert.ecosystem.runners.secrets import Secret
from gert.ecosystem.runners.wire import Meter, Outgoing, Reach, Received, RefusedResponse, send
from gert.errors import Refused
from gert.kernel.foundation.redaction import Redactor, parts_of
from gert.kernel.foundation.secret_refs import refs_in, reveal
from gert.kernel.runbook.documents.skill import HttpBlock, Skill
from gert.kernel.runner.execution_record import Isolation
from gert.kernel.runner.plan import Plan
from gert.kernel.runner.request import (
    HttpRequest,
    body_bytes,
    check_header,
    filled,
    is_success,
    render_headers,
    render_request,
    shown_secret,
    take_outputs,
)

DECLARED: Final = Isolation(
    level="declared",
    enforced=(
        "domain and method of the plan",
        "connection to the checked address only",
        "no redirect unless the skill allows it",
        "response cut at the limit",
        "no proxy, no program, no listener",
    ),
    not_enforced=("no network namespace: the runner itself connects",),
)
_CLOSED: Final = "no core dump, no inspection by other processes"
_MOST_TEXT: Final = 4 * 1024 * 1024


class Prepared(msgspec.Struct, frozen=True, kw_only=True):
    """An execution before the secret is known: what will be done, as it may be written down."""

    skill: Skill
    plan: Plan
    isolation: Isolation
    request: HttpRequest | None = None
    headers: tuple[tuple[str, str], ...] = ()
    files: dict[str, bytes] = msgspec.field(default_factory=dict)

    def artifact(self) -> dict[str, Any]:
        """The request artifact; the place of the secret is marked with its `secret_ref`."""
        fill = shown_secret(self.plan.secret_ref)
        said: dict[str, Any] = {"plan_id": self.plan.plan_id, "skill_id": self.skill.id, "inputs": self.plan.inputs}
        if self.request is not None:
            said["request"] = {
                "method": self.request.method,
                "url": self.request.url,
                "headers": {name: fill(value) for name, value in self.request.headers},
                "body": filled(self.request.body, fill),
            }
        elif self.skill.program is not None:
            said["program"] = {
                "argv": list(self.skill.program.argv),
                "files": dict(self.skill.program.files),
                "headers": {name: fill(value) for name, value in self.headers},
            }
        return said


def prepare(skill: Skill, plan: Plan, files: dict[str, bytes], isolate: Callable[[], Isolation]) -> Prepared:
    """Render what will be done; Refused where it cannot be.

    files: of the skill, where it is a program
    isolate: says how a program is separated, or refuses
    """
    if skill.http is not None:
        request = render_request(skill, skill.http, plan.inputs)
        return Prepared(skill=skill, plan=plan, isolation=_of_this_process(DECLARED), request=request)
    return Prepared(
        skill=skill,
        plan=plan,
        isolation=_of_this_process(isolate()),
        headers=render_headers(skill, plan.inputs),
        files=files,
    )


def _of_this_process(isolation: Isolation) -> Isolation:
    """Say how this process itself, which holds the secret, is separated: asked, not assumed."""
    name = "enforced" if is_closed() else "not_enforced"
    return msgspec.structs.replace(isolation, **{name: (*getattr(isolation, name), _CLOSED)})


class Performed:
    """What happened so far; it is written down however the execution ends."""

    def __init__(self) -> None:
        self.meter = Meter()
        self.exchanges: list[Exchange] = []
        self.outputs: dict[str, Any] = {}
        self.status: int | None = None
        self.printed: tuple[Capture, Capture] | None = None
        self.redactor = Redactor()

    def response(self, error: Refused | None) -> dict[str, Any]:
        """The response artifact: every exchange with its metadata, the outputs, and what went wrong; no secret."""
        said: dict[str, Any] = {"exchanges": [self._exchange(each) for each in self.exchanges], "outputs": self.outputs}
        if self.printed is not None:
            stdout, stderr = self.printed
            said["program"] = {"exit_code": self.status, "stdout": stdout.logged, "stderr": stderr.logged}
        if error is not None:
            said["error"] = {"rule": error.rule, "message": error.message}
        masked: dict[str, Any] = self.redactor.value(said).value
        return masked

    def _exchange(self, exchange: Exchange) -> dict[str, Any]:
        said: dict[str, Any] = {"method": exchange.method, "url": f"https://{exchange.host}{exchange.target}"}
        if exchange.body:
            said["request_body"] = self._text(exchange.body)
        received = exchange.received
        if received is not None:
            headers = {name: value for name, value in received.headers if name != "set-cookie"}
            said |= {"status": received.status, "address": received.address, "headers": headers}
            body = self._text(received.body, is_cut=received.is_cut)
            said |= {"body": body, "bytes": len(received.body), "cut": received.is_cut}
            said |= {"answered_by": received.url} if received.url not in ("", said["url"]) else {}
        if exchange.refusal is not None:
            said["refused"] = {"rule": exchange.refusal.rule, "message": exchange.refusal.message}
        return said

    def _text(self, data: bytes, *, is_cut: bool = False) -> str:
        return self.mask(data[:_MOST_TEXT], is_cut or len(data) > _MOST_TEXT).decode("utf-8", "replace")

    def printing(self, stdout: Capture, stderr: Capture) -> None:
        """Keep what a program prints, however it ends."""
        self.printed = stdout, stderr

    def mask(self, data: bytes, is_cut: bool) -> bytes:
        """Remove the secret from bytes, and what may be the beginning of it from bytes that were cut off."""
        masked: bytes = self.redactor.cut(data) if is_cut else self.redactor.value(data).value
        return masked


async def perform(
    prepared: Prepared, secret: Secret | None, reach: Reach, machine: Machine | None, done: Performed
) -> None:
    """Execute; what happened is in `done`, also where this is refused, fails or is cancelled."""
    if secret is not None:
        done.redactor = Redactor([secret.value, *parts_of(secret.value)])
    fill = _filling(prepared.skill, secret)
    if prepared.request is not None and prepared.skill.http is not None:
        await _send_declared(prepared, prepared.request, prepared.skill.http, fill, reach, done)
    else:
        await _run_program(prepared, fill, reach, machine, done)


def _filling(skill: Skill, secret: Secret | None) -> Callable[[str], str]:
    names = {each.name: secret.value for each in skill.required_secrets} if secret is not None else {}
    return lambda text: reveal(text, names)


def _revealed(headers: tuple[tuple[str, str], ...], fill: Callable[[str], str]) -> tuple[tuple[str, str], ...]:
    found = tuple((name, fill(value)) for name, value in headers)
    for name, value in found:
        try:
            check_header(name, value)
        except Refused:
            raise Refused("secret/form", f"the secret cannot stand in the header `{name}`") from None
    return found


def _basic(headers: tuple[tuple[str, str], ...]) -> Iterator[str]:
    """Yield what stands behind a secret that is sent as `Basic …`: a vendor may repeat it decoded."""
    for _, value in headers:
        scheme, _, encoded = value.partition(" ")
        if scheme.lower() == "basic":
            with suppress(ValueError):
                decoded = b64decode(encoded.strip(), validate=True).decode()
                yield from (decoded, decoded.partition(":")[2])


async def _send_declared(
    prepared: Prepared,
    request: HttpRequest,
    http: HttpBlock,
    fill: Callable[[str], str],
    reach: Reach,
    done: Performed,
) -> None:
    body, content_type = body_bytes(request.body, fill)
    headers = _revealed(request.headers, fill)
    done.redactor = done.redactor.also(_basic(headers))
    if content_type is not None and not any(name == "content-type" for name, _ in headers):
        headers = (*headers, ("content-type", content_type))
    outgoing = Outgoing(
        method=request.method,
        host=request.host,
        target=request.target,
        headers=headers,
        body=body,
        secret_headers=frozenset(name for name, value in request.headers if refs_in(value)),
    )
    asked = Exchange(method=request.method, host=request.host, target=request.target, headers=(), body=b"")
    policy = prepared.plan.network_policy
    if policy is None:
        raise Refused("network/policy", "the plan has no network policy")
    done.exchanges.append(asked)
    try:
        received = await send(outgoing, policy, reach, done.meter)
    except Refused as refusal:
        answer = refusal.received if isinstance(refusal, RefusedResponse) else None
        done.exchanges[-1] = msgspec.structs.replace(asked, received=answer, refusal=refusal)
        raise
    done.exchanges[-1] = msgspec.structs.replace(asked, received=received)
    text = _checked_text(received, done)
    if not is_success(http, received.status, text):
        raise Refused("vendor/status", f"the vendor answered with status {received.status}")
    done.outputs = take_outputs(prepared.skill, text, received.status)


def _checked_text(received: Received, done: Performed) -> str:
    if received.is_cut:
        raise Refused("response/size", f"the response is longer than {len(received.body)} bytes and was cut")
    return str(done.redactor.text(received.body.decode("utf-8", "replace")).value)


async def _run_program(
    prepared: Prepared, fill: Callable[[str], str], reach: Reach, machine: Machine | None, done: Performed
) -> None:
    program, policy = prepared.skill.program, prepared.plan.network_policy
    if program is None or machine is None:
        raise Refused("isolation/sandbox", "nothing is known of what this machine can enforce")
    inputs = msgspec.json.encode(prepared.plan.inputs)
    arguments = (machine, prepared.isolation, program.argv, prepared.files, inputs)
    if policy is None:
        ended = await run_sandboxed(*arguments, None, done.redactor, done.printing)
    else:
        headers = _revealed(prepared.headers, fill)
        done.redactor = done.redactor.also(_basic(headers))
        gateway = Gateway(policy, reach, done.meter, headers, done.mask)
        done.exchanges = gateway.exchanges
        async with gateway.serve() as socket:
            ended = await run_sandboxed(*arguments, socket, done.redactor, done.printing)
    text = ended.stdout.kept
    done.status = ended.status
    if ended.status != 0:
        raise Refused("program/exit", f"the program ended with {ended.status}")
    refused = next((each.refusal for each in done.exchanges if each.refusal is not None), None)
    if refused is not None:
        # A program that ignores the refusal has still tried.
        raise Refused(refused.rule, f"a request of the program was refused: {refused.message}")
    if ended.stdout.is_truncated:
        raise Refused("response/size", "the program printed too much")
    done.outputs = take_outputs(prepared.skill, text, ended.status)
