"""Write a software bill of materials (CycloneDX 1.6, JSON) of gert and what it installs, from uv.lock.

It lists what an installation with every extra needs, with the version of each package and the address and hash of
each of its files. Tools of developers are left out. Nothing is looked up: what it says is what the lock file pins.
"""

import json
import tomllib
import uuid
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
HASHES = {"sha256": "SHA-256", "sha512": "SHA-512"}


def bill(version: str) -> dict[str, Any]:
    """Give the bill for a version of gert."""
    packages = tomllib.loads((ROOT / "uv.lock").read_text(encoding="utf-8"))["package"]
    by_name: dict[str, list[dict[str, Any]]] = {}
    for package in packages:
        by_name.setdefault(package["name"], []).append(package)
    [gert] = by_name["gert"]
    first = [each for group in [gert["dependencies"], *gert["optional-dependencies"].values()] for each in group]
    needed = _needed(first, by_name)
    components = [_component(package) for package in needed]
    relations = [
        {"ref": _ref(package), "dependsOn": sorted({_ref(each) for each in _of(_all(package), by_name)})}
        for package in needed
    ]
    top = f"pkg:pypi/gert@{version}"
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        # The same lock file and version give the same bill.
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, json.dumps([version, components]))}",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": top,
                "name": "gert",
                "version": version,
                "purl": top,
                "licenses": [{"license": {"id": "MIT"}}],
            }
        },
        "components": components,
        "dependencies": [{"ref": top, "dependsOn": sorted({_ref(each) for each in _of(first, by_name)})}, *relations],
    }


def _all(package: dict[str, Any]) -> list[dict[str, Any]]:
    extras = [each for group in package.get("optional-dependencies", {}).values() for each in group]
    return [*package.get("dependencies", []), *extras]


def _of(wanted: list[dict[str, Any]], by_name: dict[str, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """The packages of the lock file that dependencies name; one of several versions where a marker chooses."""
    return [
        package
        for each in wanted
        for package in by_name.get(each["name"], [])
        if each.get("version") in (None, package["version"])
    ]


def _needed(first: list[dict[str, Any]], by_name: dict[str, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    waiting = _of(first, by_name)
    while waiting:
        package = waiting.pop()
        if _ref(package) not in found:
            found[_ref(package)] = package
            waiting += _of(_all(package), by_name)
    return [found[ref] for ref in sorted(found)]


def _ref(package: dict[str, Any]) -> str:
    return f"pkg:pypi/{package['name']}@{package['version']}"


def _component(package: dict[str, Any]) -> dict[str, Any]:
    files = [*package.get("wheels", []), *([package["sdist"]] if "sdist" in package else [])]
    return {
        "type": "library",
        "bom-ref": _ref(package),
        "name": package["name"],
        "version": package["version"],
        "purl": _ref(package),
        "externalReferences": [
            {
                "type": "distribution",
                "url": file["url"],
                "hashes": [{"alg": HASHES[file["hash"].partition(":")[0]], "content": file["hash"].partition(":")[2]}],
            }
            for file in files
        ],
    }
