"""What a function makes under data-dependent control flow comes back as plain Python would give it."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autobatch as ab
from autobatch.testing import assert_same, check_equivalence
from autobatch.testing.examples import attributes
from tests.memory.results import PROGRAMS, Cell


@dataclass
class Holds:
    window: Any
    sums: Any


QUICK = ("trajectory", "classes_counted", "ring", "doubly_linked", "kids_appended")
WORDS = ("tagged", "spelled")
W, X = jnp.float32(1.1), jnp.asarray([0.9, 2.2, 3.1, 0.61], jnp.float32)
BACKENDS = ("interpret", "xla", "llvm")


APART = ("doubly_linked", "one_list_of_two", *WORDS)


def check(program: Callable[..., Any], backend: str) -> None:
    f = ab.batched(program, in_axes=(None, 0), backend=backend)  # type: ignore[call-overload]
    for found, expected in zip(ab.unbatch(f(W, X)), f.loop(W, X), strict=True):
        assert_same(found, expected, tolerance=2e-5)
        assert shape(found) == shape(expected)


def parts(value: Any) -> Iterator[Any]:
    """What a container or object holds, in its order."""
    if isinstance(value, dict):
        yield from value
        yield from value.values()
    elif isinstance(value, (list, tuple, deque)):
        yield from value
    elif not isinstance(value, set):
        yield from attributes(value).values()


def shape(value: Any) -> list[Any]:
    """Classes and sharing: each object by the number of its first visit."""
    seen: dict[int, int] = {}
    found: list[Any] = []
    stack = [value]
    while stack:
        x = stack.pop()
        if x is None or isinstance(x, (bool, int, float, str, Enum)) or hasattr(x, "dtype"):
            found.append(x is None)
            continue
        if id(x) in seen:
            found.append(seen[id(x)])
            continue
        seen[id(x)] = len(seen)
        found.append((type(x), getattr(x, "default_factory", None), getattr(x, "maxlen", None)))
        stack += [*parts(x)][::-1]
    return found


@pytest.mark.parametrize("program", [p for p in PROGRAMS if p.__name__ in (*QUICK, "tagged")], ids=lambda p: p.__name__)
def test_values(program: Callable[..., Any]) -> None:
    check(program, "interpret")


@pytest.mark.long
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_gradients(program: Callable[..., Any], backend: str) -> None:
    check(program, backend)
    f = ab.batched(program, in_axes=(None, 0))  # type: ignore[call-overload]
    apart = program.__name__ in APART  # under jax.jit two results are two batches, and words are not known
    check_equivalence(f, X, (W,), backends=(backend,), tolerance=2e-5, jit=not apart)


# ---- failures, derivatives beside it, what is refused


def reached(w: Any, x: Any) -> Any:
    """Fails where `x` is large, after some steps."""
    out, heads = [], None
    while x < 3.0:
        x = x * 1.3 + 0.31 * w
        out.append(1.0 / x)
        heads = Cell(x, heads)
    return out[-1] * x, out, heads


def test_what_failed_is_empty() -> None:
    f = ab.batched(reached, in_axes=(None, 0), on_error="mask", backend="interpret")
    (numbers, lists, heads), failures = f(W, X)
    assert failures.failed.tolist() == [False, False, True, False]
    assert ab.unbatch(numbers)[2] == 0.0 and ab.unbatch(lists)[2] == [] and ab.unbatch(heads)[2] is None
    assert [len(xs) for xs in ab.unbatch(lists)] == [len(chain(x)) for x in ab.unbatch(heads)] == [3, 1, 0, 4]


def chain(cell: Any) -> list[float]:
    found = []
    while cell is not None:
        found.append(cell.value)
        cell = cell.next
    return found


def loss(w: Any, x: Any) -> Any:
    number, out, head = reached(w, x)
    return number, {"steps": out, "head": head, "by": {int(y * 10.0): y for y in out}}


@pytest.mark.parametrize("backend", ["interpret", "llvm"])
def test_aux_of_a_gradient(backend: Any) -> None:
    f, x = ab.batched(loss, in_axes=(None, 0), backend=backend), X[:2]
    (values, aux), slope = ab.value_and_grad(f, has_aux=True)(W, x)
    expected = jax.grad(lambda w: sum(loss(w, y)[0] for y in x))(W)
    assert jnp.allclose(slope, expected, rtol=1e-4)
    for number, found, (wanted, other) in zip(ab.unbatch(values), ab.unbatch(aux), f.loop(W, x), strict=True):
        assert_same((number, found), (wanted, other), tolerance=2e-5)


def test_a_default_of_your_own_is_refused() -> None:
    def sums(w: Any, x: Any) -> Any:
        found: Any = defaultdict(lambda: 1.0)
        while x < 3.0:
            x = x * 1.3 + 0.31 * w
            found[int(x)] += x
        return found

    with pytest.raises(ab.UnsupportedError, match="whose default is a function of your own"):
        ab.batched(sums, in_axes=(None, 0), backend="interpret")(W, X)


def test_a_dict_of_computed_keys_is_an_example_of_another_function() -> None:
    def keyed(w: Any, x: Any) -> Any:
        found = {}
        while x < 3.0:
            x = x * 1.3 + 0.31 * w
            found[int(x)] = x
        return found

    made = ab.batched(keyed, in_axes=(None, 0), backend="interpret")(W, X)
    found = ab.unbatch(ab.batched(lambda d: (len(d), sum(d), sum(d.values())))(made))
    assert_same(found, [(len(d), sum(d), sum(d.values())) for d in ab.unbatch(made)])


def test_words_are_not_known_under_jit() -> None:
    f = ab.batched(lambda w, x: "large" if x > w else "small", in_axes=(None, 0), backend="xla")
    with pytest.raises(ab.BatchError, match="the result holds data-dependent strings, which are not known"):
        jax.jit(lambda x: f(W, x))(X)


def kept(w: Any, x: Any) -> Any:
    window: deque[Any] = deque(maxlen=2)
    sums: defaultdict[Any, Any] = defaultdict(float)
    while x < 3.0:
        x = x * 1.3 + 0.31 * w
        window.append(x)
        sums[int(x)] += x
    return Holds(window, sums)


def test_dicts_and_deques_are_saved(tmp_path: Any) -> None:
    made = ab.batched(kept, in_axes=(None, 0), backend="llvm")(W, X)
    made.save(tmp_path / "made.ab")
    loaded = ab.load(tmp_path / "made.ab")
    for found, expected in zip(loaded.to_list(), made.to_list(), strict=True):
        assert_same(found, expected)
        assert shape(found) == shape(expected)
    assert_same(made[2], kept(W, X[2]))
    assert_same(made[np.array([3, 0])].to_list(), [kept(W, X[3]), kept(W, X[0])], tolerance=2e-5)
