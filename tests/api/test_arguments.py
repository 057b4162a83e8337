"""The forms of batched and shared arguments."""

import enum
import pickle
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autobatch as ab
from tests.api import nodes
from tests.api.nodes import Node, close, params, total, trees


def test_a_list_is_always_a_list_of_examples():
    f = ab.batched(lambda x: x.sum())
    close(f([np.ones(3), np.zeros(3)]), [3, 0])


def test_lists_inside_containers_are_lists_of_examples_too():
    f = ab.batched(lambda q: q["t"].x * q["k"])
    close(f({"t": [Node(2.0), Node(3.0)], "k": np.array([10.0, 100.0])}), [20, 300])
    g = ab.batched(lambda q: q[0].x - q[1].x)
    close(g(([Node(2.0)], [Node(0.5)])), [1.5])


def test_stacked_marks_a_list_as_a_container():
    f = ab.batched(lambda q: q[0] + q[1])
    x, y = np.arange(3.0), np.ones(3)
    close(f((x, y)), x + y)
    close(f(ab.stacked([x, y])), x + y)


def test_changed_objects_are_seen():
    t = Node(1.0)
    close(total(params(), [t]), [2])
    t.x = 10.0
    close(total(params(), [t]), [20])


@pytest.mark.parametrize("value", [Node(1.0), (n for n in [Node(1.0)]), "abc", None, 3, 2.5, np.float32(1)])
def test_one_example_is_refused_with_a_cure(value):
    with pytest.raises(ab.BatchError, match=r"one example was given.*f\.example"):
        total(params(), value)


def test_lists_and_batches_have_the_axis_zero_only():
    f = ab.batched(lambda t: t.x, in_axes=1)
    with pytest.raises(ab.BatchError, match="axis 0 only"):
        f([Node(1.0)])
    with pytest.raises(ab.BatchError, match="axis 0 only"):
        f(ab.pack([Node(1.0)]))


def test_a_batch_cannot_be_shared():
    with pytest.raises(ab.BatchError, match="p is a Batch"):
        total(ab.pack([Node(1.0)]), trees())


def test_batches_lists_and_arrays_beside_each_other():
    f = ab.batched(lambda a, b, k: a.x + b.x * k)
    left, right = trees(), trees()[::-1]
    expected = f.loop(left, right, np.arange(3.0, dtype=np.float32))
    close(f(left, right, np.arange(3.0, dtype=np.float32)), expected)
    close(f(ab.pack(left), right, jnp.arange(3.0)), expected)
    close(f(ab.pack(left), ab.pack(right), jnp.arange(3.0)), expected)


def test_empty_batches_where_types_are_known():
    assert total(params(), trees()).shape == (3,)
    assert total(params(), []).shape == (0,)
    data = ab.pack(trees())
    assert total(params(), data[[]]).shape == (0,)

    @ab.batched
    def count(words: list[int]):
        return sum(words)

    assert count([]).shape == (0,)
    assert count([[], []]).tolist() == [0, 0]
    close(count([[1, 2], [3]]), [3, 3])


@dataclass
class Many:
    x: float
    kids: "list[Many]"


class Bare:
    def __init__(self, kids):
        self.kids = kids


def test_annotations_of_classes_say_what_empty_lists_hold():
    f = ab.batched(lambda t: t.x + sum(k.x for k in t.kids))
    close(f([Many(1.0, [])]), [1])
    close(ab.batched(f.__wrapped__)(ab.pack([Many(1.0, [])])), [1])
    g = ab.batched(lambda t: sum(k.x for k in t.kids))
    close(g(ab.pack([Bare([])])), [0])
    close(g([Bare([Many(2.0, [])])]), [2])
    close(g([Bare([])]), [0])


def test_empty_batches_of_unknown_types_are_refused():
    with pytest.raises(ab.BatchError, match="like="):
        ab.batched(lambda t: t.x)([])
    with pytest.raises(ab.BatchError, match="like="):
        ab.batched(lambda words: [w * 2 for w in words])([[], []])
    f = ab.batched(lambda words: [w * 2 for w in words])
    assert f(ab.pack([[], []], like=list[int])).offsets.tolist() == [0, 0, 0]


def test_arrays_without_numbers_are_refused():
    with pytest.raises(ab.BatchError, match="holds no numbers"):
        ab.batched(lambda x: x)(np.array(["a", "b"]))
    with pytest.raises(ab.BatchError, match="no numbers"):
        ab.batched(lambda p, x: x, in_axes=(None, 0))(np.array(["a"]), np.ones(2))


def test_a_ragged_result_is_an_argument_again():
    f = ab.batched(lambda words: [w * 2 for w in words])
    assert ab.unbatch(f(f([[1, 2], [3]]))) == [[4, 8], [12]]


def test_arrays_of_no_rows():
    assert ab.batched(lambda x: x + 1)(np.zeros((0, 3))).shape == (0, 3)


# ---- shared arguments


def test_arrays_and_floats_are_run_time_values():
    f = ab.batched(lambda p, x: p * x, in_axes=(None, 0))
    f(1.0, np.ones(2))
    before = f.cache_info().specialisations
    close(f(7.0, np.ones(2)), [7, 7])
    assert f.cache_info().specialisations == before
    close(f(jnp.float32(7), np.ones(2)), [7, 7])


class Mode(enum.Enum):
    ADD = 1
    MUL = 2


def test_strings_enums_functions_and_ints_are_static():
    def apply(mode, fn, n, x):
        y = x + n if mode is Mode.ADD else x * n
        return fn(y)

    f = ab.batched(apply, in_axes=(None, None, None, 0))
    x = np.arange(3.0, dtype=np.float32)
    close(f(Mode.ADD, jnp.sin, 2, x), np.sin(x + 2))
    close(f(Mode.MUL, jnp.cos, 3, x), np.cos(x * 3))
    assert f.cache_info().specialisations == 2
    f(Mode.MUL, jnp.cos, 3, x)
    assert f.cache_info().specialisations == 2


def test_names_in_static_are_part_of_the_key():
    f = ab.batched(lambda scale, x: x * scale, in_axes=(None, 0), static="scale")
    f(2.0, np.ones(2))
    close(f(3.0, np.ones(2)), [3, 3])
    assert f.cache_info().specialisations == 2
    with pytest.raises(ab.BatchError, match="hashable"):
        f([1], np.ones(2))
    with pytest.raises(ab.BatchError, match="one only"):
        ab.batched(lambda x: x, static="x")(np.ones(2))


@dataclass
class Config:
    scale: float
    bias: np.ndarray
    depth: int = 2


def test_plain_objects_and_containers_are_shared_by_their_leaves():
    def apply(c, q, x):
        return x * c.scale + c.bias + q["layers"][0] * c.depth

    f = ab.batched(apply, in_axes=(None, None, 0))
    x = np.ones((2, 3), np.float32)
    close(f(Config(2.0, np.arange(3.0)), {"layers": [1.0]}, x), 2 + np.arange(3.0) + 2 + 0 * x)
    close(f(Config(3.0, np.arange(3.0)), {"layers": [0.0]}, x), 3 + np.arange(3.0) + 0 * x)
    assert f.cache_info().specialisations == 1


scale = jnp.float32(2.0)
factor = 3


def test_free_variables_are_read_again_at_every_call():
    global scale, factor
    f = ab.batched(lambda x: x * scale * factor)
    close(f(np.ones(2)), [6, 6])
    scale = jnp.float32(5.0)
    close(f(np.ones(2)), [15, 15])
    assert f.cache_info().specialisations == 1
    factor = 4
    close(f(np.ones(2)), [20, 20])
    scale, factor = jnp.float32(2.0), 3


def test_a_closed_over_tracer_gets_its_gradient_path():
    def outer(w):
        return ab.batched(lambda x: x * w)(np.arange(3.0, dtype=np.float32)).sum()

    close(jax.jit(outer)(2.0), 6)


class Model:
    def __init__(self, w):
        self.w = jnp.float32(w)

    @ab.batched
    def score(self, t):
        return self.w * t.x

    @ab.batched(in_axes=(None, 0))
    def scaled(self, k, t):
        return self.score(t) * k


def test_methods_share_self():
    m = Model(2.0)
    close(m.score(trees()), [2, 4, 10])
    close(m.scaled(3.0, trees()), [6, 12, 30])
    close(Model(3.0).score(trees()), [3, 6, 15])
    assert Model.score.cache_info().specialisations == 1
    assert float(m.score.example(Node(4.0))) == 8
    close(m.score.loop(trees()), [2, 4, 10])
    close(m.score(m.score.pack(trees())), [2, 4, 10])


def test_methods_of_all_instances_share_programs_and_plans():
    class Local:
        def __init__(this, w):
            this.w = jnp.float32(w)

        @ab.batched(in_axes=(0,), backend="xla")
        def score(this, t):
            return this.w * t.x

        @staticmethod
        @ab.batched(in_axes=(None, 0))
        def free(k, t):
            return k * t.x

    a, b = Local(1.0), Local(2.0)
    data = ab.pack(trees()).plan(b.score)
    close(a.score(data), [1, 2, 5])
    close(jax.jit(b.score)(data[:2]), [2, 4])
    assert Local.score.cache_info()[0] == 1
    close(Local.free(2.0, trees()), [2, 4, 10])

    class Wrong:
        @ab.batched(in_axes=(0, 0))
        def score(self, t):
            return t.x

    with pytest.raises(ab.BatchError, match="2 entries for 1"):
        Wrong().score(trees())


def test_functions_pickle_by_their_name():
    assert pickle.loads(pickle.dumps(total)) is total
    other = ab.batched(nodes.chain, in_axes=0)
    again = pickle.loads(pickle.dumps(other))
    assert again.__wrapped__ is nodes.chain and again.settings == other.settings


def test_the_wrapper_looks_like_the_function():
    assert total.__name__ == "total" and total.__doc__ == "Scaled sum of a tree."
    assert "total" in repr(total)
