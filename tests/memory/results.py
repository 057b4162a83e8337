"""Functions that return what they make under data-dependent control flow: lists, dicts, sets, deques, linked objects.

Each program is a plain function of `w`, that all examples share, and `x`, a number of its own.
"""

from __future__ import annotations

import enum
from collections import Counter, defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

PROGRAMS: list[Callable[[Any, Any], Any]] = []


def program(f: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    PROGRAMS.append(f)
    return f


class Step(NamedTuple):
    t: Any
    x: Any
    rising: Any = None


class Pair(NamedTuple):
    a: Any
    rest: Any = None


@dataclass
class Cell:
    value: Any
    next: Any = None


@dataclass
class Tree:
    score: Any
    left: Any = None
    right: Any = None


@dataclass
class Parsed:
    head: Any
    kids: Any
    cost: Any


class Graph:
    def __init__(self, weight: Any) -> None:
        self.weight = weight
        self.to: Any = None
        self.back: Any = None


@program
def trajectory(w: Any, x: Any) -> Any:
    """A list of NamedTuples."""
    out = []
    t = 0
    while x < 3.0:
        before = x
        x = x * 1.4 + 0.3 * w - 0.1 * t
        t += 1
        out.append(Step(t, x, x > before))
    return out


@program
def top_two(w: Any, x: Any) -> Any:
    """A list of tuples, sorted."""
    scored = []
    t = 0
    while x < 3.0:
        x = x * 1.3 + 0.31 * w
        t += 1
        scored.append((x % 1.0, t))
    return sorted(scored, reverse=True)[:2]


@program
def classes_counted(w: Any, x: Any) -> Any:
    counts: Counter[Any] = Counter()
    while x < 3.0:
        x = x * 1.3 + 0.31 * w
        counts[int(x * 3.1) % 3] += 1
    return counts


@program
def key_to_score(w: Any, x: Any) -> Any:
    """A dict beside a number."""
    best = {}
    while x < 3.0:
        x = x * 1.3 + 0.31 * w
        best[int(x)] = x * w
    return best, x


@program
def cells_seen(w: Any, x: Any) -> Any:
    """A set of tuples."""
    seen = set()
    while x < 3.0:
        x = x * 1.3 + 0.31 * w
        seen.add((int(x), int(x * 1.7)))
    return seen


@program
def last_three(w: Any, x: Any) -> Any:
    window: deque[Any] = deque(maxlen=3)
    while x < 3.0:
        x = x * 1.3 + 0.31 * w
        window.append(x)
    return window


@program
def summed_by_key(w: Any, x: Any) -> Any:
    """A defaultdict in a dict of constant keys."""
    sums: defaultdict[Any, Any] = defaultdict(float)
    while x < 3.0:
        x = x * 1.3 + 0.31 * w
        sums[int(x)] += x
    return {"sums": sums, "n": len(sums)}


@program
def stacked(w: Any, x: Any) -> Any:
    """A linked list, from None."""
    head = None
    while x < 3.0:
        x = x * 1.3 + 0.31 * w
        head = Cell(x, head)
    return head


@program
def reversed_links(w: Any, x: Any) -> Any:
    head: Any = Cell(w)
    while x < 3.0:
        x = x * 1.3 + 0.31 * w
        head = Cell(x, head)
    before = None
    while head is not None:
        after = head.next
        head.next = before
        before, head = head, after
    return before


@program
def ring(w: Any, x: Any) -> Any:
    """Objects that lead back to themselves."""
    first = last = Cell(w)
    while x < 3.0:
        x = x * 1.3 + 0.31 * w
        last.next = Cell(x)
        last = last.next
    last.next = first
    return first


@program
def in_a_list(w: Any, x: Any) -> Any:
    """Objects that stand in a list, one of them twice."""
    cell = Cell(w)
    out = [cell, cell]
    while x < 3.0:
        x = x * 1.3 + 0.31 * w
        cell = Cell(x, cell)
        out.append(cell)
    return out


@program
def in_a_dict(w: Any, x: Any) -> Any:
    """Objects by computed keys."""
    found = {}
    cell = Cell(w)
    while x < 3.0:
        x = x * 1.3 + 0.31 * w
        cell = Cell(x, cell)
        found[int(x)] = cell
    return found


@program
def lists_of_lists(w: Any, x: Any) -> Any:
    out = []
    while x < 3.0:
        inner = []
        y = x
        while y < 2.0:
            y = y * 1.7 + 0.1
            inner.append(y)
        out.append(inner)
        x = x * 1.3 + 0.31 * w
    return out


@program
def tree_of_keys(w: Any, x: Any) -> Any:
    """A search tree of computed keys."""
    root = Tree(w * 0.5)
    while x < 3.0:
        x = x * 1.4 + 0.3 * w
        key = x % 1.0
        node: Any = root
        while True:
            if key < node.score:
                if node.left is None:
                    node.left = Tree(key)
                    break
                node = node.left
            else:
                if node.right is None:
                    node.right = Tree(key)
                    break
                node = node.right
    return root


@program
def shift_reduce(w: Any, x: Any) -> Any:
    """A tree that a stack is reduced to, in an object with what it has cost."""
    stack = [Tree(x)]
    cost = 0.0
    n = 0
    while n < 4 or len(stack) > 1:
        score = (x * w * (n + 1)) % 1.0
        if n < 4 and (len(stack) < 2 or score > 0.45):
            stack.append(Tree(score))
        else:
            right = stack.pop()
            left = stack.pop()
            stack.append(Tree(left.score * 0.5 + right.score, left, right))
            cost = cost + score
        n += 1
    return Parsed(stack[0], [n, len(stack)], cost)


@program
def doubly_linked(w: Any, x: Any) -> Any:
    """A class of its own, linked both ways; two results that lead to each other."""
    first = last = Graph(w)
    while x < 3.0:
        x = x * 1.3 + 0.31 * w
        node = Graph(x)
        node.back = last
        last.to = node
        last = node
    return first, last


@program
def chain_of_pairs(w: Any, x: Any) -> Any:
    """NamedTuples that hold each other."""
    pair = Pair(w)
    while x < 3.0:
        x = x * 1.3 + 0.31 * w
        pair = Pair(x, pair)
    return pair


@program
def maybe_none(w: Any, x: Any) -> Any:
    """A list, an object and a dict inside an object, on some path None."""
    out = []
    head = None
    while x < 2.0:
        x = x * 1.3 + 0.31 * w
        out.append(x)
        head = Cell(x, head)
    return Parsed(head, out, {int(y): y for y in out} if x < 2.5 else None)


@dataclass
class Node:
    score: Any
    kids: list[Any]


@program
def grouped(w: Any, x: Any) -> Any:
    """Lists by computed keys."""
    groups: Any = {}
    while x < 3.0:
        x = x * 1.3 + 0.31 * w
        key = int(x)
        if key not in groups:
            groups[key] = []
        groups[key].append(x * w)
    return groups


@program
def grouped_pairs(w: Any, x: Any) -> Any:
    groups: Any = defaultdict(list)
    while x < 3.0:
        x = x * 1.3 + 0.31 * w
        groups[int(x)].append((x * w, int(x * 2.1)))
    return groups


@program
def kids_appended(w: Any, x: Any) -> Any:
    """A tree whose nodes have lists of nodes."""
    root = Node(w, [])
    last = root
    while x < 3.0:
        x = x * 1.3 + 0.31 * w
        node = Node(x, [])
        last.kids.append(node)
        if x > 1.5:
            last = node
    return root


@program
def buckets(w: Any, x: Any) -> Any:
    """Lists of numbers in a list, changed in place."""
    found: Any = [[], [], []]
    while x < 3.0:
        x = x * 1.3 + 0.31 * w
        found[int(x) % 3].append(x)
    return found


@program
def one_list_of_two(w: Any, x: Any) -> Any:
    """Two objects that hold one list."""
    shared: Any = []
    a, b = Node(w, shared), Node(x, shared)
    while x < 3.0:
        x = x * 1.3 + 0.31 * w
        a.kids.append(x)
        b.kids[0] = b.kids[0] * 0.5
    return a, b


class Sort(enum.Enum):
    SMALL = 1
    LARGE = 2


@program
def tagged(w: Any, x: Any) -> Any:
    """Words that numbers decide: in tuples, as keys, alone; a member of an enum, None."""
    found: Any = []
    counts: Counter[Any] = Counter()
    while x < 3.0:
        x = x * 1.3 + 0.31 * w
        word = "large" if x > 2.0 else "small"
        found.append((word, x))
        counts[word] += 1
    last = "none" if len(found) < 2 else found[-1][0]
    return found, counts, last, Sort.LARGE if x > 3.5 else Sort.SMALL, "odd" if x > 3.4 else None


@program
def spelled(w: Any, x: Any) -> Any:
    """Characters that are computed."""
    text = []
    while x < 3.0:
        x = x * 1.3 + 0.31 * w
        text.append(chr(int(x * 5.3) + 97))
    return text, {c: len(text) for c in text}
