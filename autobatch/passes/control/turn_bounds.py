"""The checks of indices in a uniform loop, for all its turns at once, before it.

    %4 = for 3 init(%x) body(%i, %h):            %9: int32[3] = getitem(%ids, iota)
      %5 = getitem(%ids, %i)                     bounds[axis=0, size=5](%9)
      bounds[axis=0, size=5](%5)           ->    %4 = for 3 init(%x) body(%i, %h):
      %6 = getitem(%table, %5)                     %5 = getitem(%ids, %i)
      ...                                          %6 = getitem(%table, %5) ...

An index that depends on what the loop carries is known turn by turn only: such a loop stays one, unless shared arrays
decide the index, which the host does not know anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from autobatch.ir import jax_compat, leaf
from autobatch.ir.bounds import words
from autobatch.ir.core import Apply, For, Instruction, Literal, Operand, Value
from autobatch.ir.ops import own
from autobatch.ir.types import BOOL, Array

Evaluate = Callable[[Operand, dict[Value, Any]], Any]


def is_bounds(instruction: Instruction) -> bool:
    """Is it the check of an index?"""
    return isinstance(instruction, Apply) and not instruction.op.is_jax and instruction.op.name == "bounds"


def steps_to(operand: Operand, body: Sequence[Instruction]) -> tuple[list[Apply], list[Value]]:
    """The operations of a loop's body that compute a value, and what they read from elsewhere."""
    needed, steps = [operand], []
    for instruction in reversed(body):
        if isinstance(instruction, Apply) and any(r in needed for r in instruction.results):
            steps.append(instruction)
            needed += instruction.operands
    made = {r for i in steps for r in i.results}
    return steps[::-1], list(dict.fromkeys(x for x in needed if isinstance(x, Value) and x not in made))


def check_all_turns(
    checks: Sequence[Apply],
    loop: For,
    room: int,
    value: Evaluate,
    fresh: Callable[[Array], Value],
    constant: Callable[[Any], Literal],
) -> list[Instruction]:
    """The checks of indices that depend on the turn and on values from outside the loop, in all turns. `room`: turns at
    most. Where there are several, those of the first turn in which one fails come first, as it fails first."""
    if not checks:
        return []
    turn, counted = loop.body.args[0], (loop.count,) if isinstance(loop.count, Value) else ()
    found = [steps_to(c.operands[0], loop.body.body) for c in checks]
    captured = list(dict.fromkeys(x for _, reads in found for x in reads if x != turn))

    def of_turn(t: Any, outer: Sequence[Any]) -> list[Any]:
        env: dict[Value, Any] = {turn: t, **dict(zip(captured, outer, strict=True))}
        for i in (i for steps, _ in found for i in steps if i.results[0] not in env):
            types = [r.type for r in i.results if isinstance(r.type, Array)]
            env.update(zip(i.results, leaf.evaluate(i.op, types, *(value(x, env) for x in i.operands)), strict=True))
        return [jnp.asarray(value(c.operands[0], env)) for c in checks]

    def of_all(*operands: Any) -> list[Any]:
        count, outer = operands[: len(counted)], operands[len(counted) :]
        turns = jnp.arange(room)
        indices = jax.vmap(lambda t: of_turn(t, outer))(turns)
        if count:
            indices = [jnp.where((turns < count[0]).reshape(-1, *(1,) * (x.ndim - 1)), x, 0) for x in indices]
        return [*(_of_first(indices, checks) if len(checks) > 1 and room else ()), *indices]

    reading, ordered = (*counted, *captured), [*(checks if len(checks) > 1 and room else ()), *checks]
    if not reading:
        with jax.ensure_compile_time_eval():
            return _known(ordered, of_all())
    closed, _ = jax_compat.trace(of_all, *(x.type for x in reading if isinstance(x.type, Array)))
    made: list[Instruction] = []
    known = jax_compat.inline(closed, reading, fresh, constant, made.append, loop.span)
    return [*made, *(replace(c, operands=(x,)) for c, x in zip(ordered, known, strict=True))]


def _of_first(indices: Sequence[Any], checks: Sequence[Apply]) -> list[Any]:
    """The indices of the first turn in which one of them is out of range; of turn 0 where none is."""
    wrong = [(x < -c.op["size"]) | (x >= c.op["size"]) for x, c in zip(indices, checks, strict=True)]
    turns = jnp.stack([w.reshape(len(w), -1).any(1) for w in wrong]).any(0)
    first = jnp.arange(len(turns)) == jnp.argmax(turns)
    return [jnp.where(first.reshape(-1, *(1,) * (x.ndim - 1)), x, 0).sum(0) for x in indices]


def _known(checks: Sequence[Apply], indices: Sequence[Any]) -> list[Instruction]:
    """The check that fails always, first of some whose indices are known; nothing where none does."""
    for check, index in zip(checks, indices, strict=True):
        if message := words(np.asarray(index), check.op["axis"], check.op["size"]):
            failing = own("check", kind="IndexError", message=message)
            return [Apply((), failing, (Literal(False, BOOL),), check.span)]
    return []


def depends_on(roots: Iterable[Operand], makers: dict[Value, Sequence[Operand]], wanted: frozenset[Value]) -> bool:
    """Is some root computed from one of these values?"""
    todo, seen = list(roots), set[Operand]()
    while todo:
        x = todo.pop()
        if x in wanted:
            return True
        if isinstance(x, Value) and x not in seen:
            seen.add(x)
            todo += makers.get(x, ())
    return False
