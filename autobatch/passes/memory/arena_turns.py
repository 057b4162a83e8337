"""Comprehensions over lists in memory, as far as they need no loop.

    [xs[k] for k in range(n)]                                     the same memory, another length
    [x if k == place else xs[k] for k in range(len(xs))]          one element set
    [f(xs[k], y) for k in range(n)]                               all turns at once, where f is a few operations

The front end writes slices and assignments of items in this way.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp

from autobatch.ir import jax_compat, leaf
from autobatch.ir.core import Apply, Instruction, Literal, Map, Operand, Value, walk
from autobatch.ir.ops import OWN
from autobatch.ir.types import INT, Array, List
from autobatch.passes.memory import arena_operations as lists
from autobatch.passes.memory.arena_memory import ArenaMemory, ListInMemory, forward, truth
from autobatch.passes.memory.made_lists import SMALL, Update, is_item, reads_at


def is_cut(memory: ArenaMemory, of: Map) -> bool:
    """Does it only take the first elements of lists? They share the memory."""
    if of.filtered or not all(reads_at(i, of.body.args[0]) for i in of.body.body):
        return False
    reads: dict[Operand, Operand] = {i.results[0]: i.operands[0] for i in of.body.body if isinstance(i, Apply)}
    if not all(x in reads and reads[x] in memory.lists for x in of.body.results):
        return False
    for r, x in zip(of.results, of.body.results, strict=True):
        n, *buffers = memory.held(reads[x])
        _check_length(memory, of, n)
        memory.env[r] = ListInMemory((of.count, *buffers))
    return True


def _check_length(memory: ArenaMemory, of: Map, n: Operand) -> None:
    """IndexError where there are more turns than elements, which are read by the turn."""
    reads = (i for i in walk(of.body) if isinstance(i, Apply) and reads_at(i, of.body.args[0]))
    if any(i.results[0] in memory.fallible for i in reads):
        (enough,) = memory.traced(lambda count, n: (truth(count <= n),), (of.count, n))
        memory.check(enough, "IndexError", "list index out of range")


def is_update(memory: ArenaMemory, of: Map) -> bool:
    """Does it set one element of each list? `[x if k == place else xs[k] for k in range(len(xs))]`"""
    found = Update.of(of)
    if found is None or not all(x in memory.lists for x in found.lists):
        return False
    for r, x, value in zip(of.results, found.lists, found.values, strict=True):
        parts = memory.held(x)
        _check_length(memory, of, parts[0])
        _, *buffers = memory.stored(parts, found.place, memory.element(value))
        memory.env[r] = ListInMemory((of.count, *buffers))
    return True


def at_once(memory: ArenaMemory, of: Map) -> bool:
    """All turns of a few operations on numbers, as one operation each on the buffers."""
    if of.filtered or len(of.body.body) > SMALL or any(isinstance(x.type, List) for x in of.body.results):
        return False
    if not all(_is_plain(memory, i) for i in of.body.body):
        return False
    turns = _turns_of(memory, of)
    *buffers, fine = memory.traced(turns.run, (of.count, *turns.outer, *turns.memory))
    if turns.fails:
        memory.check(fine, "IndexError", "list index out of range")
    for r, b in zip(of.results, buffers, strict=True):
        memory.env[r] = ListInMemory((of.count, b))
    return True


@dataclass(frozen=True)
class _ComprehensionTurns:
    """A comprehension as a function of JAX. `outer`: what its turns read from outside; `read`: the lists, and how many
    parts each has in `memory`; `fails`: reads that may be out of range; `types`: those of the elements in memory."""

    made: Map
    outer: tuple[Operand, ...]
    read: dict[Operand, int]
    memory: tuple[Operand, ...]
    fails: frozenset[Value]
    types: tuple[Array, ...]
    capacity: int

    def run(self, count: Any, *xs: Any) -> list[Any]:
        """What all turns yield, and whether all that they read is there."""
        outer, rest = dict(zip(self.outer, xs, strict=False)), list(xs[len(self.outer) :])
        held = {x: [rest.pop(0) for _ in range(parts)] for x, parts in self.read.items()}
        places = jnp.arange(self.capacity)
        *found, fine = jax.vmap(lambda k: self.turn(jax_compat.weakened(k), outer, held))(places)
        return [*found, jnp.all(fine | (places >= count))]

    def turn(self, k: Any, outer: dict[Operand, Any], held: dict[Operand, list[Any]]) -> list[Any]:
        env: dict[Operand, Any] = {**outer, self.made.body.args[0]: k}
        fine: Any = jnp.asarray(True)

        def value(x: Operand) -> Any:
            return leaf.literal_value(x) if isinstance(x, Literal) and _is_scalar(x) else env[x]

        for i in self.made.body.body:
            assert isinstance(i, Apply)
            kinds = [r.type for r in i.results if isinstance(r.type, Array)]
            if is_item(i):
                (n, buffer), index = held[i.operands[0]], value(i.operands[1])
                if i.results[0] in self.fails:
                    fine &= (-n <= index) & (index < n)
                x = lists.taken(buffer, forward(index, n))
                env[i.results[0]] = jax_compat.weakened(x) if kinds[0].weak else x
            else:
                env.update(zip(i.results, leaf.evaluate(i.op, kinds, *map(value, i.operands)), strict=True))
        found = map(value, self.made.body.results)
        return [*(jax_compat.conform(y, t) for y, t in zip(found, self.types, strict=True)), fine]


def _turns_of(memory: ArenaMemory, of: Map) -> _ComprehensionTurns:
    body = [i for i in of.body.body if isinstance(i, Apply)]
    inside = {of.body.args[0], *(r for i in body for r in i.results)}
    read = {i.operands[0]: memory.held(i.operands[0]) for i in body if is_item(i)}
    asked = (*(x for i in body for x in i.operands), *of.body.results)
    outer = dict.fromkeys(x for x in asked if x not in inside and x not in read and not _is_scalar(x))
    types = (memory.parts_of(r)[1] for r in of.results)
    return _ComprehensionTurns(
        of,
        tuple(outer),
        {x: len(parts) for x, parts in read.items()},
        tuple(p for parts in read.values() for p in parts),
        memory.fallible.intersection(r for i in body for r in i.results),
        tuple(replace(t, shape=t.shape[1:]) for t in types),
        memory.capacity,
    )


def _is_plain(memory: ArenaMemory, i: Instruction) -> bool:
    """Is it arithmetic, or a read of a number in memory by an index? Columns of the data are read in turns that there
    are only: nothing says where a column ends."""
    if not isinstance(i, Apply) or (i.op.name == "take_row" and not i.op.is_jax):
        return False
    if is_item(i):
        known = i.operands[0] in memory.lists or i.operands[0] in memory.copies
        return known and i.operands[1].type == INT and isinstance(i.results[0].type, Array)
    return i.op.is_jax or (i.op.name in leaf.NUMERIC and not OWN[i.op.name].effect)


def _is_scalar(x: Operand) -> bool:
    return isinstance(x, Literal) and x.constant < 0
