"""Branches, loops, early exits, comprehensions: each as plain Python says."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

import autobatch as ab
from tests.frontend.harness import check
from tests.frontend.programs import Node, Tree

LISTS = [[], [3], [3, -1, 4, 1, -5], [2, 2]]
NESTED = [[], [[1], []], [[1, 2], [3], [4, 5, 6]]]


def test_early_return_in_a_branch():
    def f(n):
        if n < 0:
            return -1
        if n > 10:
            return n - 10
        x = n * 2
        return x + 1

    check(f, [-3, 0, 5, 11])


def test_nested_early_return_keeps_one_copy_of_what_follows():
    def f(n):
        if n > 0:
            if n > 5:
                return 100
            x = 1
        else:
            x = 2
        y = x * 10
        return y + n

    check(f, [-1, 3, 9])


def test_elif_and_conditional_expressions():
    def f(n):
        if n == 0:
            s = "zero"
        elif n == 1:
            s = "one"
        else:
            s = "many"
        return (1 if s == "zero" else 2 if s == "one" else 3), -n if n > 0 else n

    check(f, [0, 1, 2])


def test_short_circuit():
    def f(t):
        if t.left is not None and t.left.word > 2:
            return 1
        return 2 if t.left is None or t.left.word < 2 else 3

    def g(t):
        return 1 if f(t) else 0

    check(g, [Node(0), Node(0, left=Node(1, 5)), Node(0, left=Node(1, 1)), Node(0, left=Node(1, 2))])


def test_and_or_give_operands():
    check(lambda n: (n and 5) + (n or 7), [0, 3])


def test_for_over_lists():
    def f(xs):
        total, last = 0, 0
        for k, x in enumerate(xs):
            total += k * x
            last = x
        return total, last

    check(f, LISTS)


def test_first_turn_widens():
    def f(w, xs):
        s = 0
        for x in xs:
            s = s + x * w
        return s

    check(f, LISTS[1:], jnp.arange(3.0))


def test_break_continue_else():
    def f(xs):
        found = -1
        for x in xs:
            if x < 0:
                continue
            if x > 3:
                found = x
                break
        else:
            found = 100
        return found

    check(f, LISTS)


def test_return_from_a_loop():
    def f(xs):
        for k, x in enumerate(xs):
            if x < 0:
                return k
        return -1

    check(f, LISTS)


def test_return_from_nested_loops():
    def f(rows):
        count = 0
        for row in rows:
            for x in row:
                if x == 3:
                    return count
                count += 1
        return -count

    check(f, NESTED)


def test_while():
    def collatz(n):
        steps = 0
        while n != 1:
            n = n // 2 if n % 2 == 0 else 3 * n + 1
            steps += 1
        return steps

    check(collatz, [1, 2, 7, 27])


def test_while_over_a_chain():
    def last(t):
        while t.left is not None:
            t = t.left
        return t.word

    check(last, [Node(0, 1), Node(0, 1, left=Node(0, 2, left=Node(0, 3)))])


def test_while_true_with_break():
    def f(n):
        k = 0
        while True:
            k += 1
            if k * k > n:
                break
        return k

    check(f, [0, 5, 30])


def test_while_true_that_only_returns_leave():
    """Behind such a loop there is no path that returns None; a `break` of a loop inside it is none of its own."""

    def f(n):
        if n % 2:
            k = n
            while True:
                k += 1
                if k % 7 == 0:
                    while True:
                        k += 3
                        if k % 5 == 0:
                            break
                    return k
        return -n

    def g(x):
        while True:
            x = x * 0.5
            if x < 1.0:
                return x

    check(f, [0, 1, 2, 3, 9, 13])
    check(g, [0.5, 7.0, 100.0])
    values = ab.batched(g)(jnp.array([0.5, 7.0, 100.0]))
    assert isinstance(values, jax.Array), "numbers, where there is no other path"


def test_while_else_and_walrus():
    def f(n):
        total = 0
        while (n := n - 1) > 0:
            total += n
        else:
            total += 1000
        return total

    check(f, [0, 1, 5])


def test_range_forms():
    def f(n):
        return (
            [i for i in range(n)],
            [i for i in range(1, n)],
            [i for i in range(n, 0, -1)],
            [i for i in range(0, n, 3)],
            sum(range(n)),
            len(range(2, n, 2)),
        )

    check(f, [0, 1, 2, 7])


def test_zip_reversed_slices():
    def f(xs):
        a = [x * y for x, y in zip(xs, xs[1:])]
        b = [x for x in reversed(xs)]
        c = xs[::-1]
        d = xs[-2:]
        e = [k - x for k, x in enumerate(xs[1:-1], 5)]
        return a, b, list(c), list(d), e, len(xs[::2])

    check(f, LISTS)


def test_negative_indices():
    check(lambda xs: xs[-1] + xs[len(xs) - 1] + xs[0], LISTS)


def test_index_errors_name_the_example():
    check(lambda xs: xs[2], LISTS)


def test_filtered_comprehensions():
    def f(xs):
        return [10 // x for x in xs if x > 0 if x < 4], sum(x for x in xs if x > 0), len([x for x in xs if x < 0])

    check(f, LISTS)


def test_reductions():
    def f(xs):
        return (
            any(x < 0 for x in xs),
            all(x > 0 for x in xs),
            max((x * x for x in xs), default=-1),
            min(xs, default=7),
            sum([x > 1 for x in xs]),
            max(xs, key=lambda x: -x, default=0),
        )

    check(f, LISTS)


def test_max_of_nothing_fails():
    check(lambda xs: max(xs), LISTS)


def test_nested_comprehensions():
    check(lambda rows: [[x + 1 for x in row] for row in rows], NESTED)
    check(lambda rows: sum(sum(row) for row in rows), NESTED)
    check(lambda rows: sum(x * x for row in rows for x in row), NESTED)
    check(lambda rows: any(x > 5 for row in rows for x in row), NESTED)


def test_lists_built_by_append():
    def f(xs):
        out = []
        for x in xs:
            y = x * 2
            out.append(y)
        return out

    check(f, LISTS)


def test_list_displays_and_append():
    def f(n):
        out = [n, n + 1]
        out.append(n * n)
        out += [7]
        a, *b = out
        return a, b, len(out), out[1:3], out[n % 4]

    check(f, [0, 3, 6])


def test_loop_carried_tuples_and_dicts():
    def f(xs):
        state = {"n": 0, "s": (0.0, 1)}
        for x in xs:
            a, b = state["s"]
            state = {"n": state["n"] + 1, "s": (a + x, b * 2)}
        return state

    check(f, LISTS)


def test_loops_over_children():
    def f(t):
        best = t.word
        for kid in t.kids:
            best = max(best, f(kid))
        return best

    check(f, [Tree(1), Tree(2, [Tree(3), Tree(9, [Tree(5)])])])


def test_unrolled_loops_over_static_containers():
    def f(layers, n):
        x = jnp.full(2, n * 1.0)
        for k, w in enumerate(layers):
            x = jnp.tanh(w @ x) * k
        return x

    check(f, [1, 2], [jnp.ones((3, 2)), jnp.ones((4, 3))])


def test_range_unrolls_where_shapes_need_it():
    def f(ws, n):
        total = 0.0
        for i in range(3):
            total = total + jnp.ones(i + 1).sum() * n
        return total

    check(f, [1, 2], [])


def test_match():
    def f(x):
        match x:
            case 0:
                return 10
            case 1 | 2:
                return 20
            case n if n > 100:
                return n
            case _:
                return 30

    check(f, [0, 1, 2, 5, 200])


def test_raise_and_assert():
    def f(n):
        assert n != 3, f"three: {n}"
        if n > 5:
            raise ValueError(f"{n} is too large")
        return n

    check(f, [1, 3, 7])


def test_variables_set_on_one_path():
    def f(n):
        if n > 0:
            x = n
        if n > 0:
            return x
        return 0

    check(f, [-1, 4])


def test_unset_variables_fail():
    def f(xs):
        for x in xs:
            pass
        return x

    check(f, LISTS)


def test_del_and_chained_assignment():
    def f(n):
        a = b = n + 1
        c, (d, e) = a, (b, n)
        del a
        return c + d * e

    check(f, [1, 2])


def test_chained_comparisons():
    check(lambda n: (0 < n < 5, 0 < n <= 10 != n, n == n == 3), [-1, 3, 10])


def test_lazy_sequences_inside_containers():
    def f(xs):
        pair = (xs[1:], reversed(xs))
        if len(xs) > 1:
            pair = (xs[:1], pair[1])
        return list(pair[0]), sum(pair[1]), {"r": [*zip((1, 2), (3, 4))]}

    check(f, LISTS)


def test_a_function_of_a_module_is_no_method_that_changes_a_list():
    """`jnp.sort(x)` in a loop has the form of a list's `sort`, and `jnp` is read behind it."""

    @ab.batched(in_axes=(None, 0))
    def f(p, y):
        c = 0.0
        while jnp.sum(y * y) < 30.0:
            low = jnp.sort(y)
            c = jnp.sin(c) + low[0] * p
            y = y * 1.3 + c
        return y

    p, ys = jnp.float32(0.3), jnp.linspace(-1.0, 1.0, 12, dtype=jnp.float32).reshape(4, 3)
    np.testing.assert_allclose(f(p, ys), f.loop(p, ys), rtol=1e-4)
