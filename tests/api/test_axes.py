"""in_axes and out_axes: which parameters are batched, and what is refused."""

from collections import namedtuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autobatch as ab
from tests.api.nodes import close

X = np.arange(12.0, dtype=np.float32).reshape(3, 4)
Pair = namedtuple("Pair", "a b")


def test_an_int_is_for_all_parameters():
    f = ab.batched(lambda x, y: x * y, in_axes=1)
    close(f(X, X), jax.vmap(lambda x, y: x * y, in_axes=1)(X, X))


def test_negative_axes_count_from_the_end():
    f = ab.batched(lambda x: x + 1, in_axes=-1)
    close(f(X), X.T + 1)


def test_a_sequence_has_an_entry_for_each_positional_parameter():
    f = ab.batched(lambda p, x: p * x, in_axes=[None, 0])
    close(f(2.0, X), 2 * X)


def test_a_dict_names_parameters_keyword_only_ones_too():
    def g(p, *, x):
        return p * x

    f = ab.batched(g, in_axes={"p": None, "x": 1})
    close(f(2.0, x=X), 2 * X.T)


def test_keywords_use_the_entry_of_their_parameter():
    f = ab.batched(lambda p, x: p * x, in_axes=(None, 0))
    close(f(x=X, p=3.0), 3 * X)


def test_a_parameter_without_entry_keeps_its_default():
    f = ab.batched(lambda x, scale=2.0: scale * x, in_axes=(0,))
    close(f(X), 2 * X)
    with pytest.raises(ab.BatchError, match="no entry for 'scale'"):
        f(X, 3.0)


def test_an_entry_may_be_a_prefix_of_the_argument():
    f = ab.batched(lambda q: q["p"] * q["x"], in_axes=({"p": None, "x": 0},))
    close(f({"p": jnp.float32(2), "x": X}), 2 * X)
    f = ab.batched(lambda q: q.a * q.b, in_axes=(Pair(None, 1),))
    close(f(Pair(jnp.float32(2), X)), 2 * X.T)
    f = ab.batched(lambda q: q[0] * q[1], in_axes=((None, 0),))
    close(f((jnp.float32(2), X)), 2 * X)


def test_var_args_take_the_last_entry():
    f = ab.batched(lambda p, *xs: p * sum(xs), in_axes=(None, 0))
    close(f(jnp.float32(2), X, X, X), 6 * X)


def test_var_keywords_are_refused_unless_named():
    def g(**kw):
        return kw["x"]

    with pytest.raises(ab.BatchError, match="refused unless"):
        ab.batched(g)(x=X)
    close(ab.batched(g, in_axes={"x": 0})(x=X), X)


@pytest.mark.parametrize(
    "axes, message",
    [
        (None, "batches nothing"),
        ((None,), "batches nothing"),
        ((0, 0), "2 entries for 1 positional"),
        ({"y": 0}, "names 'y'"),
        ("0", "takes an int"),
        ((1.5,), "holds 1.5"),
        ((True,), "holds True"),
    ],
)
def test_wrong_axes_are_refused_when_the_function_is_made(axes, message):
    with pytest.raises(ab.BatchError, match=message):
        ab.batched(lambda x: x, in_axes=axes)


def test_an_entry_that_is_no_prefix_names_the_argument():
    with pytest.raises(ab.BatchError, match="in_axes for q is"):
        ab.batched(lambda q: q[0], in_axes=((0, None),))((X, X, X))


def test_an_axis_that_the_array_has_not():
    with pytest.raises(ab.BatchError, match=r"the axis 2, but it has the shape \(3, 4\)"):
        ab.batched(lambda x: x, in_axes=2)(X)


def test_sizes_that_differ_are_named():
    f = ab.batched(lambda left, right: left + right)
    with pytest.raises(ab.BatchError, match="left has 3, right has 2"):
        f(X, X[:2])


def test_out_axes_as_in_vmap():
    f = ab.batched(lambda x: (x, {"s": x.sum()}), out_axes=(1, 0))
    out = f(X)
    close(out[0], X.T)
    close(out[1]["s"], X.sum(1))
    f = ab.batched(lambda x: x, out_axes=-1)
    close(f(X), X.T)


def test_out_axes_none_returns_a_uniform_result_once():
    f = ab.batched(lambda p, x: (p + 1, x), in_axes=(None, 0), out_axes=(None, 0))
    once, rows = f(jnp.float32(2), X)
    assert once.shape == () and float(once) == 3
    close(rows, X)


def test_out_axes_none_of_a_batched_result_is_refused():
    f = ab.batched(lambda x: x, out_axes=None)
    with pytest.raises(ab.BatchError, match="depends"):
        f(X)


def test_out_axes_of_lists_can_be_zero_only():
    f = ab.batched(lambda words: [w + 1 for w in words], out_axes=1)
    with pytest.raises(ab.BatchError, match="it can be 0 only"):
        f([[1, 2], [3]])


def test_wrong_settings():
    with pytest.raises(ab.BatchError, match="backend='metal' is not available"):
        ab.batched(lambda x: x, backend="metal")
    with pytest.raises(ab.BatchError, match="on_error='ignore'"):
        ab.batched(lambda x: x, on_error="ignore")
    with pytest.raises(ab.BatchError, match="no parameter"):
        ab.batched(lambda x: x, static=("n",))
    with pytest.raises(ab.BatchError, match="names of parameters"):
        ab.batched(lambda n: n, static=3)
    with pytest.raises(ab.BatchError, match="batched already"):
        ab.batched(ab.batched(lambda x: x))


def test_out_axes_none_names_the_line_that_a_batched_argument_reaches():
    f = ab.batched(lambda x: x + 1, out_axes=None)
    with pytest.raises(ab.BatchError, match=r"test_axes.py:\d+:\d+.*out_axes=None"):
        f(np.arange(3.0))


def test_out_axes_none_of_what_only_shared_arguments_decide():
    def both(p, x):
        doubled = p * 2
        return {"p": (doubled, doubled.sum()), "x": x}

    f = ab.batched(both, in_axes=(None, 0), out_axes={"p": None, "x": 0})
    out = f(jnp.ones(2), np.arange(3.0))
    assert out["p"][0].shape == (2,) and out["p"][1].shape == () and out["x"].shape == (3,)
    name = ab.batched(lambda x: ("name", x), out_axes=(None, 0))(np.arange(2))
    assert name[0] == "name"


def test_out_axes_are_a_prefix_of_the_result():
    f = ab.batched(lambda x: {"a": (x, x), "b": x}, out_axes={"a": (1, 0), "b": 1})
    out = f(jnp.ones((3, 2)))
    assert out["a"][0].shape == (2, 3) and out["a"][1].shape == (3, 2) and out["b"].shape == (2, 3)
    for wrong in ((0, 0), {"a": 0}, {"a": (0, 0, 0), "b": 0}, {"a": {"x": 0, "y": 0}, "b": 0}):
        with pytest.raises(ab.BatchError, match="prefix"):
            ab.batched(lambda x: {"a": (x, x), "b": x}, out_axes=wrong)(jnp.ones((3, 2)))


def test_out_axes_of_structure_can_be_zero_only():
    for axis in (1, None):
        with pytest.raises(ab.BatchError, match="0 only"):
            ab.batched(lambda x: ["a" if x > 1 else "b"], out_axes=axis)([1, 2])
        with pytest.raises(ab.BatchError, match="0 only"):
            ab.batched(lambda x: None if x > 1 else x, out_axes=axis)([1, 2])
