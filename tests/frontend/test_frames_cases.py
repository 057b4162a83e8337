"""Programs that frames are made for, as users write them."""

from __future__ import annotations

from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import networkx as nx
import numpy as np

from tests.frontend.harness import check
from tests.frontend.programs import Node, Tree

W = jnp.arange(9.0).reshape(3, 3) / 9
TREES = [Node(0, 1), Node(1, 2, Node(2, 3), Node(3, 4, Node(0, 5), Node(0, 6)))]
NARY = [Tree(1), Tree(2, [Tree(3), Tree(4, [Tree(5)]), Tree(6)])]


def test_rnn_forward_and_backward_joined_per_token():
    def f(p, tokens):
        states, h = [], jnp.zeros(3)
        for t in tokens:
            h = jnp.tanh(p @ h + t)
            states.append(h)
        back, g = [], jnp.zeros(3)
        for t in reversed(tokens):
            g = jnp.tanh(p @ g - t)
            back.append(g)
        return sum(a @ b for a, b in zip(states, reversed(back)))

    check(f, [[1, 2, 3], [4]], W)


def test_words_of_characters():
    def f(p, sentence):
        h = jnp.zeros(3)
        for word in sentence:
            c = jnp.zeros(3)
            for char in word:
                c = jnp.tanh(p @ c + char)
            h = jnp.tanh(p @ h + c)
        return h

    check(f, [[[1, 2], [3]], [[], [4, 5]]], W)


def test_two_trees_at_once():
    def sim(p, pair):
        def walk(a, b):
            if a is None or b is None:
                return 0.0
            return p[0, 0] + (a.word == b.word) + walk(a.left, b.left) + walk(a.right, b.right)

        return walk(pair[0], pair[1])

    check(sim, [(TREES[1], TREES[1]), (TREES[0], TREES[1])], W)


def test_children_loop_with_calls_and_state():
    def f(p, t):
        h = p[0]
        for kid in t.kids:
            h = jnp.tanh(h + f(p, kid))
        return h * t.word

    check(f, NARY, W)


def test_max_over_children():
    def f(p, t):
        if not t.kids:
            return p[0] * t.word
        return jnp.tanh(max([f(p, k)[0] for k in t.kids]) + p[1])

    check(f, NARY, W)


@dataclass
class Vertex:
    x: np.ndarray
    near: list[int] = field(default_factory=list)


@dataclass
class Graph:
    vertices: list[Vertex]
    target: int = 0


GRAPHS = [
    Graph([Vertex(np.ones(3, np.float32), [1]), Vertex(np.arange(3, dtype=np.float32), [0, 1])]),
    Graph([Vertex(np.full(3, 2, np.float32), [])], 0),
]


def test_message_passing():
    def f(p, graph):
        hs = [v.x @ p for v in graph.vertices]
        for _ in range(3):
            hs = [jnp.tanh(h @ p + sum((hs[k] for k in v.near), jnp.zeros(3))) for h, v in zip(hs, graph.vertices)]
        return sum(hs) / len(hs), hs[graph.target]

    check(f, GRAPHS, W)


def test_structural_results_decide():
    def size(t):
        return 1 if t.left is None else size(t.left) + size(t.right)

    def f(p, t):
        if size(t) > 2:
            return p[0] * size(t.left)
        return p[1]

    check(f, TREES, W)


def test_long_signature_of_states():
    def f(p, t):
        if t.left is None:
            return {"h": p[0] * t.word, "depth": 0, "seen": (t.word, True)}
        a, b = f(p, t.left), f(p, t.right)
        return {
            "h": a["h"] + b["h"],
            "depth": 1 + max(a["depth"], b["depth"]),
            "seen": (max(a["seen"][0], b["seen"][0]), a["seen"][1] and b["word" if False else "seen"][1]),
        }

    check(f, TREES, W)


def test_search_in_a_sorted_list():
    def f(xs):
        low, high = 0, len(xs)
        while low < high:
            mid = (low + high) // 2
            if xs[mid] < 5:
                low = mid + 1
            else:
                high = mid
        return low

    check(f, [[1, 3, 5, 7], [], [9], [1, 2, 3]])


def test_attention_over_children():
    def f(p, t):
        if not t.kids:
            return p[0] * t.word
        hs = [f(p, k) for k in t.kids]
        scores = [h @ p[1] for h in hs]
        top = max(scores)
        weights = [jnp.exp(s - top) for s in scores]
        total = sum(weights)
        return sum(w / total * h for w, h in zip(weights, hs))

    check(f, NARY, W)


def test_stack_of_integers():
    def f(ops):
        stack = (0, 0, 0)
        for op in ops:
            a, b, c = stack
            if op == "+":
                stack = (a + b, c, 0)
            elif op == "*":
                stack = (a * b, c, 0)
            else:
                stack = (2, a, b)
        return stack[0]

    check(f, [["x", "x", "+"], ["x", "x", "+", "x", "*"]])


def test_networkx():
    graphs = [nx.path_graph(3), nx.star_graph(4)]
    for g in graphs:
        for n in g:
            g.nodes[n]["x"] = float(n)
    from autobatch.data.pack import pack

    assert pack(graphs).schema.stores


def test_vmapped_helper_and_scan_inside_recursion():
    def f(p, t):
        if t.left is None:
            return jax.vmap(lambda row: row * t.word)(p)
        left = f(p, t.left)
        return left + jax.lax.fori_loop(0, 2, lambda i, x: x @ left, p)

    check(f, TREES, W)
