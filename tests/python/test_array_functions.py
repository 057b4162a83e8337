"""Functions of NumPy on arrays whose length is data (`numpy_arrays.py`), and arrays of lists of numbers."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

import autobatch as ab
from autobatch.testing import assert_same

XLA = pytest.param("xla", marks=pytest.mark.xla)
LISTS = [[0.5, -1.0, 2.0], [1.5], [0.25, -0.5, 1.0, 3.0]]
POINTS = [[[1.0, 2.0], [3.0, 4.0]], [[0.0, 1.0]], [[2.0, 5.0], [1.0, 1.0], [0.0, 7.0]]]

FUNCTIONS = {
    "where": lambda xs: np.where(np.array(xs) > 0, np.array(xs), -np.array(xs)).max(),
    "clip": lambda xs: np.clip(np.array(xs), 0, 1).sum(),
    "cumsum": lambda xs: np.cumsum(np.array(xs))[-1],
    "mask": lambda xs: np.array(xs)[np.array(xs) > 0].sum(),
    "maskmean": lambda xs: (np.array(xs) > 0).mean(),
    "diff": lambda xs: np.diff(np.array(xs)).sum(),
    "outer": lambda xs: np.outer(np.array(xs), np.array(xs)).sum(),
    "dot": lambda xs: np.dot(np.array(xs), np.array(xs)),
    "norm": lambda xs: np.linalg.norm(np.array(xs)),
    "percentile": lambda xs: np.percentile(np.array(xs), 50),
    "median": lambda xs: np.median(np.array(xs)),
    "argmax": lambda xs: np.argmax(np.array(xs)),
    "unique": lambda xs: np.unique(np.array(xs)).size,
    "reshape": lambda xs: np.array(xs).reshape(-1, 1).sum(),
    "newaxis": lambda xs: (np.array(xs)[:, None] - np.array(xs)[None, :]).sum(),
    "vstack": lambda xs: np.vstack([np.array(xs), np.array(xs)]).sum(),
    "stack": lambda xs: np.stack([np.array(xs), np.array(xs)]).sum(),
    "stack1": lambda xs: np.stack([np.array(xs), np.array(xs)], axis=1).sum(),
    "colstack": lambda xs: np.column_stack([np.array(xs), np.array(xs)]).sum(),
    "concat": lambda xs: np.concatenate([np.array(xs), np.array(xs)]).sum(),
    "tile": lambda xs: np.tile(np.array(xs), 2).sum(),
    "repeat": lambda xs: np.repeat(np.array(xs), 2).sum(),
    "roll": lambda xs: np.roll(np.array(xs), 1)[0],
    "flip": lambda xs: np.flip(np.array(xs))[0],
    "any": lambda xs: np.any(np.array(xs) > 1),
    "allclose": lambda xs: np.allclose(np.array(xs), np.array(xs)),
    "nonzero": lambda xs: len(np.nonzero(np.array(xs) > 0)[0]),
    "flatnonzero": lambda xs: len(np.flatnonzero(np.array(xs) > 0)),
    "count_nonzero": lambda xs: np.count_nonzero(np.array(xs) > 0),
    "searchsorted": lambda xs: np.searchsorted(np.sort(np.array(xs)), 0.3),
    "argsort": lambda xs: np.argsort(np.array(xs))[0],
    "sortdesc": lambda xs: np.sort(np.array(xs))[::-1][0],
    "polyval": lambda xs: np.polyval(np.array(xs), 2.0),
    "interp": lambda xs: np.interp(0.5, np.arange(len(xs)), np.array(xs)),
    "trapz": lambda xs: np.trapezoid(np.array(xs)),
    "eye": lambda xs: np.eye(len(xs)).sum(),
    "diag": lambda xs: np.diag(np.array(xs)).sum(),
    "trace": lambda xs: np.array([[x * y for y in xs] for x in xs]).trace(),
    "matvec": lambda xs: (np.array([[x * y for y in xs] for x in xs]) @ np.array(xs)).sum(),
    "matT": lambda xs: (np.array([[x * y for y in xs] for x in xs]).T @ np.array(xs)).sum(),
    "isin": lambda xs: np.isin(1.0, np.array(xs)),
    "maximum": lambda xs: np.maximum(np.array(xs), 0).sum(),
    "stackT": lambda xs: np.stack([np.array(xs), np.array(xs) * 2])[1].sum(),
    "vshape": lambda xs: np.vstack([np.array(xs), np.array(xs)]).shape[1],
    "vmean": lambda xs: np.vstack([np.array(xs), np.array(xs)]).mean(axis=0).sum(),
    "cs2": lambda xs: np.column_stack([np.array(xs), np.ones(len(xs))])[:, 1].sum(),
    "pinv": lambda xs: np.linalg.solve(
        np.column_stack([np.array(xs), np.ones(len(xs))]).T @ np.column_stack([np.array(xs), np.ones(len(xs))])
        + np.eye(2),
        np.ones(2),
    ).sum(),
    "einsum": lambda xs: np.einsum("i,i->", np.array(xs), np.array(xs)),
    "meshgrid": lambda xs: np.meshgrid(np.array(xs), np.array(xs))[0].sum(),
    "convolve": lambda xs: np.convolve(np.array(xs), np.array([1.0, 2.0])).sum(),
    "fullslice": lambda xs: (lambda z: z[1:].sum())(np.zeros(len(xs) + 1) + 1),
    "tolist": lambda xs: sum(np.array(xs).tolist()),
    "iter": lambda xs: sum(x for x in np.array(xs)),
    "astype": lambda xs: np.array(xs).astype(int).sum(),
    "size": lambda xs: np.array(xs).size + np.array(xs).ndim + np.array(xs).shape[0],
    "max2": lambda xs: np.array([[x * y for y in xs] for x in xs]).max(axis=1).sum(),
    "argmin2": lambda xs: np.array([[x * y for y in xs] for x in xs]).argmin(axis=0)[0],
    "ravel": lambda xs: np.array([[x * y for y in xs] for x in xs]).ravel().sum(),
    "flatten": lambda xs: np.array([[x * y for y in xs] for x in xs]).flatten()[0],
    "sum0": lambda xs: np.array([[x * y for y in xs] for x in xs]).sum(axis=0).max(),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_equals_numpy(name):
    function = FUNCTIONS[name]
    with ab.options(trace=False):
        got = ab.batched(function, backend="llvm")(LISTS)
    assert_same(list(map(float, got)), [float(function(x)) for x in LISTS], tolerance=1e-4)


def of_lists(xs):
    rows = []
    for x in xs:
        rows.append([1.0, x, x * x])
    table, pairs = np.array(rows), np.array([(x, 2.0) for x in xs])
    smallest = np.argmin([xs[0], xs[-1], 1.0])
    return table.sum(axis=0), pairs[:, 0].sum() + pairs.shape[0], (table.T @ table).sum(), smallest


def of_points(points):
    table = np.array(points)
    return table.mean(axis=0), table[:, 0].max(), table.shape[0], table.T.shape[1]


@pytest.mark.parametrize("backend", ["auto", "llvm", XLA])
@pytest.mark.parametrize(("function", "examples"), [(of_lists, LISTS), (of_points, POINTS)])
def test_arrays_of_lists(function, examples, backend):
    with ab.options(trace=False):
        got = ab.unbatch(ab.batched(function, backend=backend)(examples))
    assert_same([[list(map(float, np.ravel(x))) for x in g] for g in got],
                [[list(map(float, np.ravel(x))) for x in function(e)] for e in examples], tolerance=1e-4)  # fmt: skip


def of_rows(x):
    """Of an array [n, 2] of the examples."""
    return jnp.argmax(x @ x.T, 0).sum(), jnp.vstack([x[:, 0], x[:, 1]]).sum(axis=1), jnp.diff(x[:, 1]).sum()


@pytest.mark.parametrize("backend", ["auto", "llvm", XLA])
def test_rows_of_ragged_arrays(backend):
    arrays = [np.array(p, np.float32) for p in POINTS]
    with ab.options(trace=False):
        got = ab.unbatch(ab.batched(of_rows, backend=backend)(arrays))
    assert_same([[list(map(float, np.ravel(x))) for x in g] for g in got],
                [[list(map(float, np.ravel(x))) for x in of_rows(a)] for a in arrays], tolerance=1e-4)  # fmt: skip


def test_lengths_that_differ():
    def added(xs, ys):
        return np.stack([np.array(xs), np.array(ys)]).sum() if len(xs) > 1 else (np.array(xs) + np.array(ys)).sum()

    with pytest.raises(ab.ExampleError) as raised:
        ab.batched(added, backend="llvm")([[1.0, 2.0], [1.0, 2.0], [3.0]], [[1.0, 2.0], [3.0], [3.0, 4.0]])
    words = ["all input arrays must have the same shape", "operands could not be broadcast together"]
    assert [f.message for f in raised.value.failures] == words


def test_derivatives():
    def loss(xs, w):
        a = np.array(xs) * w
        return (
            np.percentile(a, 40)
            + np.trapezoid(a)
            + np.polyval(a, 0.5)
            + np.sum(np.convolve(a, a) ** 2)
            + np.trace(np.diag(a))
        )

    weights, step = [0.5, 1.0, -2.0], 1e-5
    got = ab.grad(ab.batched(loss, backend="llvm"), argnums=1)(LISTS, weights)
    want = [(loss(x, w + step) - loss(x, w - step)) / (2 * step) for x, w in zip(LISTS, weights, strict=True)]
    assert_same(list(map(float, got)), want, tolerance=1e-2)


TABLES = [
    [[1.0, 2.0, 3.0], [3.0, 4.0, 0.0]],
    [[0.0, 1.0, 5.0]],
    [[2.0, 5.0, 1.0], [1.0, 1.0, 2.0], [4.0, 4.0, 4.0], [0.0, 7.0, 3.0]],
]
OF_TABLES = {
    "trace": lambda p: np.trace(np.array(p)),
    "diag": lambda p: np.diag(np.array(p)).sum(),
    "diagonal": lambda p: np.array(p).diagonal().sum(),
    "reshape": lambda p: np.array(p).reshape(3, -1)[0].sum(),
    "column": lambda p: np.array(p).reshape(-1, 1).sum(),
    "transpose": lambda p: np.transpose(np.array(p))[0].sum(),
    "shape": lambda p: np.shape(np.array(p))[1] + np.size(np.array(p)),
}
OF_OTHER_RANKS = {
    "tile": lambda p: np.tile(np.array(p), 2).sum(axis=0)[0],
    "repeat": lambda p: np.repeat(np.array(p), 2)[1],
    "roll": lambda p: np.roll(np.array(p), 1)[0, 0],
    "diff": lambda p: np.diff(np.array(p))[0, 0],
    "trapezoid": lambda p: np.trapezoid(np.array(p))[0],
    "percentile": lambda p: np.percentile(np.array(p), 30),
    "unique": lambda p: np.unique(np.array(p)).size,
    "nonzero": lambda p: len(np.nonzero(np.array(p))),
    "isin": lambda p: np.isin(np.array(p), np.array(p)[0]).sum(),
    "searchsorted": lambda p: np.searchsorted(np.sort(np.array(p)[0]), np.array(p)[0]).sum(),
    "interp": lambda p: np.interp(np.array(p)[0], np.arange(3), np.array([1.0, 2.0, 3.0])).sum(),
}


@pytest.mark.parametrize("name", OF_TABLES)
def test_tables(name):
    function = OF_TABLES[name]
    with ab.options(trace=False):
        got = ab.batched(function, backend="llvm")(TABLES)
    assert_same(list(map(float, got)), [float(function(x)) for x in TABLES], tolerance=1e-4)


@pytest.mark.parametrize("name", OF_OTHER_RANKS)
def test_other_ranks_mean_something_else(name):
    with ab.options(trace=False), pytest.raises(ab.UnsupportedError, match=name):
        ab.batched(OF_OTHER_RANKS[name], backend="llvm")(TABLES)


def test_a_shape_that_does_not_fit():
    with pytest.raises(ab.ExampleError, match=r"cannot reshape array of size 3 into shape \(2,2\)"):
        ab.batched(lambda x: np.array(x).reshape(2, 2).sum(), backend="llvm")([[1.0, 2.0, 3.0], [1.0, 2.0, 3.0, 4.0]])
