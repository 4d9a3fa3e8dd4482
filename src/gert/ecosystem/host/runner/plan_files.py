"""Plans and authorizations as files: the bytes of a plan are its canonical form, so its digest is that of its file."""

import os
import stat
from typing import Final

from gert.ecosystem.host.config.files import write_new
from gert.ecosystem.runners.artifacts import StateFolder
from gert.errors import Refused, UsageError
from gert.kernel.runner.authorization import MAX_BYTES, Authorization, encode_authorization, read_authorization
from gert.kernel.runner.plan import MAX_PLAN_BYTES, STATE, Plan, day_of, plan_bytes, read_plan

PLANS: Final = "plans"
PLAN_SUFFIX: Final = ".plan.json"
AUTHORIZATION_SUFFIX: Final = ".auth.json"


def authorization_file(plan_file: str) -> str:
    """The file of the authorization of a plan: beside the plan."""
    return plan_file.removesuffix(".json") + AUTHORIZATION_SUFFIX


def stored_plan(plan_id: str) -> str:
    """Where a plan is kept below the state directory."""
    return f"{STATE}/{PLANS}/{plan_id}{PLAN_SUFFIX}"


def read_file(path: str, most: int) -> bytes:
    """Read a regular file without blocking; UsageError where there is none."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise UsageError(f"there is no file `{path}`") from None
    except (OSError, ValueError) as problem:
        why = (getattr(problem, "strerror", None) or "it is not a path").lower()
        raise UsageError(f"`{path}` cannot be read: {why}") from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise UsageError(f"`{path}` is not a regular file")
    with open(descriptor, "rb") as file:
        return file.read(most + 1)


def load_plan(path: str) -> Plan:
    """Read the plan in a file."""
    return read_plan(read_file(path, MAX_PLAN_BYTES))


def load_authorization(plan_file: str) -> Authorization:
    """Read the authorization beside a plan; Refused where there is none."""
    try:
        data = read_file(authorization_file(plan_file), MAX_BYTES)
    except UsageError:
        raise Refused(
            "authorization/absent", f"`{plan_file}` is not authorized", hint=f"gert plan approve {plan_file}"
        ) from None
    return read_authorization(data)


def store_plan(state: str, plan: Plan) -> str:
    """Keep a plan below the state directory and return its file; the same plan may be there already."""
    path = stored_plan(plan.plan_id)
    with StateFolder(state) as folder:
        found = folder.read(path)
        if found is None:
            folder.write(path, plan_bytes(plan))
        elif found != plan_bytes(plan):
            raise Refused("plan/exists", f"there is another plan `{plan.plan_id}` in `{state}`")
    return os.path.join(state, path)


def planned_day(state: str, plan_id: str) -> str | None:
    """The day of a plan that was kept before, so that the same call is the same plan on another day."""
    with StateFolder(state) as folder:
        data = folder.read(stored_plan(plan_id))
    return day_of(read_plan(data)) if data is not None else None


def write_authorization(plan_file: str, authorization: Authorization) -> str:
    """Write the authorization beside its plan; a new one replaces an old one, whole."""
    path = authorization_file(plan_file)
    partial = f"{path}.{os.getpid()}.partial"
    write_new(partial, encode_authorization(authorization))
    os.replace(partial, path)
    return path
