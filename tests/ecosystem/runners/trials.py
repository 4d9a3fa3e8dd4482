"""One plan in this process: made, authorized and executed by the real procedure, with one thing wrong at a time."""

import asyncio
import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from tests.ecosystem.runners.bench import PING, SEED, Bench

from gert.ecosystem.host.config.workspace import Workspace
from gert.ecosystem.host.runner.project import RunnerProject
from gert.ecosystem.host.runner.spend import FolderSpend
from gert.ecosystem.runners.procedure import Finished, run_plan
from gert.ecosystem.runners.sandbox import Machine, probe
from gert.ecosystem.runners.secrets import Resolving
from gert.ecosystem.runners.verification import Invocation, Runner, Spend
from gert.kernel.foundation.canonical import canonical
from gert.kernel.foundation.signature import Key, Keys, parse_key
from gert.kernel.runner.authorization import Authorization, Grant, authorize, encode_authorization
from gert.kernel.runner.plan import Order, Plan, make_plan, plan_bytes, plan_data

NOON = datetime(2026, 2, 28, 12, 0, tzinfo=UTC)
DAY = "2026-02-28"
KEY = parse_key(SEED)


class Trial:
    """A plan of the bench's skill, its authorization, and a runner; change any of them, then run."""

    def __init__(self, bench: Bench, plan_id: str = "plan-1", *, skill: str = PING, **order: Any) -> None:
        self.bench = bench
        self.project = RunnerProject(
            str(bench.root), environ={}, state=str(bench.root), workspace=Workspace(str(bench.root))
        )
        lookup = self.project.skill(skill)
        given = {"word": "hi"} if skill == PING else {}
        ledger = order.pop("ledger", None)
        asked = Order(
            plan_id=plan_id,
            skill_id=skill,
            inputs=order.pop("inputs", given),
            day=DAY,
            secret_ref=order.pop("secret_ref", bench.ref),
            **order,
        )
        self.plan: Plan = make_plan(asked, lookup.document.model, lookup.document.digest, self.project.runners, ledger)
        self.data = plan_bytes(self.plan)
        self.key: Key = KEY
        self.keys = Keys(default=parse_key(KEY.public_text or ""))
        self.grant = Grant(verdict="allow")
        self.signed_at = NOON
        self.now = NOON + timedelta(seconds=1)
        self.given: dict[str, Any] = {}
        self.spend: Spend = FolderSpend(str(bench.root))
        self.resolving = Resolving(environ={"PATH": "/usr/bin:/bin"}, sources=None)
        self.stop: asyncio.Event | None = None
        self.observe: Callable[[str], object] = lambda _: None
        self.lookup: Callable[[str], Any] | None = None
        self.probe: Any = probe
        self.state = str(bench.root)

    def change(self, **fields: Any) -> "Trial":
        """Change the plan, and sign it as it is then."""
        self.plan = msgspec.structs.replace(self.plan, **fields)
        self.data = plan_bytes(self.plan)
        return self

    def rewrite(self, **fields: Any) -> "Trial":
        """Change the file of the plan after it was signed."""
        self.authorization()
        document = {**plan_data(self.plan), **fields}
        self.data = canonical(document)
        return self

    _signed: Authorization | None = None

    def authorization(self) -> Authorization:
        if self._signed is None:
            self._signed = authorize(self.plan, self.grant, self.key, self.signed_at)
        return self._signed

    def resign(self, **fields: Any) -> "Trial":
        """Change the authorization after it was signed."""
        self._signed = msgspec.structs.replace(self.authorization(), **fields)
        return self

    def invocation(self) -> Invocation:
        return Invocation(
            **{
                "authorization": encode_authorization(self.authorization()),
                "plan": self.data,
                "runner_id": "local",
                "secret_ref": self.plan.secret_ref,
                "scope": self.plan.scope,
                "ttl_seconds": self.plan.ttl_seconds,
                **self.given,
            }
        )

    def runner(self) -> Runner:
        return Runner(
            keys=self.keys,
            runners=self.project.runners,
            skills=self.project.skills.get,
            policies=self.project.secrets_policies,
            spend=self.spend,
            state=self.state,
            clock=lambda: self.now,
            resolving=self.resolving,
            host="bench",
            version="gert test",
            stop=self.stop or asyncio.Event(),
            observe=self.observe,
            lookup=self.lookup,
            probe=self.probe,
        )

    async def runs(self) -> Finished:
        return await run_plan(self.invocation(), self.runner())

    def run(self) -> Finished:
        return asyncio.run(self.runs())

    def said(self) -> str:
        """How it ended, in one line: exit code, rule, message."""
        return words(self.run())

    def artifact(self, name: str) -> Any:
        return json.loads((self.bench.root / getattr(self.plan.artifacts, name)).read_text())


def words(finished: Finished) -> str:
    if finished.record is not None:
        return f"{finished.record.exit_code} {finished.record.rule} {finished.record.message}"
    refusal = finished.refusal
    return f"{int(finished.exit_code)} {getattr(refusal, 'rule', None)} {getattr(refusal, 'message', '')}"


async def addresses(*found: str) -> Sequence[str]:
    return found


def machine(flaw: str | None) -> Callable[[], Any]:
    async def look() -> Machine:
        return Machine("/usr/bin/bwrap", flaw)

    return look
