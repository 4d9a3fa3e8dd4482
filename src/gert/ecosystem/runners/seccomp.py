"""The system calls that a program in the sandbox may not make, as a filter that bubblewrap loads.

Inside the sandbox there is no network interface; the filter also forbids to make a socket that could have one, to get
another network namespace, and to go around the filter (io_uring, another architecture's calls).
"""

import platform
import struct
from collections.abc import Mapping
from typing import Final, NamedTuple

_LOAD: Final = 0x20  # BPF_LD | BPF_W | BPF_ABS
_JUMP_EQUAL: Final = 0x15  # BPF_JMP | BPF_JEQ | BPF_K
_JUMP_AT_LEAST: Final = 0x35  # BPF_JMP | BPF_JGE | BPF_K
_JUMP_ANY_BIT: Final = 0x45  # BPF_JMP | BPF_JSET | BPF_K
_RETURN: Final = 0x06  # BPF_RET | BPF_K
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16  # offsets in struct seccomp_data
_ALLOW: Final = 0x7FFF0000
_KILL: Final = 0x80000000
_ERROR: Final = 0x00050000
_EPERM, _ENOSYS, _EAFNOSUPPORT = 1, 38, 97
_AF_UNIX: Final = 1
_NEW_USER: Final = 0x10000000
_X32: Final = 0x40000000


class Calls(NamedTuple):
    """The numbers of system calls on one architecture.

    denied: calls that fail with EPERM
    absent: calls that fail as if the system did not have them, so that libraries use others
    """

    audit: int
    socket: int
    socketpair: int
    clone: int
    denied: tuple[int, ...]
    absent: tuple[int, ...] = (425, 426, 427, 435)  # io_uring_setup, io_uring_enter, io_uring_register, clone3


# ptrace, mount, umount2, pivot_root, add_key, request_key, keyctl, unshare, perf_event_open, setns, process_vm_readv,
# process_vm_writev, open_by_handle_at, kexec_load, bpf, userfaultfd, init_module, delete_module, finit_module, syslog,
# pidfd_getfd
_CALLS: Final[Mapping[str, Calls]] = {
    "x86_64": Calls(
        0xC000003E, 41, 53, 56,
        (101, 165, 166, 155, 248, 249, 250, 272, 298, 308, 310, 311, 304, 246, 321, 323, 175, 176, 313, 103, 438),
    ),
    "aarch64": Calls(
        0xC00000B7, 198, 199, 220,
        (117, 40, 39, 41, 217, 218, 219, 97, 241, 268, 270, 271, 265, 104, 280, 282, 105, 106, 273, 116, 438),
    ),
}  # fmt: skip


def sandbox_filter() -> bytes | None:
    """Return the filter for this architecture; None where its system calls are not known."""
    calls = _CALLS.get(platform.machine())
    return None if calls is None else b"".join(_program(calls))


def _program(calls: Calls) -> list[bytes]:
    rules: list[bytes] = [
        _step(_LOAD, _ARCHITECTURE),
        _step(_JUMP_EQUAL, calls.audit, 1, 0),
        _step(_RETURN, _KILL),
        _step(_LOAD, _NUMBER),
        # The calls of x32 have other numbers for the same things.
        _step(_JUMP_AT_LEAST, _X32, 0, 1),
        _step(_RETURN, _ERROR | _ENOSYS),
    ]
    for number in calls.absent:
        rules += [_step(_JUMP_EQUAL, number, 0, 1), _step(_RETURN, _ERROR | _ENOSYS)]
    for number in calls.denied:
        rules += [_step(_JUMP_EQUAL, number, 0, 1), _step(_RETURN, _ERROR | _EPERM)]
    for number in (calls.socket, calls.socketpair):
        rules += [
            _step(_JUMP_EQUAL, number, 0, 4),
            _step(_LOAD, _FIRST_ARGUMENT),
            _step(_JUMP_EQUAL, _AF_UNIX, 0, 1),
            _step(_RETURN, _ALLOW),
            _step(_RETURN, _ERROR | _EAFNOSUPPORT),
        ]
    rules += [
        _step(_JUMP_EQUAL, calls.clone, 0, 3),
        _step(_LOAD, _FIRST_ARGUMENT),
        _step(_JUMP_ANY_BIT, _NEW_USER, 0, 1),
        _step(_RETURN, _ERROR | _EPERM),
        _step(_RETURN, _ALLOW),
    ]
    return rules


def _step(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)
