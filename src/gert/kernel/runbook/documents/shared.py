"""Blocks that several documents share: secrets and outcome notices."""

from gert.kernel.runbook.kinds import BOOL, ENVIRONMENT_NAME, TEXT, ListOf, Nested, Word, words
from gert.kernel.runbook.model import Model, optional, required


class SecretBlock(Model):
    """A secret, named by the environment variable that holds it; its value is never recorded."""

    env: str = required(Word("an environment variable", pattern=ENVIRONMENT_NAME), "environment variable")
    description: str | None = optional(TEXT, "what the secret is for")
    required: bool = optional(BOOL, "whether a step fails without it", default=True)


SECRETS = ListOf(Nested(SecretBlock))

# Plain http only to this machine; a secret part of the URL comes from `${NAME}`.
WEBHOOK_URL = r"^(https://|http://(localhost|127\.0\.0\.1|\[::1\])([:/]|$)|\$\{)"
# The whole key is a secret, so no document contains it.
KEY_REFERENCE = r"^\$\{[A-Za-z_][A-Za-z0-9_]{0,255}\}$"


class OutcomeNotice(Model):
    """Whom to notify when a run ends with an outcome of this category."""

    webhook: str | None = optional(
        Word("a URL", pattern=WEBHOOK_URL),
        "URL to post to: https, or http on loopback; `${NAME}` takes a secret from the environment",
    )
    pagerduty_severity: str | None = optional(
        words("critical", "error", "warning", "info"), "severity of the PagerDuty event"
    )
    pagerduty_routing_key: str | None = optional(
        Word("a reference such as `${PAGERDUTY_KEY}`", pattern=KEY_REFERENCE),
        "the PagerDuty integration key, taken from the environment; without `webhook`, the event is sent to PagerDuty",
    )


class OnOutcome(Model):
    """Whom to notify, by outcome category."""

    resolved: OutcomeNotice | None = optional(Nested(OutcomeNotice), "the problem is fixed")
    escalated: OutcomeNotice | None = optional(Nested(OutcomeNotice), "handed to another team")
    no_action: OutcomeNotice | None = optional(Nested(OutcomeNotice), "nothing had to be done")
    needs_rca: OutcomeNotice | None = optional(Nested(OutcomeNotice), "mitigated, root cause unknown")


class Notify(Model):
    """Whom to notify of runs that end without an outcome."""

    failed: OutcomeNotice | None = optional(Nested(OutcomeNotice), "the run failed, or ended in an error")
    denied: OutcomeNotice | None = optional(Nested(OutcomeNotice), "a policy denied a step (default: as `failed`)")
    rejected: OutcomeNotice | None = optional(
        Nested(OutcomeNotice), "an approval was rejected or not given in time (default: as `failed`)"
    )
