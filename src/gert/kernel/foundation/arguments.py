"""Checks arguments against the annotations of the function they are given to.

A value of the wrong type raises an error that names the argument and what was expected, before anything
happens. What an annotation does not pin down (`Any`, `object`, a name that cannot be resolved) is not checked.
"""

import inspect
import types
from collections.abc import Callable, Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import wraps
from itertools import chain
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from gert.errors import ArgumentTypeError, InputError
from gert.kernel.foundation.names import listing
from gert.kernel.foundation.text import one_line

_F = TypeVar("_F", bound=Callable[..., Any])
_T = TypeVar("_T")

_LONGEST = 64
_PLAIN = {str: "text", int: "a whole number", float: "a number", bool: "true or false", bytes: "bytes"}


class _Test(NamedTuple):
    """A test whether a value fits an annotation, and the type the annotation expects in words."""

    fits: Callable[[Any], bool]
    wanted: str
    shows: bool = False
    """Whether an error may quote the value: the annotation lists a few allowed words."""


def checked(function: _F) -> _F:
    """Decorate a function to raise InputError (and TypeError) for arguments that do not fit its annotations."""
    tests: dict[str, _Test] | None = None
    names = tuple(inspect.signature(function).parameters)

    def check(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        nonlocal tests
        if tests is None:
            tests = _tests(function)
        for name, value in chain(zip(names, args, strict=False), kwargs.items()):
            test = tests.get(name)
            if test is not None and not test.fits(value):
                # A wrong word is a wrong value; anything else is of the wrong type.
                kind = InputError if test.shows and isinstance(value, str) else ArgumentTypeError
                raise kind(f"expected `{name}` to be {test.wanted}, found {_found(value, test)}")

    # The wrapper's stack frames carry the name of the function, so that tracebacks show it.
    if inspect.iscoroutinefunction(function):

        async def awaited(*args: Any, **kwargs: Any) -> Any:
            check(args, kwargs)
            return await function(*args, **kwargs)

        return cast("_F", _with_name(awaited, function))

    def called(*args: Any, **kwargs: Any) -> Any:
        check(args, kwargs)
        return function(*args, **kwargs)

    return cast("_F", _with_name(called, function))


def checks_arguments(kind: type[_T]) -> type[_T]:
    """Check the arguments of the constructor and of every public method of a class."""
    for name, member in list(vars(kind).items()):
        if name.startswith("_") and name != "__init__":
            continue
        if isinstance(member, staticmethod | classmethod):
            setattr(kind, name, type(member)(checked(member.__func__)))
        elif inspect.isfunction(member):
            setattr(kind, name, checked(member))
    return kind


def _with_name(wrapper: Callable[..., Any], function: Callable[..., Any]) -> Callable[..., Any]:
    wrapped = wraps(function)(wrapper)
    wrapped.__code__ = wrapped.__code__.replace(co_name=function.__name__)  # type: ignore[attr-defined]
    return wrapped


def _tests(function: Callable[..., Any]) -> dict[str, _Test]:
    try:
        hints = get_type_hints(function)
    except NameError:
        # An annotation that only type checkers can resolve.
        return {}
    found = {name: _test(hint) for name, hint in hints.items() if name != "return"}
    variadic = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    named = {name for name, each in inspect.signature(function).parameters.items() if each.kind not in variadic}
    return {name: test for name, test in found.items() if test is not None and name in named}


def _test(hint: Any) -> _Test | None:
    """Return the test for an annotation; None if it allows any value."""
    if hint is Any or hint is object:
        return None
    if hint is None or hint is type(None):
        return _Test(lambda value: value is None, "None")
    if isinstance(hint, TypeVar):
        return None if hint.__bound__ is None else _test(hint.__bound__)
    origin = get_origin(hint)
    if origin is Annotated:
        return _test(get_args(hint)[0])
    if origin in (Union, types.UnionType):
        return _any_of(get_args(hint))
    if origin is Literal:
        return _one_of(get_args(hint))
    if origin is type or hint is type:
        return _class(get_args(hint))
    if origin is not None:
        return _generic(origin, get_args(hint))
    return _instance(hint) if isinstance(hint, type) else None


def _any_of(hints: Sequence[Any]) -> _Test | None:
    tests = [_test(hint) for hint in hints]
    known = [test for test in tests if test is not None]
    if len(known) < len(tests):
        return None
    wanted = [test.wanted for test in known]
    told = ", ".join(wanted[:-1]) + f" or {wanted[-1]}" if len(wanted) <= 4 else f"{wanted[0]} or another of its kind"

    def fits(value: Any) -> bool:
        for test in known:  # noqa: SIM110 - a generator takes twice as long
            if test.fits(value):
                return True
        return False

    return _Test(fits, told, any(test.shows for test in known))


def _one_of(words: Sequence[Any]) -> _Test:
    # Compared one by one, because a value need not be hashable.
    def fits(value: Any) -> bool:
        return any(type(value) is type(word) and value == word for word in words)

    return _Test(fits, " | ".join(map(str, words)), shows=True)


def _class(bounds: Sequence[Any]) -> _Test:
    bound = bounds[0] if bounds else object
    if isinstance(bound, TypeVar):
        bound = bound.__bound__ or object
    base = bound if isinstance(bound, type) else object
    return _Test(lambda value: isinstance(value, type) and issubclass(value, base), f"a class of `{base.__name__}`")


def _generic(origin: Any, arguments: Sequence[Any]) -> _Test | None:
    if not isinstance(origin, type):
        return None
    if "__call__" in vars(origin):
        return _Test(callable, "a function")
    if issubclass(origin, Mapping):
        return _Test(lambda value: isinstance(value, Mapping), "a mapping")
    if issubclass(origin, Sequence | AbstractSet):
        return _collection(arguments[0] if arguments else Any)
    return _instance(origin)


def _collection(item: Any) -> _Test:
    """Test for a list, tuple or set whose items fit; text is not a collection."""
    inner = _test(item)

    def fits(value: Any) -> bool:
        if not isinstance(value, list | tuple | set | frozenset):
            return isinstance(value, Collection) and not isinstance(value, str | bytes | Mapping)
        return inner is None or all(map(inner.fits, value))

    return _Test(fits, "a collection" if inner is None else f"a collection, each item {inner.wanted}")


def _instance(kind: type) -> _Test:
    if getattr(kind, "_is_protocol", False):
        return _protocol(kind)
    if kind is int:
        return _Test(lambda value: isinstance(value, int) and not isinstance(value, bool), _PLAIN[int])
    if kind is float:
        return _Test(lambda value: isinstance(value, int | float) and not isinstance(value, bool), _PLAIN[float])
    return _Test(lambda value: isinstance(value, kind), _PLAIN.get(kind, f"a `{kind.__name__}`"))


def _protocol(kind: type) -> _Test:
    methods = [name for name, member in vars(kind).items() if inspect.isfunction(member) and not name.startswith("_")]
    told = listing(methods)
    return _Test(lambda value: all(callable(getattr(value, name, None)) for name in methods), f"an object with {told}")


def _found(value: object, test: _Test) -> str:
    if test.shows and isinstance(value, str):
        return f"`{one_line(value, _LONGEST)}`"
    return "None" if value is None else f"a `{type(value).__name__}`"
