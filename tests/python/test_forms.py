"""Tuples and dicts of several forms as arguments. `test_tagged.py` has random ones."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

import autobatch as ab
from autobatch.data.pack import pack
from autobatch.data.unpack import unpack
from autobatch.testing import assert_same
from tests.python.forms import EXAMPLES, MAKERS, NUMBERS, OF_NUMBERS, by_comparison, of_texts

XLA = pytest.param("xla", marks=pytest.mark.xla)
BACKENDS = ["llvm", "auto", XLA, pytest.param("interpret", marks=pytest.mark.long)]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("function", MAKERS, ids=[f.__name__ for f in MAKERS])
def test_programs(function, backend):
    if backend == "xla" and function is of_texts:
        pytest.skip("XLA makes no strings")
    f = ab.batched(function, backend=backend)
    with ab.options(trace=False):
        for examples in EXAMPLES[function]:
            assert_same(ab.unbatch(f(examples, NUMBERS)), list(map(function, examples, NUMBERS)), tolerance=1e-4)


@pytest.mark.parametrize("function", OF_NUMBERS, ids=[f.__name__ for f in OF_NUMBERS])
def test_derivatives(function):
    examples, step = EXAMPLES[function][0], 1e-5
    with ab.options(trace=False):
        found = ab.grad(ab.batched(function, backend="llvm"), 1)(examples, NUMBERS)
    pairs = list(zip(examples, NUMBERS, strict=True))
    wanted = [(function(e, x + step) - function(e, x - step)) / (2 * step) for e, x in pairs]
    np.testing.assert_allclose(list(found), wanted, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("backend", ["llvm", XLA])
def test_derivatives_of_examples(backend):
    """Those of a tuple are in tuples of the same form."""
    examples = [("mul", ("num", 2.0), ("neg", ("num", 3.0))), ("num", 1.0)]
    found = ab.grad(ab.batched(by_comparison, backend=backend))(examples, NUMBERS[:2]).to_list()
    assert [found[0][1][1], found[0][2][1][1], found[1][1]] == [-3.0, -2.0, 1.0]


@dataclass
class Leaf:
    value: float


@dataclass
class Branch:
    left: Leaf | Branch | None
    right: Leaf | Branch | None


def without_a_last_case(e):
    if isinstance(e, Leaf):
        return e.value
    if isinstance(e, Branch):
        return without_a_last_case(e.left) * without_a_last_case(e.right)


def of_a_choice(es, x):
    found = None
    for e in es:
        if isinstance(e, Leaf) and e.value > x:
            found = e
    return without_a_last_case(found)


def passed_on(e, x):
    return passed_on(e if x > 1 else None, x - 1) if e is not None else x


def test_none_is_where_an_example_or_the_function_puts_it():
    two, three = Leaf(2.0), Leaf(3.0)
    found = ab.grad(ab.batched(without_a_last_case, backend="llvm"))([Branch(two, three), two]).to_list()
    assert (found[0].left.value, found[0].right.value, found[1].value) == (3.0, 2.0, 1.0)  # no options
    for function, arguments in [
        (of_a_choice, ([[two, three], [two], [Branch(two, two)]], [2.5, 0.5, 1.0])),
        (passed_on, ([two, Branch(two, three), three], [2.5, 0.5, 1.5])),
    ]:
        f = ab.batched(function, backend="llvm")
        assert_same(ab.unbatch(f(*arguments)), list(map(function, *arguments)))


def tags(schema):
    return {c.name: sorted(c.tag[1]) for s in schema.stores for c in s.classes if c.tag is not None}


LEAVES, MORE = [("num", 1.0), ("num", 2.0)], [("neg", ("num", 1.0)), ("abs", ("neg", ("num", 3.0)))]


def test_constants_tell_classes_apart():
    made = pack(LEAVES + MORE)
    assert tags(made.schema) == {"tuple2": ["num"], "tuple2_2": ["abs", "neg"]}
    assert unpack(made) == LEAVES + MORE
    assert tags(pack([("a", 1.0), ("b", 2.0)]).schema) == {}  # nothing is told apart
    both = pack([("a", 1.0), ("a", ("b", 2.0))])  # and what is not, is a union
    assert tags(both.schema) == {} and both.schema.has_values


def test_a_constant_that_was_not_seen_before():
    """The machine that reads objects does not take it for one of its class."""
    first = pack(LEAVES + MORE)
    second = pack([("sin", ("num", 1.0))], first.schema)
    assert tags(second.schema) == {"tuple2": ["num"], "tuple2_2": ["abs", "neg", "sin"]}
    assert pack(MORE, second.schema).schema == second.schema

    def f(e):
        if e[0] == "num":
            return e[1]
        if e[0] == "abs":
            return abs(f(e[1]))
        return f(e[1]) + 1.0 if e[0] == "sin" else -f(e[1])

    g = ab.batched(f, backend="llvm")
    with ab.options(trace=False):
        for examples in (LEAVES + MORE, [("sin", ("sin", ("num", 2.0)))], MORE, LEAVES):
            assert_same(ab.unbatch(g(examples)), list(map(f, examples)))


def test_too_many_constants_are_data():
    examples = [(f"word{k}", float(k)) if k % 2 else (f"word{k}", ("end", 1.0)) for k in range(80)]
    assert tags(pack(examples).schema) == {}
    assert unpack(pack(examples)) == examples


def test_saved_and_read_again(tmp_path):
    path = tmp_path / "trees"
    ab.pack(LEAVES + MORE).save(path)
    found = ab.load(path)
    assert tags(found.schema) == {"tuple2": ["num"], "tuple2_2": ["abs", "neg"]}
    assert found.to_list() == LEAVES + MORE


def test_gradients_of_trees_with_strings_can_be_read():
    """Iterating over them did not end."""

    def f(e, x):
        return len(e) * x if isinstance(e, str) else f(e[0], x) + f(e[1], x)

    trees = [("a", ("bc", "d")), "e"]
    found = ab.grad(ab.batched(f, backend="llvm"), 1)(trees, [1.0, 2.0])
    np.testing.assert_allclose(list(found), [4.0, 1.0])


def test_what_a_form_lacks():
    with pytest.raises(ab.ExampleError, match=r"example 0 .*IndexError"):
        ab.batched(lambda e: e[2], backend="llvm")([(1.0, 2.0), (3.0, 4.0, 5.0)])
    with pytest.raises(ab.ExampleError, match=r"example 1 .*KeyError: 'b'"):
        ab.batched(lambda e: e["b"], backend="llvm")([{"a": 1.0, "b": 2.0}, {"a": 3.0}])


LENGTHS = [(3.0, 2.0), (1.0, 2.0, 3.0), (1.0,)]
KEYS = [{"a": 1.0, "b": 2.0}, {"b": 3.0}, {"b": 1.0, "c": 4.0}]
KINDS = [("a", 1.0), ("b", ("a", 1.0)), ("c", 1.0, 2.0)]
NONES = [("a", None), ("n", 2.0), ("t", ("n", 1.0))]


@pytest.mark.parametrize("backend", ["auto", XLA])
@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (lambda e: len(e) + (e[0] if e else 0), [[(), (1,), (1, 2)]]),
        (lambda e: 1 if e == () else 2, [[(), (1,), ()]]),
        (lambda e: e == ("a", 1.0), [KINDS]),
        (lambda e: 0.0 if e[1] is None else (e[1] if e[0] == "n" else 5.0), [NONES]),
        (lambda e: e, [KINDS]),
        (lambda e: e[1], [KINDS]),
        (lambda e: e[0].upper() == "A" or e[0] < "b", [KINDS]),
        (lambda e: {e[0]: 1.0}.get("a", 2.0), [KINDS]),
        (lambda e: e[1:], [LENGTHS]),
        (lambda e: sum(e) + max(e) + sorted(e)[0], [LENGTHS]),
        (lambda e: 2.0 in e, [LENGTHS]),
        (lambda e: sum([a * b for a, b in zip(e, e[1:])]), [LENGTHS]),
        (lambda e: sum([k * a for k, a in enumerate(reversed(e))]), [LENGTHS]),
        (lambda e, k: e[k] + e[-1], [LENGTHS, [1, 2, 0]]),
        (lambda d: sum([x for k, x in d.items() if k != "a"]), [KEYS]),
        (lambda d: len([k for k in d]), [KEYS]),
        (lambda d: {**d, "z": 1.0}["z"], [KEYS]),
        (lambda d: -1.0 if d.get("a") is None else d["a"], [KEYS]),
        (lambda d, k: d[k], [KEYS, ["a", "b", "c"]]),
        (lambda e: e[1].sum() if e[0] == "v" else 1.0, [[("v", np.ones(3, np.float32)), ("s", 2.0)]]),
        (lambda e: float(len(e[1])) if e[0] == "v" else e[1], [[("v", [1.0, 2.0]), ("s", 2.0)]]),
    ],
)
def test_operations(function, arguments, backend):
    found = ab.unbatch(ab.batched(function, backend=backend)(*arguments))
    assert_same(found, list(map(function, *arguments)))


def keys_that_are_data(d, x):
    match d:
        case {1: a}:
            return a * x
        case {2: b, 3: c}:
            return b * c
        case {2: b}:
            return -b
    return x


def keys_that_some_have(d, x):
    match d:
        case {"zz": _}:
            return 0.0
        case {"a": a}:
            return a * x
        case {"b": b}:
            return b
    return x


def rest_of_a_dict_in_memory(numbers, x):
    first = {"a": x, "b": 1.0}
    other = first
    for n in numbers:
        if n > 1:
            other = {"a": n, "b": 2.0}
        other["a"] += 1.0
    match other:
        case {"a": a, **rest}:
            return a + rest["b"] + first["a"]
    return x


@pytest.mark.parametrize("backend", ["llvm", XLA])
@pytest.mark.parametrize(
    ("function", "examples"),
    [
        (keys_that_are_data, [{1: 2.0}, {2: 3.0}, {2: 3.0, 3: 4.0}, {5: 1.0}]),
        (keys_that_some_have, [{"a": 1.0}, {"a": 2.0, "b": 3.0}, {"b": 4.0}, {"c": 5.0}]),
        (rest_of_a_dict_in_memory, [[1.0, 2.0], [3.0], [], [0.5]]),
    ],
    ids=lambda x: getattr(x, "__name__", ""),
)
def test_patterns_of_dicts(function, examples, backend):
    found = ab.unbatch(ab.batched(function, backend=backend)(examples, NUMBERS[:4]))
    assert_same(found, list(map(function, examples, NUMBERS)))
