"""Level loops as machine code: the same numbers as the loops that XLA compiles, under every transformation."""

import re
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autobatch as ab
from autobatch.backends.llvm import machine_code
from autobatch.backends.llvm.machine_code import UnavailableError
from autobatch.options import OptionError
from tests.passes.frames.programs import child_sum, lstm, parameters, random_many, random_tree, rnn, tree_lstm

try:
    machine_code.host()
except UnavailableError as error:
    pytest.skip(f"no kernel here: {error}", allow_module_level=True)


@dataclass
class Item:
    x: float
    kids: list["Item"] = field(default_factory=list)


def random_item(rng, nodes):
    made = [Item(float(x)) for x in rng.normal(size=nodes)]
    for k in range(1, nodes):
        made[int(rng.integers(max(0, k - 3), k))].kids.append(made[k])
    return made[0]


def state(p, t, kids):
    return jnp.concatenate([p["b"] * t.x, sum(kids, p["b"] * 0)])


@ab.batched(in_axes=(None, 0))
def all_functions(p, t: Item):
    """Every function of numbers, and parts that are cut and put together off the boundaries of vectors."""
    v = state(p, t, [all_functions(p, kid) for kid in t.kids])
    a, b = v[:8], v[8:]
    y = (
        jnp.exp(-(a**2))
        + jnp.log(1 + b**2)
        + jnp.sqrt(jnp.abs(a) + 1)
        + jax.lax.rsqrt(b**2 + 2)
        + jax.nn.sigmoid(a * b)
    )
    y = y + jnp.where(a > 0, jnp.maximum(a, b), jnp.minimum(a, 2.0 * b)) + jnp.clip(b, -0.5, 0.5) + 1 / (2 + b**4)
    y = y + ((a > b) & ~(b > 0.5)).astype(y.dtype) + jnp.pad(a[3:6], (2, 3)) + jnp.square(a - b) / 3 - (-a)
    y = y + jnp.concatenate([b[5:], a[:2], b[2:5]]) * jnp.tanh(t.x * a)
    return jnp.tanh(y * 0.3)


@ab.batched(in_axes=(None, 0))
def normalised(p, t: Item):
    """Reductions within a row, whose results all its numbers read; products of products."""
    v = state(p, t, [normalised(p, kid) for kid in t.kids])
    h = jnp.tanh(v @ p["two"])
    h = (h - h.mean()) / jnp.sqrt(((h - h.mean()) ** 2).mean() + 1e-3)
    weights = jax.nn.softmax(h @ p["square"])
    return jnp.tanh((weights * h) @ p["square"] + p["b"]) * weights.max() + jnp.min(h) * 0.1


@ab.batched(in_axes=(None, 0))
def largest(p, t: Item):
    kids = [largest(p, kid) for kid in t.kids]
    h = jnp.max(jnp.stack(kids), axis=0) if kids else p["b"] * t.x
    return jnp.tanh(h @ p["square"]) + t.x


@ab.batched(in_axes=(None, 0))
def up_and_down(p, t: Item, above=0.5):
    """A recursion downwards and upwards: two recurrences, scalars in both."""
    here = jnp.tanh(above * 0.7 + t.x)
    below = sum([up_and_down(p, kid, here) for kid in t.kids], 0.0)
    return jnp.tanh(here + below * p["b"][0]) * 0.5


def weights(size=8):
    rng = np.random.default_rng(1)
    make = lambda *shape: jnp.asarray(rng.normal(0, shape[0] ** -0.5, shape), jnp.float32)
    return {
        "b": jnp.linspace(0.2, 1.3, size, dtype=jnp.float32),
        "two": make(2 * size, size),
        "square": make(size, size),
    }


def items(count, seed=0):
    rng = np.random.default_rng(seed)
    return [random_item(rng, int(n)) for n in rng.integers(1, 14, count)]


def trees(count):
    rng = np.random.default_rng(2)
    return [random_tree(rng, int(n)) for n in rng.integers(1, 12, count)]


CASES = {
    "tree_lstm": (tree_lstm, parameters, lambda: trees(9)),
    "child_sum": (child_sum, parameters, lambda: [random_many(np.random.default_rng(3), 17) for _ in range(4)]),
    "rnn": (rnn, parameters, lambda: [[0.5, -1.0, 2.0][:k] for k in (0, 1, 3, 2)]),
    "lstm": (lstm, lambda: parameters(20), lambda: [[1, 4, 2, 0, 3][:k] for k in (5, 1, 3, 0)]),
    "all_functions": (all_functions, weights, lambda: items(7)),
    "normalised": (normalised, weights, lambda: items(7)),
    "largest": (largest, weights, lambda: items(7)),
}


def total(outputs):
    return sum((x.astype(jnp.float32) ** 2).sum() for x in jax.tree.leaves(outputs))


def near(found, wanted, rtol=1e-4):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=rtol, atol=2e-5), found, wanted)


@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients_are_those_of_plain_python(name):
    """By floats of the examples too, and with the loops of XLA."""
    function, make, examples = CASES[name]
    p, batch = make(), examples()
    with ab.options(loops="native"):
        found = ab.unbatch(function(p, batch))
        loss, gradient = jax.value_and_grad(lambda p: total(function(p, batch)))(p)
    near(found, function.loop(p, batch))
    with ab.options(loops="xla"):
        wanted, expected = jax.value_and_grad(lambda p: total(function(p, batch)))(p)
    near((loss, gradient), (wanted, expected), 2e-3)


def compiled(function, p, batch):
    with ab.options(loops="native"):
        return function.lower(p, batch).as_text("backend")


def kernels(hlo):
    return re.findall(r'custom_call_target="(autobatch_levels_\w+)"', hlo)


@pytest.mark.xla
def test_a_recurrence_is_one_call_and_no_loop():
    hlo = compiled(tree_lstm, parameters(), trees(6))
    assert len(kernels(hlo)) == 1
    assert " while(" not in hlo


@pytest.mark.xla
def test_leaves_are_made_where_nodes_read_them():
    """No product outside, and no array of rows that are copied to those of the nodes."""
    hlo = compiled(tree_lstm, parameters(), trees(6))
    assert "dynamic-update-slice" not in hlo
    assert "autobatch_product" not in hlo


def test_one_kernel_serves_all_sizes():
    one, other = (kernels(compiled(tree_lstm, parameters(), trees(n))) for n in (3, 40))
    assert one == other != []


def test_both_directions():
    hlo = compiled(up_and_down, weights(), items(5))
    assert len(kernels(hlo)) == 2
    with ab.options(loops="native"):
        found = ab.unbatch(up_and_down(weights(), items(5)))
    near(found, up_and_down.loop(weights(), items(5)))


@pytest.mark.parametrize("transform", ["vmap", "jvp of grad", pytest.param("grad of grad", marks=pytest.mark.long)])
def test_transformations(transform):
    p, batch = parameters(), tree_lstm.pack(trees(4))

    def run(p):
        return total(tree_lstm(p, batch))

    calls = {
        "vmap": lambda: jax.vmap(run)(jax.tree.map(lambda x: jnp.stack([x, 2 * x]), p)),
        "jvp of grad": lambda: jax.jvp(jax.grad(run), (p,), (jax.tree.map(jnp.ones_like, p),)),
        "grad of grad": lambda: jax.grad(lambda p: total(jax.grad(run)(p)))(p),
    }
    with ab.options(loops="native"):
        found = calls[transform]()
    with ab.options(loops="xla"):
        wanted = calls[transform]()
    near(found, wanted, 5e-3)


def test_many_rows_and_wide_ones():
    """More rows in a level than a tile holds, and sizes that are no multiple of anything."""
    p = {k: v for k, v in parameters(37).items()}
    batch = trees(300)
    with ab.options(loops="native"):
        found = tree_lstm(p, batch)
    with ab.options(loops="xla"):
        wanted = tree_lstm(p, batch)
    near(ab.unbatch(found), ab.unbatch(wanted))


def test_what_stands_in_the_way_is_said():
    with jax.enable_x64(True), ab.options(loops="native"):
        p = jax.tree.map(lambda x: x.astype(jnp.float64), parameters())
        with pytest.raises(OptionError, match="level loop for XLA: it is for float32 alone"):
            tree_lstm(p, trees(3))


@ab.batched(in_axes=(None, 0))
def sorted_states(p, t: Item):
    kids = [sorted_states(p, kid) for kid in t.kids]
    return jnp.sort(jnp.tanh(p["b"] * t.x + sum(kids, p["b"] * 0)))


def test_an_operation_that_the_kernel_does_not_know_is_named_and_left_to_xla():
    p, batch = weights(), items(4)
    with ab.options(loops="native"), pytest.raises(OptionError, match="sort is not known to it"):
        sorted_states(p, batch)
    near(ab.unbatch(sorted_states(p, batch)), sorted_states.loop(p, batch))


def test_explain_shows_no_windows():
    with ab.options(loops="native"):
        shown = str(tree_lstm.explain(parameters(), [random_tree(np.random.default_rng(0), 6)]))
    assert "5 rows on 5 levels; machine code, one call, no windows" in shown
    assert "occupancy" not in shown
