"""`==` and `is` of objects of the examples."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

import autobatch as ab
from tests.api.structures import Add, Found, Leaf, Tree, agrees


def pairs() -> list[Tree]:
    """Trees whose two sides are alike, or differ deep inside."""

    def side(x: float) -> Tree:
        return Tree(1.0, kids=[Tree(5.0), Tree(x)])

    shared = Tree(2.0)
    return [
        Tree(1.0, Tree(2.0), Tree(2.0)),
        Tree(1.0, Tree(2.0), Tree(3.0)),
        Tree(1.0, shared, shared),
        Tree(3.0),
        Tree(4.0, side(6.0), side(6.0)),
        Tree(4.0, side(6.0), side(7.0)),
    ]


def test_dataclasses_compare_their_fields():
    agrees(lambda t: t.left == t.right, pairs())
    agrees(lambda t: t.left != t.right, pairs())
    agrees(lambda t: 1.0 if t.left == t.right else 2.0, pairs())
    agrees(lambda t: (t == t, t is t, t.left is t.right), pairs())
    agrees(lambda t: t in [t.left, t], pairs())
    agrees(lambda t: t == 3, pairs())


def test_with_an_object_made_here():
    agrees(lambda t: t == Tree(3.0), pairs())
    agrees(lambda t: Tree(3.0) == t, pairs())


def test_objects_of_several_classes():
    examples = [Found(Leaf(1.0), 1.0), Found(Add(Leaf(1.0), Leaf(2.0)), 2.0), Found(None, 1.0)]
    agrees(lambda t: (t.node == Leaf(1.0), t.node == Add(Leaf(1.0), Leaf(2.0)), t.node == t.node), examples)


def test_fields_that_do_not_compare_are_left_out():
    @dataclass
    class Point:
        x: int
        note: str = field(default="", compare=False)

    @dataclass
    class Two:
        a: Point
        b: Point

    agrees(lambda t: t.a == t.b, [Two(Point(1, "p"), Point(1, "q")), Two(Point(1), Point(2))])


def test_identity_where_a_class_compares_nothing():
    @dataclass(eq=False)
    class Plain:
        x: int

    @dataclass
    class Two:
        a: Plain
        b: Plain

    one = Plain(1)
    agrees(lambda t: t.a == t.b, [Two(one, one), Two(Plain(1), Plain(1))])


def test_arrays_have_no_truth():
    import numpy as np

    @dataclass
    class Held:
        x: object

    @dataclass
    class Two:
        a: Held
        b: Held

    with pytest.raises(ab.Error):
        ab.batched(lambda t: t.a == t.b)([Two(Held(np.ones(2)), Held(np.ones(2)))])
