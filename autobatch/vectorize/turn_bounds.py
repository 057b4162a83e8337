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
    check: Apply,
    loop: For,
    room: int,
    value: Evaluate,
    fresh: Callable[[Array], Value],
    constant: Callable[[Any], Literal],
) -> list[Instruction]:
    """The check of an index that depends on the turn and on values from outside the loop, in all turns. `room`: turns
    at most."""
    (index,) = check.operands
    steps, reads = steps_to(index, loop.body.body)
    turn, counted = loop.body.args[0], (loop.count,) if isinstance(loop.count, Value) else ()
    captured = [x for x in reads if x != turn]

    def of_turn(t: Any, outer: Sequence[Any]) -> Any:
        env: dict[Value, Any] = {turn: t, **dict(zip(captured, outer, strict=True))}
        for i in steps:
            types = [r.type for r in i.results if isinstance(r.type, Array)]
            env.update(zip(i.results, leaf.evaluate(i.op, types, *(value(x, env) for x in i.operands)), strict=True))
        return value(index, env)

    def of_all(*operands: Any) -> Any:
        count, outer = operands[: len(counted)], operands[len(counted) :]
        turns = jnp.arange(room)
        found = jax.vmap(lambda t: of_turn(t, outer))(turns)
        live = (turns < count[0]).reshape(-1, *(1,) * (found.ndim - 1)) if count else True
        return jnp.where(live, found, 0)

    reading = (*counted, *captured)
    if not reading:
        with jax.ensure_compile_time_eval():
            found = words(np.asarray(of_all()), check.op["axis"], check.op["size"])
        failing = own("check", kind="IndexError", message=found)
        return [Apply((), failing, (Literal(False, BOOL),), check.span)] if found else []
    closed, _ = jax_compat.trace(of_all, *(x.type for x in reading if isinstance(x.type, Array)))
    made: list[Instruction] = []
    (known,) = jax_compat.inline(closed, reading, fresh, constant, made.append, check.span)
    return [*made, Apply((), check.op, (known,), check.span)]


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
