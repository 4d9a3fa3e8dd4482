"""The memory and the experience of agents: one promise for every store, and what a file refuses."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from gert.agent import (
    ExperienceRule,
    InMemoryMemoryStore,
    MemoryStore,
    RuleType,
    SQLiteExperienceStore,
    SQLiteMemoryStore,
    SQLiteStore,
)
from gert.errors import InputError, TraceError

MakeStore = Callable[[Path], MemoryStore]


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda _: InMemoryMemoryStore(), id="in memory"),
        pytest.param(lambda folder: SQLiteMemoryStore(folder / "memory.db"), id="in a file"),
        pytest.param(lambda folder: SQLiteMemoryStore(":memory:", table_name="notes"), id="in SQLite's memory"),
    ],
)
def test_a_memory_is_kept_for_each_run(make: MakeStore, tmp_path: Path) -> None:
    async def main() -> None:
        store = make(tmp_path)
        assert await store.load("a") == ""
        await store.append("a", "web-1 is down")
        await store.append("a", "Ünïcode ☃ is kept")
        await store.append("b", "another run")
        assert await store.load("a") == "web-1 is down\nÜnïcode ☃ is kept"
        assert await store.search("a", "UNICODE ünïcode web-1 down") == "web-1 is down\nÜnïcode ☃ is kept"
        assert await store.search("a", "is", max_results=1) == "Ünïcode ☃ is kept"
        assert await store.search("a", "nothing like it") == ""
        await store.replace("a", "all is well")
        assert (await store.load("a"), await store.load("b")) == ("all is well", "another run")
        await store.close()

    asyncio.run(main())


def test_a_file_outlives_the_process_and_many_may_append(tmp_path: Path) -> None:
    async def main() -> None:
        stores = [SQLiteMemoryStore(tmp_path / "memory.db") for _ in range(3)]
        await asyncio.gather(*(store.append("r", f"{at}-{n}") for at, store in enumerate(stores) for n in range(5)))
        for store in stores:
            await store.close()
            await store.close()
        again = SQLiteMemoryStore(tmp_path / "memory.db")
        assert len((await again.load("r")).split("\n")) == 15
        await again.close()
        with pytest.raises(TraceError, match="is closed"):
            await again.load("r")

    asyncio.run(main())


def rule(name: str, **more: object) -> ExperienceRule:
    given = {"tenant_id": "acme", "task_category": "ops", "rule_type": RuleType.FACT, "content": name, **more}
    return ExperienceRule.model_validate({"rule_id": name, **given})


def test_rules_are_kept_by_tenant_and_category_and_the_most_useful_are_first(tmp_path: Path) -> None:
    async def main() -> None:
        store = SQLiteExperienceStore(tmp_path / "rules.db")
        await store.save_rules([rule("a"), rule("b"), rule("c", task_category="dev"), rule("d", tenant_id="other")])
        await store.reinforce_rule("b", positive=True)
        await store.reinforce_rule("a", positive=False)
        # Saved again, a rule keeps what was counted.
        await store.save_rules([rule("b", content="better")])
        found = await store.get_rules("acme", "ops")
        assert [(each.rule_id, each.content, each.success_count, each.fail_count) for each in found] == [
            ("b", "better", 1, 0),
            ("a", "a", 0, 1),
        ]
        assert [each.rule_id for each in await store.get_rules("acme", "ops", limit=1)] == ["b"]
        with pytest.raises(InputError, match="no rule `z`"):
            await store.reinforce_rule("z", positive=True)
        with pytest.raises(InputError, match="belongs to another tenant"):
            await store.save_rules([rule("new"), rule("d")])
        assert "new" not in [each.rule_id for each in await store.get_rules("acme", "ops")], "all or none"
        await store.close()

    asyncio.run(main())


@pytest.mark.parametrize("name", ["", "a b", 'x"; DROP TABLE y; --', "1a", "sqlite_master", "x" * 64, "ä"])
def test_a_table_has_a_plain_name(name: str, tmp_path: Path) -> None:
    for kind in (SQLiteMemoryStore, SQLiteExperienceStore):
        with pytest.raises(InputError, match="not the name of a table"):
            kind(tmp_path / "x.db", table_name=name)


def test_a_ledger_is_no_place_for_memory(tmp_path: Path) -> None:
    async def main() -> None:
        async with SQLiteStore(str(tmp_path / "runs.db")) as store:
            await store.list_run_ids()
        with pytest.raises(InputError, match="is a ledger"):
            SQLiteMemoryStore(tmp_path / "runs.db")
        (tmp_path / "text.db").write_text("this is no database, whatever its name says" * 100)
        with pytest.raises(TraceError, match="is not a database"):
            SQLiteMemoryStore(tmp_path / "text.db")

    asyncio.run(main())
