"""Section 4 of the API, claim by claim: forward mode, second order, one gradient for each example, other functions."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autobatch as ab
from tests.api.nodes import Node, chain, close, limited, params
from tests.api.page.gradients import agree, numbers, of_loop, replaced

FOREST = [Node(1.0), Node(2.0, Node(3.0), Node(4.0)), chain(4)]
DIRECTION = replaced(FOREST, [[0.1 * (k + 1) for k in range(len(row))] for row in numbers(FOREST)])


@ab.batched(in_axes=(None, 0))
def energy(p, t):
    """A number that is not linear in anything."""
    if t.left is None:
        return jnp.sin(p["w"] * t.x)
    return energy(p, t.left) * p["w"] + jnp.tanh(energy(p, t.right) + t.x)


def along(f, p, dp, examples, direction):
    """The result of the plain loop, and its tangent."""
    values, dots = numbers(examples), numbers(direction)

    def run(p, values):
        return jnp.stack([jnp.asarray(r) for r in f.loop(p, replaced(examples, values))])

    as_arrays = lambda tree: jax.tree.map(jnp.float32, tree)  # noqa: E731
    return jax.jvp(run, (p, as_arrays(values)), (dp, as_arrays(dots)))


# ---- forward mode


def test_jvp_gives_the_result_and_its_tangent():
    expected = along(energy, params(0.7), params(1.5), FOREST, DIRECTION)
    for examples, direction in (
        (FOREST, DIRECTION),
        (ab.pack(FOREST), DIRECTION),
        (ab.pack(FOREST), ab.grad(energy, argnums=1)(params(0.7), FOREST).with_floats(ab.pack(DIRECTION).floats())),
    ):
        out, dot = ab.jvp(energy, (params(0.7), examples), (params(1.5), direction))
        close(out, expected[0])
        close(dot, expected[1])


def test_a_tangent_may_be_none_also_in_the_place_of_a_part():
    zero = {"w": jnp.float32(0.0)}
    close(
        ab.jvp(energy, (params(0.7), FOREST), (None, DIRECTION))[1],
        along(energy, params(0.7), zero, FOREST, DIRECTION)[1],
    )
    close(ab.jvp(energy, (params(0.7), FOREST), (None, None))[1], [0.0] * 3)
    some = [None, DIRECTION[1], Node(0.5, None, None)]  # None: a whole example, a part of one
    full = replaced(FOREST, [[0.0] * len(row) for row in numbers(FOREST)])
    full[1], full[2].x = DIRECTION[1], 0.5
    close(
        ab.jvp(energy, (params(0.7), FOREST), ({"w": None}, some))[1],
        along(energy, params(0.7), zero, FOREST, full)[1],
    )


def test_the_tangent_of_a_result_has_its_structure():
    @ab.batched(in_axes=(None, 0))
    def parts(w, t):
        kids = [k for k in (t.left, t.right) if k is not None]
        return {"list": [w * k.x for k in kids], "count": len(kids), "node": t, "name": "a"}

    out, dot = ab.jvp(parts, (2.0, FOREST), (1.0, DIRECTION))
    assert dot["count"] is None and dot["list"].offsets.tolist() == out["list"].offsets.tolist()
    close(dot["list"].to_list()[1], [3.0 + 2 * DIRECTION[1].left.x, 4.0 + 2 * DIRECTION[1].right.x])
    agree(dot["node"], numbers(DIRECTION), FOREST)
    assert ab.unbatch(dot["name"]) == [None] * 3


def test_tangents_of_arguments_that_were_packed_together():
    """An object in both arguments is one number that moves."""
    f = ab.batched(lambda p, a, b: energy(p, a) * energy(p, b), in_axes=(None, 0, 0))
    leaf, moved = Node(0.5), Node(0.25)
    left, right = [Node(1.0, leaf, Node(2.0))], [Node(3.0, Node(1.0), leaf)]
    dleft, dright = [Node(0.1, moved, Node(0.2))], [Node(0.3, Node(0.4), moved)]
    pairs = f.pack(left, right)
    dots = ab.grad(f, argnums=(1, 2))(params(0.7), *pairs.args)
    new = dict(zip(dots[0].floats(), f.pack(dleft, dright).floats().values(), strict=True))
    step = 1e-2

    def at(s):
        shared = Node(0.5 + 0.25 * s)
        return f(
            params(0.7),
            [Node(1.0 + 0.1 * s, shared, Node(2.0 + 0.2 * s))],
            [Node(3.0 + 0.3 * s, Node(1.0 + 0.4 * s), shared)],
        )

    slope = (at(step) - at(-step)) / (2 * step)
    for primals, tangents in (
        ((left, right), (dleft, dright)),
        ((left, right), (ab.pack(dleft), ab.pack(dright))),
        (pairs.args, tuple(d.with_floats(new) for d in dots)),
    ):
        found = ab.jvp(f, (params(0.7), *primals), (None, *tangents))[1]
        np.testing.assert_allclose(found, slope, rtol=1e-2)


@pytest.mark.parametrize(
    ("tangents", "words"),
    [
        ((1.0,), "1 for 2 arguments"),
        (({"v": 1.0}, None), r"\{?a dict was given for a container of \['w'\]"),
        (({"w": np.ones(2)}, None), r"\['w'\]: floats of shape \(2,\)"),
        ((None, FOREST[:1]), "1 were given for 3 examples"),
        ((None, 1.0), "a float was given for a Batch"),
    ],
)
def test_tangents_that_do_not_fit(tangents, words):
    with pytest.raises(ab.BatchError, match=words):
        ab.jvp(energy, (params(0.7), FOREST), tangents)


def test_a_cotangent_that_is_a_batch_of_other_objects_is_refused():
    same = ab.batched(lambda w, t: t, in_axes=(None, 0))
    out, pull = ab.vjp(same, 1.0, FOREST)
    agree(pull(out)[1], numbers(FOREST), FOREST)
    with pytest.raises(ab.BatchError, match="objects in other places"):
        pull(ab.pack(FOREST[:1] * 3))


def test_jax_jvp_of_a_batched_function_points_to_ours():
    with pytest.raises(ab.UnsupportedError, match=r"ab\.jvp\(energy"):
        jax.jvp(lambda w: energy({"w": w}, FOREST), (0.7,), (1.0,))


def test_jit_inside_of_plain_functions():
    """What `jax.jit` has traced for reverse mode is traced again for forward mode, and the other way round."""
    cube = ab.batched(lambda w, x: w**3 * x, in_axes=(None, 0))
    whole = jax.jit(lambda w: cube(w, jnp.array([1.0, 2.0])).sum())
    close([whole(2.0), jax.grad(whole)(2.0)], [24, 36])
    close(ab.jvp(whole, (2.0,), (1.0,)), [24, 36])
    close(ab.hvp(whole, (2.0,), (1.0,)), 36)
    close(jax.grad(whole)(2.0), 36)
    fresh = jax.jit(lambda w: cube(w, jnp.array([1.0, 2.0])).sum())
    close(ab.hvp(fresh, (2.0,), (1.0,)), 36)


# ---- second order


def test_hvp_is_how_the_gradient_changes():
    def gradient(p, values):
        return of_loop(energy, p, replaced(FOREST, values))

    as_arrays = lambda tree: jax.tree.map(jnp.float32, tree)  # noqa: E731
    given = params(0.7), as_arrays(numbers(FOREST))
    moved = params(1.5), as_arrays(numbers(DIRECTION))

    def whole(p, values):
        return sum(energy.loop(p, replaced(FOREST, values)))

    _, (expected, inside) = jax.jvp(jax.grad(whole, (0, 1)), given, moved)
    dp, dtrees = ab.hvp(energy, (params(0.7), FOREST), (params(1.5), DIRECTION), argnums=(0, 1))
    close(dp["w"], expected["w"])
    agree(dtrees, inside, FOREST, rtol=1e-4)
    close(ab.hvp(energy, (params(0.7), FOREST), (params(1.5), DIRECTION))["w"], expected["w"])
    close(ab.hvp(energy, (params(0.7), FOREST), (None, None))["w"], 0.0)


def test_jax_jvp_of_jax_grad():
    def gradient(w):
        return jax.grad(lambda w: energy({"w": w}, FOREST).sum())(w)

    expected = ab.hvp(energy, (params(0.7), FOREST), (params(1.0), None))["w"]
    for number, transformed in enumerate(
        [
            lambda w: jax.jvp(gradient, (w,), (1.0,))[1],
            lambda w: jax.jvp(lambda w: ab.grad(energy)({"w": w}, FOREST)["w"], (w,), (1.0,))[1],
            lambda w: jax.hessian(lambda w: energy({"w": w}, FOREST).sum())(w),
            lambda w: jax.grad(lambda w: ab.grad(energy)({"w": w}, FOREST)["w"])(w),
        ]
    ):
        close(transformed(0.7), expected)
        if number in (2, 3):  # by each of the two
            close(jax.jit(transformed)(0.7), expected)


# ---- one gradient for each example


def test_per_example_gradients_have_a_leading_axis():
    found = ab.per_example_grad(energy)(params(0.7), FOREST)
    each = [ab.grad(energy)(params(0.7), [t])["w"] for t in FOREST]
    close(found["w"], each)
    close(found["w"].sum(), ab.grad(energy)(params(0.7), FOREST)["w"])


def test_per_example_gradients_of_equal_examples_are_apart():
    """Rows that would be one row in the batched call."""
    f = ab.batched(lambda p, n: (p["e"][n] * p["w"]).sum(), in_axes=(None, 0))
    p = {"e": jnp.arange(8.0).reshape(4, 2), "w": jnp.ones(2), "name": "x", "n": 3}
    found = ab.per_example_grad(f)(p, [1, 1, 3])
    assert found["name"] is None and found["n"] is None
    expected = np.zeros((3, 4, 2))
    expected[[0, 1, 2], [1, 1, 3]] = 1
    close(found["e"], expected)
    close(found["w"], p["e"][jnp.array([1, 1, 3])])


def test_per_example_gradients_of_several_arguments_also_under_jit():
    f = ab.batched(lambda w, t, v, deep: limited(w, t, deep) * v.sum(), in_axes=(None, 0, None, None))
    v = np.arange(3.0)
    dw, dtrees, dv = ab.per_example_grad(f, argnums=(0, 1, 2))(0.7, FOREST, v, 2)
    values = f(0.7, FOREST, v, 2)
    close(dw, values / 0.7)
    close(dv, np.repeat(values[:, None], 3, 1) / 3.0)
    agree(dtrees, numbers(ab.unbatch(ab.grad(f, argnums=1)(0.7, FOREST, v, 2))), FOREST)
    data = ab.pack(FOREST).plan(energy)
    close(
        jax.jit(ab.per_example_grad(energy))(params(0.7), data)["w"],
        ab.per_example_grad(energy)(params(0.7), data)["w"],
    )


def test_per_example_gradients_are_of_batched_functions_and_pytrees():
    class Plain:
        def __init__(self, w):
            self.w = w

    f = ab.batched(lambda p, x: p.w * x, in_axes=(None, 0))
    close(ab.grad(f)(Plain(2.0), np.arange(3.0)).w, 3.0)
    with pytest.raises(ab.BatchError, match="no pytree"):
        ab.per_example_grad(f)(Plain(2.0), np.arange(3.0))
    with pytest.raises(ab.BatchError, match=r"made by ab\.batched"):
        ab.per_example_grad(jnp.sin)


# ---- other transformations, other functions


def test_jax_transformations_of_a_batched_function():
    data = ab.pack(FOREST).plan(energy)
    loss = lambda w, b: energy({"w": w}, b).sum()  # noqa: E731
    expected = ab.grad(energy)(params(0.7), data)["w"]
    for transformed in (
        jax.grad(loss),
        jax.jit(jax.grad(loss)),
        jax.grad(jax.checkpoint(loss)),
        lambda w, b: jax.value_and_grad(loss)(w, b)[1],
        lambda w, b: jax.vjp(lambda w: loss(w, b), w)[1](1.0)[0],
        lambda w, b: jax.vmap(lambda w: ab.grad(energy)({"w": w}, b)["w"])(jnp.stack([w, 2 * w]))[0],
        lambda w, b: jax.vmap(jax.grad(loss), in_axes=(0, None))(jnp.stack([w, 2 * w]), b)[0],
    ):
        close(transformed(jnp.float32(0.7), data), expected)
    with pytest.raises((ValueError, ab.PlanError)):  # by JAX, where a leaf has no axis
        jax.vmap(ab.grad(energy), in_axes=(None, 0))(params(0.7), data)


def test_gradients_flow_to_a_closed_over_tracer():
    def loss(w):
        return ab.batched(lambda t: jnp.sin(w * t.x))(FOREST).sum()

    expected = sum(t.x * np.cos(0.7 * t.x) for t in FOREST)
    close(jax.grad(loss)(0.7), expected)
    close(ab.grad(loss)(0.7), expected)


def test_free_arrays_are_read_again_at_every_call():
    held = {"w": jnp.float32(2.0)}
    f = ab.batched(lambda v, x: v * held["w"] * x, in_axes=(None, 0))
    close(ab.grad(f)(1.0, np.ones(3)), 6.0)
    held["w"] = jnp.float32(5.0)
    close(ab.grad(f)(1.0, np.ones(3)), 15.0)
    assert f.cache_info().executables == 1


def test_functions_that_jax_traces():
    data = ab.pack(FOREST).plan(energy)
    w = jnp.float32(0.7)  # the type that the batch is planned for
    scaled = lambda w, b: 2 * energy({"w": w}, b)  # noqa: E731
    expected = ab.grad(energy)(params(0.7), data)["w"]
    values, (dw, dtrees) = ab.value_and_grad(scaled, argnums=(0, 1))(w, data)
    close(values, 2 * energy(params(0.7), data))
    close(dw, 2 * expected)
    agree(dtrees, [[2 * x for x in row] for row in numbers(ab.unbatch(_trees(data)))], FOREST)
    assert dtrees.floats().keys() == data.floats().keys()
    out, pull = ab.vjp(scaled, w, data)
    for ct in (jnp.ones(3), [1.0, 1.0, 1.0]):
        close(pull(ct)[0], 2 * expected)
    close(ab.jvp(scaled, (w, data), (1.0, None))[1].sum(), 2 * expected)
    second = ab.hvp(energy, (params(0.7), data), (params(1.0), None))["w"]
    close(ab.hvp(scaled, (w, data), (1.0, None)), 2 * second)
    close(ab.grad(lambda w: w**2)(3.0), 6.0)
    with pytest.raises(ab.BatchError, match=r"returns float32\[3,2\]"):
        ab.grad(lambda w: w * jnp.ones((3, 2)))(3.0)
    with pytest.raises(ab.BatchError, match="returns a pair"):
        ab.grad(lambda w: w, has_aux=True)(3.0)


def _trees(data):
    return ab.grad(energy, argnums=1)(params(0.7), data)


def test_inside_per_example_code_they_are_ordinary_operations():
    def array_function(w, x):
        return w * w * jnp.sin(x)

    f = ab.batched(lambda w, t: ab.grad(array_function)(w, t.x) + ab.value_and_grad(array_function, 1)(w, t.x)[1])
    f = ab.batched(f.__wrapped__, in_axes=(None, 0))
    close(f(0.7, FOREST), f.loop(0.7, FOREST))
    close(f(0.7, FOREST), [1.4 * np.sin(t.x) + 0.49 * np.cos(t.x) for t in FOREST])


def test_disabled_they_run_plain_python():
    expected = ab.value_and_grad(energy)(params(0.7), FOREST)
    with ab.disable():
        values, found = ab.value_and_grad(energy)(params(0.7), FOREST)
        with pytest.raises(ab.BatchError, match=r"inside ab\.disable\(\)"):
            ab.grad(energy, argnums=1)(params(0.7), FOREST)
    close(values, expected[0])
    close(found["w"], expected[1]["w"])


@pytest.mark.parametrize("kind", ["custom_vjp", "custom_jvp"])
def test_custom_rules_of_functions_in_per_example_code(kind):
    """A rule that is not the derivative, so that it is seen."""
    if kind == "custom_vjp":
        cube = jax.custom_vjp(lambda x: x**3)
        cube.defvjp(lambda x: (x**3, x), lambda x, ct: (ct * 100.0 * x,))
    else:
        cube = jax.custom_jvp(lambda x: x**3)
        cube.defjvp(lambda xs, ts: (xs[0] ** 3, 100.0 * xs[0] * ts[0]))

    f = ab.batched(lambda w, t: cube(w * t.x), in_axes=(None, 0))
    close(ab.grad(f)(2.0, FOREST), sum(100.0 * 2.0 * t.x * t.x for t in FOREST))
    if kind == "custom_jvp":
        close(ab.jvp(f, (2.0, FOREST), (1.0, None))[1], [200.0 * t.x**2 for t in FOREST])


def test_equinox_modules():
    eqx = pytest.importorskip("equinox")
    cell = eqx.nn.Linear(2, 1, key=jax.random.key(0))
    f = ab.batched(lambda m, x: jnp.tanh(m(x)[0]), in_axes=(None, 0))
    xs = np.arange(6.0).reshape(3, 2)
    expected = eqx.filter_grad(lambda m: sum(f.loop(m, xs)))(cell)
    for found in (eqx.filter_grad(lambda m: f(m, xs).sum())(cell), ab.grad(f)(cell, xs)):
        close(found.weight, expected.weight)
        close(found.bias, expected.bias)
    each = ab.per_example_grad(f)(cell, xs)
    assert each.weight.shape == (3, 1, 2)
    close(each.weight.sum(0), expected.weight)


def test_optax_takes_gradients_as_they_are():
    optax = pytest.importorskip("optax")
    optimiser = optax.adam(1e-2)
    p = params(0.7)
    updates, _ = optimiser.update(ab.grad(energy)(p, FOREST), optimiser.init(p), p)
    assert optax.apply_updates(p, updates)["w"] != p["w"]


# ---- groups by shape


@dataclass
class Photo:
    pixels: np.ndarray
    gain: float


def test_examples_that_differ_in_shape():
    f = ab.batched(lambda w, p: jnp.linalg.norm(p.pixels * w * p.gain), in_axes=(None, 0))
    rng = np.random.default_rng(0)
    photos = [Photo(rng.normal(size=s).astype(np.float32), 1.0 + k) for k, s in enumerate([(3, 4), (5, 6), (3, 4)])]
    shared, inside = of_loop(f, 0.5, photos)
    for given in (photos, ab.pack(photos)):
        values, (dw, dphotos) = ab.value_and_grad(f, argnums=(0, 1))(0.5, given)
        close(values, f(0.5, photos))
        close(dw, shared)
        agree(dphotos, inside, photos)
    _, pull = ab.vjp(f, 0.5, photos)
    close(pull([1.0, 1.0, 1.0])[0], shared)
    close(ab.jvp(f, (0.5, photos), (1.0, None))[1].sum(), shared)
    close(ab.per_example_grad(f)(0.5, photos).sum(), shared)
    data = ab.pack(photos).plan(f)
    close(jax.jit(ab.grad(f))(0.5, data), shared)
    with pytest.raises(ab.UnsupportedError, match="differ in shape"):
        ab.jvp(f, (0.5, photos), (1.0, photos))


def test_results_of_examples_that_differ_in_shape():
    """Lists, arrays of different shapes, masked failures: cotangents go to the group of their example."""
    photos = [Photo(np.full(s, 0.5, np.float32), 2.0) for s in ((2, 2), (3, 3), (2, 2))]
    twice = ab.batched(lambda w, p: [(p.pixels * w).sum()] * 2, in_axes=(None, 0))
    close(ab.vjp(twice, 1.0, photos)[1]([[1.0, 2.0], [3.0, 0.0], [0.0, 1.0]])[0], 3 * 2.0 + 3 * 4.5 + 2.0)
    whole = ab.batched(lambda w, p: p.pixels * w, in_axes=(None, 0))
    out, pull = ab.vjp(whole, 1.0, photos)
    dw, dphotos = pull([k * np.ones_like(p.pixels) for k, p in enumerate(photos)])
    close(dw, 4.5 + 2 * 2.0)
    close([x.pixels[0, 0] for x in ab.unbatch(dphotos)], [0.0, 1.0, 2.0])
    close(pull(out)[0], sum((p.pixels**2).sum() for p in photos))
    masked = ab.batched(lambda w, p: w * [1.0, 2.0][int(p.gain)], in_axes=(None, 0), on_error="mask")
    photos[1].gain = 1.0
    (values, failures), found = ab.value_and_grad(masked)(3.0, photos)
    assert failures.failed.tolist() == [True, False, True] and found == 2.0 and values[1] == 6.0


def test_an_array_beside_examples_that_differ_in_shape():
    f = ab.batched(lambda v, p: (p.pixels * v).sum() ** 2 * p.gain, in_axes=(1, 0))
    photos = [Photo(np.full(s, 0.1, np.float32), 2.0) for s in ((2, 2), (3, 3), (2, 2), (2, 2))]
    v = np.arange(4.0)[None]
    found = ab.grad(f)(v, photos)
    sums = np.array([p.pixels.sum() for p in photos])
    close(found, 4 * v * sums**2)


# ---- 64 bits


def test_under_x64_the_number_is_float64_and_agrees_with_finite_differences():
    with jax.enable_x64(True):
        f = ab.batched(energy.__wrapped__, in_axes=(None, 0))
        p = {"w": jnp.float64(0.7)}
        dp, dtrees = ab.grad(f, argnums=(0, 1))(p, FOREST)
        assert dp["w"].dtype == jnp.float64
        step, w = 1e-6, numbers(FOREST)
        slope = (f({"w": 0.7 + step}, FOREST).sum() - f({"w": 0.7 - step}, FOREST).sum()) / (2 * step)
        np.testing.assert_allclose(dp["w"], slope, rtol=1e-7)
        moved = [
            np.asarray(f(p, replaced(FOREST, [[x + s * (k == 0) for k, x in enumerate(r)] for r in w])))
            for s in (step, -step)
        ]
        roots = [t.x for t in ab.unbatch(dtrees)]
        np.testing.assert_allclose(roots, (moved[0] - moved[1]) / (2 * step), rtol=1e-6)
