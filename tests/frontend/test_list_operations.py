"""What can be done with lists of the examples and lists made in the function."""

from __future__ import annotations

import itertools

import jax.numpy as jnp
import pytest

from autobatch.testing import check_equivalence
from tests.frontend.batches import Programs, agree, fails, refused
from tests.frontend.examples import DOCS, LISTS, S

programs = Programs()


@programs.over(DOCS, S)
def joined_data(p, d):
    return [p * x for x in d.words + d.words[1:]]


@programs.over(DOCS, S)
def data_and_made(p, d):
    return d.words + [len(d.words)]


@programs.over(DOCS, S)
def three_joined(p, d):
    return [p * x for x in d.fs] + [p] + [x + 1 for x in d.fs]


@programs.over(DOCS)
def augmented(d):
    out = []
    out += [x * 2 for x in d.words]
    out += [7]
    out.extend(x for x in d.words if x > 1)
    return out, len(out)


@programs.over(DOCS)
def augmented_in_a_loop(d):
    out = []
    for x in d.words:
        out += [x, x + 1]
    return out


@programs.over(DOCS)
def extended_in_a_loop(d):
    out = []
    for x in d.words:
        if x > 1:
            out.extend([x, -x])
        else:
            out.append(0)
    return sum(out), len(out), out


@programs.over(DOCS)
def slices_of_data(d):
    xs = d.words
    return xs[1:], xs[:-1], xs[::-1], xs[-2:], xs[1:3], xs[::2], xs[:0]


@programs.over(DOCS, S)
def slices_of_made(p, d):
    xs = [p * x for x in d.fs]
    return xs[1:], xs[:-1], xs[::-1], xs[-2:], xs[-3:-1]


@programs.over(DOCS)
def negative_steps(d):
    return d.words[::-2], d.words[3:0:-1], d.words[:1:-1], d.words[-1::-1]


@programs.over(DOCS)
def halves(d):
    n = len(d.words) // 2
    return d.words[:n], d.words[n:], d.words[-n:]


@programs.over(DOCS, S)
def zipped_made(p, d):
    a = [p * x for x in d.fs]
    b = [x + 1 for x in d.words]
    return (
        sum(x * y for x, y in zip(a, b)),
        sum(x * (y - z) for x, y, z in zip(a, a[1:], b)),
        [i + x for i, x in enumerate(a, 1)],
        [x for x in reversed(a)],
    )


@programs.over(DOCS)
def lists_and_tuples(d):
    a = list(d.words)
    a.append(3)
    t = tuple(x for x in d.words)
    return a, sum(t), list(reversed(a)), list(enumerate(d.words)), list(range(len(a)))


@programs.over(DOCS)
def repeated(d):
    n = len(d.words)
    return [0.0] * n, [1, 2] * n, d.words * 2, 3 * d.words, n * [True]


@programs.over(DOCS)
def membership(d):
    return 2 in d.words, 3 not in d.words, 9 in [x * 3 for x in d.words], 1.0 if 5 in d.words else 0.0


@programs.over(DOCS)
def sorted_words(d):
    return sorted(d.words)


@programs.over(DOCS)
def sorted_two_ways(d):
    return sorted(d.words, reverse=True)[:2], sorted(d.words, key=lambda x: -x)


@programs.over(DOCS)
def argsort(d):
    idx = sorted(range(len(d.words)), key=lambda i: d.words[i])
    return [d.fs[i] for i in idx]


@programs.over(DOCS)
def sorted_pairs(d):
    return [b for a, b in sorted(zip(d.words, d.fs), key=lambda ab: ab[0])]


@programs.over(DOCS)
def sorted_in_place(d):
    xs = list(d.words)
    xs.sort()
    return xs


@programs.over(DOCS)
def spread(d):
    return [0, *d.words, 1, *[x * 2 for x in d.words]]


@programs.over(DOCS)
def spread_in_calls(d):
    return sum((*d.words, 4)), max(*d.words, 0, 1), max(0, *d.words, 1)


@programs.over(DOCS)
def position_of_last(d):
    return d.words.index(d.words[-1]) if d.words else -1


@programs.over(DOCS)
def counted(d):
    return d.words.count(1), [x * 2 for x in d.words].count(2)


@programs.over(DOCS)
def compared(d):
    return d.words == [5], [x for x in d.words] == d.words, d.words != []


@programs.over(DOCS)
def popped(d):
    xs = [x for x in d.words] + [1, 2]
    a = xs.pop()
    b = xs.pop(0)
    return xs, a, b


@programs.over(DOCS)
def inserted(d):
    xs = list(d.words)
    xs.insert(0, 4)
    xs.insert(len(xs), 8)
    xs.reverse()
    return xs


@programs.over(DOCS)
def items_set(d):
    xs = [0] * len(d.words)
    for i, x in enumerate(d.words):
        xs[i] = x * i
    return xs


@programs.over(DOCS)
def running_sum(d):
    out = [0]
    for x in d.words:
        out.append(out[-1] + x)
    return out


@programs.over(DOCS, S)
def running_tanh(p, d):
    out = [p]
    for x in d.fs:
        out.append(jnp.tanh(out[-1] + x * p))
    return out


@programs.over(DOCS)
def best_sums(d):
    best = []
    for i, x in enumerate(d.words):
        best.append(x + max([best[j] for j in range(i)], default=0))
    return best


@programs.over(DOCS)
def parted(d):
    a, b = [], []
    for x, y in zip(d.words, d.fs):
        if x > 1:
            a.append(x)
        else:
            b.append(y)
    return a, b


@programs.over(LISTS)
def first_or_none(xs):
    return xs[0] if len(xs) > 0 else -1


@programs.over(LISTS)
def differences(xs):
    return [a - b for a, b in zip(xs, xs[1:])]


@programs.over(LISTS)
def products_of_pairs(xs):
    return [x * y for i, x in enumerate(xs) for y in xs[i + 1 :]]


@programs.over(LISTS)
def accumulated(xs):
    return list(itertools.accumulate(xs))


@programs.over(LISTS)
def chained(xs):
    return list(itertools.chain(xs, [1], xs[::-1]))


@programs.over(LISTS)
def product(xs):
    return [a + b for a, b in itertools.product(xs, [1, 2])]


@pytest.mark.parametrize("program", programs, ids=str)
def test_batch_equals_loop(program):
    agree(program, jit=False)


def popped_once(d):
    xs = list(d.words)
    return xs.pop()


def test_what_is_missing_fails_like_python():
    fails(lambda d: d.words.index(5), DOCS)
    fails(popped_once, DOCS)
    fails(lambda d: [x for x in d.words][3], DOCS)
    fails(lambda d: [x * 2 for x in d.words][-2], DOCS)


def test_an_order_of_computed_numbers():
    check_equivalence(lambda p, d: sorted([p * x for x in d.fs]), DOCS, (S,), backends=("interpret",), jit=False)


def test_a_set_of_values():
    check_equivalence(lambda d: len(set(d.words)), DOCS, backends=("interpret", "llvm"), grads=False, jit=False)


def test_refusals():
    refused(lambda d: sorted(d.words, reverse=d.words[0] > 1), DOCS, saying="must be a constant")
    refused(lambda d: list(itertools.combinations(d.words, d.words[0])), DOCS, saying="how many elements .* chooses")
