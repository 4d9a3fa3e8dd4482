"""Setting up the process of a gert command."""

from collections.abc import Iterable

from gert.ecosystem.process.descriptors import keep_private
from gert.ecosystem.process.own_process import claim_process


def set_up_process(names: Iterable[str]) -> None:
    """Keep children from inheriting descriptors, and other processes from reading keys.

    names: the variables of the environment
    """
    keep_private()
    claim_process(names)
