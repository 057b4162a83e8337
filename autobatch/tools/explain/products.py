"""Matrix products and other contractions: where they run, and on what shapes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from autobatch.backends.xla.products.choice import choose
from autobatch.ir import jax_compat
from autobatch.ir.system import Atom, Compute, Variable
from autobatch.ir.types import Array
from autobatch.passes.schedule.contractions import row_product
from autobatch.passes.schedule.sharing import CONTRACTIONS
from autobatch.tools.explain.facts import Multiplier, ProductFacts
from autobatch.tools.explain.places import Placed


def products(found: Iterable[Placed], option: str, widths: Sequence[int]) -> tuple[ProductFacts, ...]:
    """Every contraction of a schedule, in the order in which they run. `option`: what may compute them."""
    return tuple(
        _product(p, p.equation, name, _multipliers(p, option, widths))
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


def _multipliers(p: Placed, option: str, widths: Sequence[int]) -> tuple[Multiplier, ...]:
    """What computes a product at each width; products of stages have no windows, and are not told apart."""
    product = row_product(p.equation)
    if product is None or p.place.kind != "level" or option == "xla":
        return ()
    chosen = [(width, choose(option, product, width)) for width in widths]
    return tuple(Multiplier(w, "xla" if c.kernel is None else "native", c.why) for w, c in chosen)


def _product(p: Placed, equation: Compute, name: str, multipliers: tuple[Multiplier, ...]) -> ProductFacts:
    xs = equation.operands if equation.op.name in CONTRACTIONS else ()
    left, right = (_operand(xs, k) for k in (0, 1))
    result = equation.results[0].type.shape
    span = equation.span
    shapes = (*left, *right, result)
    return ProductFacts(name, p.place, *shapes, p.place.rows, p.task, span.file, span.line, multipliers)


def _operand(xs: tuple[Atom, ...], k: int) -> tuple[tuple[int, ...], bool]:
    """The shape of an operand in one row, and whether it has its own value in each."""
    if k >= len(xs):
        return (), False
    x = xs[k]
    assert isinstance(x.type, Array)
    return x.type.shape, isinstance(x, Variable) and x.space is not None
