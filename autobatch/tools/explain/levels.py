"""The level loops of one call, read from the very tables that its executable gets: rows, levels, windows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from autobatch.backends.xla.products.choice import choose
from autobatch.data.columns import Ints
from autobatch.data.tables import Signature, TableRequest, layout, window_widths
from autobatch.ir import jax_compat
from autobatch.ir.system import Atom, Compute, Variable
from autobatch.ir.types import Array
from autobatch.passes.schedule import costs, fission
from autobatch.passes.schedule.contractions import row_product
from autobatch.passes.schedule.fission import Schedule
from autobatch.passes.schedule.sharing import CONTRACTIONS
from autobatch.planning.size_classes import of_word
from autobatch.tools.explain.facts import LevelFacts, Multiplier, ProductFacts, RecurrenceFacts, TaskFacts, WindowFacts
from autobatch.tools.explain.places import Placed


class BoundTables:
    """The integers of a call, by name."""

    def __init__(self, request: TableRequest, signature: Signature, integers: Any) -> None:
        self.request, self.signature = request, signature
        self.places, _ = layout(request, signature)
        self.integers: Ints = np.asarray(integers).astype(np.int64)

    def table(self, name: str) -> Ints:
        start, length = self.places[name]
        return self.integers[start : start + length]

    def counts(self) -> dict[int, int]:
        """The rows of each space that are computed."""
        return dict(enumerate(self.table("counts").tolist()))


def recurrences(schedule: Schedule, bound: BoundTables, native: bool) -> tuple[RecurrenceFacts, ...]:
    """What each level loop does. `native`: machine code runs them all."""
    return tuple(_recurrence(schedule, r, bound, native) for r in schedule.recurrences())


def _recurrence(
    schedule: Schedule, recurrence: fission.Recurrence, bound: BoundTables, native: bool
) -> RecurrenceFacts:
    n = recurrence.index
    deepest = int(bound.table("levels")[n])
    rows, computed = np.zeros(deepest, np.int64), np.zeros(deepest, np.int64)
    tasks: list[TaskFacts] = []
    for task in recurrence.tasks:
        name = f"loop{n}.{task.order.index}"
        widths = window_widths(bound.request, bound.signature, task.order.index)
        mine = np.diff(bound.table(f"{name}.end")[:deepest], prepend=0)
        windows = {} if native else _windows(bound, name, widths, deepest)
        done = mine if native else sum((w * count for w, count in windows.items()), np.zeros(deepest, np.int64))
        rows, computed = rows + mine, computed + done
        used = tuple(WindowFacts(w, int(count.sum())) for w, count in windows.items() if count.any())
        tasks.append(TaskFacts(str(task.order), int(mine.sum()), int(done.sum()), len(task.equations), used))
    total, all_ = int(rows.sum()), int(computed.sum())
    levels = tuple(LevelFacts(r, c) for r, c in zip(rows.tolist(), computed.tolist(), strict=True))
    size = sum(costs.size(v, bound.signature.capacity) for v in costs.carried(schedule, recurrence))
    return RecurrenceFacts(n, total, all_, total / all_ if all_ else None, tuple(tasks), levels, size, native)


def _windows(bound: BoundTables, loop: str, widths: tuple[int, ...], levels: int) -> dict[int, Ints]:
    """By width, how many windows each level has."""
    firsts = bound.table(f"{loop}.firsts")[: levels + 1]
    _, kind = of_word(bound.table(f"{loop}.windows")[: firsts[-1]], len(widths))
    level = np.arange(levels).repeat(np.diff(firsts))
    return {w: np.bincount(level[kind == k], minlength=levels) for k, w in enumerate(widths)}


# ---- products
#
# Matrix products and other contractions: where they run, and on what shapes.


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
