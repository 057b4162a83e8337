"""What calls of JAX are for operands of some types: traced once by JAX, found by a lookup from then on.

jnp.split(x, 2)    x: float32[6]    ->   Template(kind=split, reads x, results (0, 1) of float32[3])
jnp.zeros(3)                        ->   Template(no kind, the array itself)
jnp.shape(x)                        ->   Template(no kind, (6,))
"""

from __future__ import annotations

import functools
import sys
import threading
import types
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from types import CodeType, ModuleType
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import jax.scipy.linalg
import jax.scipy.special
import numpy as np

from autobatch.call import packed
from autobatch.call.tracing.filled import called
from autobatch.call.tracing.log import Fixed, Guard, OperationKind
from autobatch.call.tracing.slots import function_of
from autobatch.ir import jax_compat

REMEMBERED = 20_000
"""So many templates are kept."""

STATIC = (int, bool, str, bytes, type(None), type(Ellipsis), np.dtype, type, np.integer, np.bool_)
"""Arguments that are a part of what is called; numbers that are computed with are operands."""


class UnknownCall(Exception):
    """A call that is not found again: it holds functions, or objects that only JAX knows."""


class KnownType:
    """The type of an operand that Python knows."""

    __slots__ = ("type",)

    def __init__(self, type: Type) -> None:
        self.type = type


class FixedType:
    """What a shared value is: there is one object for each. `type`: as that of other operands."""

    __slots__ = ("operand", "type")

    def __init__(self, type: Type, operand: Fixed) -> None:
        self.type, self.operand = type, operand


class Type:
    """The type of an operand. There is one object for each."""

    __slots__ = ("aval", "dtype", "known", "pair", "shape", "type", "weak")

    def __init__(self, shape: tuple[int, ...], dtype: Any, weak: bool) -> None:
        self.shape, self.dtype, self.weak = shape, dtype, weak
        self.pair = shape, dtype
        self.aval = jax.ShapeDtypeStruct(shape, dtype, weak_type=weak)
        self.type, self.known = self, KnownType(self)

    def __repr__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"


_types: dict[Hashable, Type] = {}


def type_of(shape: tuple[int, ...], dtype: Any, weak: bool) -> Type:
    key = shape, dtype, weak
    found = _types.get(key)
    if found is None:
        found = _types.setdefault(key, Type(shape, dtype, weak))
    return found


def type_of_value(x: Any) -> Type:
    """The type of a number that Python knows."""
    weak = isinstance(x, (bool, int, float, complex)) and not isinstance(x, np.generic)
    return type_of(np.shape(x), jax.dtypes.result_type(x), weak or bool(getattr(x, "weak_type", False)))


@dataclass(frozen=True, eq=False, slots=True)
class Template:
    """A call for operands of some types. `reads`: which of its operands the operation has, `types`: theirs. `leaves`:
    what each leaf of the result is, result `k` of the operation (0, k), operand `k` (1, k), or a value (2, value).
    `result`: the types of the operation's results. `single`: the call's result is that of the operation."""

    kind: OperationKind | None
    reads: tuple[int, ...]
    types: tuple[Any, ...]
    leaves: tuple[tuple[int, Any], ...]
    tree: Any
    result: tuple[Type, ...]
    single: bool


def made(
    name: str, fun: Callable[..., Any], parts: Sequence[Any], names: Sequence[str], avals: Sequence[Any]
) -> Template:
    """Trace a call. `parts`: its arguments, with `OperandHole` for operands; the last are those of `names`."""
    held: list[Any] = []

    def run(*xs: Any) -> list[Any]:
        filled = [fill(p, xs) for p in parts]
        first = len(filled) - len(names)
        result = fun(*filled[:first], **dict(zip(names, filled[first:], strict=True)))
        leaves, tree = jax.tree.flatten(result)
        held.append((leaves, tree))
        return [x for x in leaves if isinstance(x, jax.Array)]

    closed = jax.make_jaxpr(run)(*avals)
    leaves, tree = held[0]
    jaxpr = closed.jaxpr
    invars = {v: k for k, v in enumerate(jaxpr.invars)}
    consts = dict(zip(jaxpr.constvars, closed.consts, strict=True))
    arrays = iter(jaxpr.outvars)
    found: list[tuple[int, Any]] = []
    outs: list[Any] = []
    for leaf in leaves:
        if not isinstance(leaf, jax.Array):
            found.append((2, leaf))
            continue
        v = next(arrays)
        if jax_compat.is_literal(v):
            found.append((2, np.asarray(v.val, v.aval.dtype)))
        elif v in invars:
            found.append((1, invars[v]))
        elif v in consts:
            found.append((2, consts[v]))
        else:
            found.append((0, len(outs)))
            outs.append(v)
    holes = [(x.number, avals[x.number]) if type(x) is OperandHole else x for x in parts]
    guard = None if names else Guard.of(name, holes)
    return _template(name, closed, found, outs, tree, invars, avals, guard)


def _template(
    name: str,
    closed: Any,
    leaves: list[tuple[int, Any]],
    outs: list[Any],
    tree: Any,
    invars: Any,
    avals: Sequence[Any],
    guard: Guard | None,
) -> Template:
    used = _used(closed.jaxpr, outs)
    reads = tuple(k for v, k in invars.items() if v in used)
    if not outs:
        return Template(None, (), (), tuple(leaves), tree, (), False)
    run = _running(closed, [closed.jaxpr.invars[k] for k in reads], outs)
    if not reads:  # the same whatever the operands are
        values = run()
        known = [(2, values[x]) if where == 0 else (where, x) for where, x in leaves]
        return Template(None, (), (), tuple(known), tree, (), False)
    shapes = tuple(jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in outs)
    types = tuple(type_of(v.aval.shape, v.aval.dtype, bool(getattr(v.aval, "weak_type", False))) for v in outs)
    kind = OperationKind((name,), run, shapes, guard if len(reads) == len(avals) else None)
    operands = tuple((avals[k].shape, avals[k].dtype) for k in reads)
    single = jax.tree_util.treedef_is_leaf(tree) and leaves == [(0, 0)]
    return Template(kind, reads, operands, tuple(leaves), tree, types, single)


def _used(jaxpr: Any, outs: Sequence[Any]) -> set[Any]:
    """What some results depend on."""
    found = set(outs)
    for equation in reversed(jaxpr.eqns):
        if not found.isdisjoint(equation.outvars):
            found.update(v for v in equation.invars if not jax_compat.is_literal(v))
    return found


def _running(closed: Any, invars: Sequence[Any], outs: Sequence[Any]) -> Callable[..., Sequence[Any]]:
    """Some results of a jaxpr, of the operands that they depend on."""
    others = [v for v in closed.jaxpr.invars if v not in set(invars)]
    avals = [v.aval for v in others]
    whole = jax_compat.with_results(closed, outs)
    places = [closed.jaxpr.invars.index(v) for v in invars]
    rest = [(closed.jaxpr.invars.index(v), a) for v, a in zip(others, avals, strict=True)]

    def run(*xs: Any) -> Sequence[Any]:
        given: list[Any] = [None] * (len(places) + len(rest))
        for k, x in zip(places, xs, strict=True):
            given[k] = x
        for k, aval in rest:
            given[k] = jax_compat.zeros(aval.shape, aval.dtype)
        found: Sequence[Any] = whole(*given)
        return found

    return run


# ---- arguments


class OperandHole:
    """The place of an operand among the arguments of a call."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number


def fill(part: Any, operands: Sequence[Any]) -> Any:
    """An argument with its operands."""
    kind = type(part)
    if kind is OperandHole:
        return operands[part.number]
    if kind in (tuple, list):
        return kind(fill(x, operands) for x in part)
    if kind is slice:
        return slice(*(fill(x, operands) for x in (part.start, part.stop, part.step)))
    if kind is dict:
        return {k: fill(x, operands) for k, x in part.items()}
    return part


def emptied(x: Any, key: Any, number: Iterator[int]) -> Any:
    """An argument with holes where its key says that operands are."""
    kind = type(x)
    if isinstance(key, Type):
        return OperandHole(next(number))
    if kind in (tuple, list):
        return kind(emptied(y, k, number) for y, k in zip(x, key[1:], strict=True))
    if kind is slice:
        if key[0] is OperandHole:
            return x
        parts = (x.start, x.stop, x.step)
        return slice(*(emptied(y, k, number) for y, k in zip(parts, key[1:], strict=True)))
    if kind is dict:
        return {n: emptied(y, k, number) for (n, y), (_, k) in zip(x.items(), key[1:], strict=True)}
    return x


_PLACES = (int, type(None))


def key_of(x: Any, symbol: type, operands: list[Any], floats: bool) -> Any:
    """What tells an argument from others: the types of its operands, which are collected, and the rest itself."""
    kind = type(x)
    if kind is symbol:
        operands.append(x)
        return x._key.type
    if kind is float or kind is complex:
        if not floats:
            return kind, repr(x)
        operands.append(x)
        return FLOATS[kind, packed.x64()]
    if kind in (tuple, list):
        return (kind, *[key_of(y, symbol, operands, floats) for y in x])
    if kind is slice:
        if type(x.start) in _PLACES and type(x.stop) in _PLACES and type(x.step) in _PLACES:
            return (OperandHole, x.start, x.stop, x.step)
        return (slice, *[key_of(y, symbol, operands, floats) for y in (x.start, x.stop, x.step)])
    if kind is dict:
        return (dict, *[(n, key_of(y, symbol, operands, floats)) for n, y in x.items()])
    if isinstance(x, (np.ndarray, np.floating, np.complexfloating, jax.Array)):
        if isinstance(x, np.ndarray) and x.dtype.kind not in "biufcV":
            raise UnknownCall
        operands.append(x)
        return type_of_value(x)
    if isinstance(x, tuple) and any(type(y) is symbol for y in x):
        raise UnknownCall
    if isinstance(x, (*STATIC, tuple)):
        return kind, x
    if isinstance(x, (types.FunctionType, types.MethodType)) or not _is_hashable(x) or callable(x):
        raise UnknownCall
    return kind, x


def _is_hashable(x: Any) -> bool:
    try:
        hash(x)
    except TypeError:
        return False
    return True


class _Floats(dict[tuple[type, bool], Type]):
    def __missing__(self, key: tuple[type, bool]) -> Type:
        made = self[key] = type_of_value(key[0](0))
        return made


FLOATS = _Floats()


# ---- intercepted
#
# Functions of JAX, as a function finds them while it is traced: those of symbols are noted, all others are JAX's own.
#
# The modules of JAX hold them while some thread traces; for all other threads they are but a call of JAX's function.


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
