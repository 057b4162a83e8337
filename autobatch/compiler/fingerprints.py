"""What a Python value is, in words that another process would use: for what is kept between runs of Python.

Numbers, strings and containers are their values; functions of the user their code and lines; objects of libraries are
their names, under the versions of the libraries. Whatever else there is may hold anything: it is refused.
"""

from __future__ import annotations

import builtins
import hashlib
import importlib.util
import linecache
import os
import platform
import sys
import types
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jax
import numpy as np

from autobatch.frontend.syntax.sources import LIBRARIES, is_user_function
from autobatch.frontend.types.statics import is_array
from autobatch.ir import jax_compat
from autobatch.ir.template import Input, is_numpy

Words = tuple[Any, ...]
"""Strings, and tuples of them."""


class NotComparable(Exception):
    """A value that cannot be told by words."""


def fingerprint(value: Any) -> Words:
    """What a value is. Raises Unknown."""
    match value:
        case None | bool() | int() | float() | complex() | str() | bytes() if type(value) in _PLAIN:
            return (type(value).__name__, repr(value))
        case tuple() | list() if type(value) in (tuple, list):
            if type(value) is tuple and value and value[0] == "id":
                raise NotComparable("an object that is known by its identity")
            return (type(value).__name__, *map(fingerprint, value))
        case dict() if type(value) is dict:
            return ("dict", *((fingerprint(k), fingerprint(x)) for k, x in value.items()))
        case set() | frozenset() if type(value) in (set, frozenset):
            return (type(value).__name__, *sorted(map(fingerprint, value)))
        case range() | slice() | np.dtype() | Input():
            return (type(value).__name__, repr(value))
        case types.ModuleType():
            return ("module", value.__name__)
        case types.FunctionType() if is_user_function(value):
            defaults = fingerprint((value.__defaults__, value.__kwdefaults__))
            return ("function", value.__module__, value.__qualname__, *_code(value.__code__), lines_of(value), defaults)
        case _ if hasattr(value, "__autobatch_function__") and not isinstance(value, type):
            return ("batched", fingerprint(value.__autobatch_function__))
        case _:
            return _of_library(value)


_PLAIN = (type(None), bool, int, float, complex, str, bytes)


def type_words(array: Any) -> str:
    """What the type of an array is, and whose it is."""
    if not is_array(array):
        return "no array"
    return f"{jax_compat.type_of(array)} of {'numpy' if is_numpy(array) else 'jax'}"


def function_of(value: Any) -> types.FunctionType | None:
    """The function whose text is lowered where a value is called."""
    for _ in range(8):
        if isinstance(value, types.FunctionType):
            inner = getattr(value, "__wrapped__", None)
            return value if inner is None or not is_user_function(inner) else inner
        if isinstance(value, type):
            return None
        value = getattr(value, "__autobatch_function__", None) or getattr(value, "__wrapped__", None)
    return None


def _of_library(value: Any) -> Words:
    """An object that is found under its name in a module of a library whose version is known."""
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", getattr(value, "__name__", None))
    if isinstance(value, types.BuiltinFunctionType) and module is None:
        module = getattr(type(value.__self__), "__module__", None)
    if not isinstance(name, str) or not isinstance(module, str) or not is_library(module):
        raise NotComparable(f"an object of the type {type(value).__name__}")
    held: Any = sys.modules.get(module)
    for part in name.split("."):
        held = getattr(held, part, None)
    if held is not value:
        raise NotComparable(f"{module}.{name} is another object")
    return ("library", module, name)


def is_library(module: str) -> bool:
    """Is a module one whose version is among those of `environment`?"""
    top = module.split(".")[0]
    return top in _VERSIONED or top in sys.stdlib_module_names


_VERSIONED = frozenset({"jax", "jaxlib", "numpy", "math", "autobatch", "builtins"})


# ---- functions


def _code(code: types.CodeType) -> Words:
    """All that code says, but for what is found out while it runs."""
    digest = hashlib.sha256(code.co_code)
    digest.update(code.co_linetable)
    parts = (
        (code.co_filename, code.co_firstlineno, code.co_name, code.co_flags),
        (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount),
        (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars),
        tuple(_code(x) if isinstance(x, types.CodeType) else _constant(x) for x in code.co_consts),
    )
    digest.update(repr(parts).encode())
    return (digest.hexdigest(),)


def _constant(x: Any) -> Any:
    if isinstance(x, tuple):
        return tuple(map(_constant, x))
    return ("frozenset", *sorted(map(repr, x))) if isinstance(x, frozenset) else (type(x).__name__, repr(x))


def lines_of(function: types.FunctionType) -> str:
    """A hash of the lines that a function is written in: the front end reads annotations too, which leave no code."""
    code = function.__code__
    last = max((line for c in _codes(code) for _, _, line in c.co_lines() if line), default=code.co_firstlineno)
    text = linecache.getlines(code.co_filename, function.__globals__)[code.co_firstlineno - 1 : last]
    return hashlib.sha256("".join(text).encode()).hexdigest()


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """Some code and the code of what is defined in it."""
    yield code
    for x in code.co_consts:
        if isinstance(x, types.CodeType):
            yield from _codes(x)


def names_of(function: types.FunctionType) -> Words:
    """For the names that a function reads: which modules they are, which functions of libraries, and which are no
    variables of its module, so that they are builtins. Everything else is a free variable that is compared itself."""
    names = sorted({n for c in _codes(function.__code__) for n in c.co_names})
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    held = dict(function.__globals__)
    held.update((n, c.cell_contents) for n, c in cells if not _is_empty(c))
    return tuple((n, _kind(held, n, names, 4)) for n in (*names, *function.__code__.co_freevars))


def _is_empty(cell: types.CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018  it raises
    except ValueError:
        return True
    return False


def _kind(held: dict[str, Any], name: str, names: list[str], depth: int) -> Any:
    if name not in held:
        return "builtin" if hasattr(builtins, name) else "nothing"
    value = held[name]
    if isinstance(value, types.BuiltinFunctionType):
        return (str(value.__module__), value.__qualname__)
    if not isinstance(value, types.ModuleType):
        return "a variable"
    if is_library(value.__name__) or value.__name__.split(".")[0] in LIBRARIES or not depth:
        return value.__name__
    inside = vars(value)
    modules = (n for n in names if isinstance(inside.get(n), types.ModuleType | types.BuiltinFunctionType))
    return (value.__name__, *((n, _kind(inside, n, names, depth - 1)) for n in modules))


# ---- everything else that a program depends on


def environment() -> Words:
    """What is the same for all programs of a process: versions, this package, how JAX is configured."""
    config: Any = jax.config
    flags = (
        "jax_enable_x64",
        "jax_numpy_dtype_promotion",
        "jax_numpy_rank_promotion",
        "jax_default_matmul_precision",
        "jax_default_prng_impl",
        "jax_threefry_partitionable",
    )
    return (*_versions(), *(str(getattr(config, f, None)) for f in flags))


@cache
def _versions() -> Words:
    return (
        sys.version,
        platform.machine(),
        jax.__version__,
        np.__version__,
        _stamp("llvmlite", deep=False),
        _stamp("autobatch", deep=True),
    )


def _stamp(package: str, deep: bool) -> str:
    """When the files of a package were written, and how long they are: who works on it has many versions in a day."""
    found = importlib.util.find_spec(package)
    if found is None or found.origin is None:
        return "none"
    digest = hashlib.sha256()
    folders = [Path(found.origin).parent]
    while folders:
        with os.scandir(folders.pop()) as held:
            for entry in sorted(held, key=lambda e: e.name):
                if deep and entry.is_dir() and entry.name != "__pycache__":
                    folders.append(Path(entry.path))
                elif entry.is_file():
                    about = entry.stat()
                    digest.update(f"{entry.name} {about.st_mtime_ns} {about.st_size}\n".encode())
    return digest.hexdigest()
