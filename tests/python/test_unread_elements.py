"""The derivative by what a list, dict or object holds that is not read: there is none, whatever it is."""

import heapq
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autobatch as ab

NAN = float("nan")
LISTS = [[0.385063, NAN], [0.3, 0.4, NAN, NAN, 1.0], [2.0, NAN]]
Y = np.array([-0.874198, -0.5, 0.3], np.float32)


@dataclass
class Pair:
    v: float
    w: float


@dataclass
class Node:
    v: float
    w: float
    next: "Node | None"


def appended(y, xs: list[float]):
    out = [y]
    i = 0
    while i < len(xs) and y < 10.0:
        out.append(xs[i] * y)
        i += 1
    return out[0]


def popped(y, xs: list[float]):
    out, t = [], 0.0
    for x in xs:
        out.append(x * y)
        if y > 100.0:
            out.pop()
    out.append(y)
    while t < 1.0:
        t += 1.0
    return out.pop() + t


def joined(y, xs: list[float]):
    z = [f * y for f in xs] + [y]
    return z[-1]


def set_by_index(y, xs: list[float]):
    z = [y, y, y, y, y, y]
    for k in range(len(xs)):
        z[k] = xs[k] * y
        if y > 5.0:
            z.append(y)
    return z[5]


def fields_of_objects(y, xs: list[float]):
    ps = [Pair(x * y, y) for x in xs]
    best = ps[0]
    for p in ps:
        if p.w < best.w:
            best = p
        p.v = p.v + 1.0
    return best.w


def objects_in_a_list(y, xs: list[float]):
    ps = [Pair(x * y, y) for x in xs]
    ps.append(Pair(y, y))
    a = ps[0]
    t = 0.0
    while t < y * y + 2.0:
        a = ps[len(ps) - 1]
        t += 1.0
    return a.v


def lists_in_a_list(y, xs: list[float]):
    zs = [[y], [y * x for x in xs]]
    k = 0
    while y * k < -10.0:
        k += 1
    return zs[k][0]


def heap(y, xs: list[float]):
    q = []
    for x in xs:
        heapq.heappush(q, (float(len(q) + 1), x * y))
    heapq.heappush(q, (0.0, y))
    return heapq.heappop(q)[1]


def ordered(y, xs: list[float]):
    z = sorted([(float(-k), x * y) for k, x in enumerate(xs)] + [(-9.0, y)], key=lambda p: p[0])
    return z[0][1]


def slices(y, xs: list[float]):
    z = [x * y for x in xs] + [y, y]
    z = z[-2:]
    return z[0] + z[1]


def reversed_list(y, xs: list[float]):
    z = [x * y for x in xs] + [y]
    z = z[::-1]
    return z[0]


def linked(y, xs: list[float]):
    head = None
    t = y * 0.0
    for x in xs:
        head = Node(x * y, y, head)
        while t < 0.5:
            t += 0.2
    a = y * 0.0
    while head is not None:
        a = a + head.w
        head = head.next
    return a


def cycle(y, xs: list[float]):
    a = Node(y, y, None)
    a.next = a
    for x in xs:
        n = Node(x * y, y, a.next)
        a.next = n
    k = 0
    p = a
    while k < 3 and p.w * k < 9.0:
        p = p.next
        k += 1
    return p.w


def lists_that_grow(y, xs: list[float]):
    zs = [[y], []]
    k = 0
    while k < len(xs) and y * k < 50.0:
        zs[1].append(xs[k] * y)
        zs[0].append(y * 2.0)
        k += 1
    return zs[0][-1] + zs[0][0]


def grows_while_numbers_say(y, xs: list[float]):
    z = []
    k = 0
    while y * y * k < 1.0 and k < len(xs):
        z.append(xs[k] * y)
        k += 1
    z.append(y)
    b = z[-1]
    for j in range(len(z)):
        if j == len(z) - 1:
            b = b + z[j]
    return b


def pairs(y, xs: list[float]):
    z = [(y, 0.0)]
    k = 0
    while y * y * k < 1.0 and k < len(xs):
        z.append((xs[k] * y, float(k)))
        k += 1
    return min(z, key=lambda p: p[1])[0]


def dict_of_numbers(y, xs: list[float]):
    d = {0: y}
    k = 0
    while y * y * k < 1.0 and k < len(xs):
        d[k + 1] = xs[k] * y
        k += 1
    return d[0] + d.get(99, 0.0)


def overwritten(y, xs: list[float]):
    z = [y * 1.0] * 4
    k = 0
    while y * y * k < 1.0 and k < len(xs):
        z[1] = z[1] * xs[k]
        k += 1
    z[1] = y
    return z[1] + z[2]


def made_by_a_recursion(y, xs: list[float]):

    def go(k):
        if k >= len(xs) or y * y * k > 4.0:
            return [y]
        return [xs[k] * y] + go(k + 1)

    return go(0)[-1]


def stack(y, xs: list[float]):
    st = [y]
    k = 0
    while k < len(xs):
        st.append(xs[k] * y)
        if y < 5.0:
            st.pop()
        k += 1
    return sum(st)


def ordered_after_a_loop(y, xs: list[float]):
    z = [(1.0 + k, x * y) for k, x in enumerate(xs)]
    k = 0
    while y * k * y < 1.0 and k < 3:
        z.append((-1.0 - k, y))
        k += 1
    z.sort(key=lambda p: p[0])
    return z[0][1]


def reciprocals(y, xs: list[float]):
    z = [1.0 / (x - x + y * 0.0) if y < -100 else jnp.reciprocal(y * 0.0) for x in xs] + [y]
    return z[-1]


PROGRAMS = [
    appended,
    popped,
    joined,
    set_by_index,
    fields_of_objects,
    objects_in_a_list,
    lists_in_a_list,
    heap,
    ordered,
    slices,
    reversed_list,
    linked,
    cycle,
    lists_that_grow,
    grows_while_numbers_say,
    pairs,
    dict_of_numbers,
    overwritten,
    made_by_a_recursion,
    stack,
    ordered_after_a_loop,
    reciprocals,
]


@pytest.mark.parametrize("backend", [pytest.param("interpret", marks=pytest.mark.long), "xla", "llvm"])
@pytest.mark.parametrize("fun", PROGRAMS, ids=lambda f: f.__name__)
def test_what_is_not_read_has_no_part(fun, backend):
    found = ab.grad(ab.batched(fun, backend=backend))(Y, LISTS)
    wanted = [jax.grad(lambda y, xs=xs: fun(y, xs))(jnp.float32(y)) for y, xs in zip(Y, LISTS, strict=True)]
    assert np.isfinite(wanted).all()
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


def thirds(x):
    a, b, c = jnp.split(x, 3)
    return (a * b - c).sum() + sum(p[0] for p in jnp.array_split(x, 4))


@pytest.mark.parametrize("backend", ["interpret", "xla", "llvm", "auto"])
def test_parts_of_an_array(backend):
    """Whose sizes JAX has as integers of NumPy."""
    x = np.arange(18, dtype=np.float32).reshape(2, 9) / 8
    f = ab.batched(thirds, backend=backend)
    np.testing.assert_allclose(f(x), [thirds(v) for v in x], rtol=1e-6)
    np.testing.assert_allclose(ab.grad(f)(x), [jax.grad(thirds)(jnp.asarray(v)) for v in x], rtol=1e-6)
