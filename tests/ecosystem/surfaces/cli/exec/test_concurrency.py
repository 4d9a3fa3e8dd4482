"""Lanes as real processes: never more than allowed, never two that conflict, and really at the same time."""

from itertools import combinations
from typing import Any

import pytest
from tests.ecosystem.surfaces.cli.workbench import Project, note, of_type

# Notes when it starts and when it ends, and meanwhile how many others are there.
COUNTS = """
mkdir -p "$3/now"; : > "$3/now/$1"
ls "$3/now" | wc -l >> "$3/counts"
echo "start $1" >> "$3/log"
sleep 0.08
echo "end $1" >> "$3/log"
rm "$3/now/$1"
"""
# Waits until all of so many are there: it ends only if they run at the same time.
MEETS = """
mkdir -p "$3/met"; : > "$3/met/$1"
n=0; while [ "$(ls "$3/met" | wc -l)" -lt "$4" ]; do sleep 0.02; n=$((n+1)); [ $n -lt 500 ] || exit 1; done
echo "$1" >> "$2"
"""


class Lanes:
    """A runbook with a parallel block of these tools."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.place = project.root / "place"
        self.place.mkdir()

    def tool(self, name: str, source: str, *more: str, **contract: Any) -> None:
        self.project.tool(
            name,
            ["sh", "-c", source, "sh", "{{ .word }}", str(self.project.effects), str(self.place), *more],
            inputs={"word": {"type": "string", "required": True}},
            contract={"effects": ["files"], "writes": [], **contract},
        )

    def run(self, lanes: dict[str, list[dict[str, Any]]], *words: str) -> None:
        block = {"id": "all", "type": "parallel", "branches": [{"label": k, "steps": v} for k, v in lanes.items()]}
        tools = sorted(path.name.removesuffix(".tool.yaml") for path in (self.project.root / "tools").iterdir())
        self.project.runbook(block, tools=tools)
        self.project.exec(*words).ended(0)

    def spans(self) -> dict[str, tuple[int, int]]:
        """When each started and ended, in turns."""
        lines = [line.split() for line in (self.place / "log").read_text().splitlines()]
        starts = {name: at for at, (what, name) in enumerate(lines) if what == "start"}
        return {name: (starts[name], at) for at, (what, name) in enumerate(lines) if what == "end"}

    def most(self) -> int:
        return max(int(line) for line in (self.place / "counts").read_text().split())


@pytest.fixture
def lanes(project: Project) -> Lanes:
    return Lanes(project)


def overlap(one: tuple[int, int], other: tuple[int, int]) -> bool:
    return one[0] < other[1] and other[0] < one[1]


def lane(tool: str, *words: str) -> list[dict[str, Any]]:
    return [note(word, tool=tool, scope=word) for word in words]


@pytest.mark.parametrize("most", [1, 2, 3])
def test_no_more_lanes_run_at_once_than_are_allowed(lanes: Lanes, most: int) -> None:
    lanes.tool("counts", COUNTS)
    lanes.run({f"l{n}": lane("counts", f"w{n}", f"v{n}") for n in range(5)}, "--max-parallel", str(most))
    assert lanes.most() <= most
    assert len(lanes.spans()) == 10


def test_no_more_items_of_a_loop_run_at_once_than_are_allowed(lanes: Lanes) -> None:
    lanes.tool("counts", COUNTS)
    loop = note(
        "each", "{{ .item }}", tool="counts", for_each={"as": "item", "over": list("abcdefg"), "parallel": True}
    )
    lanes.project.runbook(loop, tools=["counts"])
    lanes.project.exec("--max-parallel", "3").ended(0)
    assert lanes.most() <= 3
    assert set(lanes.spans()) == set("abcdefg")


def test_nested_blocks_share_one_bound_and_do_not_starve(lanes: Lanes) -> None:
    lanes.tool("counts", COUNTS)
    inner = {
        f"outer{n}": [
            {
                "id": f"inner{n}",
                "type": "parallel",
                "branches": [{"label": f"x{m}", "steps": lane("counts", f"w{n}{m}")} for m in range(3)],
            }
        ]
        for n in range(3)
    }
    lanes.run(inner, "--max-parallel", "2")
    assert lanes.most() <= 2
    assert len(lanes.spans()) == 9


@pytest.mark.parametrize("count", [2, 4])
def test_independent_lanes_really_run_at_the_same_time(lanes: Lanes, count: int) -> None:
    lanes.tool("meets", MEETS, str(count))
    lanes.run({f"l{n}": lane("meets", f"w{n}") for n in range(count)})
    assert sorted(lanes.project.noted()) == [f"w{n}" for n in range(count)]


def test_items_of_a_parallel_loop_really_run_at_the_same_time(lanes: Lanes) -> None:
    lanes.tool("meets", MEETS, "3")
    loop = note("each", "{{ .item }}", tool="meets", for_each={"as": "item", "over": list("abc"), "parallel": True})
    lanes.project.runbook(loop, tools=["meets"])
    lanes.project.exec().ended(0)
    assert sorted(lanes.project.noted()) == list("abc")


def test_lanes_that_conflict_never_overlap_and_keep_their_order_while_others_run(lanes: Lanes) -> None:
    lanes.tool("door", COUNTS, writes=["door"])
    lanes.tool("peek", COUNTS, reads=["door"])
    lanes.tool("free", COUNTS)
    lanes.tool("meets", MEETS, "2")
    lanes.run(
        {
            "first": lane("door", "d1", "d2"),
            "free": lane("free", "f1", "f2"),
            "second": lane("door", "d3"),
            "reader": lane("peek", "p1"),
            "one": lane("meets", "m1"),
            "two": lane("meets", "m2"),
        }
    )
    spans = lanes.spans()
    guarded = ["d1", "d2", "d3", "p1"]
    assert [pair for pair in combinations(guarded, 2) if overlap(spans[pair[0]], spans[pair[1]])] == []
    assert sorted(guarded, key=lambda name: spans[name]) == guarded
    # Those two met, so what conflicts did not keep what does not from running.
    assert sorted(lanes.project.noted()) == ["m1", "m2"]
    (fork,) = of_type(lanes.project.run().events(), "parallel_fork")
    assert fork["data"]["serialized"]


def test_readers_do_not_wait_for_each_other(lanes: Lanes) -> None:
    lanes.tool("meets", MEETS, "2", reads=["door"])
    lanes.run({"one": lane("meets", "a"), "two": lane("meets", "b")})
    assert sorted(lanes.project.noted()) == ["a", "b"]


def test_the_trace_of_lanes_verifies_and_tells_every_step(lanes: Lanes) -> None:
    lanes.tool("counts", COUNTS)
    lanes.run({f"l{n}": lane("counts", f"w{n}", f"v{n}") for n in range(4)})
    lanes.project.verifies()
    done = [e["data"]["step_id"] for e in of_type(lanes.project.run().events(), "step_complete")]
    assert sorted(name for name in done if name[0] in "vw") == [f"{letter}{n}" for letter in "vw" for n in range(4)]
