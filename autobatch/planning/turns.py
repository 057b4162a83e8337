"""All turns of loops that count, at once: their arguments are computed before the first turn runs.

    turn            0 1   0 1   0        turns of two loops, of two and one element; the last one of each ends it
    loop            a b   a b   a
    counter         0 0   1 1   2        its beginning and its steps
    h               i j   r s   t        what it begins with; then the number that the row of the turn before computes

Turns are in the order in which they would run, one after another for all loops, so rows have the same numbers. Those
that do not end the loop have rows in its body, in this order; hence the numbers that they compute are known by name.
Where a branch decides which number it is, its name is that of the activation which takes it, and is followed in the end
as that of a call's result is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from autobatch.data.scopes import SHIFT, TURN, FunctionActivations, Ints, RowsOfRegion
from autobatch.data.spec import CountedSpec
from autobatch.ir.core import Apply

Evaluate = Callable[[Apply, RowsOfRegion], None]


@dataclass(frozen=True)
class TurnCapacity:
    """So many turns may be begun at once, and one loop may have so many. The first of those that follow others is
    activation `activation`, the first row of the body is `body`."""

    rows: int
    turns: int
    activation: int
    body: int


def all_turns(
    kind: FunctionActivations, counted: CountedSpec, scope: RowsOfRegion, evaluate: Evaluate, room: TurnCapacity
) -> RowsOfRegion | None:
    """The scope of all turns of loops whose first turns are those of `scope`; None where there are too many of them, or
    no more than one."""
    args = kind.function.region.args
    ahead = _ahead(scope, np.arange(scope.rows), counted.bounding, evaluate)
    step = counted.steps[counted.counter]
    missing = ahead.host_value(counted.bound).astype(np.int64) - scope.host[args[counted.counter]]
    counts = np.maximum(missing // step + 1 if counted.inclusive else -(-missing // step), 0)
    most = int(counts.max(initial=0))
    if most < 2 or most > room.turns or int(counts.sum()) > room.rows:
        return None
    loop, turn = _by_turns(counts + 1)
    made = RowsOfRegion(len(loop), scope.example[loop], constants=scope.constants)
    for x, values in scope.host.items():
        made.host[x] = values[loop]
    for k, step in counted.steps.items():
        made.host[args[k]] = made.host[args[k]] + step * turn
    if TURN in made.host:
        made.host[TURN] = made.host[TURN] + turn
    for x, pointers in scope.pointer.items():
        made.pointer[x] = pointers[loop]
    number = np.arange(made.rows - scope.rows)
    for k, definition in counted.exports.items():
        made.pointer[args[k]][scope.rows :] = (definition << SHIFT) | (room.body + number)
    for k, slot in kind.handed_slots.items():
        made.pointer[args[k]][scope.rows :] = (slot << SHIFT) | (room.activation + number)
    if counted.delayed:
        running = np.flatnonzero(turn < counts[loop])
        body = _ahead(made, running, counted.delaying, evaluate)
        for k, value in counted.delayed.items():
            made.host[args[k]] = np.concatenate([scope.host[args[k]], body.host_value(value)])
    return made


def _ahead(scope: RowsOfRegion, rows: Ints, operations: tuple[Apply, ...], evaluate: Evaluate) -> RowsOfRegion:
    """What operations give for some rows of a scope, which learns nothing of it."""
    inner = RowsOfRegion(len(rows), scope.example[rows], scope, rows)
    for operation in operations:
        evaluate(operation, inner)
    return inner


def _by_turns(lengths: Ints) -> tuple[Ints, Ints]:
    """The loop and the turn of each entry: all first turns, all second ones, and so on."""
    loop = np.repeat(np.arange(len(lengths)), lengths)
    turn = np.arange(len(loop)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    order = np.argsort(turn, kind="stable")
    return loop[order], turn[order]
