"""Products of what branches join are made before the join, where that makes its rows narrower.

    encode: %h = gather(then.%a, else.%b)            then: %x = dot_general(%a, %W)         150 -> 5
    encode: %y = dot_general(%h, %W)           ->    else: %z = dot_general(%b, %W)
                                                     encode: %y = gather(then.%x, else.%z)

Each activation takes one branch, so the branches have no more rows than the join, and fewer where equal rows are
shared. Rows of five numbers are gathered in place of rows of 150; so are cotangents, the other way round. Outside of
loops alone: inside them, one product of a window is faster than one for each branch.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from itertools import count

from autobatch.ir.system import Compute, Equation, Gather, System, Variable, reads, results
from autobatch.passes.schedule.contractions import RowProduct, row_product
from autobatch.passes.schedule.fission import Recurrence, Schedule, eliminate_dead


def narrow_joins(schedule: Schedule) -> System | None:
    """The system with such products moved; None when there are none."""
    readers: dict[Variable, list[Equation]] = defaultdict(list)
    for equation in schedule.system.equations:
        for x in reads(equation):
            readers[x].append(equation)
    looping = {id(e) for s in schedule.steps if isinstance(s, Recurrence) for t in s.tasks for e in t.equations}
    moved: dict[int, tuple[Gather, RowProduct]] = {}
    for equation in schedule.system.equations:
        if not isinstance(equation, Gather) or not is_join(equation) or equation.result in schedule.system.outputs:
            continue
        found = [row_product(e) for e in readers[equation.result]]
        products = [p for p in found if p is not None]
        if len(products) < len(found) or any(id(e) in looping for e in (equation, *readers[equation.result])):
            continue
        if 0 < sum(p.columns for p in products) < equation.result.type.shape[0]:
            moved.update((id(p.equation), (equation, p)) for p in products)
    if not moved:
        return None
    ids = count(1 + max(r.id for e in schedule.system.equations for r in results(e)))
    equations: list[Equation] = []
    for equation in schedule.system.equations:
        equations += [equation] if id(equation) not in moved else before_join(*moved[id(equation)], ids)
    return eliminate_dead(replace(schedule.system, equations=tuple(equations)))


def is_join(gather: Gather) -> bool:
    """Does each row read what a branch of the same activation has made?"""
    joins = not gather.calls and len(gather.inside) == len(gather.sources) > 0
    return joins and len(gather.result.type.shape) == 1 and all(s.space is not None for s in gather.sources)


def before_join(gather: Gather, product: RowProduct, ids: Iterator[int]) -> list[Equation]:
    """The product of each source, and the gather of their results."""
    equation = product.equation
    (result,) = equation.results
    made: list[Compute] = []
    for source in gather.sources:
        operands = list(equation.operands)
        operands[product.side] = source
        made.append(
            replace(
                equation,
                results=(Variable(next(ids), result.type, source.space),),
                operands=tuple(operands),
                space=source.space,
            )
        )
    sources = tuple(e.results[0] for e in made)
    return [*made, replace(gather, result=result, sources=sources, inside=sources)]
