"""Setting up the process of a gert command."""

from collections.abc import Iterable

from gert.ecosystem.process.descriptors import keep_private
from gert.ecosystem.process.own_process import take_over


def set_up_process(names: Iterable[str]) -> None:
    """Keep children from inheriting descriptors, and other processes from reading keys.

    names: the variables of the environment
    """
    keep_private()
    take_over(names)
