"""Classes of the user that are containers: loops, `in` and indices call their methods."""

from dataclasses import dataclass
from typing import Any

import pytest

import autobatch as ab


@dataclass
class Tree:
    value: float
    kids: list

    def __iter__(self) -> Any:
        return iter(self.kids)

    def __len__(self) -> int:
        return len(self.kids)

    def __contains__(self, value: float) -> bool:
        return any(k.value == value for k in self.kids)

    def __getitem__(self, k: int) -> Any:
        return self.kids[k]


@dataclass
class Bag:
    xs: list

    def __iter__(self) -> Any:
        return iter(self.xs)


@dataclass
class Stepped:
    value: float

    def __iter__(self) -> Any:
        yield self.value


TREES = [Tree(1.0, []), Tree(2.0, [Tree(3.0, []), Tree(5.0, [])])]


def total(tree: Tree) -> Any:
    return tree.value + sum(total(k) for k in tree)


@pytest.mark.parametrize(
    "function",
    [
        total,
        lambda t: sum(k.value for k in t) + len(t),
        lambda t: [k.value * 2 for k in t],
        lambda t: sum(i * k.value for i, k in enumerate(t)),
        lambda t: sum(a.value * b.value for a, b in zip(t, t)),
        lambda t: (3.0 in t) + 2 * (4.0 in t),
        lambda t: t[-1].value if len(t) else 0.0,
        lambda t: sum(Bag([t.value, 2.0])),
    ],
)
def test_containers_of_the_user(function: Any) -> None:
    f = ab.batched(function)
    for trees in (TREES, ab.pack(TREES)):
        assert ab.unbatch(f(trees)) == f.loop(trees)


def test_an_iter_that_yields() -> None:
    f = ab.batched(lambda s: sum(s) + sum(k * x for k, x in enumerate(s)))
    items = [Stepped(1.0), Stepped(2.5)]
    assert ab.unbatch(f(items)) == f.loop(items)


def test_iter_of_a_list() -> None:
    f = ab.batched(lambda t: sum(len(k.kids) for k in iter(t.kids)))
    assert ab.unbatch(f(TREES)) == f.loop(TREES)
