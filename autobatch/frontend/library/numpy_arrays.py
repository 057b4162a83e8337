"""Arrays of NumPy: which arrays are NumPy's, and the class and the functions that those of data-dependent shape become.

Indices of NumPy's arrays fail where they are out of range, those of JAX clamp:

    table[k + 1]        table is one of NumPy        fails, as in Python
    (table * w)[k]      w is one of JAX              clamps: the result of both is JAX's
    np.cumsum(table)    of NumPy alone               fails

`Leaf.numpy` says what an array is: True or False where the arguments of the call decide, None where it is JAX's in any
case. Where paths meet it is NumPy's if it is on one of them. Numbers are neither, but those that NumPy made.

Arrays whose shape is data are views of a buffer, which is a list that views share, in the strided layout of NumPy:

    t = np.zeros((n, m))      a buffer of n * m numbers; offset 0, extents (n, m), strides (m, 1)
    t[i, j] = x               buffer[offset + i * m + j] = x
    row = t[i]                a view of the same buffer: offset i * m, extents (m,), strides (1,)

`DynamicArray` is lowered as a class of the user is, so that such arrays are shared, changed, kept in containers and
differentiated as objects are; `dynamic_arrays.py` makes them, and gives brackets their meaning. Axes at the end whose
length is fixed belong to the elements of the buffer.

Functions of NumPy on arrays whose length is data are Python too, and lowered like a function of the user:

    np.diff(a)          a[1:] - a[:-1]
    np.unique(a)        the elements in order, each that differs from the last one kept

The names of their parameters are NumPy's. `RANKS` says of which ranks the arguments may be: of others NumPy does
something else (`np.roll` of a table rolls its numbers, `np.diff` takes the last axis), which is refused.
"""

from __future__ import annotations

import cmath
import inspect
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import jax.scipy.special as special
import numpy as np

from autobatch.frontend.types import values as v
from autobatch.frontend.types.statics import inputs
from autobatch.frontend.types.values import Layout, LeafLayout, ListingLayout, OptionalLayout, RecordLayout, layout_of
from autobatch.ir import jax_compat
from autobatch.ir.core import Array, List, Type, Value

# ---- arrays whose shape is data


class DynamicArray:
    """Extents and strides are of the axes whose length is data, of which there are `rank`: none where it is a view of
    one element. `known`: those extents that are constants all the same, as views of the array may be kept."""

    rank: ClassVar[int]
    known: ClassVar[tuple[int | None, ...]]
    dtype: ClassVar[np.dtype[Any]]
    element_shape: ClassVar[tuple[int, ...]]

    def __init__(self, buffer: Any, offset: Any, extents: Any, strides: Any) -> None:
        self.buffer, self.offset, self.extents, self.strides = buffer, offset, extents, strides

    def __len__(self) -> Any:
        return self.extents[0] if self.rank > 0 else self.element_shape[0]

    def fill(self: Any, value: Any) -> None:
        self[...] = value


def dynamic_class(value: v.Abstract) -> type[DynamicArray] | None:
    """The class of such an array; None for another value."""
    cls = value.cls if isinstance(value, v.Record) else value.heap.cls if isinstance(value, v.MemoryRow) else None
    return cls if isinstance(cls, type) and issubclass(cls, DynamicArray) else None


def is_dynamic(value: v.Abstract) -> bool:
    return dynamic_class(value) is not None


def is_own_attribute(name: str) -> bool:
    """Is it an attribute of the class above, and not one that arrays of NumPy have?"""
    own = ("rank", "known", "element_shape", "buffer", "offset", "extents", "strides")
    return name in own or name in vars(DynamicArray)


# ---- operations


def element(buffer: Any, place: Any) -> Any:
    return buffer[place]


def put(array: Any, place: Any, value: Any) -> None:
    array.buffer[place] = value


def put_into_all(part: Any, value: Any, rest: Any) -> None:
    for i in range(part.extents[0]):
        part[(i, *rest)] = value


def put_each(part: Any, values: Any, rest: Any) -> None:
    if len(values) != part.extents[0]:
        raise ValueError("could not broadcast input array into shape")
    for i in range(part.extents[0]):
        part[(i, *rest)] = values[i]


def put_where(array: Any, mask: Any, value: Any) -> None:
    if len(mask) != array.extents[0]:
        raise IndexError("boolean index did not match indexed array along axis 0")
    for i in range(array.extents[0]):
        if array.rank > 1:
            put_where(array[i], mask[i], value)
        elif mask[i]:
            array[i] = value


def put_mask(array: Any, mask: Any, values: Any) -> None:
    """`values` are as many as the array has."""
    if len(mask) != array.extents[0]:
        raise IndexError("boolean index did not match indexed array along axis 0")
    for i in range(array.extents[0]):
        if array.rank > 1:
            put_mask(array[i], mask[i], values[i])
        elif mask[i]:
            array[i] = values[i]


def put_diagonal(array: Any, value: Any) -> None:
    for i in range(array.extents[0]):
        array[i, i] = value


def spaced(start: Any, stop: Any, num: Any) -> Any:
    return [start + i * ((stop - start) / max(num - 1, 1)) for i in range(num)]


def listed(values: Any) -> Any:
    return list(values)


def flat(values: Any) -> Any:
    return [x for row in values for x in row]


def first(values: Any) -> Any:
    return values[0] if len(values) > 0 else []


# ---- which arrays are NumPy's


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
    "iter": ("iter() of a function and a value cannot be compiled", "write `while` with a test in it"),
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


# ---- functions on arrays whose length is data


def _diff(a: Any) -> Any:
    return a[1:] - a[:-1]


def _count_nonzero(a: Any) -> Any:
    return sum([1 for x in a if x])


def _flatnonzero(a: Any) -> Any:
    return np.array([k for k in range(len(a)) if a[k]])


def _nonzero(a: Any) -> Any:
    return (np.array([k for k in range(len(a)) if a[k]]),)


def _tile(A: Any, reps: Any) -> Any:
    return np.array([x for _ in range(reps) for x in A])


def _repeat(a: Any, repeats: Any) -> Any:
    return np.array([x for x in a for _ in range(repeats)])


def _roll(a: Any, shift: Any) -> Any:
    return np.array([a[(k - shift) % len(a)] for k in range(len(a))])


def _isclose(a: Any, b: Any, rtol: Any = 1e-05, atol: Any = 1e-08) -> Any:
    return (a == b) | (np.abs(a - b) <= atol + rtol * np.abs(b))


def _allclose(a: Any, b: Any, rtol: Any = 1e-05, atol: Any = 1e-08) -> Any:
    return np.all((a == b) | (np.abs(a - b) <= atol + rtol * np.abs(b)))


def _array_equal(a1: Any, a2: Any) -> Any:
    return len(a1) == len(a2) and all(x == y for x, y in zip(a1, a2))  # noqa: B905


def _searchsorted(a: Any, v: Any, side: Any = "left") -> Any:
    return sum([1 for x in a if x < v]) if side == "left" else sum([1 for x in a if x <= v])


def _polyval(p: Any, x: Any) -> Any:
    total = 0.0
    for c in p:
        total = total * x + c
    return total


def _interp(x: Any, xp: Any, fp: Any) -> Any:
    if x <= xp[0]:
        return fp[0] * 1.0
    if x >= xp[-1]:
        return fp[-1] * 1.0
    k = 1
    while xp[k] < x:
        k += 1
    return fp[k - 1] + (fp[k] - fp[k - 1]) * (x - xp[k - 1]) / (xp[k] - xp[k - 1])


def _trapezoid(y: Any, x: Any = None, dx: Any = 1.0) -> Any:
    if x is None:
        return dx * np.sum((y[1:] + y[:-1]) / 2)
    return np.sum((x[1:] - x[:-1]) * (y[1:] + y[:-1]) / 2)


def _quantile(a: Any, q: Any) -> Any:
    ordered = sorted(a)
    place = (len(ordered) - 1) * q
    below = int(place)
    if below + 1 >= len(ordered):
        return ordered[-1] * 1.0
    return ordered[below] + (place - below) * (ordered[below + 1] - ordered[below])


def _percentile(a: Any, q: Any) -> Any:
    return _quantile(a, q / 100)


def _unique(ar: Any) -> Any:
    found: Any = []
    for x in sorted(ar):
        if not found or x != found[-1]:
            found.append(x)
    return np.array(found)


def _isin(element: Any, test_elements: Any) -> Any:
    return any(x == element for x in test_elements)


def _convolve(a: Any, v: Any) -> Any:
    return np.array(
        [sum([a[i] * v[k - i] for i in range(len(a)) if 0 <= k - i < len(v)]) for k in range(len(a) + len(v) - 1)]
    )


def _trace(a: Any) -> Any:
    return sum([row[k] for k, row in enumerate(a) if k < len(row)])


def _diagonal(a: Any) -> Any:
    return np.array([row[k] for k, row in enumerate(a) if k < len(row)])


def _diag(v: Any) -> Any:
    if v.ndim == 2:
        return np.array([row[k] for k, row in enumerate(v) if k < len(row)])
    return np.array([[v[i] if i == j else 0 * v[i] for j in range(len(v))] for i in range(len(v))])


def _transpose(a: Any) -> Any:
    return np.array([[row[k] for row in a] for k in range(len(a[0]) if len(a) > 0 else 0)])


def _shape(a: Any) -> Any:
    return len(a), len(a[0]) if len(a) > 0 else 0


def _size(a: Any) -> Any:
    return len(a) * len(a[0]) if len(a) > 0 else 0


def _reshape(a: Any, *shape: Any) -> Any:
    n, m = shape if len(shape) == 2 else shape[0]
    flat = a.ravel()
    if (len(flat) // m if n == -1 else n) * (len(flat) // n if m == -1 else m) != len(flat):
        raise ValueError(f"cannot reshape array of size {len(flat)} into shape ({n},{m})")
    if m == 1:
        return flat[:, None]
    if n == 1:
        return flat[None]
    if n == -1:
        n = len(flat) // m
    if m == -1:
        m = len(flat) // n
    return np.array([[flat[i * m + j] for j in range(m)] for i in range(n)])


def _meshgrid(x: Any, y: Any) -> Any:
    return np.array([[b for b in x] for _ in y]), np.array([[c for _ in x] for c in y])  # noqa: C416


def _column_stack(tup: Any) -> Any:
    return np.array([[x[k] for x in tup] for k in range(len(tup[0]))])


def alike(rows: Any) -> Any:
    """Have all lists one length?"""
    return all(len(row) == len(rows[0]) for row in rows)


_WRITTEN = (
    *(_diff, _count_nonzero, _flatnonzero, _nonzero, _tile, _repeat, _roll, _isclose, _allclose, _array_equal),
    *(_searchsorted, _polyval, _interp, _trapezoid, _quantile, _percentile, _unique, _isin, _convolve),
    *(_trace, _diagonal, _diag, _transpose, _shape, _size, _reshape, _meshgrid, _column_stack),
)
BY_NAME: dict[str, Callable[..., Any]] = {f.__name__.removeprefix("_"): f for f in _WRITTEN}
RANKS: dict[str, tuple[tuple[int, ...], ...]] = {
    **dict.fromkeys(("tile", "repeat", "roll", "searchsorted", "polyval", "quantile", "percentile"), ((1,), (0,))),
    **dict.fromkeys(("trace", "diagonal", "transpose", "shape", "size"), ((2,),)),
    "isin": ((0,), (1,)),
    "interp": ((0,), (1,), (1,)),
    "diag": ((1, 2),),
    "reshape": ((1, 2),),
}
"""The ranks of the first arguments; of others at most 1, and of functions that are not here 1 for the first one."""
METHODS = ("nonzero", "repeat", "searchsorted", "trace", "diagonal", "reshape")
"""Those that are methods of arrays, too."""


def fits(function: Callable[..., Any], ranks: Sequence[int]) -> bool:
    """Are arguments of such ranks what a function here is written for?"""
    allowed = [*RANKS.get(function.__name__.removeprefix("_"), ((1,),)), *[(0, 1)] * len(ranks)]
    return all(rank in some for rank, some in zip(ranks, allowed, strict=False))


def written_out(function: Any) -> Callable[..., Any] | None:
    """What a function of `jax.numpy`, or a method of arrays, does with such arrays; None where that is not here."""
    method = getattr(function, "array_method", "")
    if method:
        return BY_NAME[method] if method in METHODS else None
    name = getattr(function, "__name__", "")
    return BY_NAME.get(name) if getattr(jnp, name, None) is function else None
