"""Batched functions as plain Python: their parameters, `f.example`, `f.loop` and `disable`."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from autobatch.call import wording
from autobatch.call.arguments import BoundArguments
from autobatch.call.results import Failures, stack
from autobatch.errors import ExampleError, Failure, UnsupportedError
from autobatch.ir import jax_compat


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
    bound = _unpacked(bound)
    for k in range(bound.size):
        with plainly():
            args, kwargs = bound.example(k)
            result = function(*args, **kwargs)
        yield result


def in_words(function: Callable[..., Any], bound: BoundArguments, run: Callable[[BoundArguments], Any]) -> Any:
    """`run(bound)`, whose failures have the words of the plain function."""

    def example(k: int) -> Any:
        args, kwargs = _unpacked(bound).example(k)
        with plainly():
            return function(*args, **kwargs)

    return wording.in_words(lambda: run(bound), example)


def run_stacked(function: Callable[..., Any], bound: BoundArguments, name: str, *, masks: bool) -> Any:
    """Every example plainly, and the results stacked; failures as the batched call reports them."""
    bound = _unpacked(bound)
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


def _unpacked(bound: BoundArguments) -> BoundArguments:
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
