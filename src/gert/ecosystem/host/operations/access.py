"""What a caller may reach: one folder, the runbooks it may start, one ledger, and its name in the record."""

import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from gert.ecosystem.host.config.files import YAML_SUFFIXES, is_found_below
from gert.ecosystem.host.operations.catalogue import Catalogue
from gert.errors import GertError, UsageError
from gert.kernel.foundation.names import did_you_mean, is_run_id
from gert.kernel.foundation.principal import Principal
from gert.kernel.foundation.text import one_line

if TYPE_CHECKING:
    from gert.ecosystem.host.config.ledger_location import Database
    from gert.ecosystem.host.config.workspace import Workspace
    from gert.ecosystem.host.runs.place import Place

_LONGEST = 120


class Refused(GertError):
    """An operation that was not done: nothing happened.

    code: the reason, for programs; `field` is the parameter it is about
    retryable: the same call may succeed later
    """

    def __init__(
        self,
        code: str,
        message: str,
        *,
        field: str | None = None,
        hint: str | None = None,
        did_you_mean: tuple[str, ...] = (),
        retryable: bool = False,
        findings: list[dict[str, Any]] | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.code = code
        self.field = field
        self.did_you_mean = did_you_mean
        self.retryable = retryable
        self.findings = findings

    def as_json(self) -> dict[str, Any]:
        """The refusal as programs read it."""
        said = {
            "code": self.code,
            "message": self.message,
            "hint": self.hint,
            "field": self.field,
            "did_you_mean": list(self.did_you_mean),
            "retryable": self.retryable,
            "findings": self.findings,
        }
        return {name: value for name, value in said.items() if value not in (None, [])}


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """What one caller may do, and as whom.

    root: the only folder whose files it reaches; a real path
    allow: the runbooks it may start and resume, as real paths; None for all below the root
    caller: its principal in the record; None for a person at this machine
    policies: policy files that join the floor of every run it starts
    require_signed: approvals of its runs need a signature
    """

    root: str
    environ: Mapping[str, str]
    catalogue: Catalogue
    caller: Principal | None = None
    allow: frozenset[str] | None = None
    read_only: bool = False
    policies: tuple[str, ...] = ()
    require_signed: bool = False
    state_dir: str | None = None
    db: str | None = None
    dsn: str | None = None

    @property
    def place(self) -> "Place":
        """Where its runs are recorded."""
        from gert.ecosystem.host.runs.place import place_for

        return place_for(self.state_dir, self.db, self.environ, self.dsn)

    @property
    def database(self) -> "Database":
        """The ledger of its runs."""
        return self.place.ledger

    def workspace(self, *, closed: bool = False) -> "Workspace":
        """Loads and validates documents, relative to the root; `closed` finds no tool outside of it."""
        from gert.ecosystem.host.config.workspace import Workspace

        return Workspace(self.root, within=self.root if closed else None)

    def reaches(self, path: str) -> bool:
        """Whether a path leads to something below the root, links included."""
        return self.contains(os.path.realpath(path))

    def file(self, path: str, field: str = "path") -> str:
        """The real path of a file below the root; refused outside of it, also behind links."""
        try:
            found = os.path.realpath(os.path.join(self.root, path))
        except (OSError, ValueError):
            raise Refused("unknown_path", f"`{one_line(path, _LONGEST)}` is not a path", field=field) from None
        if not self.contains(found):
            raise Refused(
                "outside_root",
                f"`{one_line(path, _LONGEST)}` lies outside the folder that is served",
                field=field,
                hint="name a file below it; `gert_list_runbooks` lists runbooks",
            )
        if not os.path.exists(found) or (self.caller is not None and not is_found_below(self.root, found)):
            raise Refused("unknown_path", f"there is no `{one_line(path, _LONGEST)}`", field=field)
        return found

    def contains(self, path: str) -> bool:
        """Whether a real path lies below the root."""
        return path == self.root or path.startswith(self.root.rstrip(os.sep) + os.sep)

    def runbook(self, named: str) -> str:
        """The file of a runbook, by its path below the root or by its name."""
        if named.endswith(YAML_SUFFIXES) or os.sep in named:
            try:
                return self.file(named)
            except Refused as refused:
                if refused.code != "unknown_path":
                    raise
        names = self.catalogue.runbooks_by_name()
        found = names.get(named, [])
        if len(found) == 1:
            return found[0]
        if found:
            shown = ", ".join(self.shown(each) for each in found)
            raise Refused("ambiguous_runbook", f"several runbooks have the name `{named}`", field="path", hint=shown)
        guess = did_you_mean(named, names) if len(named) <= _LONGEST else None
        raise Refused(
            "unknown_runbook",
            f"no runbook `{one_line(named, _LONGEST)}`",
            field="path",
            did_you_mean=(guess,) if guess else (),
            hint="`gert_list_runbooks` lists them",
        )

    def shown(self, path: str) -> str:
        """A path as the caller knows it: below the root."""
        return os.path.relpath(path, self.root)

    def require_write(self) -> None:
        """Refuse what changes something, where only reading is allowed."""
        if self.read_only:
            raise Refused("read_only", "this server only reads", hint="it was started with --read-only")

    def may_start(self, runbook: str) -> bool:
        """Whether --allow names a runbook, or names none."""
        return self.allow is None or runbook in self.allow

    def require_allowed(self, runbook: str) -> None:
        """Refuse a runbook that the caller may not start."""
        self.require_write()
        if not self.may_start(runbook):
            raise Refused(
                "not_allowed",
                f"the runbook `{self.shown(runbook)}` may not be started here",
                field="path",
                hint="the server was started with --allow",
            )

    def require_run_id(self, run_id: str) -> str:
        """Refuse what cannot be the id of a run."""
        if not is_run_id(run_id):
            raise Refused("unknown_run", f"`{one_line(run_id, _LONGEST)}` is not a run id", field="run_id")
        return run_id


def open_access(
    root: str,
    *,
    policies: Iterable[str] = (),
    state_dir: str | None = None,
    db: str | None = None,
    dsn: str | None = None,
    **rights: Any,
) -> Access:
    """Work in a folder, and serve only what is in it; other paths are relative to where the server was started."""
    base, real = os.getcwd(), os.path.realpath(root)
    if not os.path.isdir(real):
        raise UsageError(f"there is no folder `{root}`")
    os.chdir(real)
    return Access(
        root=real,
        environ=os.environ,
        catalogue=Catalogue(real),
        policies=tuple(os.path.join(base, each) for each in policies),
        state_dir=os.path.join(base, state_dir) if state_dir else None,
        db=os.path.join(base, db) if db else None,
        dsn=dsn,
        **rights,
    )
