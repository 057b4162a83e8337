"""Arrays of the examples that differ in length, in functions of JAX: one program, whatever the shapes."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autobatch as ab

RNG = np.random.default_rng(0)
W = jnp.asarray(RNG.normal(size=(4, 4)) / 2, jnp.float32)
DATA = [RNG.normal(size=(n, 4)).astype(np.float32) for n in (3, 1, 5, 4, 2)]


def attention(w, x):
    return (jax.nn.softmax((x @ w) @ x.T / 2.0) @ x).sum(0)


def attention_by_hand(w, x):
    scores = x @ w @ x.T
    weights = jnp.exp(scores - scores.max(-1, keepdims=True))
    return (weights / weights.sum(axis=1, keepdims=True) @ x).mean(0)


def layers_of_attention(w, x):
    for _ in range(2):
        x = x + jnp.tanh(jax.nn.softmax((x @ w) @ x.T, axis=1) @ x)
    return x.mean(0)


def pairs(w, x):
    near = jnp.where(jnp.dot(x, x.T) > 0, jnp.tanh(x @ w @ x.T), -1.0)
    return near.sum(1).max() + near.mean() + near.sum()


def covariance(w, x):
    apart = x - x.mean(0)
    return apart.T @ apart / len(x) + jnp.trace(x.T @ (x @ w))


def products_with_vectors(w, x):
    return x.T @ (x @ w[0]) + (w[0] @ x.T).sum()


def moments(w, x):
    return x.var(0) + x.std(axis=0) + x.var() + jnp.std(x @ w, axis=1).sum()


def norms(w, x):
    return jnp.linalg.norm(x, axis=1).max() + jnp.linalg.norm(x @ w) + jnp.linalg.norm(x, axis=0)


def over_all_axes(w, x):
    return jax.nn.logsumexp(x) + jax.nn.softmax(x, axis=None).max() + jax.nn.logsumexp(x @ x.T) + jnp.flip(x[:, 0])[0]


def running(w, x):
    return jnp.cumsum(x, axis=0)[-1] + jnp.cumsum(x @ w, 0)[0] + jnp.cumprod(1.0 + 0.1 * x[:, 1])[-1]


def places(w, x):
    return x[jnp.argmax(x[:, 0])] + (x @ w)[jnp.argmin(jnp.linalg.norm(x, axis=1))]


def places_by_column(w, x):
    return jnp.argmax(x, axis=0) + 10 * jnp.argmin(x @ w, axis=0) + jnp.argmax(x, axis=1).sum()


def joined(w, x):
    y = jnp.concatenate([x, x @ w, x])
    return y.sum(0) + jnp.concatenate([x, y[: len(x)]], axis=1).max(0)[2:6] + jnp.vstack([x, y]).min(0)


def columns(w, x):
    return x[:, 0].sum() + x[:, 1:3].max() + x[:, -1, None].mean(0) + (x / x[:, :1]).min(0) * w[0]


def turned(w, x):
    return x[::-1][0] + jnp.flip(x, 0)[0] + jnp.flip(x @ w, axis=1)[-1]


def mapped(w, x):
    def row(r):
        return jnp.tanh(r @ w)

    return jax.vmap(row)(x).max(0) + jax.vmap(lambda r, m: r @ m, in_axes=(0, None))(x, w).mean(0)


def mapped_over_rows(w, x):
    return jax.vmap(lambda q: jax.nn.softmax(x @ q) @ x)(x @ w).sum(0) + jax.vmap(jnp.dot)(x, 2.0 * x).sum()


def kept_axes(w, x):
    shares = x / (1.0 + jnp.abs(x).sum(1, keepdims=True))
    return shares.mean(0, keepdims=True)[0] + jax.nn.softmax(shares @ w, axis=1).sum(0)


def distances(w, x):
    """All pairs of rows."""
    apart = ((x[:, None, :] - (x @ w)[None, :, :]) ** 2).sum(-1)
    near = jnp.exp(-0.5 * apart)
    return apart.min(1).mean() + apart.min(axis=0).mean() + near.sum() + jnp.maximum(x[:, None], x[None]).mean()


def discrepancy(w, x):
    def mean(a, b):
        return jnp.exp(-jnp.sum((a[:, None] - b[None]) ** 2, axis=-1)).mean()

    y = 0.5 * (x[1:] if len(x) > 1 else x) @ w
    return mean(x, x) + mean(y, y) - 2 * mean(x, y)


def behind_none(w, x):
    return ((x[None] * 2.0 + w[0]) - x[:, None]).max() + jnp.abs(x[:, 0][:, None] - x[:, 1][None, :]).sum()


def first_of_pairs(w, x):
    scores = x @ w @ x.T
    shares = scores - scores.max(0) + (scores - scores.mean(0, keepdims=True)) / (1.0 + scores.var(0))
    return jax.nn.softmax(scores, axis=0).sum(1).max() + jax.nn.logsumexp(scores, axis=0).sum() + shares.mean()


def sums_of_letters(w, x):
    weights = jax.nn.softmax(jnp.einsum("nd,de,me->nm", x, w, x))
    return (
        jnp.einsum("nm,md->nd", weights, x).sum(0)
        + jnp.einsum("n,nd->d", x[:, 0], x)
        + jnp.einsum("nd,ne->de", x, x @ w)[0]
        + jnp.einsum("nd,nd->", x, x)
        + jnp.einsum("nd, de -> ne", x, w).max(0)
    )


def carried(w, x):
    """Arrays of the examples meet those that the function makes, in branches and loops."""
    y = x[1:] if len(x) > 2 else x
    if len(x) > 3:
        y = y @ w
    for _ in range(len(x) % 3):
        y = jnp.tanh(y @ w)
    n = 0
    while n < 3 and y.sum() < 4.0:
        y = y * 0.5 + 1.0
        n += 1
    return y.mean(0)


def in_order(w, x):
    first = x[jnp.argsort(x[:, 0])[0]]
    return first + jnp.sort(x[:, 1])[-1] + jnp.median(x[:, 2]) + jnp.sort(x @ w, axis=-1)[:, 0].sum()


PROGRAMS = [
    attention,
    attention_by_hand,
    layers_of_attention,
    pairs,
    covariance,
    products_with_vectors,
    moments,
    norms,
    over_all_axes,
    running,
    places,
    places_by_column,
    joined,
    columns,
    turned,
    mapped,
    mapped_over_rows,
    kept_axes,
    distances,
    discrepancy,
    behind_none,
    first_of_pairs,
    sums_of_letters,
    carried,
    in_order,
]
named = pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
QUICK = (attention, covariance, moments, places, distances, sums_of_letters)


def quickly(quick):
    """All programs; others than these are long tests."""
    marks = {p: () if p in quick else pytest.mark.long for p in PROGRAMS}
    return pytest.mark.parametrize("program", [pytest.param(p, id=p.__name__, marks=m) for p, m in marks.items()])


@named
def test_one_program_for_all_shapes(program):
    check_shapes(program, "llvm")


@quickly(QUICK)
def test_by_xla(program):
    check_shapes(program, "xla")


def check_shapes(program, backend):
    f = ab.batched(program, in_axes=(None, 0), backend=backend, options={"shape_groups": 1})
    wanted = np.stack([program(W, jnp.asarray(x)) for x in DATA])
    np.testing.assert_allclose(np.stack(list(f(W, DATA))), wanted, rtol=2e-4, atol=1e-4)
    made = f.cache_info().specialisations
    f(W, [x[::-1] for x in DATA[:3]])
    assert f.cache_info().specialisations == made


@quickly(QUICK)
@pytest.mark.parametrize("backend", ["llvm", pytest.param("xla", marks=pytest.mark.long)])
def test_gradients(program, backend):
    if program is places_by_column:
        return

    def number(w, x):
        return jnp.sum(program(w, x))

    f = ab.batched(number, in_axes=(None, 0), backend=backend, options={"shape_groups": 1})
    wanted = sum(jax.grad(number)(W, jnp.asarray(x)) for x in DATA)
    np.testing.assert_allclose(ab.grad(f)(W, DATA), wanted, rtol=2e-3, atol=1e-3)


@quickly(QUICK)
def test_lists_of_vectors(program):
    """`jnp.stack` of a list whose length is data is such an array."""

    def of_list(w, rows):
        return program(w, jnp.stack(rows))

    f = ab.batched(of_list, in_axes=(None, 0))
    wanted = np.stack([program(W, jnp.asarray(x)) for x in DATA])
    found = f(W, [list(x) for x in DATA])
    np.testing.assert_allclose(np.stack(list(found)), wanted, rtol=2e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("program", "saying"),
    [
        (lambda w, x: x + x[:, 0], "along that axis"),
        (lambda w, x: x.T + w, "operand of @ alone"),
        (lambda w, x: jnp.sort(x, 0)[0], r"sort\(\) of an array"),
        (lambda w, x: x[None].sum(), "combine it with another"),
        (lambda w, x: jnp.einsum("nd,dn->d", x, x.T), "einsum|operand of @"),
        (lambda w, x: jnp.einsum("nd,md->dnm", x, x), "not the first one"),
        (lambda w, x: jnp.linalg.norm(x, 1), "Euclidean"),
        (lambda w, x: x.norm(), r"norm\(\) of an array"),
        (lambda w, x: jax.vmap(lambda r: r, out_axes=1)(x), "maps its rows alone"),
    ],
)
def test_what_is_refused(program, saying):
    rows = ab.batched(lambda w, rows: program(w, jnp.stack(rows)), in_axes=(None, 0), options={"trace": False})
    with pytest.raises(ab.UnsupportedError, match=saying):
        rows(W, [list(x) for x in DATA])


def test_a_column_that_is_not_there():
    """An array of NumPy fails, as it does in Python; one of JAX is clamped."""
    f = ab.batched(lambda x: x[:, 7].sum(), on_error="mask")
    assert f(DATA)[1].failed.all()
    found, failures = f([jnp.asarray(x) for x in DATA])
    np.testing.assert_allclose(found, [x[:, -1].sum() for x in DATA], rtol=1e-5)
    assert not failures.failed.any()
