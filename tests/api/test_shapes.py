"""Arrays whose shape differs by example: groups by shape, and their results in the order of the examples."""

import copy
import pickle
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import autobatch as ab
from tests.api.photos import LENGTHS, MIXED, Page, Photo, agrees, array, bright, photos


@pytest.mark.parametrize("backend", ["xla", "interpret"])
def test_a_list_of_examples_of_two_shapes(backend: str) -> None:
    f = ab.batched(bright, in_axes=(None, 0), backend=backend)
    assert isinstance(agrees(f, 2.0, MIXED), jax.Array)
    assert f.cache_info().specialisations == 2


def test_the_batched_argument_itself() -> None:
    agrees(ab.batched(lambda x: x.sum() * 2), [array(3, 4), array(2, 5), array(3, 4)])
    agrees(ab.batched(lambda x: x.sum() * 2), [array(3), array(2, 5), array(), array(3)])


def test_numbers_and_arrays() -> None:
    agrees(ab.batched(lambda x: jnp.sum(x) * 2), [2.0, array(3, 2), 1.0])


def test_the_empty_list_and_one_example() -> None:
    f = ab.batched(bright, in_axes=(None, 0))
    f(2.0, MIXED)
    assert f(2.0, []).shape == (0,)
    agrees(f, 2.0, MIXED[1:2])


def test_packed_examples() -> None:
    f = ab.batched(bright, in_axes=(None, 0))
    batch = ab.pack(MIXED)
    assert isinstance(batch, ab.Batch)
    assert len(batch) == 5
    assert repr(batch) == "Batch(5 examples in 2 groups by shape)"
    assert [p.weight for p in batch] == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert batch[3].image.shape == batch[-2].image.shape == (2, 5)
    assert batch.nbytes > 0
    agrees(f, 2.0, batch)
    with pytest.raises(IndexError, match="example 5 of a batch of 5"):
        batch[5]
    with pytest.raises(ab.BatchError, match="2 groups, each with a schema of its own"):
        batch.schema


@pytest.mark.parametrize("index", [[4, 1, 0], [1, 1], slice(1, 4), [True, False, False, True, True], [], [-1]])
def test_slices_of_packed_examples(index: Any) -> None:
    f = ab.batched(bright, in_axes=(None, 0))
    batch = ab.pack(MIXED).plan(f)
    cut = batch[index]
    chosen = np.arange(5)[np.array(index, np.int64) if index == [] else index]
    assert [p.weight for p in cut] == chosen.tolist()
    np.testing.assert_allclose(f(2.0, cut), np.asarray(f(2.0, batch))[chosen], rtol=1e-5, atol=1e-5)
    again = cut[::-1]
    np.testing.assert_allclose(f(2.0, again), np.asarray(f(2.0, batch))[chosen[::-1]], rtol=1e-5, atol=1e-5)


def test_a_data_set_is_planned_once() -> None:
    f = ab.batched(bright, in_axes=(None, 0), backend="xla")
    batch = ab.pack(MIXED).plan(f)
    f(2.0, batch)
    plans = f.cache_info().plans
    for start in range(3):
        f(2.0, batch[start:])
    assert f.cache_info().plans == plans == 2


def test_under_jit() -> None:
    f = ab.batched(bright, in_axes=(None, 0))
    traces = []

    @jax.jit
    def step(scale: Any, batch: Any) -> Any:
        traces.append(1)
        return f(scale, batch)

    data = ab.pack(photos(*[(3, 4), (2, 5)] * 20)).plan(f)
    wanted = np.asarray(f(2.0, data))
    np.testing.assert_allclose(step(2.0, data), wanted, rtol=1e-5, atol=1e-5)
    before = len(traces)
    rng = np.random.default_rng(0)
    for _ in range(6):
        chosen = rng.permutation(40)[:16]
        np.testing.assert_allclose(step(2.0, data[chosen]), wanted[chosen], rtol=1e-5, atol=1e-5)
    assert len(traces) - before <= 3  # counts of groups are rounded up


def test_through_jit_and_tree_map() -> None:
    f = ab.batched(bright, in_axes=(None, 0))
    batch = ab.pack(MIXED)
    passed = jax.jit(lambda b: b)(batch)
    assert [p.weight for p in passed] == [p.weight for p in MIXED]
    np.testing.assert_allclose(f(2.0, passed), f(2.0, batch))
    np.testing.assert_allclose(f(2.0, jax.tree.map(lambda x: x, batch.plan(f))), f(2.0, batch))


def test_epochs() -> None:
    f = ab.batched(bright, in_axes=(None, 0))
    data = ab.pack(MIXED).plan(f)
    wanted = np.asarray(f(2.0, data))
    order = np.array([[0, 1, 2], [1, 3, 0], [4, 2, 0]])
    _, got = jax.lax.scan(lambda c, b: (c, f(2.0, b)), 0, data.epoch(order))
    np.testing.assert_allclose(got, wanted[order], rtol=1e-5, atol=1e-5)


def test_save_and_load(tmp_path: Any) -> None:
    f = ab.batched(bright, in_axes=(None, 0))
    batch = ab.pack(MIXED)
    batch[[3, 0, 1]].save(tmp_path / "photos")
    loaded = ab.load(tmp_path / "photos")
    assert [p.weight for p in loaded] == [3.0, 0.0, 1.0]
    np.testing.assert_allclose(f(2.0, loaded), np.asarray(f(2.0, batch))[[3, 0, 1]])


def test_copies_and_pickles() -> None:
    batch = ab.pack(MIXED)
    for made in (pickle.loads(pickle.dumps(batch)), copy.copy(batch), copy.deepcopy(batch)):
        assert [p.image.shape for p in made] == [p.image.shape for p in MIXED]


def test_bad_indices() -> None:
    batch = ab.pack(MIXED)
    for index in ("a", 1.5, True, [[0]]):
        with pytest.raises(ab.BatchError, match="a batch is indexed by"):
            batch[index]


def test_floats() -> None:
    f = ab.batched(bright, in_axes=(None, 0))
    batch = ab.pack(MIXED).plan(f)
    held = batch.floats()
    assert {x.shape[1:] for n, x in held.items() if n.endswith("image")} == {(3, 4), (2, 5)}
    zero = batch.with_floats(jax.tree.map(jnp.zeros_like, held))
    np.testing.assert_allclose(f(2.0, zero), np.zeros(5))
    with pytest.raises(ab.BatchError, match="'nope' is no column of floats"):
        batch.with_floats({"nope": 1.0})


def test_like() -> None:
    batch = ab.pack(MIXED)
    assert len(ab.pack([], like=batch)) == 0
    assert len(ab.pack(MIXED[:1], like=batch)) == 1
    mixed = [[array(3)], [array(2, 2)], []]
    assert repr(ab.pack(mixed, like=ab.pack([[]]))) == "Batch(3 examples in 2 groups by shape)"


# ---- results


def test_results_of_different_shapes_are_a_batch() -> None:
    result = agrees(ab.batched(lambda p: p.image * 2), MIXED)
    assert isinstance(result, ab.Batch)
    agrees(ab.batched(lambda x: x.sum()), result)
    assert agrees(ab.batched(lambda p: p.image.shape[0]), MIXED).dtype == jnp.int32


def test_axes_of_a_dict_of_results() -> None:
    """Entries of `out_axes` are those of their keys, in whatever order either dict has them."""

    def both(p):
        return {"b": p.image.sum(), "a": p.image.sum() * jnp.arange(2.0)}

    rows, columns = (ab.batched(both, out_axes=axes)(MIXED) for axes in (0, {"a": 1, "b": 0}))
    np.testing.assert_array_equal(columns["a"], rows["a"].T)
    np.testing.assert_array_equal(columns["b"], rows["b"])


def test_containers_of_results() -> None:
    result = agrees(ab.batched(lambda p: (p.image.sum(), {"b": p.image.T, "a": p.weight}, None)), MIXED)
    assert isinstance(result[0], jax.Array)
    assert isinstance(result[1]["b"], ab.Batch)
    assert list(result[1]) == ["b", "a"]


def test_ragged_results() -> None:
    def rows(p: Photo) -> Any:
        return [row.sum() for row in p.image]

    f = ab.batched(rows)
    result = agrees(f, MIXED)
    assert isinstance(result, ab.Ragged)
    inside = jax.jit(f)(ab.pack(MIXED).plan(f))
    for outside, jitted in zip(result.to_list(), inside.to_list(), strict=True):
        np.testing.assert_allclose(outside, jitted, rtol=1e-5)


def test_ragged_results_whose_rows_differ_in_shape() -> None:
    result = agrees(ab.batched(lambda p: [row * 2 for row in p.image]), MIXED)
    assert isinstance(result, ab.Ragged)
    assert isinstance(result.values, ab.Batch)


def test_objects_as_results() -> None:
    result = ab.batched(lambda p: Photo(p.image * 2, p.weight))(MIXED)
    assert isinstance(result, ab.Batch)
    for got, p in zip(ab.unbatch(result), MIXED, strict=True):
        assert got.weight == p.weight
        np.testing.assert_allclose(got.image, 2 * p.image)
    agrees(ab.batched(bright, in_axes=(None, 0)), 1.0, result)


def test_a_mixture_of_kinds_is_a_batch() -> None:
    def sometimes(p: Photo) -> Any:
        return None if p.image.shape[0] == 2 else p.weight

    f = ab.batched(sometimes)
    assert isinstance(agrees(f, MIXED), ab.Batch)
    with pytest.raises(ab.BatchError, match="results of different structure"):
        jax.jit(f)(ab.pack(MIXED).plan(f))


def test_arrays_of_a_ragged_group_beside_others() -> None:
    agrees(ab.batched(lambda x: x[-1:] + 1), [array(3, 2), array(2, 3), array(2, 2)])
    agrees(ab.batched(lambda x: x * 2), [array(3, 2), array(2, 3, 1), array(2, 2)])


def test_out_axes() -> None:
    f = ab.batched(lambda p: (jnp.zeros(2) + p.weight, p.image.sum()), out_axes=(1, 0))
    first, second = f(MIXED)
    assert first.shape == (2, 5)
    assert second.shape == (5,)
    np.testing.assert_allclose(first[0], [p.weight for p in MIXED])
    with pytest.raises(ab.BatchError, match=r"out_axes=1 .* differ in shape between examples: \(3, 4\), \(2, 5\)"):
        ab.batched(lambda p: p.image * 2, out_axes=1)(MIXED)
    once = ab.batched(lambda w, p: (w * 2, p.image.sum()), in_axes=(None, 0), out_axes=(None, 0))
    assert float(once(3.0, MIXED)[0]) == 6.0


# ---- several batched arguments


def test_several_arguments() -> None:
    f = ab.batched(lambda a, b, x: (a.image.sum() + b.image.sum()) * x.sum(), in_axes=0)
    left, right = MIXED[:4], [Page(array(*s)) for s in ((1, 2), (1, 2), (2, 1), (2, 1))]
    agrees(f, left, right, array(4, 3))
    agrees(f, ab.pack(left), ab.pack(right), array(4, 3))
    agrees(f, ab.pack(left), right, array(4, 3))
    wide = ab.batched(lambda a, x: a.image.sum() * x.sum(), in_axes=(0, 1))
    agrees(wide, left, array(3, 4))


@dataclass
class Other(Photo):
    pass


def test_arguments_of_one_class_have_one_shape_in_each_example() -> None:
    f = ab.batched(lambda a, b: a.image.sum() * 2 + b.image.sum() * a.weight)
    left = MIXED[:4]
    agrees(f, left, [Photo(array(*p.image.shape), 2.0) for p in left])
    right = photos((2, 5), (3, 4), (3, 4), (1, 2))
    message = r"a and b hold objects of one class, .*one shape in each example: .*3, 4.* a class of its own"
    for one, two in ((left, right), (ab.pack(left[:1]), ab.pack(right[:1])), (ab.pack(left), right)):
        with pytest.raises(ab.BatchError, match=message):
            f(one, two)
    with pytest.raises(ab.BatchError, match=message):
        f.pack(left, right)
    others = [Other(p.image, p.weight) for p in right]
    agrees(f, left, others)
    agrees(f, ab.pack(left), ab.pack(others))
    chain = Photo(array(3, 4), next=Photo(array(2, 5)))
    with pytest.raises(ab.BatchError, match=r"^examples\[0\]: Photo\.image holds arrays of the shapes"):
        f([chain], [chain])


def test_arguments_packed_together() -> None:
    f = ab.batched(lambda a, b: a.image.sum() * 2 + b.image.sum())
    left, right = MIXED[:4], [Page(array(*s)) for s in ((1, 2), (1, 2), (2, 1), (2, 1))]
    pairs = f.pack(left, right)
    agrees(f, *pairs.args)
    agrees(f, *pairs[[3, 0, 1]].args)
    np.testing.assert_allclose(jax.jit(f)(*pairs.args), f(left, right), rtol=1e-5, atol=1e-5)


def test_arrays_beside_a_batch_under_jit() -> None:
    f = ab.batched(lambda p, x: p.image.sum() * x.sum())
    batch, x = ab.pack(MIXED).plan(f), array(5, 2)
    np.testing.assert_allclose(jax.jit(f)(batch, x), f(batch, x), rtol=1e-5, atol=1e-5)


def test_packed_apart_under_jit() -> None:
    f = ab.batched(lambda a, b: a.image.sum() * 2 + b.image.sum())
    with pytest.raises(ab.PlanError, match=r"pack them together: pairs = .*\.pack"):
        jax.jit(f)(ab.pack(MIXED), ab.pack(MIXED[::-1]))


# ---- failures


def checked(p: Photo) -> Any:
    assert p.weight != 3.0, "too heavy"
    return p.image.sum()


def test_failures_have_the_numbers_of_the_whole_batch() -> None:
    with pytest.raises(ab.ExampleError) as caught:
        ab.batched(checked)(MIXED)
    assert [f.index for f in caught.value.failures] == [3]
    two = [MIXED[3], *MIXED, Photo(array(3, 4), 3.0)]
    with pytest.raises(ab.ExampleError, match="3 of the batch's examples failed") as caught:
        ab.batched(checked)(two)
    assert [f.index for f in caught.value.failures] == [0, 4, 6]


def test_masked_failures() -> None:
    f = ab.batched(checked, on_error="mask")
    for examples in (MIXED, ab.pack(MIXED)):
        result, failures = f(examples)
        assert failures.failed.tolist() == [False, False, False, True, False]
        assert [x.index for x in failures] == [3]
        assert result[3] == 0.0
        np.testing.assert_allclose(result[4], MIXED[4].image.sum(), rtol=1e-5)
    _, failures = jax.jit(f)(ab.pack(MIXED).plan(f))
    assert failures.failed.tolist() == [False, False, False, True, False]


# ---- what is refused


def test_more_than_eight_groups() -> None:
    many = photos(*[(2, n) for n in range(1, 11)])
    f = ab.batched(bright, in_axes=(None, 0))
    message = r"Photo\.image differs in shape .*\(2, 1\) in examples\[0\].*10 groups .* at most 8 .*shape_groups=10"
    with pytest.raises(ab.BatchError, match=message):
        f(2.0, many)
    with pytest.raises(ab.BatchError, match=message):
        ab.pack(many)
    with ab.options(shape_groups=10):
        agrees(f, 2.0, many)


def test_shapes_that_differ_within_one_example() -> None:
    chain = Photo(array(3, 4), next=Photo(array(2, 5)))
    message = r"examples\[1\]: Photo\.image holds arrays of the shapes \(3, 4\) and \(2, 5\) in one example"
    with pytest.raises(ab.BatchError, match=message):
        ab.pack([MIXED[0], chain])


def test_dtypes_that_differ_are_no_shapes() -> None:
    with pytest.raises(ab.BatchError, match="do not fit into one column"):
        ab.pack([array(3, 4), np.zeros((2, 5), np.int32)])


def test_an_error_of_the_function_is_told_as_it_is() -> None:
    with pytest.raises(ab.UnsupportedError, match="has no attribute '?nope"):
        ab.batched(lambda x: x.nope())(LENGTHS)


def test_one_program_is_shown_for_one_shape() -> None:
    f = ab.batched(bright, in_axes=(None, 0))
    assert f.lower(2.0, MIXED[:1]).as_text().count("func @bright") == 1
    assert "5 examples" not in str(f.explain(2.0, MIXED[:1]))


def test_the_programs_of_groups() -> None:
    f = ab.batched(bright, in_axes=(None, 0))
    lowered = f.lower(2.0, MIXED)
    assert [m.tolist() for m in lowered.members] == [[0, 2, 4], [1, 3]]
    assert lowered.shapes == ({"Photo.image": "(3, 4)"}, {"Photo.image": "(2, 5)"})
    for stage in ("example", "spmd", "fissioned", "backend"):
        text = lowered.as_text(stage)
        assert "# group 1 of 2: 3 examples (0, 2, 4): Photo.image (3, 4)\n" in text
        assert all(g.as_text(stage) in text for g in lowered.groups)
    assert lowered.as_text("source").count("def bright") == 1
    assert lowered.cost()["flops"] == sum(g.cost()["flops"] for g in lowered.groups)
    compiled = lowered.compile()
    for examples in (MIXED, MIXED[::-1]):
        np.testing.assert_allclose(compiled(3.0, examples), f(3.0, examples), rtol=1e-5, atol=1e-5)
    with pytest.raises(ab.PlanError, match="call the function itself"):
        compiled(2.0, photos((3, 4), (4, 4)))
    mask = ab.batched(checked, on_error="mask")
    assert mask.lower(MIXED).compile()(MIXED)[1].failed.tolist() == [False, False, False, True, False]


def test_the_explanations_of_groups() -> None:
    f = ab.batched(bright, in_axes=(None, 0))
    explained = f.explain(2.0, MIXED)
    assert [m.tolist() for m in explained.members] == [[0, 2, 4], [1, 3]]
    text, page = str(explained), explained.html()
    assert text.startswith("bright: 5 examples in 2 groups by the shapes of their arrays\n  group 1 of 2: 3 examples")
    for group, shape in zip(explained.groups, ("(3, 4)", "(2, 5)"), strict=True):
        assert str(group) in text and f"Photo.image {shape}" in text and f"Photo.image {shape}" in page
    assert page.count("<!doctype html>") == 1 and page.count('class="source"') == 2
    assert [g["examples"] for g in explained.data["groups"]] == [[0, 2, 4], [1, 3]]
    assert explained.data["groups"][0]["explanation"] == explained.groups[0].data
    refused = ab.batched(lambda p: p.nope)
    assert "nope" in str(refused.explain(MIXED))


def test_groups_by_length_and_of_packed_batches_are_shown() -> None:
    f = ab.batched(lambda w, p: w[: p.image.shape[0]] @ p.image, in_axes=(None, 0))
    lengths = photos((2, 3), (4, 3), (2, 3))
    for examples in (lengths, ab.pack(lengths), ab.pack(MIXED)):
        explained = f.explain(np.ones(5), examples)
        assert sorted(k for m in explained.members for k in m.tolist()) == list(range(len(examples)))
        assert [len(s) for s in explained.shapes] == [1, 1]
    with pytest.raises(ab.BatchError, match="outside jax.jit"):
        jax.jit(lambda b: f.lower(np.ones(5), b) and 0)(ab.pack(MIXED).plan(f))


def test_disabled() -> None:
    f = ab.batched(lambda p: p.image * 2)
    with ab.disable():
        result = f(MIXED)
    assert [x.shape for x in ab.unbatch(result)] == [p.image.shape for p in MIXED]


def test_tuples_that_hold_arrays_of_different_ranks() -> None:
    gray, coloured = array(3, 4), array(3, 4, 3)
    agrees(ab.batched(lambda t: t[0].sum() * t[1]), [(gray, 1.0), (coloured, 2.0), (gray, 3.0)])
    agrees(ab.batched(lambda d: d["x"].ndim * d["k"]), [{"x": gray, "k": 1}, {"x": coloured, "k": 2}])


shapes = st.sampled_from([(), (2,), (3,), (2, 2), (3, 2), (2, 3), (0, 2)])
chains = st.lists(st.tuples(shapes, st.booleans(), st.booleans()), min_size=1, max_size=8)


@given(chains, st.data())
def test_examples_of_any_shapes_come_back(forms: Any, data: Any) -> None:
    examples = []
    for shape, twice, missing in forms:
        inner = Photo(array(*shape), 2.0) if twice else None
        examples.append(Photo(None if missing and twice else array(*shape), 1.0, inner))
    batch = ab.pack(examples)
    chosen = data.draw(st.lists(st.integers(-len(examples), len(examples) - 1), max_size=6))
    for held, wanted in ((batch, examples), (batch[chosen], [examples[k] for k in chosen])):
        assert len(held) == len(wanted)
        for got, photo in zip(held, wanted, strict=True):
            while photo is not None:
                assert got.weight == photo.weight
                assert (got.image is None) == (photo.image is None)
                if photo.image is not None:
                    assert np.shape(got.image) == np.shape(photo.image)
                    np.testing.assert_array_equal(got.image, photo.image)
                got, photo = got.next, photo.next
            assert got is None
