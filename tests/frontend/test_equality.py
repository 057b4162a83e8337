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


@dataclass(eq=False)
class Same:
    n: int


class Counted:
    """Compares, divides and adds in its own way."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __eq__(self, other: object) -> bool:
        return self.n % 2 == other.n % 2  # type: ignore[attr-defined, no-any-return]

    def __ne__(self, other: object) -> bool:
        return self.n == 3

    def __divmod__(self, k: int) -> tuple[int, int]:
        return self.n, k

    def __add__(self, k: int) -> int:
        return self.n + k

    def __iadd__(self, k: int) -> "Counted":
        return Counted(self.n + 2 * k)

    __hash__ = None  # type: ignore[assignment]


@dataclass
class Noted:
    n: int
    note: int = field(default=0, compare=False)


def test_objects_made_here_compare_as_their_class_says():
    examples = [1, 2, 3, 4]
    agrees(lambda n: (Same(n) == Same(2), Same(n) != Same(2)), examples)
    agrees(lambda n: (Noted(2, n) == Noted(2, 1), Noted(n, 1) == Noted(2, 2)), examples)
    agrees(lambda n: (Counted(n) == Counted(2), Counted(n) != Counted(2)), examples)
    agrees(lambda n: (Counted(n) in [Counted(0)], (Counted(n), 1) == (Counted(2), 1)), examples)


def test_methods_of_augmented_operators_and_divmod():
    def changed(n: int) -> tuple[int, int]:
        x = y = Counted(n)
        x += 5
        return x.n, y.n

    agrees(changed, [1, 2])
    agrees(lambda n: divmod(Counted(n), 2), [1, 2])
