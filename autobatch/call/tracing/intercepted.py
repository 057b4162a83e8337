"""Functions of JAX, as a function finds them while it is traced: those of symbols are noted, all others are JAX's own.

The modules of JAX hold them while some thread traces; for all other threads they are but a call of JAX's function.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from types import CodeType, ModuleType
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import jax.scipy.linalg
import jax.scipy.special
import numpy as np

from autobatch.call.tracing.filled import called
from autobatch.call.tracing.slots import function_of

MODULES: tuple[ModuleType, ...] = (
    jnp, jnp.linalg, jnp.fft, jax.nn, jax.lax, jax.random, jax.scipy.special, jax.scipy.linalg,
)  # fmt: skip


class CallNotes(Protocol):
    """What notes calls."""

    def call(self, name: str, fun: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any: ...

    def is_symbol(self, value: Any) -> bool: ...

    def is_users(self, code: CodeType) -> bool: ...


class _InterceptedLocal(threading.local):
    notes: CallNotes | None = None


_local = _InterceptedLocal()
_lock = threading.Lock()
_depth = 0


class InterceptedObject:
    """An object of JAX that is called, and has attributes."""

    def __init__(self, held: Any, name: str) -> None:
        self._held, self._name = held, name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        notes = _local.notes
        return self._held(*args, **kwargs) if notes is None else notes.call(self._name, self._held, args, kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._held, name)


def _wrapped(held: Any, name: str) -> Any:
    if not hasattr(held, "__name__") or hasattr(held, "defjvp") or hasattr(held, "reduce"):
        return InterceptedObject(held, name)

    @functools.wraps(held)
    def noted(*args: Any, **kwargs: Any) -> Any:
        notes = _local.notes
        return held(*args, **kwargs) if notes is None else notes.call(name, held, args, kwargs)

    return function_of(name, noted)


def _of_numpy(held: Any, name: str) -> Any:
    """A function of NumPy: where the user's code calls it with symbols, or makes arrays to fill, it is ours."""

    @functools.wraps(held)
    def noted(*args: Any, **kwargs: Any) -> Any:
        notes = _local.notes
        if notes is None or not notes.is_users(sys._getframe(1).f_code):
            return held(*args, **kwargs)
        return called(notes, name, held, args, kwargs)

    return noted


@cache
def _functions() -> tuple[list[tuple[dict[str, Any], dict[str, Any], dict[str, Any]]], dict[int, Any]]:
    """For each module its names, with the functions of JAX, and with those that note; and these by the former."""
    made, by_original = [], dict[int, Any]()
    for module in MODULES:
        held = {n: x for n, x in vars(module).items() if _is_function(n, x)}
        noting = {}
        for n, x in held.items():
            if id(x) not in by_original:
                by_original[id(x)] = _wrapped(x, f"{module.__name__.removeprefix('jax.')}.{n}")
            noting[n] = by_original[id(x)]
        made.append((vars(module), held, noting))
    numpy = {n: x for n, x in vars(np).items() if _is_array_function(n, x)}
    made.append((vars(np), numpy, {n: _of_numpy(x, n) for n, x in numpy.items()}))
    return made, by_original


def _is_function(name: str, x: Any) -> bool:
    if name.startswith("_") or isinstance(x, (type, ModuleType)) or not callable(x):
        return False
    return type(x).__name__ in ("function", "PjitFunction", "custom_jvp", "custom_vjp", "ufunc")


def _is_array_function(name: str, x: Any) -> bool:
    """Is it a function of NumPy that takes or makes arrays?"""
    if name.startswith("_") or isinstance(x, (type, ModuleType, np.ufunc)) or not callable(x):
        return False
    return hasattr(jnp, name)


def noting_of(x: Any) -> Any:
    """The function that notes for one of JAX; anything else as it is."""
    return _functions()[1].get(id(x), x)


def original(x: Any) -> Any:
    """JAX's function, for one that notes."""
    return x._held if isinstance(x, InterceptedObject) else _held().get(id(x), x)


@cache
def _held() -> dict[int, Any]:
    """JAX's functions, by those that note."""
    made, by_original = _functions()
    return {id(by_original[id(x)]): x for _, held, _ in made for x in held.values() if id(x) in by_original}


@contextmanager
def noted(notes: CallNotes) -> Iterator[None]:
    """Let calls of this thread be noted."""
    before, _local.notes = _local.notes, notes
    try:
        with found():
            yield
    finally:
        _local.notes = before


@contextmanager
def found() -> Iterator[None]:
    """Let modules of JAX hold the functions that note: for many runs, it is done once."""
    global _depth
    with _lock:
        _depth += 1
        if _depth == 1:
            for names, _, noting in _functions()[0]:
                names.update(noting)
    try:
        yield
    finally:
        with _lock:
            _depth -= 1
            if _depth == 0:
                for names, held, _ in _functions()[0]:
                    names.update(held)


@contextmanager
def paused() -> Iterator[None]:
    """Let calls be JAX's own inside."""
    before, _local.notes = _local.notes, None
    try:
        yield
    finally:
        _local.notes = before


IN_MESSAGE = "a computed number"
"""What JAX reads in the messages of its errors, when a function was given a symbol past what is intercepted; then it is
run with arrays that JAX traces."""


def is_of_jax(names: dict[str, Any]) -> bool:
    """Are these the global names of a module of JAX?"""
    return str(names.get("__name__")).startswith("jax.")
