"""ab.Ragged: a batch of lists as a pytree."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autobatch.data.ragged import Ragged
from autobatch.errors import BatchError

FEW = settings(max_examples=settings().max_examples * 3 // 10)
"""XLA compiles small operations for each shape that is drawn."""


def ragged(lists: list[list[int]], spare: int = 0) -> Ragged:
    values = np.array([*(x for items in lists for x in items), *[0] * spare], np.int32)
    return Ragged(values, np.cumsum([0, *map(len, lists)]).astype(np.int32))


@FEW
@given(st.lists(st.lists(st.integers(-5, 5), max_size=4), max_size=5), st.integers(0, 3))
def test_lists(lists: list[list[int]], spare: int) -> None:
    r = ragged(lists, spare)
    assert len(r) == len(lists)
    assert r.to_list() == lists
    assert [x.tolist() for x in r] == lists
    assert r.lengths.tolist() == [len(x) for x in lists]
    array, mask = r.to_padded(-9)
    width = max(map(len, lists), default=0)
    assert array.shape == mask.shape == (len(lists), width)
    assert array.tolist() == [x + [-9] * (width - len(x)) for x in lists]
    assert mask.sum() == sum(map(len, lists)) and array.dtype == r.values.dtype


@FEW
@given(st.lists(st.lists(st.lists(st.integers(-5, 5), max_size=3), max_size=3), max_size=3))
def test_lists_of_lists(lists: list[list[list[int]]]) -> None:
    inner = ragged([x for items in lists for x in items], spare=2)
    r = Ragged(inner, np.cumsum([0, *map(len, lists)]))
    assert r.to_list() == lists
    assert [x.to_list() for x in r] == lists
    array, mask = r.to_padded(-1)
    assert array.shape == mask.shape and array.ndim == 3
    for i, items in enumerate(lists):
        for j, xs in enumerate(items):
            assert array[i, j][mask[i, j]].tolist() == xs
    assert mask.sum() == sum(len(x) for items in lists for x in items)


def test_pytrees_of_values() -> None:
    r = Ragged({"a": np.arange(3), "b": (np.ones((3, 2)), ragged([[1], [], [2, 3]]))}, np.array([0, 1, 3]))
    entries = r.to_list()
    assert [len(x) for x in entries] == [1, 2]
    assert entries[1][1]["a"] == 2 and entries[1][1]["b"][1] == [2, 3] and entries[1][1]["b"][0].shape == (2,)
    assert r[1]["b"][1].to_list() == [[], [2, 3]]


def test_transforms() -> None:
    r = Ragged(jnp.arange(4.0), jnp.array([0, 1, 3]))
    doubled = jax.jit(lambda r: jax.tree.map(lambda x: 2 * x, r.values))(r)
    assert doubled.tolist() == [0, 2, 4, 6]
    array, mask = jax.jit(lambda r: r.to_padded(0.0, length=2))(r)
    assert array.tolist() == [[0, 0], [1, 2]] and mask.tolist() == [[True, False], [True, True]]
    assert jax.tree.leaves(jax.grad(lambda v: Ragged(v, r.offsets).to_padded()[0].sum())(r.values))[0].tolist() == [
        1,
        1,
        1,
        0,
    ]
    for use in (lambda r: r[0], lambda r: r.to_list(), lambda r: r.to_padded()):
        with pytest.raises(BatchError, match="not known under a JAX transform"):
            jax.jit(use)(r)


def test_indices() -> None:
    r: Any = ragged([[1], [2, 3]])
    assert r[-1].tolist() == [2, 3] and r[np.int32(0)].tolist() == [1]
    for bad in (2, -3):
        with pytest.raises(IndexError, match="of a Ragged that has 2"):
            r[bad]
    assert repr(r) == "Ragged(values=[1, 2, 3], offsets=[0, 1, 3])"
    assert repr(Ragged(np.zeros(99), r.offsets)).startswith("Ragged(values=float64[99]")
