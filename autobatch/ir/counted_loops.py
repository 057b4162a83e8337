"""A loop whose number of turns is known, as a scan whose derivative keeps the states of few turns.

    for 10000 turns       for 100 blocks: keep the state;       backward, a block at a time: its 100 turns run again
                            for 100 turns

The derivative of one scan keeps what every turn computes. Cut into blocks of as many turns as there are blocks, it
keeps the states between them and what the turns of one block compute, and each turn runs again once. (Chen et al.,
Training Deep Nets with Sublinear Memory Cost, 2016.)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax

Step = Callable[[Any, Any], Any]


def counted_loop(step: Step, turns: int, start: Any, keep: int) -> Any:
    """`state = step(turn, state)` for each turn. A derivative keeps what all turns compute where there are at most
    `keep` of them."""
    if turns <= keep:
        return jax.lax.fori_loop(0, turns, step, start)
    length = math.isqrt(turns - 1) + 1
    blocks, rest = divmod(turns, length)

    def block(first: Any, state: Any) -> Any:
        return jax.lax.fori_loop(0, length, lambda k, s: step(first + k, s), state)

    again = jax.checkpoint(block, prevent_cse=False)
    state = jax.lax.fori_loop(0, blocks, lambda b, s: again(b * length, s), start)
    return jax.lax.fori_loop(0, rest, lambda k, s: step(blocks * length + k, s), state) if rest else state
