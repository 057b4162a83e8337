"""Batched functions as plain Python: their parameters, `f.example`, `f.loop` and `disable`."""

from __future__ import annotations

import contextlib
import inspect
import io
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import FrameType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from autobatch.call.arguments import BoundArguments
from autobatch.call.results import Failures, stack
from autobatch.errors import ExampleError, Failure, UnsupportedError
from autobatch.ir import jax_compat
from autobatch.passes.overflows import UNKNOWN

# ---- wording
#
# What failed examples failed with, in Python's words: machine code and XLA say at which line an example has failed and
# with which exception, but not with which numbers. The plain function, run for such an example, does.
#
#     KeyError: <...>        ->        KeyError: 7


_LIMITS = ("MemoryError", "RecursionError")
"""What examples fail with where they need more than there is room for, which plain Python has."""
DESCRIBED, SECONDS = 5, 1.0
"""How many examples of an error are run at most, and for how long in all: as many as its text shows."""


def reworded(run: Callable[[], Any], plainly: Callable[[int], Any], is_traced: Callable[[], bool]) -> Any:
    """`run()`; an ExampleError of it has Python's words where an example, run `plainly`, fails alike soon enough."""
    try:
        return run()
    except ExampleError as error:
        if is_traced() and error.failures[0].kind not in _LIMITS:
            _refuse_caught(error.failures[0], plainly)
        if not any(UNKNOWN in f.message for f in error.failures):
            raise
        told, until = list(error.failures), time.monotonic() + SECONDS
        for k, failure in enumerate(told[:DESCRIBED]):
            if UNKNOWN in failure.message:
                told[k] = _told(plainly, failure, until)
        raise ExampleError(told, error.count) from error.__cause__


def _told(plainly: Callable[[int], Any], failure: Failure, until: float) -> Failure:
    """A failure with the words of the exception that plain Python raises, where it is this one."""
    form = ".*".join(map(re.escape, failure.message.split(UNKNOWN)))
    try:
        with _until(until), contextlib.redirect_stdout(io.StringIO()):
            plainly(failure.index)
    except Exception as raised:
        if type(raised).__name__ == failure.kind and re.fullmatch(form, str(raised), re.DOTALL):
            return replace(failure, message=str(raised))
    except _TooLate:
        pass
    return failure


def _refuse_caught(failure: Failure, plainly: Callable[[int], Any]) -> None:
    """Refuse where an example, run plainly, does not fail: a trace knows of no exception that Python catches."""
    try:
        with _until(time.monotonic() + SECONDS), contextlib.redirect_stdout(io.StringIO()):
            plainly(failure.index)
    except (Exception, _TooLate):
        return
    raise UnsupportedError(
        f"example {failure.index} fails with {failure.kind} ({failure.message}), as its structure is traced; plain "
        "Python does not fail: it may catch that",
        failure.span,
        "test for it in an `if`, or mend what the warning says that does not compile",
    )


class _TooLate(BaseException):
    """Python would take too long. No `except Exception` of the function's own stops it."""


@contextmanager
def _until(moment: float) -> Iterator[None]:
    """Inside, `_TooLate` is raised behind some moment. Nothing runs where a debugger has its own way to follow it."""

    def follow(frame: FrameType, event: str, held: Any) -> Any:
        if time.monotonic() > moment:
            raise _TooLate
        return follow

    if sys.gettrace() is not None:
        raise _TooLate
    sys.settrace(follow)
    try:
        yield
    finally:
        sys.settrace(None)


class _Mode(threading.local):
    """How this thread runs batched functions. `plain`: the Python function itself, inside `f.example`."""

    plain: int = 0
    disabled: int = 0


_mode = _Mode()


def is_plain() -> bool:
    """Is a call of a batched function one activation here: inside `f.example`, or in a traced piece of a program?"""
    return _mode.plain > 0 or jax_compat.is_tracing()


def is_disabled() -> bool:
    """Are we inside `with disable()`?"""
    return _mode.disabled > 0


def is_ordinary() -> bool:
    """Neither of both?"""
    return not (_mode.plain or _mode.disabled or jax_compat.is_tracing())


@contextmanager
def disable() -> Iterator[None]:
    """Run batched functions as plain Python, example by example, and stack what they return: for debugging.

    Nests, and is of this thread alone.

    >>> import autobatch as ab
    >>> with ab.disable():
    ...     ab.batched(lambda x: x + 1)(np.arange(3)).tolist()
    [1, 2, 3]
    """
    _mode.disabled += 1
    try:
        yield
    finally:
        _mode.disabled -= 1


@contextmanager
def plainly() -> Iterator[None]:
    """Inside, a batched function is the plain function for one example."""
    _mode.plain += 1
    try:
        yield
    finally:
        _mode.plain -= 1


def run(function: Callable[..., Any], bound: BoundArguments) -> Iterator[Any]:
    """What the plain function returns for each example of a batch."""
    bound = unpacked(bound)
    for k in range(bound.size):
        with plainly():
            args, kwargs = bound.example(k)
            result = function(*args, **kwargs)
        yield result


def change_arguments(function: Callable[..., Any], bound: BoundArguments) -> None:
    """Let the plain function change what it was given, after a program has computed its results; examples that fail
    have said so there."""
    bound = unpacked(bound)
    for k in range(bound.size):
        args, kwargs = bound.example(k)
        with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(Exception), plainly():
            function(*args, **kwargs)


def in_words(
    function: Callable[..., Any],
    bound: BoundArguments,
    run: Callable[[BoundArguments], Any],
    is_traced: Callable[[], bool],
) -> Any:
    """`run(bound)`, whose failures have the words of the plain function."""

    def example(k: int) -> Any:
        args, kwargs = unpacked(bound).example(k, copied=True)
        with plainly():
            return function(*args, **kwargs)

    return reworded(lambda: run(bound), example, is_traced)


def run_stacked(function: Callable[..., Any], bound: BoundArguments, name: str, *, masks: bool) -> Any:
    """Every example plainly, and the results stacked; failures as the batched call reports them."""
    bound = unpacked(bound)
    made: list[Any] = []
    failures: list[tuple[Failure, Exception]] = []
    with plainly():
        for k in range(bound.size):
            try:
                args, kwargs = bound.example(k)
                made.append(function(*args, **kwargs))
            except Exception as error:
                failures.append((Failure(k, type(error).__name__, str(error)), error))
                made.append(None)
    if failures and not (masks and len(failures) < bound.size):
        raise ExampleError([f for f, _ in failures]) from failures[0][1]
    if not masks:
        return stack(made, name)
    failed = np.zeros(bound.size, bool)
    failed[[f.index for f, _ in failures]] = True
    if failures:
        blank = jax.tree.map(lambda x: x * 0, next(m for k, m in enumerate(made) if not failed[k]))
        made = [blank if failed[k] else m for k, m in enumerate(made)]
    return stack(made, name), Failures(jnp.asarray(failed), tuple(f for f, _ in failures))


def unpacked(bound: BoundArguments) -> BoundArguments:
    """The same arguments with the objects of every batch, made once."""
    return bound.with_slots(lambda s: replace(s, kind="list", values=s.values.to_list()) if s.kind == "batch" else s)


def signature_of(fun: Callable[..., Any]) -> inspect.Signature:
    """The parameters of a function. Raises UnsupportedError for one that does not tell."""
    try:
        return inspect.signature(fun)
    except ValueError:
        raise UnsupportedError(
            f"{getattr(fun, '__name__', fun)!s} does not tell its parameters",
            cure="batch a function that calls it: `lambda x: ...`",
        ) from None


def is_in_class(fun: Callable[..., Any]) -> bool:
    """Was it written in the body of a class?"""
    outer = getattr(fun, "__qualname__", "").rpartition(".")[0]
    return bool(outer) and not outer.endswith("<locals>")
