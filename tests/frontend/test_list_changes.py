"""Lists that a function built, changed by slices, `del` and `remove`; ranges whose step is data; sorted tuples."""

from __future__ import annotations

import bisect
import heapq

import jax.numpy as jnp
import pytest

import autobatch as ab
from autobatch.testing import check_equivalence
from tests.frontend.batches import Programs, agree, fails, refused
from tests.frontend.examples import LISTS

programs = Programs()
PAIRS = [[(3, 0.5), (1, 2.0), (1, 0.25)], [], [(2, 1.0)], [(0, 1.0), (0, -1.0)]]


@programs.over(LISTS)
def slices_assigned(xs):
    a, b, c = [1, 2, 3], [1, 2, 3], [1, 2, 3]
    a[1:2] = xs
    b[len(xs) : 1] = [7, 8]
    c[-1:] = []
    d = [2 * x for x in xs]
    d[:2] = [9]
    d[len(d) :] = a
    return a, b, c, d


@programs.over(LISTS)
def items_deleted(xs):
    a = [1, 2, *xs]
    del a[0]
    if len(xs) > 1:
        del a[-2]
    b = [x + 1 for x in xs]
    del b[1:3]
    table = {"a": len(xs), "b": 2}
    del table["b"]
    return a, b, table


@programs.over(LISTS)
def values_removed(xs):
    a = [1, 2, *xs]
    a.remove(1)
    b = list(xs)
    if 1 in b:
        b.remove(1)
    return a, b


@programs.over(LISTS)
def steps_from_data(xs):
    up = [i for i in range(0, 10, len(xs) + 1)]
    down = [i for i in range(7, len(xs), -1 - len(xs))]
    ok = [True] * (len(xs) + 6)
    for i in range(2, len(ok)):
        if ok[i]:
            for j in range(2 * i, len(ok), i):
                ok[j] = False
    return up, down, [i for i in range(2, len(ok)) if ok[i]]


@programs.over(LISTS)
def dict_over_a_range(xs):
    table = {k: sum(x for x in xs if x % 3 == k) for k in range(3)}
    return table, {a * 2 + b: len(xs) for a in range(2) for b in range(2)}


@programs.over(LISTS)
def changed_by_arguments_of_a_change(xs):
    a, b = [1, 2, 3, *xs], [1, 2, 3]
    for x in xs:
        a.append(a.pop() + a.pop())
        a.append(x)
    b.insert(b.pop() - 3, b.pop())
    return a, b


@programs.over(LISTS)
def changed_by_tests(xs):
    a, b, n = list(xs), [3, *xs], 0
    while a and a.pop() > 1:
        n += 1
    while len(b) > 0 and b.pop() > 1:
        if b and b[-1] > 5:
            break
    else:
        n += 10
    last = a.pop() if a else -1
    return a, b, n, last


@programs.over(PAIRS)
def tuples_of_the_examples_sorted(pairs):
    return [a for a, _ in sorted(pairs)], [b for _, b in sorted(pairs, reverse=True)]


def popped_by_a_test(w, xs):
    a, total = [x * w for x in xs], 0.0
    while a and a.pop() > 0.1:
        total += sum(a)
    return total + len(a)


def test_a_test_changes_a_list_on_machine_code():
    f, w = ab.batched(popped_by_a_test, in_axes=(None, 0)), jnp.float32(0.8)
    check_equivalence(f, [[0.5, -0.2, 1.5], [1.0], [0.3, 0.8]], (w,), backends=("llvm",), jit=False)


@pytest.mark.parametrize("program", programs, ids=str)
def test_batch_equals_loop(program):
    agree(program, jit=False)


def delete_one(xs):
    a = [2 * x for x in xs]
    del a[1]
    return a


def remove_five(xs):
    a = [1, *xs]
    a.remove(5)
    return a


def step_of_other_length(xs):
    a = [1, 2, 3]
    a[::2] = xs
    return a


def step_of_zero(xs):
    return sum(i for i in range(0, 5, len(xs) - 1))


@pytest.mark.parametrize(
    "function", [delete_one, remove_five, step_of_other_length, step_of_zero], ids=lambda f: f.__name__
)
def test_failures(function):
    fails(function, LISTS)


def test_a_slice_with_a_step_is_assigned():
    def f(xs):
        a = [1, 2, 3]
        a[::2] = [len(xs), 0]
        return a

    assert ab.unbatch(ab.batched(f)(LISTS)) == ab.batched(f).loop(LISTS)


def handed_on_and_changed(xs):
    a = [1, 2, len(xs)]
    return max(a, [a.pop()])


def joined_and_changed(xs):
    a = [1, 2, len(xs)]
    return a + [a.pop()]


def held_and_changed(xs):
    a = [1, 2, len(xs)]
    return (a, a.pop())[0]


def pushed_and_popped(xs):
    a = [3, 1, len(xs)]
    heapq.heappush(a, heapq.heappop(a) + 5)
    bisect.insort(a, a.pop() - 2)
    return a


def handed_on_by_name(xs):
    def first(a, b=0, *, c=0):
        a.append(b)
        return a[0] + 2 * len(a) + c

    a = [1, 2, 3, len(xs)]
    return first(a, a.pop(0)), first(a, b=a.pop()), first(a, c=a.pop()), a


def in_turns(xs):
    a, total = [1.0, 2.0], 0.0
    for x in xs:
        a = a + [a.pop() + x]
        total += sum(a)
    return total, a


@pytest.mark.parametrize(
    "function",
    [handed_on_and_changed, joined_and_changed, held_and_changed, pushed_and_popped, handed_on_by_name, in_turns],
)
@pytest.mark.parametrize("backend", ["xla", "llvm"])
def test_a_list_is_changed_in_the_expression_that_holds_it(function, backend):
    f = ab.batched(function, backend=backend)
    assert ab.unbatch(f(LISTS)) == f.loop(LISTS)


def test_a_list_is_not_changed_behind_a_container_that_holds_it():
    def f(xs):
        a = [1, 2, len(xs)]
        return max((a, 1), (a, a.pop()))

    refused(f, LISTS, saying="read and then changed in one expression")
