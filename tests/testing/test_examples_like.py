"""`examples_like` draws what an annotation says, of few objects, and what `ab.pack` takes."""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NamedTuple, Optional, TypedDict

import attrs
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import find as hypothesis_find
from hypothesis import strategies as st
from hypothesis.errors import NoSuchExample
from jaxtyping import Array, Bool, Float, Int

import autobatch as ab
from autobatch.testing import examples_like

FAST = settings(max_examples=30, database=None, suppress_health_check=[HealthCheck.too_slow])


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


class Shape(ABC):
    @abstractmethod
    def area(self) -> float: ...


@dataclass
class Circle(Shape):
    radius: float

    def area(self) -> float:
        return self.radius**2


@dataclass(frozen=True)
class Box(Shape):
    sides: tuple[float, float]
    inside: Shape | None = None
    name: str = field(init=False, default="box")

    def area(self) -> float:
        return self.sides[0] * self.sides[1]


class Point(NamedTuple):
    x: float
    y: int


class Options(TypedDict):
    colour: Colour
    mode: Literal["fast", "slow"]


@attrs.define
class Held:
    _hidden: int
    shapes: list[Shape]


class Plain:
    weight: complex
    next: Optional["Plain"]


@dataclass
class Everything:
    flag: bool
    count: int
    point: Point
    options: Options
    held: Held
    plain: Plain
    many: list[list[int]]
    small: Annotated[int, st.integers(100, 104)]
    rows: Float[Array, "2 n"]  # noqa: F722
    counts: Int[np.ndarray, "channels=3"]  # noqa: F722
    bits: Bool[Array, ""]  # noqa: F722
    fixed: Annotated[np.ndarray, jax.ShapeDtypeStruct((2,), jnp.int8)]
    itself: Everything | None = None


@dataclass
class Tree:
    word: int
    kids: list[Tree]


def find(annotation: Any, condition: Any = lambda x: True, **options: Any) -> Any:
    most = settings(max_examples=2000, database=None, suppress_health_check=list(HealthCheck))
    return hypothesis_find(examples_like(annotation, **options), condition, settings=most)


def count(tree: Tree) -> int:
    return 1 + sum(map(count, tree.kids))


@FAST
@given(st.lists(examples_like(Everything, sizes={"n": 4}), min_size=1, max_size=3))
def test_every_kind_of_field(examples):
    for x in examples:
        assert type(x.flag) is bool and type(x.count) is int and type(x.point) is Point and type(x.point.y) is int
        assert isinstance(x.options["colour"], Colour) and x.options["mode"] in ("fast", "slow")
        assert type(x.held) is Held and all(type(s) in (Circle, Box) for s in x.held.shapes)
        assert type(x.plain) is Plain and type(x.plain.weight) is complex
        assert 100 <= x.small <= 104 and all(type(n) is int for row in x.many for n in row)
        assert isinstance(x.rows, jax.Array) and x.rows.shape == (2, 4) and x.rows.dtype == jnp.zeros(()).dtype
        assert type(x.counts) is np.ndarray and x.counts.shape == (3,) and x.counts.dtype == jnp.zeros((), int).dtype
        assert x.bits.shape == () and x.bits.dtype == bool
        assert type(x.fixed) is np.ndarray and x.fixed.dtype == np.int8
    assert len(ab.pack(examples)) == len(examples)


def test_what_is_found_is_small():
    assert find(Tree) == Tree(0, [])
    assert find(Tree, lambda t: count(t) == 4 and len(t.kids) < 3) is not None
    assert find(float | None) is None and find(int | str, lambda x: isinstance(x, str)) == "a"
    assert find(Box).inside is None and find(Literal[3, 1]) == 3 and find(None) is None
    deepest = find(Box, lambda b: b.inside is not None and isinstance(b.inside, Box) and b.inside.inside is not None)
    assert isinstance(deepest.inside.inside, (Box, Circle)) and deepest.inside.inside == type(deepest.inside.inside)(
        *((0.0,) if isinstance(deepest.inside.inside, Circle) else ((0.0, 0.0),))
    )


@FAST
@given(examples_like(Tree, most_objects=5))
def test_examples_are_of_few_objects(tree):
    assert count(tree) <= 5


def test_as_many_objects_as_allowed_are_reached():
    assert count(find(Tree, lambda t: count(t) == 5, most_objects=5)) == 5
    with pytest.raises(NoSuchExample):
        find(Tree, lambda t: count(t) > 5, most_objects=5)


def test_shared_objects():
    twice = lambda t: len(t.kids) == 2 and t.kids[0] is t.kids[1]  # noqa: E731
    assert twice(find(Tree, twice, shared=True))
    with pytest.raises(NoSuchExample):
        find(Tree, twice)


def test_strategies_by_type_and_by_field():
    assert find(Tree, strategies={"Tree.word": st.just(7)}) == Tree(7, [])
    assert find(list[int], len, strategies={int: st.just(5)}) == [5]
    assert find(Tree, lambda t: t.kids, strategies={Tree: st.just(Tree(1, [Tree(2, [])]))}) == Tree(1, [Tree(2, [])])


def test_sixty_four_bits():
    with jax.enable_x64(True):
        assert find(Float[Array, "2"]).dtype == np.float64
    assert find(Float[Array, "2"]).dtype == np.float32
    assert find(jax.ShapeDtypeStruct((2, 1), jnp.bfloat16)).dtype == jnp.bfloat16


@dataclass
class Endless:
    again: Endless


@pytest.mark.parametrize(
    ("annotation", "words"),
    [
        (Endless, "every example is infinite"),
        (np.ndarray, "neither dtype nor shape"),
        (Float[Array, "n"], "the axis 'n' of .* has no size"),
        (Float[Array, "..."], "has no size"),
        (list, "does not say"),
        (dict[str, int], "does not say a type"),
        (tuple[int, ...], "does not say a type"),
        (Any, "does not say"),
        (set, "does not say its fields"),
    ],
)
def test_annotations_that_say_no_type(annotation, words):
    with pytest.raises(ab.BatchError, match=words):
        examples_like(annotation)
