"""Data structures whose fields are assigned in recursions that begin at None: numbers decide which objects there are.

Each program is a plain function of `w`, that all examples share, and `xs`, a list of the example.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

PROGRAMS: list[Callable[[Any, Any], Any]] = []


def program(f: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    PROGRAMS.append(f)
    return f


class Node:
    def __init__(self, key: Any) -> None:
        self.key = key
        self.left: Any = None
        self.right: Any = None


@dataclass
class Ranked:
    key: Any
    rank: Any
    left: Any = None
    right: Any = None


class Balanced:
    def __init__(self, key: Any) -> None:
        self.key = key
        self.left: Any = None
        self.right: Any = None
        self.height = 1


@dataclass
class Link:
    value: Any
    next: Any = None


class Part:
    def __init__(self, value: Any) -> None:
        self.parent = self
        self.value = value
        self.rank = 0


def insert(node: Any, key: Any) -> Any:
    if node is None:
        return Node(key)
    if key < node.key:
        node.left = insert(node.left, key)
    else:
        node.right = insert(node.right, key)
    return node


def in_order(node: Any, out: Any) -> Any:
    if node is not None:
        in_order(node.left, out)
        out.append(node.key)
        in_order(node.right, out)


def depth(node: Any) -> Any:
    if node is None:
        return 0
    return 1 + max(depth(node.left), depth(node.right))


def total(node: Any) -> Any:
    if node is None:
        return 0.0
    return total(node.left) * 0.5 + node.key + total(node.right) * 0.7


@program
def search_tree(w: Any, xs: Any) -> Any:
    root = None
    for x in xs:
        root = insert(root, x * w)
    return total(root), depth(root)


@program
def sorted_by_tree(w: Any, xs: Any) -> Any:
    root = None
    for x in xs:
        root = insert(root, x * w)
    out: list[Any] = []
    in_order(root, out)
    return out


@program
def found_in_tree(w: Any, xs: Any) -> Any:
    root: Any = None
    for x in xs:
        root = insert(root, x)
    node, steps = root, w * 0.0
    while node is not None:
        steps = steps * 0.5 + node.key * w
        node = node.left if xs[0] * w < node.key else node.right
    return steps


def turn_right(node: Any) -> Any:
    x = node.left
    node.left = x.right
    x.right = node
    return x


def turn_left(node: Any) -> Any:
    x = node.right
    node.right = x.left
    x.left = node
    return x


def heap_insert(node: Any, key: Any, rank: Any) -> Any:
    if node is None:
        return Ranked(key, rank)
    if key < node.key:
        node.left = heap_insert(node.left, key, rank)
        if node.left.rank > node.rank:
            node = turn_right(node)
    else:
        node.right = heap_insert(node.right, key, rank)
        if node.right.rank > node.rank:
            node = turn_left(node)
    return node


@program
def treap(w: Any, xs: Any) -> Any:
    root = None
    for x in xs:
        root = heap_insert(root, x * w, (x * 7.3) % 1.0)
    return total(root), depth(root)


def height(node: Any) -> Any:
    return node.height if node is not None else 0


def lifted(node: Any) -> Any:
    node.height = 1 + max(height(node.left), height(node.right))
    return node


def avl_right(y: Any) -> Any:
    x = y.left
    y.left = x.right
    x.right = y
    lifted(y)
    return lifted(x)


def avl_left(x: Any) -> Any:
    y = x.right
    x.right = y.left
    y.left = x
    lifted(x)
    return lifted(y)


def avl_insert(node: Any, key: Any) -> Any:
    if node is None:
        return Balanced(key)
    if key < node.key:
        node.left = avl_insert(node.left, key)
    else:
        node.right = avl_insert(node.right, key)
    lifted(node)
    lean = height(node.left) - height(node.right)
    if lean > 1:
        if key >= node.left.key:
            node.left = avl_left(node.left)
        return avl_right(node)
    if lean < -1:
        if key < node.right.key:
            node.right = avl_right(node.right)
        return avl_left(node)
    return node


@program
def avl_tree(w: Any, xs: Any) -> Any:
    root: Any = None
    for x in xs:
        root = avl_insert(root, x * w)
    return total(root), root.height


def push(head: Any, value: Any) -> Any:
    return Link(value, head)


@program
def pushed(w: Any, xs: Any) -> Any:
    head: Any = None
    for x in xs:
        if x * w > 0.4:
            head = push(head, x * w)
    s = w * 0.0
    while head is not None:
        s = s * 0.5 + head.value
        head = head.next
    return s


def sorted_link(head: Any, value: Any) -> Any:
    if head is None or value < head.value:
        return Link(value, head)
    head.next = sorted_link(head.next, value)
    return head


@program
def sorted_links(w: Any, xs: Any) -> Any:
    head: Any = None
    for x in xs:
        head = sorted_link(head, x * w)
    s = w * 0.0
    while head is not None:
        s = s * 0.5 + head.value
        head = head.next
    return s


@program
def reversed_links(w: Any, xs: Any) -> Any:
    head: Any = None
    for x in xs:
        head = sorted_link(head, x * w)
    back: Any = None
    while head is not None:
        after = head.next
        head.next = back
        back = head
        head = after
    return back.value + back.value * w


def find(x: Any) -> Any:
    if x.parent is not x:
        x.parent = find(x.parent)
    return x.parent


def union(a: Any, b: Any) -> Any:
    a, b = find(a), find(b)
    if a is b:
        return False
    if a.rank < b.rank:
        a, b = b, a
    b.parent = a
    a.value = a.value + b.value * 0.5
    if a.rank == b.rank:
        a.rank += 1
    return True


@program
def union_find(w: Any, xs: Any) -> Any:
    parts = [Part(x * w) for x in xs]
    joined = 0
    for i in range(len(parts) - 1):
        if xs[i] < xs[i + 1]:
            if union(parts[i], parts[0]):
                joined += 1
        elif union(parts[i], parts[i + 1]):
            joined += 1
    return find(parts[0]).value + sum(find(p).value for p in parts) * 0.1, joined


def merge(a: Any, b: Any) -> Any:
    if a is None:
        return b
    if b is None:
        return a
    if b.key < a.key:
        a, b = b, a
    a.left, a.right = merge(a.right, b), a.left
    return a


@program
def skew_heap(w: Any, xs: Any) -> Any:
    root: Any = None
    for x in xs:
        root = merge(root, Node(x * w))
    s = w * 0.0
    while root is not None:
        s = s * 0.5 + root.key
        root = merge(root.left, root.right)
    return s


def smallest(node: Any) -> Any:
    while node.left is not None:
        node = node.left
    return node


def delete(node: Any, key: Any) -> Any:
    if node is None:
        return None
    if key < node.key:
        node.left = delete(node.left, key)
    elif node.key < key:
        node.right = delete(node.right, key)
    elif node.left is None:
        return node.right
    elif node.right is None:
        return node.left
    else:
        after = smallest(node.right)
        node.key = after.key
        node.right = delete(node.right, after.key)
    return node


@program
def deleted(w: Any, xs: Any) -> Any:
    root = None
    for x in xs:
        root = insert(root, x * w)
    root = delete(root, xs[0] * w)
    return total(root), depth(root)


class Tree:
    def __init__(self) -> None:
        self.root: Any = None
        self.size = 0

    def add(self, key: Any) -> None:
        self.root = self._add(self.root, key)

    def _add(self, node: Any, key: Any) -> Any:
        if node is None:
            self.size += 1
            return Node(key)
        if key < node.key:
            node.left = self._add(node.left, key)
        elif key > node.key:
            node.right = self._add(node.right, key)
        return node


@program
def tree_class(w: Any, xs: Any) -> Any:
    tree = Tree()
    for x in xs:
        tree.add(x * w)
    return total(tree.root), tree.size


class Named:
    bonus = 0.25

    def __init__(self, value: Any, parent: Any = None) -> None:
        self.value = value
        self.parent = self if parent is None else parent


class Ring:
    def __init__(self, value: Any) -> None:
        self.value = value
        self.next = self.prev = self

    def put_after(self, other: Any) -> None:
        other.next = self.next
        other.prev = self
        self.next.prev = other
        self.next = other


@program
def ring(w: Any, xs: Any) -> Any:
    head = Ring(w)
    for x in xs:
        if x * w > 0.4:
            head.put_after(Ring(x * w))
    s, node = w * 0.0, head.next
    while node is not head:
        s = s * 0.5 + node.value
        node = node.next
    return s + head.prev.value


@program
def set_later(w: Any, xs: Any) -> Any:
    """Attributes that some objects have, and one that shadows an attribute of the class."""
    root = last = Named(w)
    for x in xs:
        last = Named(x, last if x > 0.5 else None)
        if x > 0.8:
            last.extra = x * w  # type: ignore[attr-defined]
        elif x > 0.3:
            last.bonus = w
    extra = last.extra if hasattr(last, "extra") else w * 0.1
    return last.parent.value + last.bonus + extra, hasattr(root, "bonus"), hasattr(root, "nothing")


@program
def never_set(w: Any, xs: Any) -> Any:
    """Fails where the last object has no such attribute."""
    last = None
    for x in xs:
        last = Link(x, last)
        if x > 0.5:
            last.extra = x * w  # type: ignore[attr-defined]
    return last.extra  # type: ignore[union-attr]


@dataclass
class Token:
    word: Any
    score: Any
    next: Any = None


@program
def tokens(w: Any, xs: Any) -> Any:
    head: Any = None
    for x in xs:
        if x * w > 0.4:
            head = Token("low" if x < 0.8 else "high", x * w, head)
        elif head is not None:
            head.word = "changed"
    s = w * 0.0
    while head is not None:
        s = s * 0.5 + head.score * (2.0 if head.word == "low" else 1.0) + (w if head.word == "changed" else 0.0)
        head = head.next
    return s


class Account:
    """What is paid where there is enough is noted in a list of its own."""

    def __init__(self, money: Any) -> None:
        self.money = money
        self.log: list[Any] = []

    def pay(self, x: Any) -> None:
        if x < self.money:
            self.money -= x
            self.log.append(x)


@program
def logs(w: Any, xs: Any) -> Any:
    account = Account(3.0 * w)
    for x in xs:
        account.pay(x)
    return account.money + 2.0 * len(account.log) + account.log[-1] * account.log[0]
