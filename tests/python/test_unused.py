"""Derivatives are those of the path that an example has taken: what it computes and does not use has no part."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autobatch as ab

X = np.array([0.0, 4.0, 9.0, -1.0, 0.5], np.float32)
N = np.array([0, 1, 2, 0, 3], np.int32)


def root(x):
    r = jnp.sqrt(x)
    return r if x > 0 else 0.0 * x


def turns_of_a_count(x, n):
    r = jnp.sqrt(jnp.abs(x))
    acc = x
    for _ in range(n):
        acc = acc + r
    return acc


def turns_of_a_test(x):
    inv = jnp.reciprocal(x)
    acc = x
    i = 0
    while acc > 1.0 and i < 5:
        acc = acc * 0.5 + inv * 0.01
        i += 1
    return acc


def overwritten_in_a_loop(x):
    r, y = x * 0.0, jnp.abs(x) * 0.25
    while y < 2.5:
        r = jnp.log(jnp.abs(x))
        y = y + 1.0
    return y + r if x > 0.25 else y


def left_in_a_turn(x):
    r = y = x * 0.5
    for _ in range(3):
        r = jnp.log(jnp.abs(x))
        if y < 0.5:
            return x * 0.75 + y
        y = y * 0.75
    if x > 4.5:
        y = y + r
    return x + y


def both_arms_of_where(x):
    r = jnp.log(jnp.abs(x))
    s = jnp.where(x != 0, r, 0.0)
    return s


def early_exit(x):
    r = jnp.sqrt(jnp.abs(x))
    if x == 0:
        return 2.0 * x
    y = r * 3
    if x < 0:
        return -y
    return y + r


def norm(x):
    v = jnp.stack([x, 2 * x])
    n = jnp.linalg.norm(v)
    if x != 0:
        return v[0] / n
    return x


def nested_arms(x):
    r = jnp.sqrt(jnp.abs(x))
    q = r * x
    z = q + r
    if x > 0.1:
        if x > 5:
            return z
        return q
    return x


def arm_in_a_loop(x, n):
    r = jnp.sqrt(jnp.abs(x))
    acc = x
    for i in range(n):
        if x != 0 and i > 0:
            acc = acc * r
    return acc


def closure(x):
    r = jnp.sqrt(jnp.abs(x))

    def g(y):
        return y * r

    if x != 0:
        return g(x)
    return x


def ties_of_jax(x):
    m = jnp.maximum(x, 0.0)
    n = jnp.minimum(x, 0.0)
    return m * m + n + jnp.abs(x)


def ties_of_python(x):
    return max(x, 0.0) + min(x, 0.0) * 2 + abs(x) * 3


def two_branches(x):
    r = jnp.sqrt(jnp.abs(x))
    log = jnp.log(jnp.abs(x))
    y = x
    if x != 0:
        y = y + r
    if x != 0:
        y = y + r * log
    return y


def conditional_expression(x):
    r = jnp.exp(1.0 / x) if x != 0 else x
    return r


def pair(x):
    t = (jnp.sqrt(jnp.abs(x)), jnp.reciprocal(x))
    k = 0 if x != 0 else 2
    return t[0] * t[1] if k == 0 else x


def element_of_a_list(x, n):
    r = [jnp.sqrt(jnp.abs(x)), x, x * x, x + 1]
    return r[n if x != 0 else 1]


def leaves_a_loop(x):
    r = jnp.sqrt(jnp.abs(x))
    y = 0.0 * x
    for i in range(3):
        if x == 0:
            break
        y = y + r
    else:
        y = y * r
    return y


def arc(x):
    r = jnp.arcsin(x / 4.0) if abs(x) <= 4 else x
    q = jnp.arccos(x / 4)
    return r if x == 4 else q if abs(x) < 4 else x


def infinite_product(x):
    big = jnp.exp(200.0 * x)
    prod = big * x
    if x < 0.2:
        return prod + big
    return x


def inverse_matrix(x):
    m = jnp.array([[1.0, 0.0], [0.0, 1.0]]) * x
    d = jnp.linalg.inv(m)
    s = jnp.sum(d)
    return s if x != 0 else x


def where(x):
    r = jnp.sqrt(jnp.abs(x))
    return jnp.where(x == 0, 0.0, r)


def power(x):
    r = x**0.5
    return r if x > 0 else x * 2


def square_root_of_a_square(x):
    return jnp.sqrt(x * x)


def recursion(x, n):

    def rec(n, r):
        if n <= 0:
            return x
        return r + rec(n - 1, r * x)

    return rec(n, jnp.sqrt(jnp.abs(x)))


def unit_vector(x):
    v = jnp.stack([x, x * 0])
    w = v / jnp.sqrt(jnp.sum(v * v))
    u = w * 2
    return jnp.sum(u) if x != 0 else x


def replaced_in_a_list(x):
    r = jnp.sqrt(jnp.abs(x))
    h = [r, x]
    if x == 0:
        h[0] = x
    return h[0] + h[1]


def products_of_logarithms(x):
    s = jax.nn.softplus(x)
    log = jnp.log(jnp.abs(x))
    k = log * s
    return jnp.tanh(k) if x != 0 else s


def body_of_a_loop(x):
    acc = x
    i = 0
    while acc < 20.0 and i < 6:
        r = jnp.sqrt(jnp.abs(acc))
        log = jnp.log(jnp.abs(acc))
        if acc != 0:
            acc = acc + r * log * 0.1 + 1
        else:
            acc = acc + 2
        i += 1
    return acc


def state_behind_a_loop(x):
    acc = x
    prev = x
    while acc < 20.0:
        y = acc * 2 + 3
        prev = jnp.sqrt(jnp.abs(acc))
        acc = y
    if x == 0:
        return acc
    return acc + prev


def state_of_the_last_turn(x):
    prev = 0.0
    y = x
    for k in range(3):
        y = y + prev
        prev = jnp.sqrt(jnp.abs(x * k))
    return y


def lists_in_a_loop(x, n):
    xs = [x, 2 * x, 3 * x]
    rs = [jnp.sqrt(jnp.abs(v)) for v in xs]
    t = x
    for i in range(n):
        if x != 0:
            t = t + rs[i]
    return t


def handler(x):
    r = jnp.sqrt(jnp.abs(x))
    try:
        if x == 0:
            raise ValueError("a")
        y = r * 2
    except ValueError:
        y = x * 3
    return y


def recursion_of_a_closure(x):
    r = jnp.sqrt(jnp.abs(x))
    log = jnp.log(jnp.abs(x))

    def f(d, a):
        if d == 0:
            return a
        return f(d - 1, a * 0.5) + (r if x != 0 else x)

    y = f(3, x)
    return y * log if x != 0 else y


def sums_behind_a_loop(x):
    a = jnp.log(jnp.abs(x))
    b = jnp.tanh(a * 2.0)
    c = b * b + jnp.exp(a)
    d = jnp.dot(jnp.stack([c, b]), jnp.array([1.0, 2.0]))
    while x != 0 and d < 0:
        d = d + 1.0 + a * 0
    return d if x != 0 else x


def clamped(x):
    return max(jnp.log(jnp.abs(x)), -5.0 * x) + min(jnp.reciprocal(x * x), 3.0 * x)


def clamped_in_a_list(x):
    return max([jnp.log(jnp.abs(x)), -5.0 * x, x - 1]) + min([x * 2, jnp.sqrt(jnp.abs(x)) + 1])


def best_by_a_key(x):
    return max((jnp.log(jnp.abs(x)), x, 2 * x), key=lambda y: -abs(y)) * x


def least_in_a_loop(x):
    best = 2.0 * x
    for i in range(3):
        t = jnp.log(jnp.abs(x)) * i
        if t > best:
            best = t
        best = min(best, jnp.reciprocal(x) + 5)
    return best


def rounded(x):
    r = jnp.sqrt(jnp.abs(x))
    y = jnp.floor(r) + x
    return y * r if x != 0 else y * x


def only_compared(x):
    r = jnp.sqrt(jnp.abs(x))
    return x * 2 if r < 1.5 else r if x > 0 else x


def carried_by_a_tail_call(x):

    def rec(n, best, r):
        if n == 0:
            return best
        return rec(n - 1, r if r > best else best, r * 0.5)

    return rec(3, x, jnp.log(jnp.abs(x)))


def element_chosen_in_a_loop(x):
    y, i = x, 0
    while i < 3 and y < 9.0:
        r = jnp.power(jnp.abs(x), 0.5)
        y = [0.5, r][1 if x > 0.25 else 0]
        i += 1
    return x * 2 + y


PROGRAMS = [
    element_chosen_in_a_loop,
    clamped,
    clamped_in_a_list,
    best_by_a_key,
    least_in_a_loop,
    rounded,
    only_compared,
    carried_by_a_tail_call,
    root,
    turns_of_a_test,
    both_arms_of_where,
    early_exit,
    norm,
    nested_arms,
    closure,
    ties_of_jax,
    ties_of_python,
    two_branches,
    conditional_expression,
    pair,
    leaves_a_loop,
    arc,
    infinite_product,
    inverse_matrix,
    where,
    power,
    square_root_of_a_square,
    unit_vector,
    replaced_in_a_list,
    products_of_logarithms,
    body_of_a_loop,
    state_behind_a_loop,
    state_of_the_last_turn,
    handler,
    recursion_of_a_closure,
    sums_behind_a_loop,
    overwritten_in_a_loop,
    left_in_a_turn,
]
COUNTED = [
    turns_of_a_count,
    arm_in_a_loop,
    element_of_a_list,
    recursion,
    lists_in_a_loop,
]


@pytest.mark.parametrize("backend", ["interpret", "xla", "llvm"])
@pytest.mark.parametrize("fun", [*PROGRAMS, *COUNTED], ids=lambda f: f.__name__)
def test_gradients_are_those_of_the_path(fun, backend):
    columns = (X, N) if fun in COUNTED else (X,)
    wanted = [jax.grad(fun)(jnp.float32(x), *map(int, rest)) for x, *rest in zip(*columns, strict=True)]
    found = ab.grad(ab.batched(fun, backend=backend))(*columns)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("backend", ["interpret", "xla", "llvm"])
@pytest.mark.parametrize("fun", [*PROGRAMS, *COUNTED], ids=lambda f: f.__name__)
def test_data_that_is_not_finite(fun, backend):
    """Where plain Python has a finite derivative, what is not used has no part in it, as little as where it is not
    finite for what an operation does."""
    columns = (np.float32([np.inf, np.nan, 1.5]), np.int32([1, 2, 3]))[: 1 + (fun in COUNTED)]
    wanted = np.array([jax.grad(fun)(jnp.float32(x), *map(int, rest)) for x, *rest in zip(*columns, strict=True)])
    found = np.asarray(ab.grad(ab.batched(fun, backend=backend))(*columns))
    finite = np.isfinite(wanted)
    np.testing.assert_allclose(found[finite], wanted[finite], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("fun", [root, turns_of_a_test, early_exit, element_of_a_list], ids=lambda f: f.__name__)
def test_under_transformations_of_jax(fun):
    columns = (X, N) if fun in COUNTED else (X,)
    batched = ab.batched(fun)
    found = jax.jit(jax.grad(lambda x: batched(x, *columns[1:]).sum()))(X)
    wanted = [jax.grad(fun)(jnp.float32(x), *map(int, rest)) for x, *rest in zip(*columns, strict=True)]
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


def shared_over_nan(b, x):
    e = b / np.nan
    if x > 0:
        x = x + e[0]
    return x * b[1]


def logarithm_of_shared(b, x):
    e = jnp.log(b)
    if x > 0:
        x = x + e[0]
    return x


def reciprocal_of_shared(b, x):
    e = jnp.reciprocal(b)
    if x > 0:
        x = x + e[0] * e[1]
    return x


def roots_of_shared_in_a_loop(b, x):
    e = jnp.sqrt(b).sum()
    for _ in range(3):
        if x > 0.5:
            x = x * e
    return x * b[1]


def shared_times_infinity(b, x):
    e = b * np.inf
    return x if x < 1 else e.sum()


def times_infinity(b, x):
    e = x * np.inf
    return x if x < 1 else e * b[0]


@pytest.mark.parametrize("backend", ["interpret", "xla", "llvm"])
@pytest.mark.parametrize(
    "fun",
    [
        shared_over_nan,
        logarithm_of_shared,
        reciprocal_of_shared,
        roots_of_shared_in_a_loop,
        shared_times_infinity,
        times_infinity,
    ],
    ids=lambda f: f.__name__,
)
def test_what_all_examples_share_and_none_uses(fun, backend):
    b, x = np.float32([0.0, 1.0, 2.0]), np.float32([-1.0, -0.5, -0.25])
    found = ab.grad(ab.batched(fun, in_axes=(None, 0), backend=backend), (0, 1))(b, x)
    each = [jax.grad(fun, (0, 1))(jnp.asarray(b), jnp.float32(v)) for v in x]
    np.testing.assert_allclose(found[0], sum(np.asarray(e[0]) for e in each), rtol=1e-5)
    np.testing.assert_allclose(found[1], [e[1] for e in each], rtol=1e-5)


def root_of_infinity(x):
    e = jnp.sqrt(np.inf) * x
    return max(x * 0.5, e) if x < 1 else x


def overflow_of_constants(x):
    e = jnp.exp(1000.0) * x
    return e if x > 9 else x * 2


def divided_by_a_logarithm(x):
    e = x / jnp.log(1.0)
    return e if x > 9 else x * 2


def infinite_array(x):
    e = (x * np.float32([1.0, np.inf]))[1]
    return e if x > 9 else x * 2


def array_with_nan(x):
    e = jnp.stack([x, x]) @ jnp.array([1.0, jnp.nan])
    return min(x * 2, e)


@pytest.mark.parametrize("backend", ["interpret", "xla", "llvm"])
@pytest.mark.parametrize(
    "fun",
    [root_of_infinity, overflow_of_constants, divided_by_a_logarithm, infinite_array, array_with_nan],
    ids=lambda f: f.__name__,
)
def test_constants_that_are_not_finite(fun, backend):
    x = np.float32([-1.0, -0.5, -0.25])
    found = ab.grad(ab.batched(fun, backend=backend))(x)
    np.testing.assert_allclose(found, [jax.grad(fun)(jnp.float32(v)) for v in x], rtol=1e-5)


def behind_a_check(b, x, n):
    scale = [1.0, 2.0, 3.0][n % 3]
    e = b / x
    if x != 0.0:
        x = x + e[0] * scale
    return x


@pytest.mark.parametrize("backend", ["interpret", "xla", "llvm"])
def test_what_is_computed_behind_a_check_and_not_used(backend):
    """By the pullback, too, which XLA computes of what machine code runs."""
    b, x, n = np.float32([1.0, 2.0, -0.5]), np.float32([0.5, 0.0, 0.0]), [1, 2, 0]
    f = ab.batched(behind_a_check, in_axes=(None, 0, 0), backend=backend)
    each = [jax.grad(behind_a_check, (0, 1))(jnp.asarray(b), jnp.float32(v), k) for v, k in zip(x, n, strict=True)]
    wanted = sum(np.asarray(e[0]) for e in each), [float(e[1]) for e in each]
    _, pull = ab.vjp(f, b, x, n)
    for found in (ab.grad(f, (0, 1))(b, x, n), pull(np.ones(3, np.float32))):
        np.testing.assert_allclose(found[0], wanted[0], rtol=1e-5)
        np.testing.assert_allclose(found[1], wanted[1], rtol=1e-5)
