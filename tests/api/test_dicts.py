"""Dicts as examples: keys in their order, other keys in other examples; tuples of other lengths; attributes that only
some instances have."""

from typing import Any

import pytest

import autobatch as ab

ONE_ORDER = [{"b": 1.0, "a": 2.0}, {"b": 3.0, "a": 4.0}]
TWO_ORDERS = [{"b": 1.0, "a": 2.0}, {"a": 2.0, "b": 3.0}]


class Plain:
    def __init__(self, **attributes: Any) -> None:
        self.__dict__.update(attributes)


def agrees(function: Any, examples: Any, packed: bool = True) -> None:
    f = ab.batched(function)
    assert ab.unbatch(f(examples)) == pytest.approx(f.loop(examples))
    if packed:
        assert ab.unbatch(f(ab.pack(examples))) == pytest.approx(f.loop(examples))


@pytest.mark.parametrize(
    "function",
    [
        lambda d: tuple(d.values())[0],
        lambda d: [1 if k == "b" else 0 for k in d][0],
        lambda d: [x for k, x in d.items()][1],
        lambda d: [*d.values()][0],
    ],
)
def test_keys_are_in_their_order(function: Any) -> None:
    agrees(function, ONE_ORDER)
    agrees(function, TWO_ORDERS, packed=False)
    with pytest.raises(ab.UnsupportedError, match="different orders in different examples"):
        ab.batched(function)(ab.pack(TWO_ORDERS))


def test_dicts_come_back_in_their_order(tmp_path: Any) -> None:
    batch = ab.pack(ONE_ORDER)
    batch.save(tmp_path / "dicts")
    for held in (batch, ab.load(tmp_path / "dicts"), ab.batched(lambda d: (d, None)[0])([{"x": d} for d in ONE_ORDER])):
        first = next(iter(held))
        assert list(first.get("x", first)) == ["b", "a"]


@pytest.mark.parametrize(
    "function",
    [lambda d: d["a"], lambda d: len(d), lambda d: "a" in d, lambda d: d.get("c", 3.0), lambda d: d.get("b")],
)
def test_looking_up_needs_no_order(function: Any) -> None:
    agrees(function, ONE_ORDER)
    agrees(function, TWO_ORDERS)


OTHER_KEYS = [{"a": 1.0}, {"b": 2.0, "c": 3.0}]


@pytest.mark.parametrize("function", [lambda d: len(d), lambda d: sum(d.values()), lambda d: d.get("a", 0.0)])
def test_other_keys_in_other_examples(function: Any) -> None:
    agrees(function, OTHER_KEYS)


def test_a_key_that_some_examples_lack() -> None:
    with pytest.raises(ab.ExampleError, match="example 1 .*KeyError: 'a'"):
        ab.batched(lambda d: d["a"])(OTHER_KEYS)


def test_tuples_of_other_lengths() -> None:
    agrees(lambda t: t[0] + len(t), [(1.0, 2.0), (3.0, 4.0, 5.0)])


def test_attributes_that_some_instances_have() -> None:
    agrees(lambda p: p.b if hasattr(p, "b") else p.a, [Plain(a=1.0), Plain(a=2.0, b=3.0)])
    with pytest.raises(ab.ExampleError, match="example 0 .*AttributeError: 'Plain' object has no attribute 'b'"):
        ab.batched(lambda p: p.b)([Plain(a=1.0), Plain(a=2.0, b=3.0)])
