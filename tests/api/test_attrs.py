"""Classes made by attrs, as data, inside functions and as results."""

import dataclasses
from typing import Any

import numpy as np
import pytest

import autobatch as ab

attrs = pytest.importorskip("attrs")


@attrs.frozen
class Tree:
    value: float
    kids: list = attrs.field(factory=list)


@attrs.define
class Link:
    value: float
    _weight: int = 3
    name: str = "a"
    next: "Link | None" = None

    def twice(self) -> float:
        return self.value * 2

    @property
    def scaled(self) -> float:
        return self.value * self._weight


@attrs.define(slots=False)
class Loose:
    x: Any
    fixed: float = attrs.field(default=2.0, init=False)
    named: float = attrs.field(default=4.0, kw_only=True)


@attrs.define
class Built:
    x: float
    double: float = attrs.field(init=False)
    triple: float = attrs.field(default=attrs.Factory(lambda self: self.x * 3, takes_self=True))

    def __attrs_post_init__(self) -> None:
        self.double = self.x * 2


@attrs.define
class Checked:
    x: Any = attrs.field(converter=lambda x: x + 1)
    count: int = attrs.field(default=1, validator=attrs.validators.instance_of(int))
    level: int = attrs.field(default=0)

    @level.validator
    def low(self, attribute: Any, value: int) -> None:
        if value > 3:
            raise ValueError("too high")


def total(tree: Tree) -> Any:
    return tree.value + sum(total(k) for k in tree.kids)


def weigh(link: Link) -> Any:
    return link.scaled + link.twice() + (weigh(link.next) if link.next is not None else 0.0)


LINKS = [Link(1.0), Link(2.0, 5, next=Link(4.0, weight=0))]


def fields(x: Any) -> Any:
    return {k: fields(v) for k, v in attrs.asdict(x, recurse=False).items()} if attrs.has(type(x)) else x


def agrees(function: Any, examples: Any) -> None:
    f = ab.batched(function)
    for given in (examples, ab.pack(examples)):
        got, wanted = ab.unbatch(f(given)), f.loop(given)
        for a, b in zip(got, wanted, strict=True):
            if attrs.has(type(b)):
                assert type(a) is type(b)
                a, b = fields(a), fields(b)
                assert list(a) == list(b)
                a, b = list(a.values()), list(b.values())
            assert a == b or np.allclose(a, b)


def test_what_is_packed_comes_back() -> None:
    for examples in (LINKS, [Tree(1.0, [Tree(2.0)])], [Loose(1), Loose(2, named=3.0)], [Built(2.0)], [Checked(1.0)]):
        assert list(ab.pack(examples)) == examples


def test_as_data() -> None:
    agrees(total, [Tree(1.0), Tree(2.0, [Tree(3.0), Tree(4.0, [Tree(5.0)])])])
    agrees(weigh, LINKS)
    agrees(lambda d: d.x + d.fixed * d.named, [Loose(1.0), Loose(2.0, named=5.0)])


def test_shared_nodes_stay_shared() -> None:
    leaf = Tree(1.0)
    (back,) = ab.pack([Tree(2.0, [leaf, leaf])])
    assert back.kids[0] is back.kids[1]


@pytest.mark.parametrize(
    "function",
    [
        lambda d: Link(d.x * 2),
        lambda d: Link(d.x * 2, 7, name="b"),
        lambda d: Link(d.x * 2, weight=7),
        lambda d: Loose(d.x * 2, named=3.0),
        lambda d: Built(d.x),
        lambda d: Checked(d.x, 2),
        lambda d: Link(d.x).scaled,
        lambda d: total(Tree(d.x, [Tree(2.0), Tree(3.0)])),
        lambda d: attrs.evolve(d, x=d.x * 2),
        lambda d: attrs.evolve(Link(d.x), weight=5),
        lambda d: Link(1.0, next=Link(d.x)).next.value,
    ],
)
def test_built_inside_functions(function: Any) -> None:
    agrees(function, [Loose(1.0), Loose(2.0, named=5.0)])


def test_evolve_of_hidden_names() -> None:
    agrees(lambda link: attrs.evolve(link, weight=9).scaled, LINKS)


def test_nodes_of_the_examples_as_results() -> None:
    result = ab.unbatch(ab.batched(lambda link: link.next)(LINKS))
    assert result == [None, Link(4.0, 0)]


def test_match() -> None:
    def matched(link: Link) -> Any:
        match link:
            case Link(value=v, next=None):
                return v
            case Link(v, w):
                return v * w

    agrees(matched, LINKS)


def test_validators() -> None:
    def build(d: Loose) -> Any:
        return Checked(d.x, 1, 5 if d.named > 4.0 else 2).x

    examples = [Loose(1.0), Loose(2.0, named=5.0)]
    with pytest.raises(ab.ExampleError, match="example 1 .*ValueError: too high"):
        ab.batched(build)(examples)
    with pytest.raises(ab.ExampleError, match="TypeError: 'count' must be"):
        ab.batched(lambda d: Checked(d.x, d.x).x)(examples)


def test_bad_arguments() -> None:
    with pytest.raises(ab.UnsupportedError, match=r"Link\(\) cannot take the argument '_weight'"):
        ab.batched(lambda d: Link(d.x, _weight=1).value)([Loose(1.0)])
    with pytest.raises(ab.UnsupportedError, match=r"Tree\(\) is called without 'value'"):
        ab.batched(lambda d: Tree().value)([Loose(1.0)])


def test_replacing_in_dataclasses_runs_what_building_runs() -> None:
    @dataclasses.dataclass
    class Pair:
        x: Any
        double: Any = dataclasses.field(init=False)

        def __post_init__(self) -> None:
            self.double = self.x * 2

    agrees(lambda d: dataclasses.replace(Pair(d.x), x=d.x + 1).double, [Loose(1.0), Loose(2.0)])
    agrees(lambda p: dataclasses.replace(p, x=p.x + 1).double, [Pair(1.0), Pair(2.0)])
