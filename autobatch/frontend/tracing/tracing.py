"""Functions of JAX and of libraries: traced once on abstract values, their equations inlined.

    h = jnp.tanh(x @ w)            %1: float32[4] = dot_general[...](%x, %w)
                             ->    %2: float32[4] = tanh(%1)

Arguments may be any Python objects with values of the program inside, local functions included: those are rebuilt as
Python functions whose free variables are tracers.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import numpy as np

from autobatch.errors import SourceError
from autobatch.frontend.library.numpy_arrays import marked, of_call
from autobatch.frontend.lowering.access import wrap
from autobatch.frontend.lowering.key_order import run_over
from autobatch.frontend.lowering.state import Context, LoweringState
from autobatch.frontend.syntax.sources import is_user_function
from autobatch.frontend.tracing.closures import ClosureCopier
from autobatch.frontend.tracing.rebuild import rebuild_function
from autobatch.frontend.types import values as v
from autobatch.frontend.types.layouts import NotStored, layout_of, name_of_type
from autobatch.frontend.types.needs import need_of_trace
from autobatch.frontend.types.statics import is_namedtuple, make_object
from autobatch.frontend.types.unify import refuse_alternatives
from autobatch.ir import jax_compat
from autobatch.ir.core import Apply, Literal, Operand
from autobatch.ir.ops import Op
from autobatch.ir.types import Array
from autobatch.source import Span

Take = Callable[[Operand], Any]


class Untraceable(Exception):
    """JAX cannot trace the call; `error` is what it said."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        super().__init__(str(error))


class _Traced(NamedTuple):
    closed: Any
    shapes: Any


def trace(
    s: LoweringState, fun: Callable[..., Any], args: Sequence[v.Abstract], kwargs: dict[str, v.Abstract]
) -> v.Abstract:
    """The result of `fun(*args, **kwargs)`, traced. Raises Untraceable."""
    operands: list[Operand] = []
    given = to_python(s, v.Static(fun), operands.append)
    _arguments(s, args, kwargs, operands.append, _sorts_keys(given, args))
    used = list(dict.fromkeys(x for x in operands if not _is_scalar_literal(x)))
    try:
        traced = _cached(s, fun, args, kwargs, operands, used)
    except Untraceable:
        known = need_of_trace(s, used, lambda known: _works(s, fun, args, kwargs, used, known))
        if not known:
            raise
        traced = _Traced(*_run(s, fun, args, kwargs, used, known))
        used = [x for x in used if x not in known]
    folder = _Folder(s)
    results = jax_compat.inline(
        traced.closed,
        used,
        lambda type: s.context.value(_plain(type)),
        s.context.constant,
        folder.emit,
        s.span,
    )
    made = from_python(s.context, traced.shapes, iter(folder.held.get(x, x) for x in results))
    return marked(made, of_call(fun, args)) if not kwargs else made


def _note_function(s: LoweringState, given: Any) -> None:
    """A function of the user that is handed to JAX whole: its lines run where the call stands."""
    function = inspect.unwrap(given) if callable(given) else given
    if is_user_function(function) and not function.__module__.startswith("autobatch.frontend."):
        code = function.__code__
        last = max((line for _, _, line in code.co_lines() if line), default=code.co_firstlineno)
        s.context.traced.add((Span(code.co_filename, code.co_firstlineno, 1, last, 1), s.span))


class _Folder:
    """Emits instructions; those whose operands are scalar literals are computed now (`x[0]` has several)."""

    def __init__(self, s: LoweringState) -> None:
        self.state = s
        self.held: dict[Operand, Operand] = {}

    def emit(self, apply: Apply) -> None:
        operands = tuple(self.held.get(x, x) for x in apply.operands)
        if apply.op.name in _FOLDED and all(map(_is_scalar_literal, operands)):
            (result,) = apply.results
            if isinstance(result.type, Array) and result.type.is_scalar:
                if (known := _known(apply.op, operands, result.type)) is not None:
                    self.held[result] = known
                    return
                with jax.ensure_compile_time_eval():
                    (value,) = jax_compat.bind(apply.op, [result.type], *map(_concrete, operands))
                self.held[result] = Literal(np.asarray(value).item(), result.type)
                return
        self.state.emit(replace(apply, operands=operands))


def _known(op: Op, operands: Sequence[Operand], type: Array) -> Literal | None:
    """A Python number in another dtype, without asking XLA, which compiles a program for each."""
    value = operands[0].value if op.name == "convert_element_type" and isinstance(operands[0], Literal) else None
    if not isinstance(value, bool | int | float) or type.dtype.startswith("key<"):
        return None
    dtype = jax_compat.device_dtype(type)
    if type.dtype.startswith("float"):
        with np.errstate(over="ignore"):
            return Literal(np.asarray(value).astype(dtype).item(), type)
    if type.is_integer and isinstance(value, int) and np.iinfo(dtype).min <= value <= np.iinfo(dtype).max:
        return Literal(int(value), type)
    return None


_FOLDED = frozenset(
    {"lt", "ge", "add", "sub", "mul", "select_n", "convert_element_type", "broadcast_in_dim", "max", "min"}
)


def _cached(
    s: LoweringState,
    fun: Callable[..., Any],
    args: Sequence[v.Abstract],
    kwargs: dict[str, v.Abstract],
    operands: list[Operand],
    used: list[Operand],
) -> _Traced:
    """Trace, or find the trace of an equal call: same function, layouts, literals, and same operands in same places."""
    memory = s.context.memory
    try:
        layouts = (*(layout_of(a) for a in args), *((k, layout_of(a)) for k, a in sorted(kwargs.items())))
    except NotStored:
        s.refuse("a lazy sequence cannot be handed to this function", "make a list of it first: list(...)")
    positions = {x: k for k, x in enumerate(used)}
    places = tuple((x.type, positions[x]) if x in positions else x for x in operands)
    key = (id(fun), layouts, places, jax.config.read("jax_enable_x64"))
    if key not in memory.traces:
        memory.alive.append((fun, args, kwargs))
        memory.traces[key] = _Traced(*_run(s, fun, args, kwargs, used, {}))
    result: _Traced = memory.traces[key]
    return result


def _works(
    s: LoweringState,
    fun: Callable[..., Any],
    args: Sequence[v.Abstract],
    kwargs: dict[str, v.Abstract],
    used: Sequence[Operand],
    known: Mapping[Operand, int],
) -> bool:
    """Can the call be traced where some of its operands are known?"""
    try:
        _run(s, fun, args, kwargs, used, known)
    except Untraceable:
        return False
    return True


def _run(
    s: LoweringState,
    fun: Callable[..., Any],
    args: Sequence[v.Abstract],
    kwargs: dict[str, v.Abstract],
    used: Sequence[Operand],
    known: Mapping[Operand, Any],
) -> tuple[Any, Any]:
    """Trace a call on the operands in `used`, but for those that are `known`."""
    rest = [x for x in used if x not in known]

    def run(*tracers: Any) -> Any:
        env = {**known, **dict(zip(rest, tracers, strict=True))}

        def take(x: Operand) -> Any:
            return env[x] if x in env else _concrete(x)

        function = to_python(s, v.Static(fun), take)
        given, named = _arguments(s, args, kwargs, take, _sorts_keys(function, args))
        return function(*given, **named)

    types_ = [x.type for x in rest]
    if not all(isinstance(t, Array) for t in types_):
        given = next(t for t in types_ if not isinstance(t, Array))
        raise Untraceable(TypeError(f"a {name_of_type(given)} of an example was given where an array is needed"))
    try:
        return jax_compat.trace(run, *(t for t in types_ if isinstance(t, Array)))
    except (SourceError, RecursionError):
        raise
    except Exception as error:
        raise Untraceable(error) from error


def _is_scalar_literal(x: Operand) -> bool:
    """A constant number, but for an int that only the host can hold."""
    return isinstance(x, Literal) and x.constant < 0 and not x.is_wide


def _concrete(x: Operand) -> Any:
    assert isinstance(x, Literal) and isinstance(x.type, Array)
    return jax_compat.literal(x.value, x.type)


def _plain(type: Array) -> Array:
    """A comparison of Python numbers is weak in JAX; a bool has one type here."""
    return Array("bool", type.shape) if type.is_bool else type


def _arguments(
    s: LoweringState, args: Sequence[v.Abstract], kwargs: dict[str, v.Abstract], take: Take, sorted_keys: bool
) -> tuple[list[Any], dict[str, Any]]:
    """Arguments as Python objects. `sorted_keys`: JAX sorts the keys of dicts, but not of those that functions read."""

    def made(value: v.Abstract) -> Any:
        return to_python(s, value, take, ordered=not sorted_keys or isinstance(value, v.Method | v.LocalFunction))

    return [made(a) for a in args], {k: made(a) for k, a in kwargs.items()}


def _sorts_keys(function: Any, args: Sequence[v.Abstract]) -> bool:
    """Does JAX take the arguments apart before the function gets them: is it under `jax.jit`, `vmap` or `checkpoint`?
    (`function` is the very object that is called: a copy of what `jax.jit` holds gets the arguments as they are.)"""
    match args:
        case [v.Method(name=v.DEFERRED, receiver=v.Record(items=[v.Static(value=transform), *_])), *_]:
            return transform in (jax.jit, jax.vmap, jax.checkpoint)
    return type(function).__name__ == "PjitFunction"


def to_python(s: LoweringState, value: v.Abstract, take: Take, ordered: bool = True) -> Any:
    """A Python object for an abstract value; `take` supplies what stands at its leaves. `ordered`: who gets it may run
    over dicts."""
    match value:
        case v.Static(value=held):
            _note_function(s, held)
            copier = ClosureCopier(s.context, lambda x: to_python(s, wrap(s.context, x), take), take, ordered)
            return copier.copy(held, value.origin)
        case v.Leaf(operand=operand):
            return take(operand)
        case v.Record(kind, keys, items, cls, treedef):
            if ordered:
                run_over(s.context, value)
            return assemble(kind, keys, [to_python(s, i, take, ordered) for i in items], cls, treedef)
        case v.LocalFunction():
            return rebuild_function(s, value, lambda x: to_python(s, x, take))
        case v.Method(function=function, receiver=receiver):
            inner, first = to_python(s, function, take), to_python(s, receiver, take)
            return inner(*first) if value.name == v.DEFERRED else types.MethodType(inner, first)
        case v.Optional(value=inner):
            s.refuse(
                "a value that may be None is handed to a function that is traced",
                "test it first: `if x is not None: ...`",
            )
        case v.Choice():
            refuse_alternatives(s, value)
        case _:
            s.refuse("this value cannot be handed to a function of JAX or of a library", "pass numbers and arrays")


def assemble(kind: str, keys: tuple[Any, ...], items: list[Any], cls: type | None, treedef: Any) -> Any:
    """A Python container of that kind."""
    match kind:
        case "tuple":
            return tuple(items)
        case "list":
            return list(items)
        case "dict":
            return dict(zip(keys, items, strict=True))
        case "namedtuple":
            assert cls is not None
            return cls(*items)
        case "pytree":
            return jax.tree.unflatten(treedef, items)
        case _:
            assert cls is not None
            if cls is slice:
                return slice(*items)
            return make_object(cls, dict(zip(keys, items, strict=True)))


def from_python(context: Context, shapes: Any, operands: Iterator[Operand]) -> v.Abstract:
    """The abstract value of a traced result: containers with the next operands at the leaves."""

    def many(xs: Any) -> tuple[v.Abstract, ...]:
        return tuple(from_python(context, x, operands) for x in xs)

    if isinstance(shapes, jax.ShapeDtypeStruct):
        return v.Leaf(next(operands))
    if shapes is None:
        return v.Static(None)
    if is_namedtuple(shapes):
        return v.Record("namedtuple", shapes._fields, many(shapes), type(shapes))
    if type(shapes) is tuple or type(shapes) is list:
        return v.Record("tuple" if type(shapes) is tuple else "list", tuple(range(len(shapes))), many(shapes))
    if type(shapes) is dict:
        keys = sorted(shapes)
        items = dict(zip(keys, many([shapes[k] for k in keys]), strict=True))
        return v.Record("dict", tuple(shapes), tuple(items[k] for k in shapes))
    leaves, tree = jax.tree.flatten(shapes)
    return v.Record("pytree", tuple(range(len(leaves))), many(leaves), type(shapes), tree)
