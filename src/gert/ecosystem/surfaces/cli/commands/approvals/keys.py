"""`gert keys`: create, show and list signing keys, without ever showing a secret."""

import base64
import os
import secrets
import sys
from typing import Any, Final

import click

from gert.ecosystem.host.config.files import write_new
from gert.ecosystem.host.config.keys.approval_keys import NAMED_KEY, OWNER, named_key
from gert.ecosystem.host.config.keys.key_list import ListedKey, list_keys
from gert.ecosystem.host.shapes.approvals import KeyDocument
from gert.ecosystem.surfaces.cli.render.output import print_error, print_json, print_line, print_pair
from gert.ecosystem.surfaces.cli.render.table import Cell, print_table
from gert.errors import UsageError
from gert.kernel.foundation.signature import (
    ED25519,
    HMAC_SHA256,
    Key,
    find_approval_key_names,
    find_key_names,
    parse_key,
)

_FORMS: Final = {ED25519: "ed25519", HMAC_SHA256: "base64"}
_as_json = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")


@click.group(epilog="Example: gert keys new --id ann --out ann.key")
def command() -> None:
    """Create, show and list the keys that sign traces and approvals."""


@command.command(epilog="Example: gert keys new --id ann --out ann.key")
@click.option(
    "--alg", type=click.Choice((ED25519, HMAC_SHA256)), default=ED25519, show_default=True, help="Signature algorithm."
)
@click.option("--id", "key_id", metavar="ID", help="Id of the key (default: the name of the file, or `default`).")
@click.option("--out", metavar="FILE", help="Write the secret to this new file instead of standard output.")
@_as_json
def new(alg: str, key_id: str | None, out: str | None, as_json: bool) -> int:
    """Create a key.

    gert writes the secret to a new file that only you can read, or to standard output, and shows the public part of an
    ed25519 key, which others need to verify. An hmac-sha256 key has no public part: a verifier can also sign.
    """
    if as_json and out is None:
        raise UsageError("`--json` requires `--out`", hint="name a file for the secret with --out")
    text = f"{_FORMS[alg]}:{base64.b64encode(secrets.token_bytes(32)).decode()}"
    key = parse_key(text, key_id or (None if out is None else os.path.splitext(os.path.basename(out))[0]))
    if out is not None:
        write_new(out, f"{text}\n".encode())
        if as_json:
            print_json({**_document(key), "file": out})
        else:
            _describe(key)
            print_pair("secret", f"in {out}; do not share it")
        return 0
    print_line(text)
    if sys.stdout.isatty():
        click.echo("this is the secret: do not share it, and clear your screen", err=True)
    if key.public_text is not None:
        click.echo(f"public: {key.public_text}", err=True)
    return 0


@command.command(epilog="Example: gert keys show ann.key")
@click.argument("named", metavar="FILE|VARIABLE")
@_as_json
def show(named: str, as_json: bool) -> int:
    """Show the id, algorithm and public part of a key."""
    key = named_key(named, os.environ)
    if as_json:
        print_json(_document(key))
    else:
        _describe(key)
    return 0


@command.command("list", epilog="Example: gert keys list")
@_as_json
def list_(as_json: bool) -> int:
    """List the keys in the environment; exit with 1 if one of them is invalid."""
    held = list_keys(os.environ)
    if as_json:
        print_json([{"variable": each.variable, "use": each.use, **_held(each.key, each.flaw)} for each in held])
    elif held:
        rows: list[list[Cell]] = [
            [
                each.variable,
                each.use,
                *((each.key.id, each.key.alg, _does(each.key)) if each.key is not None else ("", "", "")),
                _remark(each),
            ]
            for each in held
        ]
        print_table(("variable", "for", "id", "algorithm", "can", "remark"), rows, ("algorithm", "can", "id"))
    else:
        print_line("no keys are set")
    return 1 if any(each.key is None for each in held) else 0


def _remark(held: ListedKey) -> Cell:
    """What is wrong with a key, or the owner of a key for approvals."""
    if held.key is None:
        return held.flaw or "", "red"
    if held.key.is_weak:
        return "weak: too short", "yellow"
    if not held.variable.startswith(NAMED_KEY):
        return ""
    said = os.environ.get(held.variable.replace(NAMED_KEY, f"{OWNER}_"))
    return f"owner {said}" if said else ("no owner: it can approve as anyone", "yellow")


def _describe(key: Key) -> None:
    print_pair("id", key.id)
    print_pair("algorithm", key.alg)
    print_pair("can", _does(key))
    if key.public_text is not None:
        print_pair("public", key.public_text)
        approvals, traces = find_approval_key_names(key.id)[0], find_key_names(key.id)[0]
        owner = approvals.replace(NAMED_KEY, f"{OWNER}_")
        print_pair("approvals", f"set {approvals}={key.public_text} to verify them")
        print_pair("", f"and {owner}=ann@example.com, so that it can approve only as this person")
        print_pair("traces", f"set {traces} likewise, if traces are signed with GERT_TRACE_SIGNING_KEY_ID={key.id}")
        print_pair("plans", f"set GERT_PLAN_VERIFY_KEY={key.public_text} where runners verify plans")
    if key.is_weak:
        print_error("the key is weak: it is short enough to be guessed", "create a strong one with `gert keys new`")


def _document(key: Key) -> KeyDocument:
    return {
        "id": key.id,
        "algorithm": key.alg,
        "can_sign": key.can_sign,
        "public": key.public_text,
        "weak": key.is_weak,
    }


def _held(key: Key | None, flaw: str | None) -> dict[str, Any]:
    return {"flaw": flaw} if key is None else {**_document(key)}


def _does(key: Key) -> str:
    return "sign and verify" if key.can_sign else "verify"
