"""Results of every kind of functions whose structure is traced, as plain Python gives them."""

from __future__ import annotations

import enum
import warnings
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import autobatch as ab
from autobatch.testing import assert_same, check_equivalence

pytestmark = pytest.mark.usefixtures("quiet")

BATCH = [["the", "cat"], ["a"], ["the", "dog", "the"], []]


class Op(enum.Enum):
    ADD = 1
    MUL = 2


class Other(enum.Enum):
    ADD = 2


class Pair(NamedTuple):
    left: Any
    right: Any = None


@dataclass
class Cell:
    value: Any
    next: Any = None
    notes: list[Any] = field(default_factory=list)


class Slots:
    __slots__ = ("__dict__", "a")

    def __init__(self, a: Any) -> None:
        self.a = a
        self.b = len(str(type(a)))


SOURCELESS = eval("lambda words: words")  # what has no source does not compile


def traced(program: Callable[..., Any]) -> Any:
    """A function that nothing but a trace takes."""

    def one(w: Any, words: Any) -> Any:
        return program(w, SOURCELESS(words))

    one.__name__ = program.__name__
    return ab.batched(one, in_axes=(None, 0))


def chain(w: Any, words: list[str]) -> Any:
    head = None
    for k in range(len(words)):
        head = Cell(w * k, head)
    return head


def shared(w: Any, words: list[str]) -> Any:
    cell = Cell(w)
    cell.next = cell
    cell.notes.append(cell)
    return (cell, [cell]), {"same": cell}


def tree(w: Any, words: list[str]) -> Any:
    if not words:
        return None
    half = len(words) // 2
    return {"word": words[half], "value": w * half, "below": [tree(w, words[:half]), tree(w, words[half + 1 :])]}


def default(w: Any, words: list[str]) -> Any:
    held: defaultdict[str, list[Any]] = defaultdict(list)
    for k, x in enumerate(words):
        held[x].append(w * k)
    return held


RESULTS: dict[str, Callable[[Any, list[str]], Any]] = {
    "keys": lambda w, xs: {x: w * k for k, x in enumerate(xs)},
    "keys_of_integers": lambda w, xs: {k: w * k for k, x in enumerate(xs)},
    "keys_of_tuples": lambda w, xs: {(x, k): w for k, x in enumerate(xs)},
    "counts": lambda w, xs: dict(Counter(xs)),
    "order_of_keys": lambda w, xs: {"a": w, "b": 1} if len(xs) > 1 else {"b": 2, "a": w},
    "counter": lambda w, xs: Counter(xs),
    "defaultdict": default,
    "ordered": lambda w, xs: OrderedDict((x, w) for x in xs),
    "lengths_of_tuples": lambda w, xs: tuple(w * k for k in range(len(xs))),
    "classes": lambda w, xs: Cell(w) if len(xs) > 1 else Pair(w),
    "object": lambda w, xs: Cell(w, [x for x in xs], [w]),
    "slots": lambda w, xs: Slots([w] * len(xs)),
    "objects": lambda w, xs: [Cell(w * k) for k in range(len(xs))],
    "chain": chain,
    "tree": tree,
    "set": lambda w, xs: (set(xs), frozenset(len(x) for x in xs), w),
    "deque": lambda w, xs: deque([w] * len(xs), maxlen=2),
    "bytes": lambda w, xs: ["".join(xs).encode(), Fraction(1, 2 + len(xs)), 2j, range(len(xs))],
    "enums": lambda w, xs: ([Op.ADD if k % 2 else Op.MUL for k in range(len(xs))], Op.ADD if xs else Op.MUL, w),
    "members": lambda w, xs: (Op.ADD, Op.MUL, float("inf"), -float("inf"), Pair(Op.ADD, Other.ADD), w),
    "mixture": lambda w, xs: [1, w, "a", None, True, *xs],
    "beside_numbers": lambda w, xs: (w * len(xs), {x: jnp.ones(2) * w for x in xs}, [w] * len(xs)),
    "arrays": lambda w, xs: {x: w * jnp.ones(len(x)) for x in xs},
    "lists_of_lists": lambda w, xs: [[w] * k for k in range(len(xs))],
    "empty_lists": lambda w, xs: ([[] for _ in xs], w),
    "none": lambda w, xs: (None if len(xs) > 1 else w, xs[0] if xs else None, None),
    "python_numbers": lambda w, xs: {"n": len(xs), "yes": len(xs) > 1, "x": 0.1, "big": 10**30, "by": {len(xs): 2}},
    "classes_themselves": lambda w, xs: (Cell if xs else Pair, len if xs else max, w),
}
PROGRAMS = [*RESULTS]


@pytest.mark.parametrize("name", PROGRAMS)
def test_results(name: str) -> None:
    f, w = traced(RESULTS[name]), jnp.float32(1.5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ab.StructureWarning)
        for batch in (BATCH[:2], BATCH, BATCH[::-1]):  # what is known of results grows
            assert_same(ab.unbatch(f(w, batch)), [RESULTS[name](w, x) for x in batch])


def test_identity_is_kept() -> None:
    ((cell, (again,)), by_key), *_ = ab.unbatch(traced(shared)(jnp.float32(2.0), BATCH))
    assert cell is again is by_key["same"] is cell.next is cell.notes[0]
    assert cell.value == 2.0


def in_a_list(w: Any, xs: list[str]) -> Any:
    a = [w * len(xs)]
    b = a
    b.append(a)  # compiled lists are values, so that this one would hold what it was before
    a += [a]
    return a


def in_a_dict(w: Any, xs: list[str]) -> Any:
    d = {"w": w, "n": len(xs)}
    d["inner"] = {"outer": d}
    d["self"] = d
    return d


@pytest.mark.usefixtures("quiet")
def test_what_holds_itself() -> None:
    for a in ab.unbatch(traced(in_a_list)(jnp.float32(2.0), BATCH)):
        assert len(a) == 3 and a[1] is a and a[2] is a
    for d, xs in zip(ab.unbatch(traced(in_a_dict)(jnp.float32(2.0), BATCH)), BATCH):
        assert d["self"] is d and d["inner"]["outer"] is d and (d["w"], d["n"]) == (2.0, len(xs))


def test_long_chains() -> None:
    (head,) = ab.unbatch(traced(chain)(jnp.float32(1.0), [["x"] * 1000]))
    for k in range(999, -1, -1):
        assert head.value == k
        head = head.next
    assert head is None


Spec = Any
leaves = st.sampled_from(["x", "n", "word", None, True, 3])
specs: st.SearchStrategy[Spec] = st.recursive(
    leaves,
    lambda parts: st.one_of(
        st.lists(parts, max_size=3),
        st.tuples(parts),
        st.tuples(parts, parts),
        st.dictionaries(st.sampled_from(["a", "b", "word"]), parts, max_size=2),
        st.builds(Cell, parts, parts),
        st.builds(Pair, parts, parts),
    ),
    max_leaves=6,
)


def built(w: Any, spec: Spec) -> Any:
    match spec:
        case "x":
            return w * 2.0
        case "n":
            return jnp.ones(2) * w
        case list():
            return [built(w, x) for x in spec]
        case Pair():
            return Pair(built(w, spec.left), built(w, spec.right))
        case tuple():
            return tuple(built(w, x) for x in spec)
        case dict():
            return {k: built(w, x) for k, x in spec.items()}
        case Cell():
            return Cell(built(w, spec.value), built(w, spec.next))
        case _:
            return spec


SPECS: list[Spec] = []


def of_number(w: Any, k: int) -> Any:
    seen = deque([k])
    return built(w, SPECS[seen[0]]), w


@settings(max_examples=12)
@given(st.lists(specs, min_size=1, max_size=4), st.lists(specs, min_size=1, max_size=4))
def test_any_structure(first: list[Spec], second: list[Spec]) -> None:
    f, w = ab.batched(of_number, in_axes=(None, 0)), jnp.float32(1.5)
    SPECS[:] = [*first, *second]
    for begin, end in ((0, len(first)), (len(first), len(SPECS)), (0, len(SPECS))):
        numbers = np.arange(begin, end)
        with ab.options(backend="interpret"):
            found = f(w, numbers)
        assert_same(ab.unbatch(found), [of_number(w, int(k)) for k in numbers])


def test_under_jit_with_gradients() -> None:
    f, w = traced(RESULTS["beside_numbers"]), jnp.float32(1.5)
    data = ab.pack([*BATCH, ["x", "y"]]).plan(f)
    step = jax.jit(f)
    for indices in ([0, 1], [2, 3], [4, 0]):
        batch = data[np.array(indices)]
        wanted = [RESULTS["beside_numbers"](w, (*BATCH, ["x", "y"])[k]) for k in indices]
        assert_same(ab.unbatch(step(w, batch)), wanted)

    def loss(w: Any) -> Any:
        _, objects, _ = f(w, BATCH)
        assert isinstance(objects, ab.Objects)
        return sum(jnp.sum(group.values) for group in objects.numbers)

    assert jax.grad(loss)(w) == 2 * len({(k, x) for k, words in enumerate(BATCH) for x in words})


def test_cotangents_of_each_example() -> None:
    """Given as one example's result each; constants and shared parts among them."""

    def scaled(w: Any, words: list[str]) -> Any:
        row = [w * k for k in range(len(words))]
        return {word: (w * len(word), 0.5, jnp.ones(2) * w, row, k) for k, word in enumerate(words)}, row

    check_equivalence(scaled, BATCH[:2], (0.75,), backends=["interpret"], jit=False)
    _, pull = ab.vjp(ab.batched(scaled, in_axes=(None, 0)), 0.75, BATCH[1:2])
    with pytest.raises(ab.BatchError, match=r"\[0\].*'a'"):
        pull([({"b": (1.0, 0.0, [0.0], 0)}, [0.0])])


def test_what_cannot_be_copied_is_refused() -> None:
    with pytest.raises(ab.UnsupportedError) as caught:
        traced(lambda w, xs: (x for x in xs))(jnp.float32(1.0), BATCH)
    assert "a result of type generator" in "".join(caught.value.__notes__)


def test_failed_examples_are_none() -> None:
    def failing(w: Any, words: list[str]) -> Any:
        return {x: w for x in words} | {"first": words[0], "n": 0 * hash(words[0])}

    f = ab.batched(failing, in_axes=(None, 0), on_error="mask")
    found, failures = f(jnp.float32(2.0), BATCH)
    assert failures.failed.tolist() == [False, False, False, True]
    assert ab.unbatch(found)[2:] == [{"the": 2.0, "dog": 2.0, "first": "the", "n": 0}, None]


def number_or_dict(counts: Any, k: int) -> Any:
    if k:
        return {"n": counts["a"] * 1.5}
    return counts["a"] * 2.0


def word_or_number(counts: Any, k: int) -> Any:
    if k:
        return "many" if k > 1 else None
    return counts["a"] * 2.0


def one_or_list(counts: Any, k: int) -> Any:
    if k < 2:
        return ("none", counts["b"] * 1.0) if k else counts["a"] * 2.0
    return [counts["a"] + 0.5] * k


@pytest.mark.parametrize("program", [number_or_dict, word_or_number, one_or_list])
def test_a_later_call_shows_another_form(program: Callable[..., Any]) -> None:
    f = ab.batched(program)
    for ks in ([0, 0], [0, 1], [2, 0], [1, 1], [3, 2]):
        counts = [Counter("aab"), Counter("aaab")]
        assert_same(ab.unbatch(f(counts, ks)), list(map(program, counts, ks)))
