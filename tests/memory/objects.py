"""Objects that a function makes for one example, linked to each other, changed and told apart where numbers decide.

Each program is a plain function of `w`, that all examples share, and `x`, a number of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax.numpy as jnp

PROGRAMS: list[Callable[[Any, Any], Any]] = []


def program(f: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    PROGRAMS.append(f)
    return f


@dataclass
class Cell:
    value: Any
    next: Any = None


@dataclass
class Box:
    value: Any


@dataclass
class Tree:
    key: Any
    left: Any = None
    right: Any = None
    parent: Any = None
    count: int = 1


class Acc:
    def __init__(self, start: Any) -> None:
        self.total = start
        self.n = 0

    def add(self, v: Any) -> None:
        self.total = self.total * 0.5 + v
        self.n += 1

    @property
    def mean(self) -> Any:
        return self.total / (self.n + 1)


class Pair(NamedTuple):
    a: Any
    rest: Any = None


@dataclass(frozen=True)
class Frozen:
    a: Any
    rest: Any = None


def insert(root: Tree, key: Any) -> None:
    node = root
    while True:
        if key < node.key:
            if node.left is None:
                node.left = Tree(key, parent=node)
                return
            node = node.left
        else:
            if node.right is None:
                node.right = Tree(key, parent=node)
                return
            node = node.right


def bump(c: Cell, v: Any) -> None:
    c.value = c.value + v


@program
def bst(w: Any, x: Any) -> Any:
    root = Tree(w * 0.5)
    y = x
    while y < 3.0:
        y = y * 1.4 + 0.3
        insert(root, y % 1.0 + w * 0.1)
    node, s, d = root, 0.0, 1.0
    while node is not None:
        s = s + node.key * d
        d = d * 0.5
        node = node.right
    return s


@program
def parents(w: Any, x: Any) -> Any:
    root = Tree(w * 0.5)
    y = x
    last = root
    while y < 3.0:
        y = y * 1.4 + 0.3
        last = Tree(y, parent=last)
    s = 0.0
    while last is not None:
        s = s * 0.7 + last.key
        last = last.parent
    return s


@program
def method_changes(w: Any, x: Any) -> Any:
    a = Acc(w)
    b = a
    while x < 3.0:
        x = x * 1.5 + 0.3
        b.add(x)
    return a.mean + a.n


@program
def in_two_lists(w: Any, x: Any) -> Any:
    c, d = Cell(w), Cell(1.0)
    xs, ys, k = [c, d], [d, c], 0
    while x < 3.0:
        x = x * 1.5 + 0.3
        xs[k % 2].value += x
        ys[0].value *= 0.5
        k += 1
    return c.value + 2.0 * d.value + ys[1].value


@program
def tuple_in_list(w: Any, x: Any) -> Any:
    c = Cell(w)
    xs = [(c, 1.0), (Cell(0.5), 2.0)]
    k = 0
    while x < 3.0:
        x = x * 1.5 + 0.3
        o, f = xs[k % 2]
        o.value += x * f
        k += 1
    return c.value + 2.0 * xs[1][0].value


@program
def one_arm(w: Any, x: Any) -> Any:
    c = Cell(w)
    d = c
    if x > 1.0:
        c.value = x * 2.0
    return d.value * w


@program
def swap_arm(w: Any, x: Any) -> Any:
    c, d = Cell(w), Cell(2.0)
    e = c if x > 1.0 else d
    e.value += x
    return c.value * 3.0 + d.value


@program
def function_changes(w: Any, x: Any) -> Any:
    c = Cell(w)
    while x < 3.0:
        x = x * 1.5 + 0.3
        bump(c, x)
    return c.value


@program
def identity(w: Any, x: Any) -> Any:
    a, b, s = Cell(w), Cell(1.0), w
    cur = a
    while x < 3.0:
        x = x * 1.5 + 0.3
        if cur is a:
            cur = b
            s = s + x
        else:
            cur = a
            s = s * 0.5
        cur.value += x
    return s + a.value * b.value


@program
def cycle(w: Any, x: Any) -> Any:
    a = Cell(w)
    b = Cell(1.0, a)
    a.next = b
    s = 0.0
    cur = a
    while x < 3.0:
        x = x * 1.5 + 0.3
        s = s * 0.5 + cur.value
        cur.value = cur.value * 0.3 + x
        cur = cur.next
    return s


@program
def reverse_list(w: Any, x: Any) -> Any:
    head = None
    while x < 3.0:
        x = x * 1.5 + 0.3
        head = Cell(x * w, head)
    prev = None
    while head is not None:
        head.next, prev, head = prev, head, head.next
    s = 0.0
    while prev is not None:
        s = s * 0.5 + prev.value
        prev = prev.next
    return s


@program
def comprehension(w: Any, x: Any) -> Any:
    cells = [Cell(w * k) for k in range(4)]
    k = 0
    while x < 3.0:
        x = x * 1.5 + 0.3
        cells[k % 4].value += x
        k += 1
    return sum(c.value * c.value for c in cells)


@program
def list_grows(w: Any, x: Any) -> Any:
    cells = []
    while x < 3.0:
        x = x * 1.5 + 0.3
        cells.append(Cell(x))
        cells[0].value += w
    return sum(c.value for c in cells) + len(cells)


@program
def queue_of_objects(w: Any, x: Any) -> Any:
    q = [Cell(w), Cell(1.0)]
    while x < 3.0:
        x = x * 1.5 + 0.3
        c = q.pop(0)
        c.value = c.value * 0.5 + x
        q.append(c)
        q[0].value += 1.0
    return q[0].value + 3.0 * q[1].value


@program
def pop_aug(w: Any, x: Any) -> Any:
    q = [Cell(w), Cell(1.0)]
    a = q[0]
    while x < 3.0:
        x = x * 1.5 + 0.3
        q.append(Cell(x))
        q.pop().value += 1.0
        q[-1].value += x
    return q[0].value + a.value + len(q) + q[1].value


@program
def named(w: Any, x: Any) -> Any:
    p = None
    while x < 3.0:
        x = x * 1.5 + 0.3
        p = Pair(x * w, p)
    s = 0.0
    while p is not None:
        s = s * 0.5 + p.a
        p = p.rest
    return s


@program
def named_unpack(w: Any, x: Any) -> Any:
    p = Pair(w, None)
    while x < 3.0:
        x = x * 1.5 + 0.3
        p = Pair(x * w, p)
    a, rest = p
    q = p._replace(a=2.0 * w)
    return a + len(p) + (rest.a if rest is not None else 0.0) + q[0] + len(q)


@program
def frozen(w: Any, x: Any) -> Any:
    p = None
    while x < 3.0:
        x = x * 1.5 + 0.3
        p = Frozen(x * w, p)
    s = 0.0
    while p is not None:
        s = s * 0.5 + p.a
        p = p.rest
    return s


@program
def vectors(w: Any, x: Any) -> Any:
    head = Cell(jnp.ones(3) * w)
    while x < 3.0:
        x = x * 1.5 + 0.3
        head = Cell(jnp.tanh(head.value + x), head)
    s = 0.0
    while head is not None:
        s = s * 0.5 + jnp.sum(head.value)
        head = head.next
    return s


@program
def equality(w: Any, x: Any) -> Any:
    a, b = Cell(w), Cell(w)
    c = a
    s = 0.0
    while x < 3.0:
        x = x * 1.5 + 0.3
        if a == b:
            s = s + x
        if a == c:
            s = s + 0.1
        c.value += 0.0 if x < 2.0 else 1.0
    return s + a.value


@program
def replaced(w: Any, x: Any) -> Any:
    c = Cell(w)
    d = c
    while x < 3.0:
        x = x * 1.5 + 0.3
        c = replace(c, value=c.value * 0.5 + x, next=c)
        d.value += 0.1
    return c.value + c.next.value if c.next is not None else d.value


@program
def nested(w: Any, x: Any) -> Any:
    box = Box(Cell(w))
    inner = box.value
    while x < 3.0:
        x = x * 1.5 + 0.3
        box.value.value += x
        if x > 2.0:
            box.value = Cell(x)
    return inner.value + box.value.value


@program
def truthy(w: Any, x: Any) -> Any:
    head = None
    n = 0
    while x < 3.0:
        x = x * 1.5 + 0.3
        head = Cell(x, head)
    while head and n < 2:
        head = head.next
        n += 1
    return w * n + (head.value if head else 0.0)


@program
def last_fails(w: Any, x: Any) -> Any:
    head = Cell(w)
    while x < 2.0:
        x = x * 1.5 + 0.3
        head = Cell(x, head)
    return head.next.value


def total(c: Cell | None) -> Any:
    return 0.0 if c is None else c.value + 0.5 * total(c.next)


@program
def recursive_walk(w: Any, x: Any) -> Any:
    head = None
    while x < 3.0:
        x = x * 1.5 + 0.3
        head = Cell(x * w, head)
    return total(head)


def grow(w: Any, x: Any) -> Any:
    if x > 3.0:
        return None
    return Cell(x * w, grow(w, x * 1.5 + 0.3))


@program
def recursive_make(w: Any, x: Any) -> Any:
    c, s = grow(w, x), 0.0
    while c is not None:
        s = s * 0.5 + c.value
        c = c.next
    return s


def grow_tree(w: Any, x: Any) -> Any:
    if x > 3.0:
        return None
    t = Tree(x * w)
    t.left = grow_tree(w, x * 1.7 + 0.3)
    t.right = grow_tree(w, x * 2.1 + 0.4)
    return t


def tree_sum(t: Tree | None) -> Any:
    if t is None:
        return 0.0
    return t.key + 0.5 * tree_sum(t.left) + 0.25 * tree_sum(t.right)


@program
def recursive_tree(w: Any, x: Any) -> Any:
    return tree_sum(grow_tree(w, x))


@program
def same_in_loop(w: Any, x: Any) -> Any:
    a, b, c = Cell(w), Cell(1.0), None
    s = 0.0
    while x < 3.0:
        x = x * 1.5 + 0.3
        if c is a:
            s = s + 1.0
        if c is b:
            s = s + 2.0
        if c is None:
            c = a if x > 1.7 else b
        else:
            c = b if c is a else a
    return s * w


@program
def selected(w: Any, x: Any) -> Any:
    out = [Cell(w), Cell(1.0)]
    k = 0
    while x < 3.0:
        x = x * 1.5 + 0.3
        c = out[k % 2]
        c.value = c.value + x
        k += 1
    return out[0].value + 2.0 * out[1].value


def choose(a: Any, b: Any, x: Any) -> Any:
    return a if x > 1.0 else b


@program
def through_call(w: Any, x: Any) -> Any:
    a, b = Cell(w), Cell(1.0)
    c = choose(a, b, x)
    c.value = x * 5.0
    return a.value + 3.0 * b.value


@program
def plain_is(w: Any, x: Any) -> Any:
    a, b = Acc(w), Acc(1.0)
    c = a if x > 1.0 else b
    return w * (1.0 if c is a else 0.0) + (2.0 if c == b else 0.0)


@program
def selected_structure(w: Any, x: Any) -> Any:
    out = [Cell(w), Cell(1.0), Cell(2.0)]
    for c in out:
        c.value = c.value + x
    for i in range(3):
        out[i].value += x * i
    d = out[1]
    d.value = 0.25
    return out[0].value + 2.0 * out[1].value + out[2].value


@program
def two_classes(w: Any, x: Any) -> Any:
    a = Acc(w)
    cells = [Cell(1.0), Cell(2.0)]
    while x < 3.0:
        x = x * 1.5 + 0.3
        a.add(cells[a.n % 2].value)
        cells[a.n % 2].value += a.total
    return a.mean + cells[0].value * cells[1].value
