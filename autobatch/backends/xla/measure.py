"""What windows cost on this machine: the numbers of `optimize.costs.Machine`, measured where windows run.

One executable holds a `while` loop for each thing to measure. How many turns each of them makes is a run-time value, so
that all is compiled at once and runs in milliseconds. A turn does what a window does: it reads its rows of an index
table, gathers them, computes, and writes one slice of a buffer that the loop carries.

    cost of a window = (time of n turns of its loop - time of no turns) / n
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from autobatch.passes.schedule.costs import MachineCosts

PRODUCT_ROWS = (4, 8, 16, 32, 64, 128)
INNER, OUTER = 256, 768
"""The sizes of the products: the matrix of a recurrent cell, which stays in the second cache of a core."""
NARROW, BROAD = (8, 16), (128, 512)
"""Rows and columns: so few that only the fixed cost of a window is left, and so many that it does not matter."""
LINKS = 3
"""The long chain has so many gathers, with a product and an addition behind each."""
CHEAP, EXPENSIVE = 8, 4
"""Additions and products that a broad window makes of each element; hyperbolic tangents on top."""
PLACES = 8
"""Windows begin at so many different rows in turn."""
ROUNDS = 5
"""Every loop is timed so often, in turn. The fastest time counts: whatever else the machine does only adds to it."""
LEAST = 1e-6
"""A difference of two times may come out as nothing, but no cost may (microseconds)."""


@dataclass(frozen=True)
class MeasuredLoop:
    """A loop over windows of `rows` rows and `columns` columns, and how many turns take a fraction of a millisecond.
    `body(rows, buffer, index, weights)` makes the rows that a window writes."""

    rows: int
    columns: int
    turns: int
    body: Callable[[Any, Any, Any, Any], Any]

    def run(self, turns: Any, buffer: Any, table: Any, weights: Any) -> Any:
        """The buffer after so many turns."""

        def step(carry: tuple[Any, Any]) -> tuple[Any, Any]:
            at, held = carry
            place = at % PLACES
            index = jax.lax.dynamic_slice_in_dim(table, place, self.rows, allow_negative_indices=False)
            made = self.body(_rows(held, index)[:, : self.columns], held, index, weights)
            start = (place, jnp.int32(0))
            return at + 1, jax.lax.dynamic_update_slice(held, made, start, allow_negative_indices=False)

        return jax.lax.while_loop(lambda c: c[0] < turns, step, (jnp.int32(0), buffer))[1]


def _rows(array: Any, index: Any) -> Any:
    return array.at[index].get(mode="promise_in_bounds", wrap_negative_indices=False)


def _product(rows: Any, buffer: Any, index: Any, weights: Any) -> Any:
    return rows @ weights


def _short(rows: Any, buffer: Any, index: Any, weights: Any) -> Any:
    return rows * 0.5


def _long(rows: Any, buffer: Any, index: Any, weights: Any) -> Any:
    for k in range(LINKS):
        rows = 0.5 * rows + _rows(buffer, index + k)[:, : rows.shape[1]]
    return rows


def _cheap(rows: Any, buffer: Any, index: Any, weights: Any) -> Any:
    for _ in range(CHEAP // 2):
        rows = rows * 0.5 + 0.25
    return rows


def _expensive(rows: Any, buffer: Any, index: Any, weights: Any) -> Any:
    for _ in range(EXPENSIVE):
        rows = jnp.tanh(rows)
    return _cheap(rows, buffer, index, weights)


LOOPS: Mapping[str, MeasuredLoop] = {
    **{f"product {n}": MeasuredLoop(n, INNER, max(2, 128 // n), _product) for n in PRODUCT_ROWS},
    "short": MeasuredLoop(*NARROW, 200, _short),
    "long": MeasuredLoop(*NARROW, 100, _long),
    "cheap": MeasuredLoop(*BROAD, 16, _cheap),
    "expensive": MeasuredLoop(*BROAD, 8, _expensive),
}


def measure() -> MachineCosts:
    """Measure the machine and the device that JAX computes on by default: well under a second, most of it compiling."""
    with jax.ensure_compile_time_eval():  # the program that asks may be compiled while JAX traces its caller
        return machine_of(_times())


def _times() -> dict[str, float]:
    """Microseconds of one turn of each loop."""
    rows = max(PRODUCT_ROWS) + PLACES + LINKS
    table = jnp.asarray(np.arange(rows) * 5 % (rows - LINKS), jnp.int32)
    buffer = jnp.zeros((rows, OUTER), jnp.float32)
    weights = jnp.asarray(np.random.default_rng(0).normal(0.0, INNER**-0.5, (INNER, OUTER)), jnp.float32)

    def all_loops(turns: Any, buffer: Any, table: Any, weights: Any) -> Any:
        for k, loop in enumerate(LOOPS.values()):
            buffer = loop.run(turns[k], buffer, table, weights)
        return buffer

    none = np.zeros(len(LOOPS), np.int32)
    run = jax.jit(all_loops).lower(none, buffer, table, weights).compile()

    def seconds(turns: Any) -> float:
        start = time.perf_counter()
        jax.block_until_ready(run(turns, buffer, table, weights))
        return time.perf_counter() - start

    counts = {name: jnp.asarray(np.where(np.arange(len(LOOPS)) == k, loop.turns, 0), jnp.int32)
              for k, (name, loop) in enumerate(LOOPS.items())}  # fmt: skip
    idle = jnp.asarray(none)
    best = dict.fromkeys([*LOOPS, ""], float("inf"))
    for _ in range(ROUNDS):
        for name, turns in counts.items():
            best[name] = min(best[name], seconds(turns))
            best[""] = min(best[""], seconds(idle))
    return {name: max(1e6 * (best[name] - best[""]) / loop.turns, LEAST) for name, loop in LOOPS.items()}


def machine_of(turn: Mapping[str, float]) -> MachineCosts:
    """The machine on which one turn of each of `LOOPS` takes so many microseconds.

    A product of more rows can be cut into products of fewer, so it counts as no slower a row than those."""
    step = (turn["long"] - turn["short"]) / (3 * LINKS)
    elements = BROAD[0] * BROAD[1]
    element = (turn["cheap"] - turn["short"]) / elements / (CHEAP + 1)
    expensive = (turn["expensive"] - turn["cheap"]) / elements / EXPENSIVE
    products: list[tuple[int, float]] = []
    for rows in PRODUCT_ROWS:
        spent = max(turn[f"product {rows}"] - turn["short"], LEAST)
        speed = 2 * rows * INNER * OUTER / spent / 1000
        products.append((rows, max(speed, products[-1][1] if products else 0.0)))
    element = max(element, LEAST)
    return MachineCosts(turn["short"], max(step, LEAST), element, max(expensive / element, 1.0), tuple(products))
