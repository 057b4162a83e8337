"""Loops over what a list, string or dict holds, from which examples return before others: what is not defined on the
way out is asked for its length all the same, and says nothing."""

import jax
import numpy as np
import pytest

import autobatch as ab


def a_constant_list(xs, y):
    held = [0.25, 0.5]
    while held:
        if y < -0.3:
            return y
        y = held.pop() * y
    return y * 2.0


def a_list_of_computed_numbers(xs, y):
    queue, out = [y, y + 1.0], []
    while len(queue) > 0 and len(out) < 5:
        if queue[-1] > 2.5:
            return queue[-1]
        out.append(queue.pop())
    return sum(out)


def a_list_of_the_example(xs, y):
    queue, total = [x for x in xs], 0.0
    while queue:
        if y > 1.5:
            return total
        total += queue.pop()
    else:
        return total * 10.0
    return -1.0


def a_tested_element(xs, y):
    queue = list(xs)
    while queue and queue[0] < 5.0:
        if y < 0.0:
            return y
        for x in queue:
            if x > y:
                return x
        queue = queue[1:]
    return 0.25


def lists_in_a_list(xs, y):
    stack = [[1.0, 2.0], [3.0]]
    while stack:
        if y < 0.0:
            return y
        top = stack.pop()
        while top:
            if y > 1.9:
                return y * 2.0
            y += top.pop() * 0.01
    return y


def a_string(xs, y):
    word = "ab"
    while word:
        if y < 0.0:
            return y
        word = word[1:]
        y = y + len(word)
    return y


def a_dict(xs, y):
    held = {1: 2.0, 2: 3.0}
    while held:
        if y < 0.0:
            return y
        _, value = held.popitem()
        y += value
    return y


def a_choice_under_a_constant_test(xs, y):
    k = 0
    while 1 < 2:
        k += 1
        if y != 0.5:
            return 0.5 if y != y else y * 2.0
        if k > 3:
            break
        y = y + 1.0
    return y


def a_division_ahead_of_its_check(xs, y):
    y, k = 1.0 / y, 0
    while k < 5:
        k += 1
        y = y * 0.5 + 0.1
        if y > 0.1:
            break
    return y


PROGRAMS = [
    a_constant_list, a_list_of_computed_numbers, a_list_of_the_example, a_tested_element, lists_in_a_list, a_string,
    a_dict, a_choice_under_a_constant_test, a_division_ahead_of_its_check,
]  # fmt: skip
XS = [[0.1, 0.2], [], [3.0], [1.0, 2.0, 7.0], [0.5]]
Y = [-1.0, 0.5, 2.0, 0.0, 1.0]


@pytest.mark.parametrize("backend", ["interpret", "xla", "llvm", "auto"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_results_and_failures_are_those_of_python(program, backend):
    wanted, kinds = [], {}
    for k, (xs, y) in enumerate(zip(XS, Y)):
        try:
            wanted.append(program(xs, y))
        except Exception as error:
            wanted.append(0.0)
            kinds[k] = type(error).__name__
    found, failures = ab.batched(program, backend=backend, on_error="mask")(XS, Y)
    assert {f.index: f.kind for f in failures.details} == kinds
    fine = ~np.asarray(failures.failed)
    np.testing.assert_allclose(np.asarray(found)[fine], np.array(wanted)[fine], rtol=1e-5)


def grown(y):
    k = 0
    while y < 3.0 and k < 20:
        y, k = y * 1.5 + 0.1, k + 1
    return y if y == y else 0.5


def a_loop_under_a_return(x, y):
    k = 0
    while 1 < 2:
        k += 1
        if x != 0.5:
            return grown(y)
        if k > 3:
            break
        y = y + 1.0
    return grown(y) * x


def a_loop_under_one_of_two_returns(x, y):
    while True:
        if x > 2.0:
            return grown(y) * x
        x = x * 1.7 + 0.2
        if y > 1.5:
            return grown(x)


@pytest.mark.parametrize("backend", ["interpret", "xla", "llvm", "auto"])
@pytest.mark.parametrize("program", [a_loop_under_a_return, a_loop_under_one_of_two_returns])
def test_control_of_a_called_function_under_that_of_its_caller(program, backend):
    """With 64 bits: it was a raw error of JAX there."""
    with jax.enable_x64(True):
        x, y, h = [0.5, 1.0, 1.0, 0.5], [1.0, 0.3, 2.0, -4.0], 1e-6
        f = ab.batched(program, backend=backend)
        np.testing.assert_allclose(f(x, y), f.loop(x, y), rtol=1e-9)
        slopes = [(program(a, b + h) - program(a, b - h)) / (2 * h) for a, b in zip(x, y)]
        np.testing.assert_allclose(ab.grad(f, 1)(np.array(x), np.array(y)), slopes, rtol=1e-5, atol=1e-7)
