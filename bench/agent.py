"""Agent runs: model steps, replay and long runs, beside the commits they cannot do without."""

import asyncio
import sys
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path

from pydantic import BaseModel

from bench.ledger import AT_ONCE, WINDOW, bare_postgres, bare_sqlite
from bench.pairs import Work, paired
from bench.ratio import Ratio, report, timed_commands
from gert.agent import (
    ArtanaKernel,
    BoundRun,
    IntentPlanRecord,
    IntentRequirement,
    InvariantRule,
    KernelPolicy,
    MockModelPort,
    PostgresStore,
    SafetyPolicyConfig,
    SafetyPolicyMiddleware,
    SemanticIdempotencyRequirement,
    SQLiteStore,
    TenantContext,
    ToolLimitPolicy,
    ToolSafetyPolicy,
)

TENANT = TenantContext(tenant_id="acme", budget_usd_limit=1000)
STEPS = 1000
LONG = 50_000
SHORT = 100
LATE = 10_000_000
EPOCH = datetime(2030, 1, 1, tzinfo=UTC)
EVENTS_PER_STEP = 3
FLOOR_IMPORTS = "import asyncio, sqlite3, pydantic, msgspec"
USED = "import gert.agent as a; a.ArtanaKernel, a.SQLiteStore, a.TenantContext, a.MockModelPort"


class Verdict(BaseModel):
    """What the mock model answers."""

    healthy: bool
    note: str


def kernel_on(store: SQLiteStore | PostgresStore) -> ArtanaKernel:
    """A kernel whose model answers at once."""
    return ArtanaKernel(store=store, model_port=MockModelPort(output={"healthy": True, "note": "all pods are up"}))


async def steps(run: BoundRun, first: int, number: int) -> None:
    """So many model steps."""
    for n in range(first, first + number):
        await run.model("mock", f"Is pod {n} healthy? Answer with a verdict.", Verdict, step_key=f"pod_{n}")


def stepping(run: BoundRun, number: int = WINDOW, first: int = 0) -> Work:
    """Windows of model steps, each of steps that were never taken."""
    taken = first

    async def work() -> None:
        nonlocal taken
        await steps(run, taken, number)
        taken += number

    return work


def asking(run: BoundRun) -> Work:
    """A window of questions about a run."""

    async def work() -> None:
        for _ in range(WINDOW):
            await run.status()
            await run.progress()

    return work


async def durable_steps(name: str, store: SQLiteStore | PostgresStore, floor: Work) -> list[Ratio]:
    """What a model step costs beside one commit: in one run, and in several a worker drives at once."""
    async with kernel_on(store) as kernel, kernel.run(tenant=TENANT, run_id="bench-steps") as run:
        ratios = [await paired(f"a durable model step / a bare {name} commit", stepping(run), floor, 1 / 0.35)]
        for n in range(AT_ONCE):
            await kernel.start_run(tenant=TENANT, run_id=f"bench-{n}")
        windows = [stepping(kernel.bind(run_id=f"bench-{n}", tenant=TENANT), WINDOW // AT_ONCE) for n in range(AT_ONCE)]

        async def at_once() -> None:
            await asyncio.gather(*(window() for window in windows))

        ratios.append(await paired(f"the same, in {AT_ONCE} runs at once", at_once, floor, 1 / 0.35))
    return ratios


async def replaying(folder: Path) -> Ratio:
    """What a run costs the second time."""
    async with kernel_on(SQLiteStore(folder / "replay.db")) as kernel:
        rounds = 0

        async def live() -> None:
            nonlocal rounds
            rounds += 1
            async with kernel.run(tenant=TENANT, run_id=f"replay-{rounds}") as run:
                await steps(run, 0, STEPS)

        async def again() -> None:
            # As after a restart: nothing is remembered.
            async with (
                kernel_on(SQLiteStore(folder / "replay.db")) as fresh,
                fresh.run(tenant=TENANT, run_id=f"replay-{rounds}") as run,
            ):
                await steps(run, 0, STEPS)

        return await paired(f"replaying {STEPS:,} steps / taking them", again, live, 0.2, 3)


async def growing(folder: Path) -> list[Ratio]:
    """What a step costs late in a long run, for whoever wrote it and for whoever takes over; and asking about it.

    Not durable: beside a slow disk nothing else would show.
    """
    path = folder / "long.db"
    async with (
        kernel_on(SQLiteStore(path, sync=False)) as kernel,
        kernel.run(tenant=TENANT, run_id="long") as long,
        kernel.run(tenant=TENANT, run_id="short") as short,
    ):
        await steps(long, 0, LONG // EVENTS_PER_STEP)
        await steps(short, 0, SHORT // EVENTS_PER_STEP)
        ratios = [
            await paired(f"a step at event {LONG:,} / at event {SHORT}", late(long), late(short), 1.2),
            await paired(f"status and progress at event {LONG:,} / early", asking(long), asking(short), 1.2),
        ]
    async with kernel_on(SQLiteStore(path, sync=False)) as kernel:
        long = kernel.bind(run_id="long", tenant=TENANT)
        async with kernel.run(tenant=TENANT, run_id="other") as short:
            await steps(short, 0, SHORT // EVENTS_PER_STEP)
            name = f"the same for whoever takes over at event {LONG:,}"
            ratios.append(await paired(name, stepping(long, first=2 * LATE), late(short), 1.2))
    return ratios


def late(run: BoundRun) -> Work:
    """Steps with keys nobody has used."""
    return stepping(run, first=LATE)


class Invoice(BaseModel):
    """What the tool of the policy is called with."""

    number: int
    to: str = "ann@example.com"
    amount: float = 1.0
    confirmed: bool = True


POLICY = ToolSafetyPolicy(
    intent=IntentRequirement(),
    semantic_idempotency=SemanticIdempotencyRequirement(template="invoice:{tenant_id}:{number}"),
    limits=ToolLimitPolicy(
        max_calls_per_run=LATE,
        max_calls_per_tenant_window=LATE,
        tenant_window_seconds=1,
        max_amount_usd_per_call=10,
        amount_arg_path="amount",
    ),
    invariants=(
        InvariantRule(type="required_arg_true", field="confirmed"),
        InvariantRule(type="email_domain_allowlist", field="to", allowed_domains=("example.com",)),
        InvariantRule(type="recipient_must_be_verified", recipient_arg_path="to"),
        InvariantRule(type="custom_json_rule", json_path="amount", operator="lte", value_json="10"),
    ),
)
"""Every stage but the approval of a person, who takes longer than a ledger."""


def ticking() -> Callable[[], datetime]:
    """A clock that goes on by 10 ms with each look: some 20 calls a second, and not as many as a disk allows.

    A rate costs by what its window holds, which is at most its limit.
    """
    ticks = count()
    return lambda: EPOCH + timedelta(milliseconds=10 * next(ticks))


def invoicing(store: SQLiteStore | PostgresStore, *, policed: bool) -> ArtanaKernel:
    """A kernel with one tool: under `enforced_v2` and all middleware, or under no policy at all."""
    safety = SafetyPolicyMiddleware(config=SafetyPolicyConfig(tools={"invoice": POLICY}))
    kernel = ArtanaKernel(
        store=store,
        model_port=MockModelPort(),
        middleware=ArtanaKernel.default_middleware_stack(safety=safety) if policed else (),
        policy=KernelPolicy.enforced_v2() if policed else None,
    )

    @kernel.tool()
    async def invoice(number: int, to: str, amount: float, confirmed: bool) -> str:
        """Send an invoice."""
        return "sent"

    return kernel


def calling(run: BoundRun, first: int = 0) -> Work:
    """Windows of tool steps, each of calls that were never made."""
    taken = first

    async def work() -> None:
        nonlocal taken
        for n in range(taken, taken + WINDOW):
            await run.tool("invoice", Invoice(number=n), step_key=f"invoice_{n}")
        taken += WINDOW

    return work


async def prepared(run: BoundRun) -> BoundRun:
    """A run with a plan and a verified recipient."""
    texts = dict.fromkeys(("goal", "why", "success_criteria", "assumed_state"), "invoices are sent")
    intent = IntentPlanRecord(intent_id="plan", **texts)  # type: ignore[arg-type]
    await run.kernel.record_intent_plan(run_id=run.run_id, tenant=TENANT, intent=intent)
    await run.kernel.append_run_summary(
        run_id=run.run_id,
        tenant=TENANT,
        summary_type="policy::recipient_verification",
        summary_json='{"recipient":"ann@example.com","verified":true}',
    )
    return run


async def policing(
    name: str, one: SQLiteStore | PostgresStore, two: SQLiteStore | PostgresStore, late: int = LONG
) -> list[Ratio]:
    """What a tool step costs under a policy, beside one without; early in a run, and late."""
    async with (
        invoicing(one, policed=True) as policed,
        invoicing(two, policed=False) as free,
        policed.run(tenant=TENANT, run_id="policed") as ours,
        free.run(tenant=TENANT, run_id="free") as floor,
    ):
        await prepared(ours)
        label = f"a tool step under enforced_v2 / without a policy, {name}"
        ratios = [await paired(label, calling(ours), calling(floor), 1.5, 5)]
        for run in (ours, floor):
            more = calling(run, LATE)
            while (await run.status()).last_event_seq < late:
                await more()
        label = f"the same at event {late:,}, {name}"
        return [*ratios, await paired(label, calling(ours, 2 * LATE), calling(floor, 2 * LATE), 1.5, 5)]


def importing() -> list[Ratio]:
    """What `import gert.agent` costs, bare and with the names every program uses."""
    floor, bare, used = timed_commands(
        [[sys.executable, "-c", code] for code in (FLOOR_IMPORTS, "import gert.agent", USED)], rounds=9
    )
    return [
        Ratio("import gert.agent / what it stands on", bare, floor, 1.5),
        # Not promised: pydantic builds a class for each documented shape.
        Ratio("the same with kernel, store and model in hand", used, floor, 4),
    ]


async def on_sqlite(folder: Path) -> list[Ratio]:
    """Everything SQLite is measured by."""
    connection, floor = bare_sqlite(folder / "bare.db")
    ratios = [*await durable_steps("SQLite", SQLiteStore(folder / "steps.db"), floor), await replaying(folder)]
    connection.close()
    ours, free = (SQLiteStore(folder / name, clock=ticking()) for name in ("policed.db", "free.db"))
    policed = await policing("SQLite", ours, free)
    return ratios + policed + await growing(folder)


async def on_postgres(dsn: str) -> list[Ratio]:
    """Everything Postgres is measured by."""
    connection, floor = await bare_postgres(dsn)
    ratios = await durable_steps("Postgres", PostgresStore(dsn), floor)
    await connection.close()
    # Not as late as on SQLite: a server takes its time, and the statements are the same.
    ours, free = (PostgresStore(dsn, schema=name, clock=ticking()) for name in ("policed", "free"))
    return ratios + await policing("Postgres", ours, free, late=STEPS)


def main() -> int:
    """Measure and report."""
    from bench.server import postgres

    with tempfile.TemporaryDirectory() as name, postgres() as dsn:
        ratios = importing() + asyncio.run(on_sqlite(Path(name)))
        if dsn is not None:
            ratios += asyncio.run(on_postgres(dsn))
        return report(ratios)
