"""What competes: the same computations as an expert writes them for JAX's transforms."""

from __future__ import annotations

from typing import Any

import equinox.internal as eqxi
import jax
import jax.numpy as jnp
from jax import lax, random

from examples.control import mandelbrot, nuts, ode


def costly(p: Any, x: Any) -> Any:
    """The arm that few examples take: a small network."""
    for w in p:
        x = jnp.tanh(x @ w)
    return x


@jax.jit
def branch(p: Any, x: Any) -> Any:
    def one(x: Any) -> Any:
        return lax.cond(x[0] > 0, lambda x: costly(p, x), lambda x: x, x).sum()

    return jax.vmap(one)(x)


@jax.jit
def both_arms(p: Any, x: Any) -> Any:
    """Without `cond`: every example computes both arms. `vmap` of `cond` does that too, and gives each a copy of
    every array that an arm reads."""
    return jax.vmap(lambda x: jnp.where(x[0] > 0, costly(p, x), x).sum())(x)


@jax.jit
def escape(re: Any, im: Any) -> Any:
    """`vmap` of `while_loop`: points on the plane until they escape."""

    def one(re: Any, im: Any) -> Any:
        def more(s: Any) -> Any:
            return (s[2] < mandelbrot.TURNS) & (s[0] * s[0] + s[1] * s[1] <= 4.0)

        def turn(s: Any) -> Any:
            x, y, n = s
            return x * x - y * y + re, 2.0 * x * y + im, n + 1

        return lax.while_loop(more, turn, (0.0, 0.0, 0))[2]

    return jax.vmap(one)(re, im)


def distances(rates: Any, starts: Any, seen: Any, most: int) -> Any:
    """The sum of the squared distances of `examples/control/ode.py`, by Equinox's checkpointed loop under `vmap`; of at
    most `most` turns."""

    def one(rates: Any, y: Any, seen: Any) -> Any:
        def more(s: Any) -> Any:
            return s[0] < ode.END

        def turn(s: Any) -> Any:
            t, h, y = s
            h = jnp.minimum(h, ode.END - t)
            k1 = ode.field(y, rates)
            k2 = ode.field(y + h / 2 * k1, rates)
            k3 = ode.field(y + h * 3 / 4 * k2, rates)
            new = y + h * (2 / 9 * k1 + 1 / 3 * k2 + 4 / 9 * k3)
            k4 = ode.field(new, rates)
            apart = h * (5 / 72 * k1 - 1 / 12 * k2 - 1 / 9 * k3 + 1 / 8 * k4)
            error = jnp.max(jnp.abs(apart) / (ode.TOLERANCE * (1.0 + jnp.abs(y))))
            good = error <= 1.0
            t, y = jnp.where(good, t + h, t), jnp.where(good, new, y)
            return t, h * jnp.clip(0.9 * (error + 1e-10) ** (-1 / 3), 0.2, 5.0), y

        start = jnp.float32(0.0), jnp.float32(0.1), y
        y = eqxi.while_loop(more, turn, start, kind="checkpointed", max_steps=most)[2]
        return jnp.sum((y - seen) ** 2)

    return jax.vmap(one)(rates, starts, seen).sum()


def subtree(model: Any, key: Any, q: Any, r: Any, slice_: Any, side: Any, depth: Any, step: Any) -> Any:
    """A tree of `nuts.tree` without recursion: leaves from left to right, and of the left ends of the subtrees that are
    open one for each depth (Phan, Pradhan and Jankowiak, arXiv:1912.11554)."""

    def more(s: Any) -> Any:
        return (s["leaf"] < (1 << depth)) & s["more"]

    def turn(s: Any) -> Any:
        leaf = s["leaf"]
        q, r = nuts.leapfrog(model, s["q"], s["r"], side * step)
        energy = nuts.log_density(model, q) - 0.5 * jnp.dot(r, r)
        inside = jnp.where(slice_ <= energy, 1, 0)
        n = s["n"] + inside
        key, draw = random.split(s["key"])
        taken = jnp.where(random.uniform(draw) * n < inside, q, s["taken"])
        place, even = lax.population_count(leaf >> 1), leaf % 2 == 0
        ends = [jnp.where(even, e.at[place].set(x), e) for e, x in zip(s["ends"], (q, r), strict=True)]
        lowest = place - lax.population_count((leaf ^ (leaf + 1)) >> 1) + 1

        def open_(c: Any) -> Any:
            return (c[0] >= lowest) & c[1]

        def look(c: Any) -> Any:
            a, b = ends[0][c[0]], ends[1][c[0]]
            return c[0] - 1, jnp.where(side > 0, nuts.goes_on(a, b, q, r), nuts.goes_on(q, r, a, b))

        fine = lax.while_loop(open_, look, (jnp.where(even, lowest - 1, place), jnp.asarray(True)))[1]
        fine = fine & (slice_ < energy + nuts.UNLIKELY)
        return {"leaf": leaf + 1, "q": q, "r": r, "n": n, "more": fine, "taken": taken, "ends": ends, "key": key}

    ends = [jnp.zeros((nuts.DEEPEST, *q.shape))] * 2
    begin = {"leaf": 0, "q": q, "r": r, "n": 0, "more": True, "taken": q, "ends": ends, "key": key}
    return lax.while_loop(more, turn, begin)


def transition(model: Any, key: Any, q: Any, step: Any) -> Any:
    """One draw of one chain, and how many leapfrog steps it took."""
    key, momentum, height = random.split(key, 3)
    r = random.normal(momentum, q.shape)
    slice_ = nuts.log_density(model, q) - 0.5 * jnp.dot(r, r) + jnp.log(random.uniform(height))

    def more(s: Any) -> Any:
        return s["more"] & (s["depth"] < nuts.DEEPEST)

    def turn(s: Any) -> Any:
        key, flip, below, draw = random.split(s["key"], 4)
        side = jnp.where(random.bernoulli(flip), 1.0, -1.0)
        left, (ql, rl, qr, rr) = side < 0, s["ends"]
        t = subtree(model, below, jnp.where(left, ql, qr), jnp.where(left, rl, rr), slice_, side, s["depth"], step)
        grown = (t["q"], t["r"], t["q"], t["r"])
        sides = (left, left, ~left, ~left)
        ends = tuple(jnp.where(w, x, y) for w, x, y in zip(sides, grown, (ql, rl, qr, rr), strict=True))
        takes = t["more"] & (random.uniform(draw) * s["n"] < t["n"])
        return {
            "key": key,
            "q": jnp.where(takes, t["taken"], s["q"]),
            "ends": ends,
            "n": s["n"] + t["n"],
            "more": t["more"] & nuts.goes_on(*ends),
            "depth": s["depth"] + 1,
            "steps": s["steps"] + t["leaf"],
        }

    begin = {"key": key, "q": q, "ends": (q, r, q, r), "n": 1, "more": True, "depth": 0, "steps": 0}
    end = lax.while_loop(more, turn, begin)
    return end["q"], end["steps"]


def chain(model: Any, key: Any, q: Any, step: Any, draws: int) -> Any:
    """The draws of one chain, and its leapfrog steps."""

    def turn(q: Any, key: Any) -> Any:
        q, steps = transition(model, key, q, step)
        return q, (q, steps)

    return lax.scan(turn, q, random.split(key, draws))[1]
