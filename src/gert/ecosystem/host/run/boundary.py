"""What enters and leaves a run without a step: inputs that are read, and webhooks of the runbook (DECISIONS 81)."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from gert.ecosystem.host.config.settings import Settings, notices_of
from gert.ecosystem.notify.addresses import destination, expand, shown, with_placeholders
from gert.ecosystem.notify.payloads import PAGERDUTY
from gert.errors import InputError, UsageError
from gert.kernel.engine.inputs import binding_refusal, effect_of
from gert.kernel.governance.decide import crossing_refusal
from gert.kernel.governance.rules import Policy
from gert.kernel.runbook.documents.runbook import RunbookMeta
from gert.kernel.runbook.documents.shared import OutcomeNotice


class Crossing(msgspec.Struct, frozen=True):
    """Something that enters or leaves.

    what: the input, or the webhook by its category
    place: the source or the address, as the runbook writes it
    refusal: why it may not, where it may not
    """

    direction: str
    what: str
    place: str
    effect: str
    refusal: str | None = None


def crossings(
    meta: RunbookMeta, policies: Sequence[Policy], settings: Settings, environ: Mapping[str, str]
) -> Iterator[Crossing]:
    """Everything a runbook takes in and sends out by itself, and what policies and settings say about it."""
    for name, block in meta.inputs.items():
        effect = effect_of(block.from_ or "")
        if block.from_ is not None and effect is not None:
            yield Crossing("enters", name, block.from_, effect, binding_refusal(block.from_, policies))
    for category, notice in notices_of(meta.on_outcome).items():
        template = _address(notice)
        if template is not None:
            refusal = _refused_webhook(notice, template, policies, settings, environ)
            yield Crossing("leaves", f"webhook on {category}", shown(template), "network", refusal)


def require_webhooks(
    meta: RunbookMeta, policies: Sequence[Policy], settings: Settings, environ: Mapping[str, str]
) -> None:
    """Refuse a runbook whose own webhooks may not be sent, before anything runs."""
    for each in crossings(meta, policies, settings, environ):
        if each.direction == "leaves" and each.refusal is not None:
            hint = "a webhook under `on_outcome` in the configuration needs no permission and stops no run"
            raise UsageError(f"the {each.what} of the runbook: {each.refusal}", hint=hint)


def _address(notice: OutcomeNotice) -> str | None:
    return notice.webhook or (PAGERDUTY if notice.pagerduty_routing_key else None)


def _refused_webhook(
    notice: OutcomeNotice, template: str, policies: Sequence[Policy], settings: Settings, environ: Mapping[str, str]
) -> str | None:
    # A value of the environment leaves in the address or the key, so both effects are checked.
    reads = "${" in template or notice.pagerduty_routing_key is not None
    for effect in ("network", "environment") if reads else ("network",):
        refusal = crossing_refusal(effect, policies)
        if refusal is not None:
            return refusal
    unset = None
    try:
        address = expand(template, environ).text
        expand(notice.pagerduty_routing_key or "", environ)
    except InputError as problem:
        unset = f"{problem.message}, so the webhook cannot be sent"
        address = with_placeholders(template)
    return _refused_host(address, template, settings) or unset


def _refused_host(address: str, template: str, settings: Settings) -> str | None:
    try:
        host, port = destination(address)
    except InputError:
        return None  # nothing is sent to it, which the run records
    # What a variable holds may be a secret, so the address is shown as it is written.
    if not _allows(settings.webhook_hosts, host, port):
        return f"no configuration allows the host of `{shown(template)}`; add it to `webhook_hosts` in the project"
    for project, hosts in settings.outer_hosts.items():
        if not _allows(hosts, host, port):
            return f"`{project}` does not allow the host of `{shown(template)}`; add it to `webhook_hosts` there, too"
    return None


def _allows(hosts: Iterable[str], host: str, port: int) -> bool:
    allowed = {each.lower() for each in hosts}
    return host in allowed or f"{host}:{port}" in allowed
