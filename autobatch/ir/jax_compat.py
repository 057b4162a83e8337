"""The one module that touches JAX beyond its everyday API: jaxprs in, leaf operations out; programs under `shard_map`.

Supported: JAX 0.10 to 0.12. Semi-public names come from `jax.extend.core` and `jax.interpreters`; nothing is taken from
`jax._src`, and of `jaxlib` one function, without which all works, too.

Under `jax.shard_map` types say over which axes of the mesh a value varies. What we emit mixes values that vary with
numbers that do not, in loops too, which JAX refuses. Each device runs the whole of it by itself, so there it is one
operation, of whose inside those types say nothing: all of its operands vary, and all of its results. Operands that do
not vary are cast, whose derivative is the sum over the axes (JAX's pages, "Manual parallelism with shard_map").
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from enum import Enum
from functools import cache, lru_cache
from typing import Any, TypeVar, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import core
from jax.extend import core as jex
from jax.extend.core import primitives
from jax.interpreters import ad, batching, mlir

from autobatch.errors import DeviceError, Span
from autobatch.ir.core import Apply, Array, Literal, Operand, Type, Value
from autobatch.ir.ops import Op

try:  # private to JAX: half a hundred microseconds a call, and nothing else, depend on it
    from jaxlib.xla_client import batched_device_put
except ImportError:
    batched_device_put = None

_INLINED = {
    "jit": "jaxpr",
    "pjit": "jaxpr",
    "closed_call": "call_jaxpr",
    "core_call": "call_jaxpr",
    "eval_jaxpr": "call_jaxpr",
    "remat": "jaxpr",
    "remat2": "jaxpr",
    "checkpoint": "jaxpr",
}
_DEFAULT_WIDTH = {"int64": "int32", "float64": "float32", "complex128": "complex64"}
_DOUBLE_WIDTH = {narrow: wide for wide, narrow in _DEFAULT_WIDTH.items()}
_KEY_IMPLEMENTATIONS = {"key<fry>": "threefry2x32", "key<rbg>": "rbg", "key<urbg>": "unsafe_rbg"}
_PRIMITIVES: dict[str, Any] = {
    made.name: made for name, made in sorted(vars(primitives).items()) if isinstance(made, jex.Primitive)
}


_ran, _forked = False, False
"""Has something run through XLA in this process; and in one that it was forked from, before that?"""


def _after_fork() -> None:
    global _forked
    _forked = _ran


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def check_process() -> None:
    """Raises DeviceError where XLA would wait for threads that this process has not: a fork leaves them behind."""
    global _ran
    _ran = True
    if _forked:
        raise DeviceError(
            "XLA does not run in a process that was forked from one in which it ran: its threads stayed there; start "
            'processes with multiprocessing.get_context("spawn"), or fork them before the first call'
        )


def primitive(name: str) -> Any:
    """The primitive of that name, JAX's own or one that has been inlined; None where there is none."""
    return _PRIMITIVES.get(name)


def type_of(aval: Any) -> Array:
    """The type of a JAX value, abstract or concrete, of a NumPy value or of a Python scalar."""
    aval = aval if hasattr(aval, "dtype") and hasattr(aval, "shape") else jax.typeof(aval)
    return _array(narrow_float(aval.dtype), tuple(aval.shape), bool(getattr(aval, "weak_type", False)))


def row_type(array: Any) -> Array:
    """The type of a row of an array of JAX or NumPy. A weak number, which came of one of Python, is one of Python."""
    aval = jax.typeof(array)
    shape = tuple(aval.shape[1:])
    return _array(narrow_float(aval.dtype), shape, bool(getattr(aval, "weak_type", False)) and not shape)


@lru_cache(maxsize=4096)
def _array(dtype: Any, shape: tuple[int, ...], weak: bool) -> Array:
    name = str(dtype)
    return Array(_DEFAULT_WIDTH.get(name, name) if weak else name, shape, weak)


@cache
def dtype_of(name: str) -> Any:
    """The dtype with that name; `key<...>` names are JAX's typed random keys."""
    if name in _KEY_IMPLEMENTATIONS:
        return jax.eval_shape(lambda: jax.random.key(0, impl=_KEY_IMPLEMENTATIONS[name])).dtype
    return jnp.dtype(name)


def key_implementation(name: str) -> str:
    """The random number generator of a key dtype."""
    return _KEY_IMPLEMENTATIONS[name]


def device_dtype(type: Array) -> Any:
    """The dtype of the values of a type. A weak type is a Python number: it has JAX's default width, which x64 doubles,
    though the IR always writes the narrow name."""
    if not _is_python(type):
        return dtype_of(type.dtype)
    return canonical_dtype(_DOUBLE_WIDTH[type.dtype])


_integers_wide = ContextVar("integers are wide", default=False)


@contextmanager
def wide_integers() -> Iterator[None]:
    """Inside, integers of Python have 64 bits, as under `jax_enable_x64`, and floats 32, as without."""
    token = _integers_wide.set(True)
    try:
        with jax.enable_x64(True):
            yield
    finally:
        _integers_wide.reset(token)


def integers_are_wide() -> bool:
    """Do integers of Python alone have 64 bits?"""
    return _integers_wide.get()


def narrow_float(dtype: Any) -> Any:
    """A dtype as numbers have it here: floats of 32 bits inside of `wide_integers`."""
    return dtype_of(_NARROW_FLOATS.get(str(dtype), str(dtype))) if _integers_wide.get() else dtype


def canonical_dtype(dtype: Any) -> Any:
    """The dtype that numbers of some dtype have here."""
    return narrow_float(jax.dtypes.canonicalize_dtype(dtype))


def float_dtype() -> Any:
    """The dtype that floats of Python have here."""
    return canonical_dtype(float)


def narrowed(xs: Sequence[Any]) -> Sequence[Any]:
    """Values whose floats have the bits that they have here."""
    return list(map(_narrowed, xs)) if integers_are_wide() else xs


def narrowed_numbers(xs: Sequence[Any]) -> Sequence[Any]:
    """The same for operands of several types: beside a float of an array, one of Python takes the dtype of that."""
    return xs if any(map(_is_float_of_array, xs)) else narrowed(xs)


def _is_float_of_array(x: Any) -> bool:
    is_array = hasattr(x, "dtype") and not getattr(x, "weak_type", False)
    return is_array and bool(jnp.issubdtype(x.dtype, jnp.inexact))


def _narrowed(x: Any) -> Any:
    if isinstance(x, float | complex):
        return np.asarray(x, narrow_float(np.asarray(x).dtype))
    dtype: Any = getattr(x, "dtype", None)
    if str(dtype) in _NARROW_FLOATS or (getattr(x, "weak_type", False) and jnp.issubdtype(dtype, jnp.inexact)):
        return jax.lax.convert_element_type(x, narrow_float(dtype))  # two weak ones JAX would widen
    return x


_NARROW_FLOATS = {"float64": "float32", "complex128": "complex64"}


class _Namespace(threading.local):
    module: Any = jnp


_namespace = _Namespace()


@contextmanager
def by_numpy() -> Iterator[None]:
    """Inside, `xp` is NumPy: for arrays that are all NumPy's, of which each operation of JAX costs 10 to 100 times as
    much."""
    before, _namespace.module = _namespace.module, np
    try:
        yield
    finally:
        _namespace.module = before


class ArrayNamespace:
    """`jax.numpy`, or NumPy inside of `by_numpy`: what both of them have."""

    def __getattr__(self, name: str) -> Any:
        return getattr(_namespace.module, name)


xp = ArrayNamespace()


def taken(x: Any, at: Any) -> Any:
    """Rows of an array; those behind its last one are the last, as JAX reads them."""
    if isinstance(x, np.ndarray) and isinstance(at, np.ndarray):
        return np.take(x, at, axis=0, mode="clip") if len(x) else np.zeros((*at.shape, *x.shape[1:]), x.dtype)
    return xp.asarray(x)[at]


def to_device(x: np.ndarray[Any, Any]) -> Any:
    """A copy of an array on the default device. `jax.device_put` does the same, and takes some 50 microseconds to find
    out that there is little to do."""
    config: Any = jax.config
    device = config.jax_default_device
    if batched_device_put is None or isinstance(device, str):
        return jax.device_put(x.copy())  # it would take what is aligned as it is, whatever `may_alias` says
    aval, sharding = _placed(x.dtype, x.shape, device, config.jax_enable_x64)
    return batched_device_put(aval, sharding, [x], [*sharding.device_set], False, True)


@lru_cache(maxsize=4096)
def _placed(dtype: Any, shape: tuple[int, ...], device: Any, x64: bool) -> tuple[Any, Any]:
    """How an array lies on a device; None is the default one. `x64`: are numbers of 64 bits left as they are?"""
    kind = jax.dtypes.canonicalize_dtype(dtype)
    return core.ShapedArray(shape, kind), jax.sharding.SingleDeviceSharding(device or jax.local_devices()[0])


def zeros(shape: tuple[int, ...], dtype: Any) -> Any:
    """An array of zeros; for a key dtype, of keys whose words are zero."""
    if not jnp.issubdtype(dtype, jax.dtypes.prng_key):
        return jnp.zeros(shape, dtype)
    kind = key_implementation(str(dtype))
    words = jax.eval_shape(lambda: jax.random.key_data(jax.random.key(0, impl=kind)))
    return jax.random.wrap_key_data(jnp.zeros((*shape, *words.shape), words.dtype), impl=kind)


def _is_python(type: Array) -> bool:
    return type.weak and type.dtype in _DOUBLE_WIDTH


def aval_of(type: Array, rows: int | None = None) -> jax.ShapeDtypeStruct:
    """The abstract JAX value of a type, with a leading axis of `rows` unless that is None."""
    shape = type.shape if rows is None else (rows, *type.shape)
    return jax.ShapeDtypeStruct(shape, device_dtype(type), weak_type=type.weak)


def literal(value: Any, type: Array) -> Any:
    """The concrete value of a scalar literal: what a primitive must be bound with."""
    if type.weak and isinstance(value, (bool, int, float, complex)):
        return value
    return np.asarray(value, device_dtype(type))


def conform(value: Any, type: Type) -> Any:
    """A value in the dtype and shape of a type; a Python number becomes an array, which is not weak."""
    assert isinstance(type, Array)
    found = jax.lax.convert_element_type(jnp.asarray(value), device_dtype(type))
    return found if found.shape == type.shape else jnp.broadcast_to(found, type.shape)


def weakened(x: Any) -> Any:
    """A number as a Python number: weak, and of JAX's default width, though it was computed with fewer bits."""
    x = jnp.asarray(x)
    dtype = canonical_dtype(_DOUBLE_WIDTH.get(x.dtype.name, x.dtype))
    return jax.lax.convert_element_type_p.bind(x, new_dtype=dtype, weak_type=True, sharding=None)


def is_literal(x: Any) -> bool:
    """Is an operand of an equation a number that stands in it?"""
    return isinstance(x, jex.Literal)


def with_results(closed: jex.ClosedJaxpr, results: Sequence[Any]) -> Callable[..., Sequence[Any]]:
    """A traced function that gives other values of its jaxpr."""
    made: Callable[..., Sequence[Any]] = jex.jaxpr_as_fun(
        jex.ClosedJaxpr(closed.jaxpr.replace(outvars=list(results)), closed.consts)
    )
    return made


class TraceEffectError(Exception):
    """A traced function has side effects (a callback, a print), which would run once and not for each example."""


def trace(fun: Callable[..., Any], *types: Array) -> tuple[jex.ClosedJaxpr, Any]:
    """Trace `fun` on abstract values: its jaxpr, and the pytree of its results' abstract values."""
    _state.tracing += 1
    try:
        closed, shapes = jax.make_jaxpr(fun, return_shape=True)(*(aval_of(t) for t in types))
    finally:
        _state.tracing -= 1
    return closed, shapes


def leaves_of(tree: Any) -> list[Any]:
    """`jax.tree.leaves`, in half the time: it counts in a call of some microseconds."""
    found: list[Any] = jax.tree_util.default_registry.flatten(tree)[0]
    return found


def settings() -> tuple[int, str, str]:
    """The settings of JAX that say what a trace of the same types comes to."""
    config: Any = jax.config
    x64 = config.jax_enable_x64 + integers_are_wide()
    return (x64, config.jax_numpy_dtype_promotion, config.jax_numpy_rank_promotion)


class _State(threading.local):
    tracing: int = 0


_state = _State()


def is_tracing() -> bool:
    """Does this thread trace a piece of per-example code? A batched function called there means one activation."""
    return _state.tracing > 0


_AT_TOP = jax.extend.core.get_opaque_trace_state()


def is_transformed() -> bool:
    """Does a transformation of JAX trace what runs now?"""
    return bool(jax.extend.core.get_opaque_trace_state() != _AT_TOP)


_CHOOSING = "autobatch.choosing"
_CHOICES = frozenset(("select_n", "dynamic_slice", "gather"))

F = TypeVar("F", bound=Callable[..., Any])


def choosing(function: F) -> F:
    """A function of JAX that takes one number, or element, of several, as a branch does and a list: what it does not
    take is not used. Its operations are marked (`Op.choice`) when they are inlined."""

    @functools.wraps(function)
    def inside(*xs: Any) -> Any:
        with jax.named_scope(_CHOOSING):
            return function(*xs)

    return cast(F, inside)


def inline(
    closed: jex.ClosedJaxpr,
    operands: Sequence[Operand],
    fresh: Callable[[Array], Value],
    constant: Callable[[Any], Literal],
    emit: Callable[[Apply], None],
    span: Span,
    chooses: bool = False,
) -> list[Operand]:
    """Emit the equations of a jaxpr as `Apply` instructions; returns the operands that hold its results.

    `fresh` makes a value, `constant` puts an array into the module. Calls that only group (`jit`, `remat`) are
    dissolved; control flow and custom derivatives stay whole, as leaf operations. `chooses`: all of it is `choosing`.
    """
    env: dict[Any, Operand] = {}

    def scalar_or_constant(value: Any) -> Literal:
        if np.ndim(value) == 0 and not jnp.issubdtype(getattr(value, "dtype", np.float32), jax.dtypes.extended):
            return Literal(np.asarray(value).item(), type_of(value))
        return constant(value)

    def read(atom: Any) -> Operand:
        if isinstance(atom, jex.Literal):
            held = scalar_or_constant(atom.val)
            return Literal(held.value, type_of(atom.aval), held.constant)
        return env[atom]

    jaxpr = closed.jaxpr
    env.update(zip(jaxpr.constvars, map(scalar_or_constant, closed.consts), strict=True))
    env.update(zip(jaxpr.invars, operands, strict=True))
    for equation in jaxpr.eqns:
        inputs = [read(a) for a in equation.invars]
        name = equation.primitive.name
        chosen = chooses or _CHOOSING in str(equation.source_info.name_stack)
        if name in _INLINED:
            inner = equation.params[_INLINED[name]]
            if not isinstance(inner, jex.ClosedJaxpr):
                inner = jex.ClosedJaxpr(inner, ())
            outputs = inline(inner, inputs, fresh, constant, emit, span, chosen)
        else:
            if equation.effects:
                raise TraceEffectError(f"{name} has the side effects {equation.effects}")
            _PRIMITIVES.setdefault(name, equation.primitive)
            values = [fresh(type_of(v.aval)) for v in equation.outvars]
            params = ((key, _of_python(x)) for key, x in sorted(equation.params.items()))
            op = Op(name, tuple(params), equation.primitive, choice=chosen and name in _CHOICES)
            emit(Apply(tuple(values), op, tuple(inputs), span))
            outputs = list(values)
        env.update(zip(equation.outvars, outputs, strict=True))
    return [read(a) for a in jaxpr.outvars]


def _of_python(x: Any) -> Any:
    """A parameter with integers of Python in the place of NumPy's: sizes of `jnp.split` are such."""
    if isinstance(x, np.integer):
        return int(x)
    if isinstance(x, tuple):
        held = map(_of_python, x)
        return type(x)(*held) if hasattr(x, "_fields") else tuple(held)
    return x


def bind(op: Op, results: Sequence[Array], *xs: Any) -> Sequence[Any]:
    """The results of a JAX primitive on concrete values or tracers, as evaluating a jaxpr would give them.

    Primitives that hold jaxprs are evaluated as a jaxpr of one equation: only that knows how to bind them."""
    params = dict(op.params)
    if not any(True for _ in jex.jaxprs_in_params(params)):
        out = op.primitive.bind(*xs, **params)
        return out if op.primitive.multiple_results else [out]
    inputs = [jex.Var(jax.typeof(x)) for x in xs]
    outputs = [jex.Var(jax.typeof(aval_of(t))) for t in results]
    equation = jex.new_jaxpr_eqn(inputs, outputs, op.primitive, params, jex.no_effects)
    empty = _empty_jaxpr()
    jaxpr = empty.replace(
        invars=inputs, outvars=outputs, eqns=[equation], debug_info=empty.debug_info.with_unknown_names()
    )
    return jax.core.eval_jaxpr(jaxpr, (), *xs)


def cotangent_type(type: Array) -> Array:
    """The type of the cotangent of a value."""
    return Array(jnp.dtype(device_dtype(type)).name, type.shape)


def held_program(op: Op, operands: Sequence[Array]) -> jex.ClosedJaxpr:
    """What an operation with derivatives of its own computes."""
    params = dict(op.params)
    if "_prim" in params:  # of JAX 0.12, written in Python
        return trace(lambda *xs: params["_prim"].expand(*xs), *operands)[0]
    closed: jex.ClosedJaxpr = params["call_jaxpr"]
    return closed


def carried(scan: Op) -> tuple[int, int]:
    """How many operands of a `scan` its turns share, and how many values each turn hands to the next."""
    params = dict(scan.params)
    if "num_carry" in params:
        return params["num_consts"], params["num_carry"]
    shared, handed, _ = params["ft_in"].unpack()  # JAX 0.12
    return len(shared), len(handed)


def has_tolerance(op: Op) -> bool:
    """Is a function of floats to be as exact as a number says? The best that there is is what each of ours is."""
    return any(key == "accuracy" and not (x is None or isinstance(x, Enum)) for key, x in op.params)


def holds_loop(op: Op) -> bool:
    """Does an operation hold a loop that computed numbers end? It may never end on operands that nobody meant."""
    if op.name == "pullback":
        return bool(op["loops"])
    return op.is_jax and (op.name == "while" or any(map(loops, jex.jaxprs_in_params(dict(op.params)))))


def held_primitives(op: Op) -> list[str]:
    """The names of the primitives inside an operation that holds jaxprs, in order, each as often as it stands there."""
    return [n for j in jex.jaxprs_in_params(dict(op.params)) for n in _primitives(j)] if op.is_jax else []


def _primitives(jaxpr: jex.Jaxpr) -> list[str]:
    found = []
    for e in jaxpr.eqns:
        found += [e.primitive.name, *(n for j in jex.jaxprs_in_params(e.params) for n in _primitives(j))]
    return found


def program_of(x: object) -> jex.Jaxpr | None:
    """The program that a parameter of an operation is."""
    return x.jaxpr if isinstance(x, jex.ClosedJaxpr) else x if isinstance(x, jex.Jaxpr) else None


def loops(jaxpr: jex.Jaxpr) -> bool:
    """Does a jaxpr hold a loop that computed numbers end?"""
    return any(e.primitive.name == "while" or any(map(loops, jex.jaxprs_in_params(e.params))) for e in jaxpr.eqns)


@cache
def _empty_jaxpr() -> jex.Jaxpr:
    jaxpr: jex.Jaxpr = jax.make_jaxpr(lambda: ())().jaxpr
    return jaxpr


def inputs_read(closed: jex.ClosedJaxpr) -> frozenset[int]:
    """The inputs of a jaxpr that its results depend on."""
    jaxpr = closed.jaxpr
    live = {v for v in jaxpr.outvars if not isinstance(v, jex.Literal)}
    for equation in reversed(jaxpr.eqns):
        if not live.isdisjoint(equation.outvars):
            live.update(v for v in equation.invars if not isinstance(v, jex.Literal))
    return frozenset(k for k, v in enumerate(jaxpr.invars) if v in live)


@cache
def _forward_tracer() -> type | None:
    """What stands for a value under `jax.jvp`; None where reverse mode has the same."""
    seen: list[type] = []

    def look(x: Any) -> Any:
        seen.append(type(x))
        return x

    jax.jvp(look, (1.0,), (1.0,))
    jax.linearize(look, 1.0)
    return seen[0] if seen[0] is not seen[1] else None


def is_pushed_forward(x: Any) -> bool:
    """Does `jax.jvp` differentiate a value, perhaps below other transformations? What is inside a `jax.jit` that it
    passes through does not show it."""
    forward = _forward_tracer() if isinstance(x, jax.core.Tracer) else None
    while forward is not None and isinstance(x, jax.core.Tracer):
        if isinstance(x, forward):
            return True
        x = getattr(x, "primal", getattr(x, "val", None))
    return False


def as_one(function: Callable[..., Sequence[Any]], xs: Sequence[Any]) -> list[Any]:
    """`function(*xs)` as one operation, of whose inside the types of `jax.shard_map` say nothing: all results vary over
    the axes of a mesh that the first operand varies over, which is to be those of all. It has no derivative."""
    closed = jax.make_jaxpr(function)(*(jax.ShapeDtypeStruct(x.shape, x.dtype, weak_type=x.weak_type) for x in xs))
    found: list[Any] = _whole.bind(*xs, jaxpr=closed)
    return found


def _plain(aval: Any) -> Any:
    return core.ShapedArray(aval.shape, aval.dtype, weak_type=aval.weak_type)


def _like(result: Any, operand: Any) -> Any:
    """The type of a result that varies as an operand does."""
    spec = jax.sharding.PartitionSpec(*(None for _ in result.shape))
    sharding = jax.sharding.NamedSharding(operand.sharding.mesh, spec)
    name = "manual_axis_type" if hasattr(operand, "manual_axis_type") else "vma"
    held = {name: getattr(operand, name)}
    return core.ShapedArray(result.shape, result.dtype, result.weak_type, sharding=sharding, **held)


def _whole_lowered(ctx: Any, *xs: Any, jaxpr: Any) -> Any:
    inner = ctx.replace(avals_in=list(map(_plain, ctx.avals_in)), avals_out=list(map(_plain, ctx.avals_out)))
    return mlir.lower_fun(jex.jaxpr_as_fun(jaxpr), multiple_results=True)(inner, *xs)


def _whole_batched(xs: Any, axes: Any, *, jaxpr: Any) -> tuple[Any, Any]:
    found = as_one(jax.vmap(jex.jaxpr_as_fun(jaxpr), in_axes=tuple(axes)), xs)
    return found, [0] * len(found)


_whole = jex.Primitive("autobatch_program")
_whole.multiple_results = True
_whole.def_abstract_eval(lambda *avals, jaxpr: [_like(result, avals[0]) for result in jaxpr.out_avals])
_whole.def_impl(lambda *xs, jaxpr: jex.jaxpr_as_fun(jaxpr)(*xs))
mlir.register_lowering(_whole, _whole_lowered)
batching.primitive_batchers[_whole] = _whole_batched


def host_report(target: str, elsewhere: Callable[[str, Any], Any]) -> Any:
    """A primitive that hands integers on, and has a foreign function look at them first, which may end the computation
    with an error. Param: `what`, a text for it. On other platforms, and under `jax.vmap`, `elsewhere(what, x)`."""
    report = jex.Primitive(target)
    report.multiple_results = True
    report.def_impl(lambda x, what: [elsewhere(what, x)])
    report.def_abstract_eval(lambda x, what: [core.ShapedArray(x.shape, x.dtype)])

    def on_cpu(ctx: Any, x: Any, what: str) -> Any:
        # XLA refuses an effect in a program that it cuts for several devices: there the result alone keeps the call
        several = (getattr(ctx.module_context.axis_context, "num_devices", None) or 1) > 1
        return jax.ffi.ffi_lowering(target, has_side_effect=not several)(ctx, x, what=what)

    def batched(xs: Any, axes: Any, what: str) -> tuple[Any, Any]:
        return [jax.vmap(lambda x: elsewhere(what, x), in_axes=tuple(axes))(*xs)], [0]

    def differentiated(primals: Any, tangents: Any, what: str) -> tuple[Any, Any]:
        return report.bind(*primals, what=what), list(tangents)

    mlir.register_lowering(report, on_cpu, platform="cpu")
    mlir.register_lowering(report, mlir.lower_fun(lambda x, what: [elsewhere(what, x)], multiple_results=True))
    batching.primitive_batchers[report] = batched
    ad.primitive_jvps[report] = differentiated
    return report


def foreign_call(name: str) -> Any:
    """A primitive that a foreign function computes where a program is lowered for a CPU; elsewhere, in derivatives and
    under `jax.vmap` it is what its param `plain` makes of the operands, which is traced then and not before.

    Params: `target`, the name of the foreign function; it takes the first `taken` operands. `shapes` of the results,
    and of its `scratch` memory, results that nobody else sees."""
    call = jex.Primitive(name)
    call.multiple_results = True
    call.def_impl(lambda *xs, plain, **params: plain(*xs))
    call.def_abstract_eval(lambda *avals, shapes, **params: [core.ShapedArray(s.shape, s.dtype) for s in shapes])

    def on_cpu(ctx: Any, *xs: Any, target: str, taken: int, scratch: Any, **params: Any) -> Any:
        extra = [core.ShapedArray(s.shape, s.dtype) for s in scratch]
        inner = ctx.replace(avals_in=ctx.avals_in[:taken], avals_out=[*ctx.avals_out, *extra])
        found = jax.ffi.ffi_lowering(target)(inner, *xs[:taken])
        return list(found)[: len(ctx.avals_out)]

    def elsewhere(*xs: Any, plain: Callable[..., Any], **params: Any) -> Any:
        return plain(*xs)

    def batched(xs: Any, axes: Any, *, plain: Callable[..., Any], **params: Any) -> tuple[Any, Any]:
        out = jax.vmap(plain, in_axes=tuple(axes))(*xs)
        return out, [0] * len(out)

    def differentiated(primals: Any, tangents: Any, *, plain: Callable[..., Any], **params: Any) -> tuple[Any, Any]:
        return jax.jvp(plain, tuple(primals), tuple(map(ad.instantiate_zeros, tangents)))

    mlir.register_lowering(call, on_cpu, platform="cpu")
    mlir.register_lowering(call, mlir.lower_fun(elsewhere, multiple_results=True))
    batching.primitive_batchers[call] = batched
    ad.primitive_jvps[call] = differentiated
    return call


# ---- handing over
#
# Arrays of NumPy as arrays of JAX, where what a call costs matters.


_NUMBERS = (np.ndarray, np.generic, jax.Array, bool, int, float, complex)
"""What becomes an array; strings, say, are results as they are."""


def as_jax(result: Any) -> Any:
    """A pytree with arrays of JAX in the place of NumPy's; they hold copies."""
    leaves, tree = jax.tree.flatten(result)
    return jax.tree.unflatten(tree, map(_of, leaves))


def _of(x: Any) -> Any:
    if type(x) is np.ndarray:
        return to_device(x)
    return jnp.asarray(x) if isinstance(x, _NUMBERS) else x


# ---- shard_map


NOWHERE: frozenset[str] = frozenset()


def as_one_over_axes(function: Callable[..., Any], *trees: Any) -> Any:
    """`function(*trees)`; one operation with a derivative in reverse where some array varies over axes of a mesh."""
    leaves, structure = jax.tree.flatten(trees)
    if not any(isinstance(x, jax.core.Tracer) for x in leaves):
        return function(*trees)
    axes = NOWHERE.union(*map(_axes, leaves))
    if not axes:
        return function(*trees)
    return _run(function, structure, axes, [_over(jnp.asarray(x), axes) for x in leaves])


def _run(function: Callable[..., Any], structure: Any, axes: frozenset[str], leaves: list[Any]) -> Any:
    trees: dict[str, Any] = {}

    def flat(*xs: Any) -> list[Any]:
        found, trees["result"] = jax.tree.flatten(function(*jax.tree.unflatten(structure, xs)))
        return found

    def moving(xs: Any) -> list[int]:
        return [k for k, x in enumerate(xs) if jnp.issubdtype(x.dtype, jnp.inexact)]

    def forwards(*xs: Any) -> list[Any]:
        """The results, then what the pullback holds."""
        wrt = moving(xs)

        def run(moved: list[Any]) -> tuple[list[Any], list[Any]]:
            whole = list(xs)
            for k, x in zip(wrt, moved, strict=True):
                whole[k] = x
            found = flat(*whole)
            return [found[k] for k in moving(found)], found

        _, pull, found = jax.vjp(run, [xs[k] for k in wrt], has_aux=True)
        kept, trees["pull"] = jax.tree.flatten(pull)
        return [*found, *kept]

    @jax.custom_vjp
    def call(*xs: Any) -> list[Any]:
        return as_one(flat, xs)

    def forward(*xs: Any) -> tuple[list[Any], Any]:
        whole = as_one(forwards, xs)
        count = trees["result"].num_leaves
        return whole[:count], (whole[count:], xs)

    def backward(held: Any, cotangents: list[Any]) -> Any:
        kept, xs = held
        given = [_over(ct, axes) for ct in cotangents if ct.dtype != jax.dtypes.float0]
        given = [ct for ct in given if jnp.issubdtype(ct.dtype, jnp.inexact)]

        def pulled(*values: Any) -> Any:
            pull = jax.tree.unflatten(trees["pull"], values[: len(kept)])
            return pull(list(values[len(kept) :]))[0]

        found = iter(as_one(pulled, (*kept, *given)))
        wrt = set(moving(xs))
        return tuple(next(found) if k in wrt else None for k in range(len(xs)))

    call.defvjp(forward, backward)
    results = call(*leaves)
    return jax.tree.unflatten(trees["result"], results)


def _axes(x: Any) -> frozenset[str]:
    """The axes of a mesh over which an array varies."""
    if not isinstance(x, jax.core.Tracer):
        return NOWHERE
    found: Any = jax.typeof(x)
    held = getattr(found, "manual_axis_type", None)
    return getattr(held, "varying", None) or getattr(found, "vma", None) or NOWHERE


def _over(x: Any, axes: frozenset[str]) -> Any:
    missing = tuple(sorted(axes - _axes(x)))
    return jax.lax.pcast(x, missing, to="varying") if missing else x
