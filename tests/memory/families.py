"""Objects of several classes behind one name, whose class is data-dependent.

Each program is a plain function of `w`, that all examples share, and `x`, a number of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

PROGRAMS: list[Callable[[Any, Any], Any]] = []


def program(f: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    PROGRAMS.append(f)
    return f


@dataclass
class Leaf:
    value: Any

    def predict(self, y: Any) -> Any:
        return self.value


@dataclass
class Branch:
    left: Any
    right: Any
    cut: Any

    def predict(self, y: Any) -> Any:
        return self.left.predict(y) if y < self.cut else self.right.predict(y)


class Shape:
    scale = 2.0

    def area(self) -> Any:
        return 0.0

    def twice(self) -> Any:
        return 2.0 * self.area()


@dataclass
class Square(Shape):
    side: Any

    def area(self) -> Any:
        return self.side * self.side * self.scale


@dataclass
class Disc(Shape):
    r: Any
    scale = 3.0

    def area(self) -> Any:
        return self.r * self.r * 3.14

    @property
    def wide(self) -> Any:
        return self.r > 1.0


@dataclass
class Point(Shape):
    pass


@dataclass
class Empty:
    pass


@dataclass
class Bst:
    key: Any
    left: Any
    right: Any


def grow(w: Any, y: Any, depth: int) -> Any:
    if depth == 0 or y > 2.5:
        return Leaf(y * w)
    return Branch(grow(w, y * 1.3, depth - 1), grow(w, y * 0.7 + 1.0, depth - 1), y)


def total(node: Any) -> Any:
    if isinstance(node, Leaf):
        return node.value
    return total(node.left) * 0.5 + total(node.right) + node.cut


def put(tree: Any, k: Any) -> Any:
    match tree:
        case Empty():
            return Bst(k, Empty(), Empty())
        case Bst(key, left, right):
            if k < key:
                return Bst(key, put(left, k), right)
            return Bst(key, left, put(right, k))


def walk(tree: Any, d: Any) -> Any:
    if isinstance(tree, Empty):
        return 0.0
    return walk(tree.left, d * 0.5) + tree.key * d + walk(tree.right, d * 0.7)


@program
def spine(w: Any, x: Any) -> Any:
    node: Any = Leaf(w)
    while x < 3.0:
        x = x * 1.4 + 0.3
        node = Branch(node, Leaf(x), w * x) if x % 1.0 < 0.5 else Leaf(x * w)
    s = 0.0
    while isinstance(node, Branch):
        s = s * 0.5 + node.cut + (node.right.value if isinstance(node.right, Leaf) else 0.0)
        node = node.left
    return s + node.value


@program
def matched(w: Any, x: Any) -> Any:
    node: Any = Leaf(w)
    while x < 3.0:
        x = x * 1.4 + 0.3
        node = Branch(node, Leaf(x), w * x) if x < 2.0 else Branch(Leaf(x), node, w * 0.5)
    s, go = 0.0, True
    while go:
        match node:
            case Leaf(v):
                s = s + v
                go = False
            case Branch(left=l, right=r, cut=c):
                s = s * 0.5 + c
                node = l if s < 1.0 else r
    return s


@program
def grown(w: Any, x: Any) -> Any:
    return total(grow(w, x, 3))


@program
def predicted(w: Any, x: Any) -> Any:
    return grow(w, x, 3).predict(x * 1.1)


@program
def returned(w: Any, x: Any) -> Any:
    return grow(w, x, 3)


@program
def shapes(w: Any, x: Any) -> Any:
    out: list[Any] = []
    while x < 3.0:
        x = x * 1.3 + 0.2
        if x % 1.0 < 0.3:
            out.append(Square(x * w))
        elif x % 1.0 < 0.6:
            out.append(Disc(w))
        else:
            out.append(Point())
    s = 0.0
    for o in out:
        s = s * 0.7 + o.twice() + o.scale * x
        match o:
            case Disc(r=r) if o.wide:
                s = s + r
            case Square(side=a):
                s = s - a
            case Point():
                s = s + 1.0
    return s, out


@program
def inserted(w: Any, x: Any) -> Any:
    tree: Any = Empty()
    y = x
    while y < 3.0:
        y = y * 1.4 + 0.3
        tree = put(tree, (y * 7.3) % 1.0 * w)
    return walk(tree, 1.0)


@program
def or_none(w: Any, x: Any) -> Any:
    node: Any = None
    while x < 3.0:
        x = x * 1.3 + 0.2
        if x % 1.0 < 0.3:
            node = Leaf(x * w)
        elif x % 1.0 < 0.6:
            node = Branch(node, None, x)
        elif x % 1.0 < 0.7:
            node = None
    if isinstance(node, Branch):
        return node.cut * w + (node.left.value if isinstance(node.left, Leaf) else 0.0)
    if node is None:
        return w
    return node.value


@program
def changed(w: Any, x: Any) -> Any:
    node = Leaf(w)
    other = Branch(node, node, x)
    current: Any = node
    while x < 3.0:
        x = x * 1.5 + 0.3
        if isinstance(current, Leaf):
            current.value = current.value * 0.5 + x
            current = other
        else:
            current.cut += w
            current = current.left if x % 1.0 < 0.5 else current.right
    return node.value + other.cut


@program
def equals(w: Any, x: Any) -> Any:
    a, b, s = Leaf(w), Branch(None, None, w), 0.0
    current: Any = a
    while x < 3.0:
        x = x * 1.5 + 0.3
        if current == a:
            s = s + x
            current = b
        elif x < 2.0:
            s = s * 0.5
            current = Leaf(w)
        if current == b:
            s = s + 0.25 * x
        if current is not b:
            s = s + 0.1
    return s


@program
def wrong_class(w: Any, x: Any) -> Any:
    """Fails where the last one is a branch."""
    last: Any = Branch(None, None, x)
    while x < 3.0:
        x = x * 1.5 + 0.3
        if x % 1.0 < 0.5:
            last = Leaf(x)
    return last.value * w
