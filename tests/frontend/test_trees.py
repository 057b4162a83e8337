"""Recursion over trees: binary, n-ary, with the loss inside, down then up."""

from __future__ import annotations

import jax.numpy as jnp

from tests.frontend import programs as p
from tests.frontend.harness import check
from tests.frontend.programs import Node, Tree

BINARY = [
    Node(0, 1),
    Node(1, left=Node(2, 3), right=Node(3, 4)),
    Node(1, left=Node(2, left=Node(0, 5), right=Node(0, 6)), right=Node(3, 4)),
]
NARY = [Tree(1), Tree(2, [Tree(3), Tree(4, [Tree(5)])]), Tree(2, [Tree(3), Tree(4), Tree(5)])]


def test_binary_tree_lstm():
    assert len(check(p.tree_lstm, BINARY, p.parameters()).module.functions) <= 5


def test_only_leaves_have_no_recursion():
    check(p.tree_lstm, BINARY[:1], p.parameters())


def test_child_sum_tree_lstm():
    check(p.child_sum, NARY, p.parameters())


def test_loss_in_a_recursive_local_function_is_lowered_once():
    names = [f.name for f in check(p.loss, BINARY, p.parameters()).module.functions]
    assert len([n for n in names if "go" in n]) == 1


def test_context_down_and_states_up():
    def walk(w, t, depth, context):
        if t is None:
            return context * 0
        here = jnp.tanh(context + depth * w)
        return here + walk(w, t.left, depth + 1, here) + walk(w, t.right, depth + 1, here)

    def start(w, t):
        return walk(w, t, 0, w)

    check(start, BINARY, jnp.arange(3.0))


def test_results_of_the_left_call_feed_the_right_one():
    def fold(w, t, state):
        if t.left is None:
            return jnp.tanh(state * w + t.word)
        return fold(w, t.right, fold(w, t.left, state))

    check(lambda w, t: fold(w, t, w), BINARY, jnp.arange(3.0))


def test_mutual_recursion():
    def even(t):
        return 0.0 if t is None else 1 + odd(t.left)

    def odd(t):
        return 0.5 if t is None else 2 * even(t.left)

    check(even, BINARY)


def test_recursion_on_integers():
    def fib(n):
        return n if n < 2 else fib(n - 1) + fib(n - 2)

    check(fib, [0, 1, 5, 9])
    check(lambda t: fib(t.word % 7), [Node(0, 5)])
    check(lambda t: fib(7), [Node(0, 5)])
