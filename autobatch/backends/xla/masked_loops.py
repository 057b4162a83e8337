"""A loop that computed numbers end, with a derivative in reverse: states are kept at few turns and computed again.

`states` are kept for each of a few units of turns, the `levels`. State `p` lies by the digits of `p` in base `states`:
a multiple of `states ** k` in the slots of level `k`, where the next one overwrites nothing that is needed:

    forward      every state is written where it belongs; the slots of the finest level are overwritten again and again
    backward     turn p needs state p; where its block has been overwritten, turns run again from the multiple before

So a loop keeps `states * levels` of them however long it is, and computes a turn again at most `levels - 1` times, none
of the first `states`. (Multi-level checkpointing: Griewank and Walther, Evaluating Derivatives, 12.3.)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from autobatch.backends.xla import memory
from autobatch.backends.xla.lanes import is_float
from autobatch.ir.masked import Allowed
from autobatch.options import OptionError
from autobatch.passes.schedule.costs import in_words
from autobatch.source import NOWHERE, Span

State = Sequence[Any]
Step = Callable[[State, State], list[Any]]


class Until(NamedTuple):
    """A loop runs while more than `least` rows go on, and until it has had all its `turns`. `place`: where it is."""

    turns: Allowed
    least: int = 0
    place: Span = NOWHERE

    def goes_on(self, turn: Any, state: State) -> Any:
        some = jnp.sum(state[0], dtype=jnp.int32) > self.least if self.least else jnp.any(state[0])
        return some & (turn < self.turns.most)


def plain_loop(step: Step, held: State, start: State, until: Until, begun: Any) -> tuple[Any, list[Any]]:
    """`state = step(held, state)`, where `state[0]` says which rows go on, after `begun` turns: how many turns there
    were then, and the last state."""

    def turn(carry: Any) -> Any:
        return carry[0] + 1, step(held, carry[1])

    found: tuple[Any, list[Any]] = jax.lax.while_loop(lambda c: until.goes_on(*c), turn, (begun, list(start)))
    return found


def differentiable_loop(
    step: Step, held: State, start: State, until: Until, begun: Any, moved: Step
) -> tuple[Any, list[Any]]:
    """The same, with a derivative, that of `moved`, which computes the same. Neither closes over a tracer."""
    loop = _MaskedLoop(step, moved, [is_float(x) for x in held], [is_float(x) for x in start], until)
    return loop.run(held, start, begun)


class _MaskedLoop:
    """`held` and `start`: which of what is read in all turns, and of the state, can move."""

    def __init__(self, step: Step, moved: Step, held: Sequence[bool], start: Sequence[bool], until: Until) -> None:
        self.step, self.moved, self.held, self.start, self.until = step, moved, held, start, until
        self.levels, self.states = until.turns.levels, until.turns.states

    def run(self, held: State, start: State, begun: Any) -> tuple[Any, list[Any]]:
        @jax.custom_vjp
        def loop(moving: Any, fixed: Any, begun: Any) -> tuple[Any, list[Any]]:
            outer, state = self.joined(moving, fixed)
            return plain_loop(self.step, outer, state, self.until, begun)

        def forward(moving: Any, fixed: Any, begun: Any) -> tuple[tuple[Any, list[Any]], Any]:
            outer, state = self.joined(moving, fixed)
            final, kept, turns = self.recorded(outer, state, begun)
            return (begun + turns, final), (outer, kept, turns)

        def backward(residuals: Any, cotangents: Any) -> Any:
            outer, kept, turns = residuals
            moved = [ct for ct, flag in zip(cotangents[1], self.start, strict=True) if flag]
            return self.reversed(outer, kept, turns, moved), None, None

        loop.defvjp(forward, backward)
        moving = [[x for x, f in zip(xs, flags, strict=True) if f] for xs, flags in self.parts(held, start)]
        fixed = [[x for x, f in zip(xs, flags, strict=True) if not f] for xs, flags in self.parts(held, start)]
        found: tuple[Any, list[Any]] = loop(moving, fixed, begun)
        return found

    def parts(self, held: State, start: State) -> list[tuple[State, Sequence[bool]]]:
        return [(held, self.held), (start, self.start)]

    def joined(self, moving: Any, fixed: Any) -> list[list[Any]]:
        """What is held and the state, from what moves in them and what does not."""
        return [_merged(m, f, flags) for m, f, flags in zip(moving, fixed, (self.held, self.start), strict=True)]

    def recorded(self, outer: State, start: State, begun: Any) -> tuple[list[Any], list[Any], Any]:
        """The last state, the kept ones, and the number of turns from `begun` on."""
        self.check_memory(start)
        empty = [jnp.zeros((self.states * self.levels, *jnp.shape(x)), jnp.result_type(x)) for x in start]

        def turn(carry: Any) -> Any:
            at, state, kept = carry
            return at + 1, self.step(outer, state), self.put(kept, at, state)

        at, final, kept = jax.lax.while_loop(
            lambda c: self.until.goes_on(begun + c[0], c[1]), turn, (jnp.int32(0), list(start), empty)
        )
        return final, kept, at

    def check_memory(self, state: State) -> None:
        """Refuse what could not be kept: half of the memory is for everything else."""
        kept, most = self.states * self.levels, memory.limit() // 2
        needed = kept * sum(math.prod(jnp.shape(x)) * jnp.result_type(x).itemsize for x in state)
        if needed > most:
            where, turns = self.until.place, self.until.turns.most
            raise OptionError(
                f"{where}: the derivative of this loop keeps {kept:,} states of its rows, {in_words(needed)}, and half "
                f"of the memory is {in_words(most)}\n{where.excerpt()}\n  with checkpoint='all' set max_iterations "
                f"(now {turns:,}) to the turns that the loop needs, or choose checkpoint='sqrt' or 32; else call with "
                "fewer examples at a time"
            )

    def reversed(self, outer: State, kept: State, turns: Any, cotangents: State) -> Any:
        """The cotangents of what moves: of what is held, and of the first state."""
        moving = [x for x, flag in zip(outer, self.held, strict=True) if flag]
        fixed = [x for x, flag in zip(outer, self.held, strict=True) if not flag]

        def turn(carry: Any) -> Any:
            after, kept, total, cts = carry
            at = after - 1
            kept = self.again(outer, kept, at)
            state = self.get(kept, at)
            others = [x for x, flag in zip(state, self.start, strict=True) if not flag]

            def moved(of_held: State, of_state: State) -> list[Any]:
                new = self.moved(_merged(of_held, fixed, self.held), _merged(of_state, others, self.start))
                return [x for x, flag in zip(new, self.start, strict=True) if flag]

            _, pull = jax.vjp(moved, moving, [x for x, flag in zip(state, self.start, strict=True) if flag])
            more, cts = pull(list(cts))
            return at, kept, [a + b for a, b in zip(total, more, strict=True)], cts

        zeros = [jnp.zeros_like(x) for x in moving]
        first = (turns, list(kept), zeros, list(cotangents))
        _, _, total, cts = jax.lax.while_loop(lambda c: c[0] > 0, turn, first)
        return [total, cts]

    def again(self, outer: State, kept: list[Any], at: Any) -> list[Any]:
        """The kept states with state `at` among them."""
        first = at
        for level in range(1, self.levels):
            unit = self.states**level
            first = jnp.where((at + 1) % unit == 0, at + 1 - unit, first)

        def turn(carry: Any) -> Any:
            here, state, kept = carry
            state = self.step(outer, state)
            return here + 1, state, self.put(kept, here + 1, state)

        found: list[Any] = jax.lax.while_loop(lambda c: c[0] < at, turn, (first, self.get(kept, first), kept))[2]
        return found

    def slot(self, turn: Any) -> Any:
        """Where the state before a turn lies: at the level of its last digit that is not zero."""
        found = turn // self.states ** (self.levels - 1) % self.states
        for level in range(1, self.levels):
            digit = turn // self.states ** (self.levels - 1 - level) % self.states
            found = jnp.where(digit != 0, level * self.states + digit, found)
        return found

    def put(self, kept: State, turn: Any, state: State) -> list[Any]:
        at = self.slot(turn)
        return [jax.lax.dynamic_update_index_in_dim(b, x, at, 0) for b, x in zip(kept, state, strict=True)]

    def get(self, kept: State, turn: Any) -> list[Any]:
        at = self.slot(turn)
        return [jax.lax.dynamic_index_in_dim(b, at, keepdims=False) for b in kept]


def _merged(moving: State, fixed: State, flags: Sequence[bool]) -> list[Any]:
    a, b = iter(moving), iter(fixed)
    return [next(a) if flag else next(b) for flag in flags]
