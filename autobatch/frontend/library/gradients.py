"""`jax.grad` and `ab.grad` of a function that branches or loops on computed numbers, inside a function for one example.

    slope = jax.grad(energy)(x)          %2 = seed(%x)
                                   ->    %3 = call @energy(%2)
                                         %4 = gradient(%3, %2)

JAX cannot trace such a function. It is lowered like any other; `masks.py` makes an operation of
what lies between seeds and number. What JAX can trace it traces, derivative included.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from autobatch.frontend.lowering.joins import stored
from autobatch.frontend.lowering.numbers import present
from autobatch.frontend.lowering.state import LoweringState, expand
from autobatch.frontend.types import values as v
from autobatch.ir import jax_compat
from autobatch.ir.core import Apply, Array, Operand
from autobatch.ir.ops import own

Call = Callable[[LoweringState, v.Abstract, Sequence[v.Abstract], dict[str, v.Abstract]], v.Abstract]

NAMES = ("fun", "argnums", "has_aux")
"""The parameters of both transforms, in order; a function of autobatch calls the first one `f`."""


def transform_of(method: v.Method) -> Any:
    """The transform that a method stands for which is `transform(function, ...)`."""
    assert isinstance(method.receiver, v.Record)
    held = method.receiver.items[0]
    assert isinstance(held, v.Static)
    return held.value


def has_gradient(transform: Any) -> bool:
    """Is it a transform whose function may branch and loop on computed numbers?"""
    return transform in (jax.grad, jax.value_and_grad) or _of_autobatch(transform) in ("grad", "value_and_grad")


def gradient(
    s: LoweringState, method: v.Method, args: Sequence[v.Abstract], kwargs: dict[str, v.Abstract], call: Call
) -> v.Abstract:
    """What `transform(function, ...)(*args, **kwargs)` gives. `call`: of a function by the front end."""
    transform, function, argnums, has_aux = _settings(s, method)
    name = f"{transform.__name__}()"
    chosen = (argnums,) if isinstance(argnums, int) else argnums
    given = list(args)
    seeds: list[Operand] = []
    for k in chosen:
        if not -len(args) <= k < len(args):
            s.refuse(
                f"{name} is to differentiate by argument {k}, and the function is called with {len(args)} by position",
                "argnums counts positional arguments, from 0",
            )
        given[k] = _seeded(s, stored(s, present(s, args[k])), seeds, f"argument {k} of the function under {name}")
    made = stored(s, present(s, call(s, function, given, kwargs)))
    value, aux = made, None
    if has_aux:
        if not isinstance(made, v.Record) or made.kind != "tuple" or len(made.items) != 2:
            s.refuse(f"the function under {name} with has_aux=True returns no pair", "return (number, anything)")
        value, aux = made.items
    number = _number(s, value, name)
    slopes = [s.context.value(jax_compat.cotangent_type(x.type)) for x in seeds if isinstance(x.type, Array)]
    if slopes:
        s.emit(Apply(tuple(slopes), own("gradient"), (number, *seeds), s.span))
    rest = iter(slopes)
    found = [_rebuilt(given[k], rest) for k in chosen]
    slope = found[0] if isinstance(argnums, int) else _tuple(found)
    if transform.__name__ == "value_and_grad":
        return _tuple([made, slope])
    return slope if aux is None else _tuple([slope, aux])


def _settings(s: LoweringState, method: v.Method) -> tuple[Any, v.Abstract, int | tuple[int, ...], bool]:
    """The transform, its function, `argnums` and `has_aux`."""
    assert isinstance(method.receiver, v.Record)
    held, positional, named = method.receiver.items
    assert isinstance(held, v.Static) and isinstance(positional, v.Record) and isinstance(named, v.Record)
    given = dict(zip(NAMES, positional.items, strict=False))
    given.update((n if n != "f" else "fun", x) for n, x in zip(named.keys, named.items, strict=True))
    for other in given.keys() - set(NAMES):
        s.refuse(
            f"{held.value.__name__}() with {other} of a function that branches or loops on computed numbers",
            f"leave {other} out, or write the choice as jnp.where, and the loop as jax.lax.scan",
        )
    argnums, has_aux = (_static(s, given.get(n), n, default) for n, default in (("argnums", 0), ("has_aux", False)))
    return held.value, given["fun"], argnums if isinstance(argnums, int) else tuple(argnums), bool(has_aux)


def _static(s: LoweringState, value: v.Abstract | None, name: str, default: Any) -> Any:
    match value:
        case None:
            return default
        case v.Static(value=held):
            return held
        case v.Record(kind="tuple" | "list", items=items):
            return [_static(s, i, name, default) for i in items]
    s.refuse(f"{name} differs between examples", f"write {name} as a number")


def _seeded(s: LoweringState, value: v.Abstract, seeds: list[Operand], what: str) -> v.Abstract:
    """A value with seeds at its numbers."""
    match value:
        case v.Leaf(operand=operand) if not isinstance(operand.type, Array):
            parts_of = s.context.rules.parts(s, value)
            if parts_of is None:
                s.refuse(f"{what} is no structure of numbers and arrays", "hand it arrays, or containers of arrays")
            return _seeded(s, parts_of, seeds, what)
        case v.Leaf(operand=operand):
            assert isinstance(operand.type, Array)
            if not _moves(operand.type):
                s.refuse(f"{what} holds {operand.type}, and only floats move", "differentiate by floats alone: argnums")
            seed = s.context.value(operand.type)
            s.emit(Apply((seed,), own("seed"), (operand,), s.span))
            seeds.append(seed)
            return v.Leaf(seed, numpy=value.numpy)
        case v.Static(value=float() as number):
            return _seeded(s, v.Leaf(s.scalar(number)), seeds, what)
        case v.Record(items=items):
            parts = tuple(_seeded(s, i, seeds, what) for i in items)
            return v.Record(value.kind, value.keys, parts, value.cls, value.treedef)
        case v.Static(value=None):
            return value
        case v.Static(value=held):
            if not isinstance(expanded := expand(s, value), v.Static):
                return _seeded(s, expanded, seeds, what)
            s.refuse(f"{what} holds {held!r}, and only floats move", "differentiate by floats alone: argnums")
        case _:
            s.refuse(f"{what} is no structure of numbers and arrays", "hand it arrays, or containers of arrays")


def _rebuilt(value: v.Abstract, slopes: Iterator[Operand]) -> v.Abstract:
    """The structure of a value that has seeds, with the derivatives in their place."""
    match value:
        case v.Leaf():
            return v.Leaf(next(slopes))
        case v.Record(items=items):
            parts = tuple(_rebuilt(i, slopes) for i in items)
            return v.Record(value.kind, value.keys, parts, value.cls, value.treedef)
        case _:
            return value


def _number(s: LoweringState, value: v.Abstract, name: str) -> Operand:
    if isinstance(value, v.Static) and type(value.value) is float:
        return s.scalar(value.value)
    type_ = value.operand.type if isinstance(value, v.Leaf) else None
    if isinstance(value, v.Leaf) and isinstance(type_, Array) and type_.is_scalar and _moves(type_):
        return value.operand
    s.refuse(
        f"the function under {name} returns {'no number' if type_ is None else type_}, and a derivative is taken of "
        "one float",
        "return a float, as jnp.sum(...) gives one",
    )


def _moves(type: Array) -> bool:
    return bool(jnp.issubdtype(jax_compat.device_dtype(type), jnp.floating))


def _tuple(items: Sequence[v.Abstract]) -> v.Record:
    return v.Record("tuple", tuple(range(len(items))), tuple(items))


def _of_autobatch(transform: Any) -> str | None:
    return transform.__name__ if hasattr(transform, "__autobatch_transform__") else None
