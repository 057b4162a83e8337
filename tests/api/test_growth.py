"""The types of examples that a function has seen: they grow, and what does not go together is kept apart."""

from dataclasses import dataclass

import pytest

import autobatch as ab
from tests.api.nodes import Node, close, trees


@dataclass
class Leaf:
    value: float


@dataclass
class Pair:
    left: object
    right: object


def test_types_that_do_not_go_together_are_programs_of_their_own():
    f = ab.batched(lambda q: q[0] == q[1], backend="xla")
    for _ in range(2):
        assert f([(1, 1), (1, 2)]).tolist() == [True, False]
        assert f([("a", "a"), ("a", "b")]).tolist() == [True, False]
        assert f(ab.pack([("c", "a")])).tolist() == [False]
        assert f(ab.pack([(3, 3)])).tolist() == [True]
    assert f.cache_info().specialisations == 2


def test_pairs_of_other_types():
    f = ab.batched(lambda a, b: a[0] == b[0])
    assert f([(1, 2)], [(1, 3)]).tolist() == [True]
    assert f([("x", "y")], ab.pack([("x", 2.0)])).tolist() == [True]
    assert f.pack([("x", "y")], [("x", 2.0)])[0] == (("x", "y"), ("x", 2.0))
    assert f(*f.pack([("x", "y")], [("x", 2.0)]).args).tolist() == [True]


def test_a_call_that_fails_is_not_remembered():
    f = ab.batched(lambda t: t.value if isinstance(t, Leaf) else t.left.value + t.right.value)
    with pytest.raises(ab.Error):
        f([Pair("a", "b")])
    assert f([Leaf(1.0), Pair(Leaf(1.0), Leaf(2.0))]).tolist() == [1, 3]
    assert f([Leaf(5.0)]).tolist() == [5]
    assert f.cache_info().specialisations == 1


def test_the_error_is_that_of_the_examples_that_are_given():
    f = ab.batched(lambda q: q[0] + 1)
    f([(1, 1)])
    for _ in range(2):
        with pytest.raises(ab.ExampleError, match="example 0 .*TypeError: a value of another type where int is needed"):
            f([("a", "a")])
    assert f([(2, 2)]).tolist() == [3]
    assert f.cache_info().specialisations == 2


def test_examples_that_show_less_run_on_the_program_that_is_there():
    f = ab.batched(lambda t: t.x if t.left is None else t.left.x, backend="xla")
    f(trees())
    for batch in ([Node(1.0)], ab.pack([Node(1.0)]), f.pack([Node(1.0)])):
        close(f(batch), [1])
    assert f.cache_info().specialisations == 1


def test_types_grow_where_they_go_together():
    f = ab.batched(lambda t: t.x)
    close(f([Node(1.0)]), [1])
    close(f(trees()), [1, 2, 5])
    close(f([Node(2.0)]), [2])
    assert f.cache_info().specialisations == 2
