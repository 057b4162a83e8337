"""Arrays that differ in length: ragged columns where a function works on rows, groups of one length where it needs them
whole."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autobatch as ab
from tests.api.photos import LENGTHS, MIXED, Photo, agrees, array


def test_iterated_arrays_are_one_group() -> None:
    f = ab.batched(lambda x: sum(v * v for v in x) + len(x))
    agrees(f, LENGTHS)
    assert f.cache_info().specialisations == 1


@pytest.mark.parametrize("backend", ["xla", "interpret"])
def test_arrays_used_whole(backend: str) -> None:
    f = ab.batched(lambda x: jnp.pad(x, (1, 0))[-1] + x @ x, backend=backend)
    agrees(f, LENGTHS)
    agrees(f, LENGTHS[::-1])
    agrees(f, LENGTHS[:1])
    assert f.cache_info().specialisations == 3


def test_arrays_used_whole_after_calls_with_one_shape() -> None:
    f = ab.batched(lambda w, x: jnp.convolve(x, w)[1], in_axes=(None, 0))
    w = array(2)
    agrees(f, w, [array(3), array(3)])
    agrees(f, w, [array(5), array(5)])
    agrees(f, w, LENGTHS)


def test_packed_arrays_used_whole() -> None:
    f = ab.batched(lambda p: jnp.pad(p.image, (1, 0))[-1] * p.weight, backend="xla")
    data = ab.pack([Photo(x, float(k)) for k, x in enumerate(LENGTHS)])
    agrees(f, data)
    plans = f.cache_info().plans
    agrees(f, data)
    agrees(f, data[[2, 1]])
    assert f.cache_info().plans == plans == 3


def test_packed_arrays_used_whole_under_jit() -> None:
    f = ab.batched(lambda p: jnp.pad(p.image, (1, 0))[-1] * p.weight)
    data = ab.pack([Photo(x, float(k)) for k, x in enumerate(LENGTHS)]).plan(f)
    with pytest.raises(ab.PlanError, match=r"call batch = batch\.plan\(<lambda>\) again"):
        jax.jit(f)(data)
    planned = data.plan(f)
    assert repr(planned) == "Batch(4 examples in 3 groups by shape)"
    np.testing.assert_allclose(jax.jit(f)(planned), f(data), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(jax.jit(f)(planned[[1, 3]]), np.asarray(f(data))[[1, 3]], rtol=1e-5, atol=1e-5)


def test_pairs_of_arrays_used_whole() -> None:
    f = ab.batched(lambda x, y: jnp.outer(x, y).sum())
    left, right = LENGTHS, [array(2), array(2), array(4), array(2)]
    agrees(f, left, right)
    pairs = f.pack(left, right)
    agrees(f, *pairs.args)
    agrees(f, *f.pack(*pairs.args).args)


def test_one_column_iterated_and_one_whole() -> None:
    @dataclass
    class Both:
        words: Any
        image: Any

    def mixed(b: Any) -> Any:
        return sum(w * 2 for w in b.words) + jnp.pad(b.image, (0, 1))[-2]

    f = ab.batched(mixed)
    examples = [Both(array(2 + k % 12), array(3 + k % 2)) for k in range(24)]
    agrees(f, examples)
    assert f.cache_info().specialisations == 2


def test_none_is_in_any_group() -> None:
    def norm(p: Photo) -> Any:
        return 0.0 if p.image is None else jnp.pad(p.image, (1, 0))[-1]

    f = ab.batched(norm)
    agrees(f, [Photo(array(3)), Photo(None), Photo(array(5))])
    agrees(ab.batched(lambda p: 0.0 if p.image is None else p.image.sum()), [*MIXED, Photo(None)])


def test_lengths_that_differ_within_one_example() -> None:
    def deep(p: Photo) -> Any:
        return sum(x for x in p.image) + (deep(p.next) if p.next is not None else 0.0)

    def whole(p: Photo) -> Any:
        return jnp.pad(p.image, (1, 0))[-1] + (whole(p.next) if p.next is not None else 0.0)

    chain = Photo(array(3), next=Photo(array(5)))
    agrees(ab.batched(deep), [chain, Photo(array(2))])
    shapes = r"holds arrays of the shapes \(3,\) and \(5,\)"
    message = rf"(?s)examples\[1\]: Photo\.image {shapes} .* whole \(.*test_whole_arrays"
    with pytest.raises(ab.BatchError, match=message):
        ab.batched(whole)([Photo(array(2)), chain])
