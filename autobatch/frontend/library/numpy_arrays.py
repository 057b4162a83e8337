"""Which arrays are NumPy's: their indices fail where they are out of range, those of JAX clamp.

    table[k + 1]        table is one of NumPy        fails, as in Python
    (table * w)[k]      w is one of JAX              clamps: the result of both is JAX's
    np.cumsum(table)    of NumPy alone               fails

`Leaf.numpy` says what an array is: True or False where the arguments of the call decide, None where it is JAX's in any
case. Where paths meet it is NumPy's if it is on one of them. Numbers are neither, but those that NumPy made.
"""

from __future__ import annotations

import cmath
import inspect
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy.special as special
import numpy as np

from autobatch.frontend.library.ndarray import is_dynamic
from autobatch.frontend.types import values as v
from autobatch.frontend.types.layouts import Layout, LeafLayout, ListingLayout, OptionalLayout, RecordLayout, layout_of
from autobatch.frontend.types.statics import inputs
from autobatch.ir import jax_compat
from autobatch.ir.core import Array, List, Type, Value

_OPERATORS = "_operator"
_MAKERS = (np.array, np.asarray, np.stack, np.vstack, np.hstack, np.concatenate)


def kind_of(values: Sequence[v.Abstract]) -> bool | None:
    """What an operator makes of these values: an array of NumPy of such arrays and of Python's numbers alone."""
    found: bool | None = None
    for kind in _kinds(values):
        if kind is None:
            return None
        found = kind and found is not False
    return found


def _kinds(values: Sequence[v.Abstract]) -> Iterator[bool | None]:
    """The kind of every array among some values."""
    for value in values:
        match value:
            case v.Leaf(operand=operand, numpy=numpy):
                if not _is_python(operand.type):
                    yield numpy
            case v.Optional(value=inner):
                yield from _kinds([inner])
            case _ if is_dynamic(value):
                yield True
            case v.Record(items=items):
                yield from _kinds(items)
            case v.Static(value=held):
                yield from (i.numpy for i in inputs(held) if not _is_python(i.type))
            case v.Listing(elem=elem, array=True):
                while isinstance(elem, ListingLayout):
                    elem = elem.elem
                yield elem.numpy if isinstance(elem, LeafLayout) else None
            case _:
                yield None


def _is_python(type: Type) -> bool:
    return isinstance(type, Array) and type.is_scalar and (type.weak or type.is_bool)


def of_call(function: Callable[..., Any], args: Sequence[v.Abstract]) -> bool | None:
    """What a call of an operator, or of a method or property of arrays, makes; None for other functions."""
    if getattr(function, "__module__", "") != _OPERATORS and not hasattr(function, "array_method"):
        return None
    return kind_of(args[:1] if function.__name__ == "getitem" else args)


def of_numpy(function: Any, args: Sequence[v.Abstract]) -> bool | None:
    """What a call of a function of NumPy makes: NumPy's, but where it calls a method of its argument (`np.sum`)."""
    if isinstance(function, np.ufunc) or function in _MAKERS or not list(_kinds(args)):
        return True
    return kind_of(args)


def is_of_numpy(function: Any) -> bool:
    """Is it a function of NumPy?"""
    module = getattr(function, "__module__", None) or ""
    return isinstance(function, np.ufunc) or (isinstance(module, str) and module.split(".")[0] == "numpy")


@lru_cache(maxsize=1024)
def takes_array(function: Any) -> bool:
    """Is the first argument of a function of NumPy an array, and no shape, sequence of arrays or number?"""
    if isinstance(function, np.ufunc):
        return True
    try:
        first = next(iter(inspect.signature(function).parameters), "")
    except (TypeError, ValueError):
        return False
    return first in ("a", "x", "arr", "ary", "m", "v", "p", "array", "condition")


def is_of_jax(function: Any) -> bool:
    """Is it a function of JAX?"""
    return str(getattr(function, "__module__", None)).split(".")[0] == "jax"


def marked(value: v.Abstract, kind: bool | None) -> v.Abstract:
    """The value with arrays of that kind."""
    match value:
        case v.Leaf(operand=operand) if isinstance(operand.type, Array | List) and value.numpy is not kind:
            return replace(value, numpy=kind)
        case v.Optional(value=inner):
            return replace(value, value=marked(inner, kind))
        case v.Listing(elem=LeafLayout() as row, array=True):
            return replace(value, elem=replace(row, numpy=kind is True))
        case v.Listing(elem=elem):
            return replace(value, elem=_marked(elem, kind is True))
        case v.Record(items=items):
            return replace(value, items=tuple(marked(i, kind) for i in items))
        case _:
            return value


def _marked(layout: Layout, kind: bool) -> Layout:
    match layout:
        case LeafLayout(type=type) if _is_array(type):
            return replace(layout, numpy=kind)
        case OptionalLayout(value=inner):
            return replace(layout, value=_marked(inner, kind))
        case ListingLayout(elem=LeafLayout() as row, array=True):
            return replace(layout, elem=replace(row, numpy=kind))
        case ListingLayout(elem=inner):
            return replace(layout, elem=_marked(inner, kind))
        case RecordLayout(items=items):
            return replace(layout, items=tuple(_marked(i, kind) for i in items))
        case _:
            return layout


def _is_array(type: Type) -> bool:
    """Is it an array, also one whose length is data? Of numbers layouts do not say whose they are."""
    return isinstance(type, List) or (isinstance(type, Array) and bool(type.shape))


def passed_kinds(value: v.Abstract, shared: frozenset[Value]) -> list[bool]:
    """Of each array that a value passes to a call: is it NumPy's?"""
    return list(_flags(layout_of(value, shared)))


def _flags(layout: Layout) -> Iterator[bool]:
    match layout:
        case LeafLayout(type=type, numpy=numpy) if _is_array(type):
            yield numpy
        case OptionalLayout(value=inner) | ListingLayout(elem=inner):
            yield from _flags(inner)
        case RecordLayout(items=items):
            for item in items:
                yield from _flags(item)
        case _:
            return


# ---- numpy names
#
# Functions of NumPy and `math` that mean a function of `jax.numpy` inside per-example code; names that are refused.


_ALIKE = ("exp", "log", "sqrt", "log10", "sin", "cos", "tan", "sinh", "cosh", "tanh", "isnan", "isinf", "isfinite")
_INVERSE = ("sin", "cos", "tan", "sinh", "cosh", "tanh")
_OF_CMATH = {x: x for x in _ALIKE} | {f"a{x}": f"arc{x}" for x in _INVERSE} | {"phase": "angle"}
"""Functions of `cmath`, and what `jax.numpy` calls them."""


def complex_of(real: Any, imag: Any = 0.0) -> Any:
    """`complex(real, imag)`"""
    if jnp.iscomplexobj(real) or jnp.iscomplexobj(imag):
        return real + imag * 1j
    dtype = jax_compat.float_dtype()
    return jax_compat.weakened(jax.lax.complex(jnp.asarray(real, dtype), jnp.asarray(imag, dtype)))


def _of_complex(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A function of `cmath`, which takes its operand for complex: the root of -1 is i."""
    return lambda z: function(z if jnp.iscomplexobj(z) else z + 0j)


_MATH: dict[Any, Any] = {
    math.exp: jnp.exp, math.expm1: jnp.expm1, math.log1p: jnp.log1p, math.log2: jnp.log2,
    math.log10: jnp.log10, math.sqrt: jnp.sqrt, math.sin: jnp.sin, math.cos: jnp.cos, math.tan: jnp.tan,
    math.asin: jnp.arcsin, math.acos: jnp.arccos, math.atan: jnp.arctan, math.atan2: jnp.arctan2,
    math.sinh: jnp.sinh, math.cosh: jnp.cosh, math.tanh: jnp.tanh, math.asinh: jnp.arcsinh,
    math.acosh: jnp.arccosh, math.atanh: jnp.arctanh, math.hypot: jnp.hypot, math.fabs: jnp.abs,
    math.isnan: jnp.isnan, math.isinf: jnp.isinf, math.isfinite: jnp.isfinite, math.pow: jnp.power,
    math.erf: special.erf, math.erfc: special.erfc, math.lgamma: special.gammaln, math.gamma: special.gamma,
    math.degrees: jnp.degrees, math.radians: jnp.radians, math.copysign: jnp.copysign, math.fmod: jnp.fmod,
    math.log: lambda x, base=None: jnp.log(x) if base is None else jnp.log(x) / jnp.log(base),
    math.floor: lambda x: int(jnp.floor(x)), math.ceil: lambda x: int(jnp.ceil(x)),
    math.trunc: lambda x: int(jnp.trunc(x)),
    math.exp2: jnp.exp2,
    **{getattr(cmath, name): _of_complex(getattr(jnp, meaning)) for name, meaning in _OF_CMATH.items()},
    cmath.rect: lambda r, phi: r * jnp.exp(1j * phi), cmath.polar: lambda z: (jnp.abs(z), jnp.angle(z)),
}  # fmt: skip

REFUSED: dict[str, tuple[str, str]] = {
    "random": (
        "random numbers of NumPy or Python cannot be compiled: they have a hidden state",
        "pass a key of jax.random as data and use jax.random.*",
    ),
    "input": ("input() cannot be compiled", "pass the value as an argument"),
    "open": ("files cannot be read inside a compiled function", "read before packing and pass the data"),
    "eval": ("eval() cannot be compiled", "write the expression in the function"),
    "exec": ("exec() cannot be compiled", "write the statements in the function"),
    "globals": ("globals() cannot be compiled", "read the variable by its name"),
    "locals": ("locals() cannot be compiled", "read the variable by its name"),
    "hash": ("hash() cannot be compiled", "compute it before packing and store it in a field"),
    "setattr": ("setattr() needs a constant name", "write the attribute: x.name = value"),
    "delattr": ("delattr() cannot be compiled: objects are not changed", "build a new object"),
    "breakpoint": ("breakpoint() cannot be compiled", "use f.example(...) to run one example as plain Python"),
    "iter": (
        "iter() is compiled where its result has a name that only this function reads, by next() and `for`, and that "
        "runs over a list, or over what nothing changes behind it",
        "use a `for` loop, or keep a list and a place in it",
    ),
    "next": ("next() cannot be compiled", "use a `for` loop with `break`, or index with [0]"),
    "vars": ("vars() cannot be compiled", "name the fields"),
    "dir": ("dir() cannot be compiled", "name the fields"),
}


OUTSIDE = frozenset(
    {
        "time",
        "datetime",
        "os",
        "posix",
        "sys",
        "threading",
        "_thread",
        "uuid",
        "secrets",
        "io",
        "_io",
        "logging",
        "warnings",
    }
)
"""Modules of the standard library that look at, or change, the world outside the function."""


def jax_name(function: Any) -> Any:
    """The function of `jax.numpy` with the same name, for one of NumPy; the function itself otherwise."""
    try:
        if function in _MATH:
            return _MATH[function]
    except TypeError:
        return function
    name = getattr(function, "__name__", "")
    module = getattr(function, "__module__", None) or ""
    if isinstance(function, np.ufunc) or (isinstance(module, str) and module.split(".")[0] == "numpy"):
        if isinstance(function, type) and issubclass(function, np.generic):
            return getattr(jnp, name, function)
        owner = jnp.linalg if module == "numpy.linalg" else jnp.fft if module.startswith("numpy.fft") else jnp
        if getattr(np, name, None) is function or owner is not jnp:
            return getattr(owner, name, function)
    return function
