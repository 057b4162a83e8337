"""Lists that recursive functions return: of numbers, of nodes, as results; lists that grow down a recursion."""

from __future__ import annotations

from dataclasses import dataclass, field

import jax.numpy as jnp
import pytest

import autobatch as ab
from tests.frontend.batches import Program, Programs, agree, fails


@dataclass
class Tree:
    x: int
    y: float = 0.5
    left: Tree | None = None
    right: Tree | None = None


@dataclass
class Many:
    x: int
    kids: list[Many] = field(default_factory=list)
    name: str = "a"


def leaf(x):
    return Tree(x, x * 0.25)


TREES = [
    leaf(1),
    Tree(2, 0.3, leaf(3), leaf(4)),
    Tree(5, 0.1, Tree(6, 0.7, leaf(7), leaf(8)), leaf(9)),
    Tree(1, 0.2, leaf(1), Tree(2, 0.4, leaf(5), Tree(3, 0.9, leaf(4), leaf(2)))),
]
MANY = [
    Many(1),
    Many(2, [Many(3), Many(4), Many(5)]),
    Many(3, [Many(1, [Many(2), Many(7)], "ab"), Many(0)], "b"),
    Many(0, [Many(1, [Many(2, [Many(3, [Many(4)])])])], "c"),
]
S = jnp.float32(0.7)
W = jnp.array([[0.3, -0.2], [0.1, 0.4]], jnp.float32)
E = jnp.sin(jnp.arange(20.0)).reshape(10, 2)


def leaves(t):
    return [t.x] if t.left is None else leaves(t.left) + leaves(t.right)


def weights(p, t):
    return [p * t.y] if t.left is None else weights(p, t.left) + weights(p, t.right)


def nodes(t):
    return [t] if t.left is None else [t] + nodes(t.left) + nodes(t.right)


def preorder(t):
    if t is None:
        return []
    return [t, *preorder(t.left), *preorder(t.right)]


def descendants(t):
    out = [t]
    for c in t.kids:
        out += descendants(c)
    return out


def flattened(t):
    return [t] + [d for c in t.kids for d in flattened(c)]


programs = Programs()


@programs.over(TREES)
def sum_of_leaves(t):
    return sum(leaves(t))


@programs.over(TREES)
def number_of_leaves(t):
    return len(leaves(t))


@programs.over(TREES)
def leaves_returned(t):
    return leaves(t)


@programs.over(TREES, S)
def weights_returned(p, t):
    return weights(p, t)


@programs.over(TREES, S)
def mean_weight(p, t):
    return sum(weights(p, t)) / len(weights(p, t))


@programs.over(TREES, S)
def folded_weights(p, t):
    h = p * 0.0
    for x in weights(p, t):
        h = jnp.tanh(h + x)
    return h


@programs.over(TREES, E, W)
def rnn_over_nodes(E, W, t):
    h = jnp.zeros(2)
    for n in nodes(t):
        h = jnp.tanh(h @ W + E[n.x])
    return h


@programs.over(TREES, E, W)
def rnn_over_preorder(E, W, t):
    h = jnp.zeros(2)
    for n in preorder(t):
        h = jnp.tanh(h @ W + E[n.x])
    return h


@programs.over(MANY)
def all_descendants(t):
    return [n.x for n in descendants(t)]


@programs.over(MANY)
def all_flattened(t):
    return [n.x * 2 for n in flattened(t)], len(flattened(t))


@programs.over(TREES)
def indexed(t):
    xs = leaves(t)
    return xs[0], xs[-1], xs[len(xs) // 2]


@programs.over(TREES, S)
def first_less_last(p, t):
    xs = weights(p, t)
    return xs[0] - xs[-1]


@programs.over(TREES)
def length_decides(t):
    return 1.0 if len(leaves(t)) > 2 else 0.0


@programs.over(TREES)
def sum_decides(t):
    return t.y if sum(leaves(t)) > 10 else -t.y


@programs.over(TREES, S)
def extremes(p, t):
    return max(weights(p, t)), min(leaves(t))


@programs.over(TREES, S)
def mapped(p, t):
    return [jnp.tanh(x) for x in weights(p, t)]


@programs.over(TREES)
def enumerated(t):
    return [i * x for i, x in enumerate(leaves(t))]


@programs.over(TREES, S)
def zipped(p, t):
    return sum(a * b for a, b in zip(leaves(t), weights(p, t)))


@programs.over(TREES)
def reversed_and_cut(t):
    return [x for x in reversed(leaves(t))], leaves(t)[::-1], leaves(t)[1:]


@programs.over(TREES)
def while_small(t):
    xs = leaves(t)
    i = 0
    s = 0
    while i < len(xs) and xs[i] < 5:
        s = s + xs[i]
        i = i + 1
    return s


@programs.over(TREES)
def first_large(t):
    for n in nodes(t):
        if n.x > 4:
            break
    return n.y


@programs.over(TREES, S)
def pairs(p, t):
    def go(t):
        if t.left is None:
            return [(t.x, p * t.y)]
        return go(t.left) + [(t.x, p)] + go(t.right)

    return [b * a for a, b in go(t)]


@programs.over(TREES)
def holds_seven(t):
    return 7 in leaves(t)


@programs.over(TREES, S)
def products_of_paths(p, t):
    def go(t, acc):
        if t.left is None:
            return [acc * t.y]
        return go(t.left, acc * p) + go(t.right, acc - p)

    return go(t, p)


@programs.over(TREES)
def grows_down(t):
    def go(t, acc):
        acc = acc + [t.x]
        if t.left is None:
            return acc
        return go(t.right, go(t.left, acc))

    return go(t, [])


@programs.over(TREES, E, W)
def all_states(E, W, t):
    def go(t):
        if t.left is None:
            return [jnp.tanh(E[t.x])]
        a = go(t.left)
        b = go(t.right)
        return a + b + [jnp.tanh((a[-1] + b[-1]) @ W)]

    hs = go(t)
    return sum(h.sum() for h in hs), hs[-1]


@programs.over(TREES)
def spans(t):
    def go(t, i):
        if t.left is None:
            return i + 1, [(i, i + 1)]
        j, a = go(t.left, i)
        k, b = go(t.right, j)
        return k, a + b + [(i, k)]

    n, spans = go(t, 0)
    return sum(b - a for a, b in spans), n, len(spans)


@programs.over(TREES)
def spans_returned(t):
    def go(t, i):
        if t.left is None:
            return i + 1, [i]
        j, a = go(t.left, i)
        k, b = go(t.right, j)
        return k, a + b + [i * 10 + k]

    return go(t, 0)[1]


@programs.over(TREES)
def by_level(t):
    layer = [t]
    total = 0
    depth = 0
    while layer:
        depth += 1
        total += depth * sum(n.x for n in layer)
        layer = [c for n in layer for c in (n.left, n.right) if c is not None]
    return total


@programs.over(MANY)
def by_layer(t):
    layer = [t]
    total = 0
    while len(layer) > 0:
        total += sum(n.x for n in layer) * len(layer)
        layer = [c for n in layer for c in n.kids]
    return total


@programs.over(MANY)
def with_a_stack(t):
    stack = [t]
    total = 0
    while stack:
        n = stack.pop()
        total = total * 2 + n.x
        stack.extend(n.kids)
    return total


@programs.over(MANY)
def with_a_queue(t):
    queue = [t]
    i = 0
    total = 0
    while i < len(queue):
        n = queue[i]
        i += 1
        total += n.x * i
        for c in n.kids:
            queue.append(c)
    return total


@programs.over(TREES)
def sorted_leaves(t):
    return sorted(leaves(t))


@programs.over(TREES)
def sorted_by_key(t):
    return sorted(leaves(t), reverse=True), sorted(nodes(t), key=lambda n: n.x)[0].y


@programs.over(TREES)
def none_or_a_list(t):
    if t.left is None:
        return None
    a, b = none_or_a_list(t.left), none_or_a_list(t.right)
    return [t.y] + (a or []) + (b or [])


@pytest.mark.parametrize("program", programs, ids=str)
def test_batch_equals_loop(program):
    agree(program)


def test_an_index_out_of_range_fails_its_example():
    fails(lambda t: leaves(t)[2], TREES)


def test_deep_trees():
    def chain(n):
        t = leaf(1)
        for k in range(n):
            t = Tree(k % 10, 0.5, leaf(k % 7), t)
        return t

    def total(p, t):
        h = 0.0
        for n in preorder(t):
            h = h * 0.5 + n.x
        return h, sum(leaves(t)), sum(weights(p, t))

    agree(Program(total, [chain(150), chain(3)], (S,)))


def test_a_list_that_holds_itself_fails_like_a_recursion():
    loop = leaf(1)
    loop.left, loop.right = loop, leaf(2)
    with pytest.raises(ab.ExampleError, match="RecursionError"):
        ab.batched(lambda t: leaves(t))([leaf(1), loop])
