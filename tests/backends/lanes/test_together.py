"""Loops whose lanes walk together through arrays that all rows share, against plain Python: whatever the order in which
lanes take their turns, each computes what it would compute alone."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import autobatch as ab
from autobatch.backends.llvm.lanes.together import JointTurns
from tests.backends.lanes.harness import vector_width

WIDTH = vector_width()
COUNT, SIZE = 2 * WIDTH + 5, 23


@ab.batched(in_axes=(None, 0, 0), backend="llvm")
def down(tree, x, y):
    """A walk that only goes forward, by steps and by jumps."""
    best, node = 9.0, 0
    while node < len(tree["x"]):
        far = abs(tree["x"][node] - x) * tree["a"][node] + abs(tree["y"][node] - y)
        if far < best:
            if tree["leaf"][node] == 1:
                best = far
            node += 1
        else:
            node = tree["skip"][node]
    return best


@ab.batched(in_axes=(None, 0, 0), backend="llvm")
def anywhere(tree, start, turns):
    """A walk back and forth from a place of each row's own, which it returns; negative places count from the end."""
    node, total, k = start, 0.0, 0
    while k < turns:
        total = tree["x"][node] * tree["a"][node] - tree["y"][node] - total
        node = tree["next"][node] if total < tree["y"][node] else tree["skip"][node] - 1
        k += 1
    return node, total, k


@ab.batched(in_axes=(None, 0), backend="llvm", on_error="mask")
def past(tree, start):
    """A walk that may leave the arrays."""
    node, total = start, 0.0
    while total < 3.0:
        total += abs(tree["x"][node]) + tree["a"][node] * tree["y"][node] ** 2 + 0.25
        node += tree["step"][node]
    return total


def numbers(rng, *shape):
    """Numbers that computing does not round."""
    return (rng.integers(-16, 16, shape) / 8).astype(np.float32)


def tree_of(rng):
    """A tree whose nodes stand in the order of a walk, and links to anywhere."""
    at = np.arange(SIZE)
    skip = np.minimum(at + rng.integers(1, 7, SIZE), SIZE).astype(np.int32)
    links = {"next": rng.integers(-SIZE, SIZE, SIZE).astype(np.int32), "step": rng.integers(1, 3, SIZE, dtype=np.int32)}
    leaf = (skip == at + 1).astype(np.int32)
    return {**{name: numbers(rng, SIZE) for name in ("x", "y", "a")}, **links, "skip": skip, "leaf": leaf}


@pytest.fixture
def written(monkeypatch):
    made = []
    write = JointTurns.write
    monkeypatch.setattr(JointTurns, "write", lambda self, *rest: (made.append(self), write(self, *rest))[1])
    return made


def test_walks_are_found(written):
    rng = np.random.default_rng(0)
    given = tree_of(rng), *numbers(rng, 2, COUNT)
    again = ab.batched(down.__wrapped__, in_axes=(None, 0, 0), backend="llvm")
    again(*given)
    assert [w.walk.all_of_it for w in written] == [True] and len(written[0].walk.ends) == 2
    assert "lanes walk together" in str(again.explain(*given))


def check(f, *arguments):
    wanted = zip(*map(together, f.loop(*arguments)), strict=True)
    for x, y in zip(together(f(*arguments)), wanted, strict=True):
        np.testing.assert_array_equal(np.asarray(x), np.asarray(y))


def together(x):
    return x if isinstance(x, tuple) else (x,)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**32 - 1), st.booleans())
def test_a_walk_forward(seed, apart):
    rng = np.random.default_rng(seed)
    check(down, tree_of(rng), *numbers(rng, 2, COUNT) if apart else np.full((2, COUNT), 0.5, np.float32))


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, SIZE))
def test_a_walk_to_anywhere(seed, places):
    """Of lanes that seldom meet, too."""
    rng = np.random.default_rng(seed)
    start = rng.integers(-places, places, COUNT).astype(np.int32)
    tree = tree_of(rng)
    check(anywhere, tree, start, rng.integers(0, 20, COUNT).astype(np.int32))


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_rows_that_leave_the_arrays_fail_alone(seed):
    rng = np.random.default_rng(seed)
    tree, start = tree_of(rng), rng.integers(-2, SIZE + 2, COUNT).astype(np.int32)

    def alone(k):
        try:
            return past.__wrapped__(tree, start[k])
        except IndexError:
            return np.nan

    wanted = np.array([alone(k) for k in range(COUNT)], np.float32)
    found, failures = past(tree, start)
    np.testing.assert_array_equal(failures.failed, np.isnan(wanted))
    np.testing.assert_array_equal(np.where(failures.failed, np.nan, found), wanted)


def test_a_limit_is_that_of_each_row():
    """The gang has more turns than any of its lanes, where these never meet."""
    rng = np.random.default_rng(0)
    tree, turns = tree_of(rng), np.full(COUNT, 12, np.int32)
    tree["next"] = tree["skip"] = np.arange(SIZE, dtype=np.int32)
    tree["skip"] = tree["skip"] + 1
    start = (np.arange(COUNT) % SIZE).astype(np.int32)
    with ab.options(max_iterations=12):
        check(anywhere, tree, start, turns)
        turns[7] += 1
        with pytest.raises(ab.ExampleError, match="max_iterations=12"):
            anywhere(tree, start, turns)
