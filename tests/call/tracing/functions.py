"""Programs of plain Python of some lines, by chapters, like those of `lines.py`: closures, generators, exceptions,
statements, what is filled in place."""

from __future__ import annotations

import contextlib
import functools
from typing import Any

import jax.numpy as jnp

from tests.call.tracing.lines import (
    VOCAB,
    Custom,
    F,
    Program,
    T,
    Tok,
    W,
)


def tokens_tags(w, ts):
    t = 0.0
    for k in ts:
        if k.tag == "n":
            t = t + w * k.x
        elif k.tag in ("v", "x"):
            t = t * k.x
    return t


def tokens_groups(w, ts):
    g = {}
    for t in ts:
        g.setdefault(t.tag, []).append(t.x * w)
    return sum((max(len(v), 1) * v[0] for v in g.values()))


def tokens_match(w, ts):
    s = w
    for t in ts:
        match t:
            case Tok(tag="n", x=x):
                s = s + x
            case Tok(word="cat"):
                s = s * 2
            case _:
                s = s - 1
    return s


def tokens_keyerror(w, ts):
    t = 0.0
    for k in ts:
        try:
            i = VOCAB[k.word]
        except KeyError:
            i = 4
        t = t + w * i * k.x
    return t


def closures_nonlocal(w, xs):
    n = w

    def add(v):
        nonlocal n
        n = n * 0.5 + v

    for x in xs:
        add(x)
    return n


def closures_nonlocal_count(w, xs):
    n = 0

    def f(v):
        nonlocal n
        n += 1
        return v * n

    return (sum((f(x) for x in xs)) * w, n)


def closures_recursive(w, xs):

    def go(i):
        return 0.0 if i == len(xs) else xs[i] + w * go(i + 1)

    return go(0)


def closures_mutual(w, xs):

    def even(i):
        return w if i == len(xs) else xs[i] * odd(i + 1)

    def odd(i):
        return -w if i == len(xs) else xs[i] + even(i + 1)

    return even(0)


def closures_memo(w, xs):

    @functools.lru_cache(None)
    def go(i):
        return w if i < 2 else jnp.tanh(go(i - 1) + go(i - 2))

    return go(len(xs) + 1)


def closures_cache(w, xs):

    @functools.cache
    def go(i, j):
        return w if i == j else go(i + 1, j) + xs[i % len(xs)] * go(i, j - 1)

    return go(0, len(xs))


def closures_list_of_lambdas(w, xs):
    fs = [lambda v, k=k: v * k for k in range(3)]
    return sum((f(x) for f in fs for x in xs)) * w


def closures_default(w, xs):

    def f(a, *rest, k=2, **more):
        return a * k + sum(rest) + len(more)

    return f(w, *xs, k=3, z=1)


def generators_for(w, xs):

    def gen():
        for i, x in enumerate(xs):
            if i % 2 == 0:
                yield (x * w)

    t = 0.0
    for v in gen():
        t = t * 0.5 + v
    return t


def generators_sum(w, xs):

    def gen():
        for x in xs:
            yield (x * w)

    return sum(gen())


def generators_next(w, xs):
    it = iter(xs)
    a = next(it)
    b = next(it, 5.0)
    return a * w + b


def generators_from(w, xs):

    def inner(a):
        yield a
        yield (a * w)

    def outer():
        for x in xs:
            yield from inner(x)

    return sum((v * (k + 1) for k, v in enumerate(outer())))


def generators_send(w, xs):

    def acc():
        t = 0.0
        while True:
            x = yield t
            t = t * w + x

    a = acc()
    next(a)
    for x in xs:
        r = a.send(x)
    return r


def generators_infinite(w, xs):

    def nat():
        n = 0
        while True:
            yield n
            n += 1

    return sum((x * k for x, k in zip(xs, nat()))) * w


def generators_recursive(w, xs):

    def walk(lo, hi):
        if lo < hi:
            m = (lo + hi) // 2
            yield from walk(lo, m)
            yield xs[m]
            yield from walk(m + 1, hi)

    t = 0.0
    for v in walk(0, len(xs)):
        t = t * w + v
    return t


def generators_return(w, xs):

    def gen():
        yield w
        return 3.0

    def outer():
        r = yield from gen()
        yield (r * xs[0])

    return sum(outer())


def exceptions_index(w, xs):
    try:
        return xs[2] * w
    except IndexError:
        return w


def exceptions_custom(w, xs):
    try:
        if len(xs) % 2:
            raise Custom(len(xs))
        s = sum(xs)
    except Custom as e:
        s = w * e.n
    return s * w


def exceptions_finally(w, xs):
    n = 0
    try:
        n = xs.index(17.0) if len(xs) > 10 else 2
    finally:
        n += 1
    return w * n


def exceptions_else(w, xs):
    try:
        v = xs[1]
    except IndexError:
        v = 0.5
    else:
        v = v * 2
    finally:
        w = w * 2
    return w * v


def exceptions_reraise(w, xs):
    try:
        try:
            return xs[3] * w
        except IndexError:
            raise KeyError("x") from None
    except LookupError:
        return w * 2


def exceptions_loop(w, xs):
    k = 0
    t = w
    while True:
        try:
            t = t * xs[k]
        except IndexError:
            break
        k += 1
    return t


def exceptions_stop(w, xs):
    it = iter(xs)
    t = w
    while True:
        try:
            t = t + next(it)
        except StopIteration:
            return t


def exceptions_assert(w, xs):
    try:
        assert len(xs) > 1
        return w
    except AssertionError:
        return 2 * w


def exceptions_suppress(w, xs):
    with contextlib.suppress(IndexError):
        w = w * xs[1]
    return w


def exceptions_attr(w, xs):
    try:
        return w * xs.foo
    except AttributeError:
        return w


def exceptions_callee(w, xs):

    def get(k):
        return xs[k]

    t = 0.0
    for k in range(3):
        try:
            t = t + get(k) * w
        except IndexError:
            pass
    return t


def word_exceptions_int(w, xs):
    t = 0
    for x in xs:
        try:
            t += int(x)
        except ValueError:
            t += 1
    return w * t


def statements_walrus_while(w, xs):
    k = 0
    t = w
    while (k := (k + 1)) < len(xs):
        t = t + xs[k]
    return t


def statements_match(w, xs):
    match len(xs):
        case 1:
            return w
        case 2 | 3:
            return w * 2
        case n if n > 3:
            return w * n
        case _:
            return 0.0


def statements_seq(w, xs):
    match xs:
        case [a]:
            return a * w
        case [a, b]:
            return a + b * w
        case [a, *rest]:
            return a * len(rest) * w


def statements_dict(w, xs):
    d = {"k": len(xs), "v": w}
    match d:
        case {"k": 1, "v": v}:
            return v
        case {"k": n, **rest}:
            return rest["v"] * n


def statements_star(w, xs):
    a, *rest = xs
    return a * w + sum(rest)


def statements_fkey(w, xs):
    d = {}
    for k, x in enumerate(xs):
        d[f"k{k}"] = x * w
    return d["k0"] + sum(d.values())


def statements_fkey_const(w, xs):
    p = {"l0": w, "l1": w * 2}
    return sum((p[f"l{k % 2}"] * x for k, x in enumerate(xs)))


def statements_whileelse(w, xs):
    k = 0
    while k < len(xs):
        if k == 2:
            break
        k += 1
    else:
        return w * k
    return -w


def statements_none_or(w, xs):
    best = None
    for k, x in enumerate(xs):
        if best is None or k % 3 == 1:
            best = x
    return w * best


FUNCTIONS: dict[str, tuple[tuple[Program, ...], list[Any]]] = {
    "tokens": (
        (
            tokens_tags,
            tokens_groups,
            tokens_match,
            tokens_keyerror,
        ),
        T,
    ),
    "closures": (
        (
            closures_nonlocal,
            closures_nonlocal_count,
            closures_recursive,
            closures_mutual,
            closures_memo,
            closures_cache,
            closures_list_of_lambdas,
            closures_default,
        ),
        F,
    ),
    "generators": (
        (
            generators_for,
            generators_sum,
            generators_next,
            generators_from,
            generators_send,
            generators_infinite,
            generators_recursive,
            generators_return,
        ),
        F,
    ),
    "exceptions": (
        (
            exceptions_index,
            exceptions_custom,
            exceptions_finally,
            exceptions_else,
            exceptions_reraise,
            exceptions_loop,
            exceptions_stop,
            exceptions_assert,
            exceptions_suppress,
            exceptions_attr,
            exceptions_callee,
        ),
        F,
    ),
    "word_exceptions": (
        (word_exceptions_int,),
        W,
    ),
    "statements": (
        (
            statements_walrus_while,
            statements_match,
            statements_seq,
            statements_dict,
            statements_star,
            statements_fkey,
            statements_fkey_const,
            statements_whileelse,
            statements_none_or,
        ),
        F,
    ),
}
