"""Matrix products and other contractions: where they run, and on what shapes."""

from __future__ import annotations

from collections.abc import Iterable

from autobatch.ir import jax_compat
from autobatch.ir.system import Atom, Compute, Variable
from autobatch.ir.types import Array
from autobatch.optimize.sharing import CONTRACTIONS
from autobatch.tools.explain.facts import Product
from autobatch.tools.explain.places import Placed


def products(found: Iterable[Placed]) -> tuple[Product, ...]:
    """Every contraction of a schedule, in the order in which they run."""
    return tuple(
        _product(p, p.equation, name)
        for p in found
        if isinstance(p.equation, Compute)
        for name in _contractions(p.equation)
    )


def _contractions(equation: Compute) -> list[str]:
    """The contraction that an operation is, or those that it holds: `scan(dot_general)`."""
    op = equation.op
    if op.name in CONTRACTIONS:
        return [op.name]
    return [f"{op.name}({inner})" for inner in jax_compat.held_primitives(op) if inner in CONTRACTIONS]


def _product(p: Placed, equation: Compute, name: str) -> Product:
    xs = equation.operands if equation.op.name in CONTRACTIONS else ()
    left, right = (_operand(xs, k) for k in (0, 1))
    result = equation.results[0].type.shape
    span = equation.span
    return Product(name, p.place, *left, *right, result, p.place.rows, p.task, span.file, span.line)


def _operand(xs: tuple[Atom, ...], k: int) -> tuple[tuple[int, ...], bool]:
    """The shape of an operand in one row, and whether it has its own value in each."""
    if k >= len(xs):
        return (), False
    x = xs[k]
    assert isinstance(x.type, Array)
    return x.type.shape, isinstance(x, Variable) and x.space is not None
