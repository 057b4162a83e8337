"""Shared arguments and free variables: what is a run-time value, what is part of the program."""

from __future__ import annotations

import enum
from collections import namedtuple
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autobatch as ab
from tests.api.nodes import close, trees
from tests.api.page.oracle import agrees

X = np.arange(6.0, dtype=np.float32).reshape(3, 2)
WORDS = [[1, 2], [], [3]]
Pair = namedtuple("Pair", "a b")


class Mode(enum.Enum):
    ADD = 1
    MUL = 2


def compiled(f) -> int:
    return f.cache_info().specialisations


# ---- run-time values


@pytest.mark.parametrize("values", [(1.5, -2.0), (np.float32(1), np.float32(2)), (np.ones(2), np.zeros(2))], ids=str)
def test_arrays_and_floats_are_run_time_values(values):
    """Another value of the same type is no other program."""
    f = ab.batched(lambda p, x: p * x, in_axes=(None, 0))
    for value in values:
        close(f(value, X), value * X)
    assert compiled(f) == 1


def test_arrays_and_floats_are_traced():
    """So they may come from an outer jit."""
    f = ab.batched(lambda p, q, x: p * x + q["b"], in_axes=(None, None, 0))
    close(jax.jit(lambda p, b: f(p, {"b": b}, X))(2.0, jnp.ones(2)), 2 * X + 1)


@pytest.mark.parametrize(
    "one, other",
    [
        ("add", "mul"),
        (None, "mul"),
        (Mode.ADD, Mode.MUL),
        (jnp.sin, jnp.cos),
        (int, float),
        ({"add": 1.0}, {"mul": 1.0}),
        ((1.0, 2.0), (1.0,)),
        ((), None),
    ],
    ids=["str", "None", "Enum", "function", "type", "dict", "tuple", "empty"],
)
def test_strings_none_enums_functions_types_and_containers_are_part_of_the_program(one, other):
    """Each value has its program; the first one is found again."""

    def choose(p, x):
        if p is None or p == () or p == "mul" or p is Mode.MUL or p is jnp.cos or p is float:
            return x * 2
        if isinstance(p, dict):
            return x * 2 if "mul" in p else x + 1
        if isinstance(p, tuple):
            return x * len(p)
        return x + 1

    f = ab.batched(choose, in_axes=(None, 0))
    for value in (one, other, one):
        close(f(value, X), np.stack([choose(value, x) for x in X]))
    assert compiled(f) == 2


def test_a_function_argument_is_called():
    """A library function, one of the user, a lambda, a bound method, a partial."""
    import functools

    f = ab.batched(lambda g, x: g(x), in_axes=(None, 0))
    for g in (jnp.tanh, lambda x: x + 1, functools.partial(jnp.add, 2.0), Config(3.0).scaled):
        agrees(f, g, X)


# ---- Python ints and bools


def test_ints_are_run_time_values_on_the_host():
    """They may decide structure, and another value is no other program."""

    @ab.batched(in_axes=(None, 0))
    def first(n, words: list[int]):
        total = 0
        for w in words[:n]:
            total += w
        return total if len(words) > n else -total

    for n in (0, 1, 2):
        agrees(first, n, WORDS)


def test_bools_decide_branches():
    """Both values run, each as plain Python says."""
    f = ab.batched(lambda flag, t: t.x if flag else -t.x, in_axes=(None, 0))
    for flag in (True, False):
        agrees(f, flag, trees())


def test_an_int_becomes_static_where_a_shape_needs_it():
    """`jnp.ones(n)` has another type for each n: each n has a program then."""
    f = ab.batched(lambda n, x: jnp.concatenate([x, jnp.ones(n)]), in_axes=(None, 0))
    for n in (1, 2):
        assert f(n, X).shape == (3, 2 + n)
    assert compiled(f) == 2


def test_names_in_static_are_part_of_the_program():
    """Whatever their type is: here a float that the function may look at."""
    f = ab.batched(lambda scale, x: x * scale if scale > 2 else x, in_axes=(None, 0), static="scale")
    close(f(3.0, X), 3 * X)
    close(f(1.0, X), X)
    assert compiled(f) == 2
    with pytest.raises(ab.BatchError, match="hashable"):
        f([1.0], X)


def test_static_names_parameters():
    """A name that is none, or one that is batched, is refused."""
    with pytest.raises(ab.BatchError, match="no parameter"):
        ab.batched(lambda x: x, static="y")
    with pytest.raises(ab.BatchError, match="can be one only"):
        ab.batched(lambda x: x, static="x")(X)


def test_under_an_outer_jit_a_traced_int_decides_arithmetic():
    """Its value is not known; as a number it may be used, and under a mask it may decide what is computed."""
    f = ab.batched(lambda n, x: x * n, in_axes=(None, 0))
    close(jax.jit(lambda n: f(n, X))(2), 2 * X)
    g = ab.batched(lambda n, words: sum(words) if len(words) > n else 0, in_axes=(None, 0))
    data = ab.pack(WORDS).plan(g)
    for n in (0, 1, 5):
        close(jax.jit(lambda n: g(n, data))(n), g.loop(n, WORDS))


# ---- lists and objects


def test_iteration_over_leaves_of_different_types_unrolls():
    """Layers of different widths: one turn of the loop for each."""
    layers = [{"w": np.ones((3, 2)), "b": np.zeros(3)}, {"w": np.ones((1, 3)) / 2, "b": np.ones(1)}]

    def network(layers, x):
        for layer in layers:
            x = jnp.tanh(layer["w"] @ x + layer["b"])
        return x

    agrees(ab.batched(network, in_axes=(None, 0)), layers, X)


def test_a_varying_index_reads_a_uniform_list():
    """Leaves of one type are one column: an integer of the example chooses, from the end too."""
    f = ab.batched(lambda ws, n: ws[n] * 2, in_axes=(None, 0))
    agrees(f, [jnp.ones(2), jnp.zeros(2), jnp.full(2, 5.0)], [0, 2, -1, 1])
    agrees(f, [1.0, 2.0, 3.0], [0, 2, -1])


def test_a_varying_index_into_containers():
    """A list of equal containers is uniform, too; strings index a dict."""
    experts = [{"w": np.full((2, 2), k, np.float32), "b": np.float32(k)} for k in range(3)]
    f = ab.batched(lambda es, q: es[q[0]]["w"] @ q[1] + es[q[0]]["b"], in_axes=(None, 0))
    agrees(f, experts, [(0, X[0]), (2, X[1]), (-1, X[2])])
    g = ab.batched(lambda table, name: table[name]["w"].sum(), in_axes=(None, 0))
    agrees(g, {"a": experts[1], "b": experts[2]}, ["a", "b", "a"])


def test_a_varying_index_out_of_range_fails_its_example():
    """As the list would."""
    f = ab.batched(lambda ws, n: ws[n] * 2, in_axes=(None, 0), on_error="mask")
    _, failures = f([1.0, 2.0], [0, 2, -2, -3])
    assert [x.index for x in failures] == [1, 3]
    assert {x.kind for x in failures} == {"IndexError"}


@dataclass
class Config:
    scale: float
    bias: Any = field(default_factory=lambda: np.ones(2, np.float32))
    depth: int = 2
    name: str = "add"
    inner: Any = None

    def scaled(self, x):
        return x * self.scale


class Plain:
    def __init__(self, w):
        self.w = w
        self.parts = [w, w * 2]

    def __call__(self, x):
        return self.w * x + self.parts[1]

    @property
    def twice(self):
        return self.w * 2


def test_plain_objects_are_shared_by_their_attributes():
    """Arrays and floats inside are run-time values; strings and structure are part of the program."""

    def apply(c, x):
        return (x * c.scale + c.bias if c.name == "add" else c.scaled(x)) * c.depth

    f = ab.batched(apply, in_axes=(None, 0))
    agrees(f, Config(2.0), X)
    agrees(f, Config(3.0, np.zeros(2, np.float32)), X)
    assert compiled(f) == 2, "one for each back end"
    agrees(f, Config(3.0, name="mul"), X)


def test_objects_within_objects():
    """Attributes are shared one by one, at any depth; methods, properties and calls work."""
    f = ab.batched(lambda c, x: c.inner(x) * c.inner.twice * c.scale, in_axes=(None, 0))
    agrees(f, Config(2.0, inner=Plain(3.0)), X)
    agrees(f, Config(2.0, inner=Plain(jnp.float32(4.0))), X)


def test_a_namedtuple_of_parameters():
    """Containers of parameters keep their type."""
    f = ab.batched(lambda p, x: p.a * x + p.b, in_axes=(None, 0))
    agrees(f, Pair(2.0, jnp.ones(2)), X)


def test_shared_containers_may_be_iterated():
    """`items`, `values`, `zip`, comprehensions over the parameters."""

    def f(p, x):
        total = sum(v.sum() for v in p.values()) + len(p)
        for name, w in p.items():
            total = total + (w * x).sum() * (2 if name == "a" else 1)
        return total + sum(a * b for a, b in zip((1.0, 2.0), x))

    agrees(ab.batched(f, in_axes=(None, 0)), {"a": jnp.ones(2), "b": jnp.full(2, 3.0)}, X)
