"""Control flow that a leaf operation brings with it: `jax.lax.scan`, `while_loop`, `cond`, `switch`, `reduce`.

What they hold is straight-line code (`expand.py`); what the lanes of a gang disagree on is a mask, as in `control.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from autobatch.backends.llvm.lanes.expand import Equations, of_jaxpr
from autobatch.backends.llvm.lanes.moves import Shapes
from autobatch.backends.llvm.lanes.tensors import (
    Element,
    Index,
    Indices,
    Tensor,
    TensorVariable,
    add,
    copied,
    fresh,
    kept,
    multiply,
    over,
    select,
    set_all,
    zeros,
)
from autobatch.ir import jax_compat
from autobatch.ir.ops import Op
from autobatch.ir.types import Array

if TYPE_CHECKING:
    from autobatch.backends.llvm.lanes.ops import LeafOperations

UNROLLED = 64
"""Operations of all turns of a loop up to which they are written one after another."""

GUARDED = 10
"""Operations from which on a branch stands behind `any` of its mask."""

Rule = Callable[["LeafOperations", Op, Sequence[Tensor], Shapes], list[Tensor]]


def _equations(closed: Any) -> Equations:
    types = [jax_compat.type_of(v.aval) for v in closed.jaxpr.invars]
    return of_jaxpr(closed, [t for t in types if isinstance(t, Array)])


def _variables(leaves: LeafOperations, of: Sequence[Tensor]) -> list[TensorVariable]:
    found = [TensorVariable(leaves.w, x.dtype, x.shape) for x in of]
    set_all(leaves.w, found, of)
    return found


def _now(variables: Sequence[TensorVariable]) -> list[Tensor]:
    return [v.get() for v in variables]


def scan(leaves: LeafOperations, op: Op, xs: Sequence[Tensor], results: Shapes) -> list[Tensor]:
    w, length = leaves.w, op["length"]
    consts, carries = jax_compat.carried(op)
    inner = _equations(op["jaxpr"])
    held = [kept(w, x) for x in xs]
    given, sliced = held[:consts], held[consts + carries :]
    carried = _variables(leaves, held[consts : consts + carries])
    rows = [fresh(w, dtype, shape) for dtype, shape in results[carries:]]

    def turn(number: Index) -> None:
        place = add(w, length - 1, multiply(w, number, -1)) if op["reverse"] else number

        def row(x: Tensor) -> Tensor:
            return Tensor(x.dtype, x.shape[1:], lambda index: x.at((place, *index)), x.held)

        found = leaves.expansion(inner, [*given, *_now(carried), *map(row, sliced)])
        for memory, x in zip(rows, found[carries:], strict=True):
            over(w, x.shape, lambda i, memory=memory, x=x: memory.write((place, *i), x.at(i)))  # type: ignore[misc]
        set_all(w, carried, found[:carries])

    if length * len(inner.body) <= UNROLLED:
        for number in range(length):
            turn(number)
    else:
        with w.f.loop(0, length, 1) as index:
            turn(index)
    return [*(copied(w, v.get()) for v in carried), *(m.final for m in rows)]


def conditional(leaves: LeafOperations, op: Op, xs: Sequence[Tensor], results: Shapes) -> list[Tensor]:
    """`while_loop`. Lanes that take no part do not keep the others waiting: theirs are never active."""
    w, mask = leaves.w, leaves.mask
    of_test, of_body = op["cond_nconsts"], op["body_nconsts"]
    test, body = _equations(op["cond_jaxpr"]), _equations(op["body_jaxpr"])
    held = [kept(w, x) for x in xs]
    for_test, for_body = held[:of_test], held[of_test : of_test + of_body]
    carried = _variables(leaves, held[of_test + of_body :])
    goes_on = w.slot("bool")

    def more() -> str:
        (found,) = leaves.expansion(test, [*for_test, *_now(carried)])
        goes_on.set(found.one() if mask is None else w.both(mask, found.one()))
        return w.any(goes_on.get())

    with w.f.whilst(more):
        active = None if w.width == 1 else goes_on.get()
        leaves.mask = mask if active is None else active
        found = leaves.expansion(body, [*for_body, *_now(carried)])
        if active is not None:
            found = [select(w, active, x, v.get()) for x, v in zip(found, carried, strict=True)]
        set_all(w, carried, found)
        leaves.mask = mask
    return [copied(w, v.get()) for v in carried]


def branches(leaves: LeafOperations, op: Op, xs: Sequence[Tensor], results: Shapes) -> list[Tensor]:
    """`cond` and `switch`. JAX has brought the number of the branch into range."""
    w, mask = leaves.w, leaves.mask
    which, held = xs[0].one(), [kept(w, x) for x in xs[1:]]
    arms = [_equations(closed) for closed in op["branches"]]
    if which.text.isdigit():  # it is known
        return leaves.expansion(arms[int(which.text)], held)
    number = w.cast("zext", which, "int32") if which.dtype == "bool" else which
    one_for_all = number.shared or w.width == 1
    found: list[Tensor] | None = None
    for k, arm in enumerate(arms):
        here = w.instruction("icmp eq", number, w.constant(k, number.dtype), "bool")
        if not one_for_all:
            leaves.mask = w.both(mask, here)
        if not one_for_all and _cost(arm) < GUARDED:
            made = leaves.expansion(arm, held)
        else:
            variables = [TensorVariable(w, dtype, shape) for dtype, shape in results]
            set_all(w, variables, [zeros(w, dtype, shape) for dtype, shape in results])
            taken = here.text if one_for_all or leaves.mask is None else w.any(leaves.mask)
            with w.f.when(taken):
                set_all(w, variables, leaves.expansion(arm, held))
            made = [copied(w, v.get()) for v in variables]
        leaves.mask = mask
        made = made if found is None else [select(w, here, x, y) for x, y in zip(made, found, strict=True)]
        found = [kept(w, x) for x in made]
    assert found is not None
    return found


def _cost(arm: Equations) -> int:
    return sum(GUARDED if i.op.name in INNER else 1 for i in arm.body)


def reduce(leaves: LeafOperations, op: Op, xs: Sequence[Tensor], results: Shapes) -> list[Tensor]:
    """By a function of the user's, one number after another."""
    w, axes, inner = leaves.w, op["dimensions"], _equations(op["jaxpr"])
    held = [kept(w, x) for x in xs]
    arrays, starts = held[: len(results)], held[len(results) :]
    shape = arrays[0].shape
    memory = [fresh(w, dtype, s) for dtype, s in results]

    def one(outer: Indices) -> None:
        variables = _variables(leaves, starts)

        def term(along: Indices) -> None:
            rest, inside = iter(outer), iter(along)
            index = tuple(next(inside) if k in axes else next(rest) for k in range(len(shape)))

            def number(x: Tensor) -> Tensor:
                found: Element = x.at(index)
                return Tensor(x.dtype, (), lambda _: found, held=True, fixed=True)

            set_all(w, variables, leaves.expansion(inner, [*_now(variables), *map(number, arrays)]))

        over(w, [n for k, n in enumerate(shape) if k in axes], term, vectors=False)
        for m, v in zip(memory, variables, strict=True):
            m.write(outer, v.get().at(()))

    over(w, [n for k, n in enumerate(shape) if k not in axes], one, vectors=False)
    return [m.final for m in memory]


INNER: Mapping[str, Rule] = {"cond": branches, "reduce": reduce, "scan": scan, "while": conditional}
"""By the name of JAX's primitive."""
