"""Functions of NumPy and `math` that mean a function of `jax.numpy` inside per-example code; names that are refused."""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
import jax.scipy.special as special
import numpy as np

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
    "id": ("id() cannot be compiled: objects are rows of columns", "compare with `is`"),
    "hash": ("hash() cannot be compiled", "compute it before packing and store it in a field"),
    "setattr": ("setattr() cannot be compiled: objects are not changed", "build a new object"),
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
