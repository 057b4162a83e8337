"""Python's integers have no end: the device tells where they leave its 32 bits; machine code then computes with 64."""

from __future__ import annotations

import math
from typing import Any

import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import Phase, given, settings

import autobatch as ab
from autobatch.testing import assert_same
from autobatch.testing.programs import load

WIDER = ("auto", "llvm")
LEAST, MOST = -(2**31), 2**31 - 1
TRACED = {"trace": True}
"""What has constants that are wide does not compile, and is traced."""


class Narrow(int):
    """An integer that notes where a result of it has more than 32 bits, and more than 64."""

    left = wide = False


def _noting(name: str) -> Any:
    function = getattr(int, name)

    def made(self: int, *others: int) -> Any:
        found = function(self, *others)
        if type(found) is not int:
            return found
        Narrow.left |= not LEAST <= found <= MOST
        Narrow.wide |= not -(2**63) <= found < 2**63
        return Narrow(found)

    return made


for _name in ("add", "sub", "mul", "floordiv", "mod", "pow", "lshift", "neg", "abs"):
    setattr(Narrow, f"__{_name}__", _noting(f"__{_name}__"))
for _name in ("add", "sub", "mul", "floordiv", "mod", "pow", "lshift"):
    setattr(Narrow, f"__r{_name}__", _noting(f"__r{_name}__"))


def narrowly(function, ks, *numbers):
    """What Python gives, and whether a result has left 32 bits."""
    Narrow.left = Narrow.wide = False
    found = function([Narrow(x) for x in ks], *map(Narrow, numbers))
    return int(found), Narrow.left


def hashed(ks, n):
    h = n
    for k in ks:
        h = (h * 31 + k) % 1000000007
    return h


def summed(ks, n):
    return (sum(ks) + n) % 97


def multiplied(ks, n):
    p = 1
    for k in ks:
        p *= k
    return (p + n) % 5


def powers(ks, n):
    return (n**3 - (n << 10) + n * n) % 11 + len(ks)


def signs(ks, n):
    return abs(n) % 7 - (-n) % 5


def indices(ks, n):
    t = 0
    for i in range(len(ks)):
        for j in range(i):
            t += 2 * i * j + 1
    return t


def under_a_mask(ks, n):
    x = 1.0
    while x < 30.0:
        x = x * 2.0
        n = n * 3 + 1
    return n % 7


def counted_twice(ks, n):
    """What is no more than is counted one by one is not counted, for that."""
    return (n % (2**30 + 1) + 1 + (2**30 - 1)) % 7


KS = [[1, 2, 3], [4] * 20, [2**31 - 1, 1], [2**30] * 4, [1000, 1000, 10000, 0], []]
NS = [3, 100000, -46341, 46340, -(2**31), 2**30]


@pytest.mark.parametrize("function", [hashed, summed, multiplied, powers, signs, indices, under_a_mask, counted_twice])
@pytest.mark.parametrize("backend", ["auto", "llvm", "xla", "interpret"])
def test_right_or_refused(function, backend):
    run = ab.batched(function, backend=backend, on_error="mask")
    found, failures = run(KS, NS)
    failed = {f.index: f.kind for f in failures.details}
    for k, (ks, n) in enumerate(zip(KS, NS, strict=True)):
        want, left = narrowly(function, ks, n)
        if k in failed:
            assert failed[k] == "OverflowError" and left
            assert Narrow.wide or backend not in WIDER
        else:
            assert found[k] == want


def in_an_arm(k, x, w):
    if x * w > 4.0:
        k = k * k
    return k % 7


def behind_an_arm(k, x, w):
    if x * w > 4.0:
        k = k - 1
    return k * k % 7


def in_a_loop(k, x, w):
    while x * w > 0.5:
        k = k * 1000 + 1
        x = x * 0.5
    return k % 97


def in_a_loop_of_turns(k, x, w):
    for i in range(20):
        k = k * 7 + i
    return k % 1009


def in_an_inner_loop(k, x, w):
    t = 0
    for _ in range(3):
        if x * w > 1.0:
            for _ in range(4):
                t = t * 1000 + k
        x = x * 1.5
    return t % 1009


def caught(k, x, w):
    try:
        if x * w > 4.0:
            k = k**9
        return 1 // (k - 3) + k % 97
    except ZeroDivisionError:
        return -1


def called(k, x, w):
    def down(n, h):
        return h * h if n == 0 else down(n - 1, h) * 3 + 1

    return down(k % 4, k) % 97


def recursive(k, x, w):
    def halved(k, x):
        return k * k if x < 1.0 else halved(k + 1, x * 0.5) + k * k

    return halved(k, x * w) % 97


def recursive_sum(k, x, w):
    def leaves(k, x):
        return k**3 if x < 1.0 else sum(leaves(k + i, x * 0.4) for i in range(2))

    return leaves(k, x * w) % 97


def of_a_float(k, x, w):
    n = int(x * w * 10000)
    return (n * n + k % 7) % 1009


def in_a_list(k, x, w):
    kept = []
    for i in range(4):
        if x * w > i:
            kept.append(k * i)
    return sum([a * a for a in kept]) % 1009


def counted_by_a_dict(k, x, w):
    found = {0: 1}
    if x * w > 4.0:
        found[1] = k * k
    return sum(found.values()) % 97


def of_all(k, x, w):
    return k % 7 + w * w % 11


def of_all_decides(k, x, w):
    return 1 if w * w % 11 > 5 else 0


WITH_NUMBERS = [
    *(in_an_arm, behind_an_arm, in_a_loop, in_a_loop_of_turns, in_an_inner_loop, caught, called, recursive),
    *(recursive_sum, of_a_float, in_a_list, counted_by_a_dict),
]


@pytest.mark.parametrize("function", WITH_NUMBERS)
@pytest.mark.parametrize("backend", ["auto", "llvm", "xla", "interpret"])
def test_computed_numbers_decide(function, backend):
    """Right, or a result has left 32 bits and the example fails. (Python makes a plain int of a float: those it is not
    told of.)"""
    ks, xs, w = [3, 3, 70000, 70000, -46341, 2**31 - 1], [0.25, 9.0, 0.25, 9.0, 5.0, 3.0], 2.0
    run = ab.batched(function, in_axes=(0, 0, None), backend=backend, on_error="mask")
    found, failures = run(ks, xs, w)
    failed = {f.index: f.kind for f in failures.details}
    for n, (k, x) in enumerate(zip(ks, xs, strict=True)):
        Narrow.left = Narrow.wide = False
        want = int(function(Narrow(k), x, w))
        if n in failed:
            assert failed[n] == "OverflowError" and (Narrow.left or function is of_a_float)
            assert Narrow.wide or backend not in WIDER
        else:
            assert found[n] == want


@pytest.mark.parametrize("backend", ["auto", "xla", "interpret"])
@pytest.mark.parametrize("shared", [3, 46340, 46341, 100000, 2**31 - 1])
def test_an_integer_of_all(backend, shared):
    """The host computes what decides structure, and plans for it; a number of all is the device's, for any value. By
    default both are machine code, with as many bits as they need."""
    run = ab.batched(of_all_decides, in_axes=(0, 0, None), backend=backend)
    assert run([3, 5], [0.5, 0.5], shared).tolist() == [of_all_decides(3, 0.5, shared)] * 2
    run = ab.batched(of_all, in_axes=(0, 0, None), backend=backend)
    if shared > 46340 and backend != "auto":
        with pytest.raises(ab.ExampleError, match="an int needs more bits"):
            run([3, 5], [0.5, 0.5], shared)
    else:
        assert run([3, 5], [0.5, 0.5], shared).tolist() == [of_all(3, 0.5, shared), of_all(5, 0.5, shared)]


@pytest.mark.cpu
def test_what_has_left_once_has_64_bits():
    run = ab.batched(powers)
    run([[1]], [3])
    assert "integers need 64 bits" not in str(run.explain([[1]], [3]))
    assert run([[1]], [100000])[0] == powers([1], 100000)
    assert "1 example on llvm ('auto': integers need 64 bits" in str(run.explain([[1]], [3]))
    assert run([[1]], [3]).dtype == np.int32


def random_numbers(n):
    """Linear congruential generators, and a hash: products under `%`, and low bits."""
    a = b = n
    h = 5381
    for k in range(6):
        a = a * 48271 % 2147483647
        b = (b * 1103515245 + 12345) & 0x7FFFFFFF
        h = (h * 33 ^ k) & 0xFFFFFFFF
    return a, b, h


def test_random_numbers_and_hashes():
    for backend in WIDER:
        run = ab.batched(random_numbers, backend=backend)
        for ns in ([1, 12345, 2**31 - 2], [7, 8, 9]):
            assert ab.unbatch(run(ns)) == [random_numbers(n) for n in ns]


def test_programs_of_64_bits_are_apart_from_those_under_x64(tmp_path):
    """Also where they are kept for later processes: floats have 32 bits in the first."""

    def f(n, x):
        return n * n % 1009 + x / 3.0

    n, x = [2**20, 3], np.array([0.1, 0.2])
    for _ in range(2):
        run = ab.batched(f, backend="llvm", options=ab.options(compilation_cache=tmp_path))
        assert run(n, x).dtype == np.float32
        with jax.enable_x64(True):
            found = run(n, x)
        assert found.dtype == np.float64 and found.tolist() == [f(*pair) for pair in zip(n, x.tolist(), strict=True)]


def test_results_of_64_bits_are_arrays_of_numpy():
    """JAX would drop the bits above 32 in its next operation."""
    run = ab.batched(lambda n: (n * n, [n * n] * 2, n * 0.5, n))
    square, squares, half, same = run([2**20, 5])
    assert type(square) is np.ndarray and square.tolist() == [2**40, 25]
    assert ab.unbatch(squares) == [[2**40] * 2, [25] * 2]
    assert half.dtype == np.float32 and same.dtype == np.int32 and isinstance(half, jax.Array)


def test_derivatives_and_changes_with_64_bits():
    def f(x, n):
        s, total = n, 0.0
        while x > 0.1:
            s = s * 48271 % 2147483647
            total += (s % 100) * x
            x *= 0.5
        return total

    def change(counts):
        for k in range(len(counts)):
            counts[k] = counts[k] * 10**10

    xs, ns = np.array([3.0, 0.5], np.float32), [12345, 7]
    for backend in WIDER:
        found = ab.grad(ab.batched(f, backend=backend))(xs, ns)
        wanted = [(f(x + 1e-3, n) - f(x - 1e-3, n)) / 2e-3 for x, n in zip([3.0, 0.5], ns, strict=True)]
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, wanted, rtol=1e-3)
        given = [[1, 2], [3]]
        ab.batched(change, backend=backend)(given)
        assert given == [[10**10, 2 * 10**10], [3 * 10**10]]


def test_floats_keep_their_bits():
    """Results are the same, whatever an earlier call has needed; also with arrays, and by lists."""

    def f(w, n, x, ys):
        h, t = jnp.zeros(2) + x, 0.1
        while x > 0.1:
            n = n * 31 % 1000003
            h = jnp.tanh(w @ h) + (n % 7) * 0.1
            t = t * 1.7 + math.sin(x * n) / 3 + ys[n % len(ys)] ** 0.5
            x *= 0.71
        return h, t, n, [t / (k + 1) for k in range(n % 3)]

    def first(w, n, x, ys):
        return f(w, n, x, ys)[1]

    w, xs, ys = np.array([[0.5, -0.3], [0.2, 0.9]], np.float32), [3.3, 0.5, 1.7], [[0.3, 0.2], [1.1], [2.2, 0.7, 0.9]]
    for backend in WIDER:
        run = ab.batched(f, in_axes=(None, 0, 0, 0), backend=backend)
        before = run(w, [3, 5, 7], xs, ys)
        run(w, [2**30] * 3, xs, ys)
        assert "integers need 64 bits" in str(run.explain(w, [3, 5, 7], xs, ys)) or backend == "llvm"
        assert_same(run(w, [3, 5, 7], xs, ys), before)
        of_first = ab.batched(first, in_axes=(None, 0, 0, 0), backend=backend)
        slopes = ab.grad(of_first, (0, 3))(w, [3, 5, 7], xs, ys)
        of_first(w, [2**30] * 3, xs, ys)
        assert_same(ab.grad(of_first, (0, 3))(w, [3, 5, 7], xs, ys), slopes)


@pytest.mark.parametrize(
    "program",
    [
        lambda x: x * 2.0,
        lambda x: x // 2,
        lambda x: x % 0.75,
        lambda x: x**2.5,
        lambda x: x**90,
        lambda x: jnp.where(x > 1, 2.0, 1.0) * x,
        lambda x: x * (len(str(123)) / 2),
    ],
)
@pytest.mark.parametrize("dtype", [None, "float16", "bfloat16", "float32"])
def test_floats_keep_their_types(program, dtype):
    """Beside integers of 64 bits; a float of Python is as weak as it was."""
    xs = [1.5, 2.25, 10.0] if dtype is None else jnp.asarray([[1.5], [2.25], [10.0]], dtype)
    run = ab.batched(lambda x, n: (program(x), n * 3), backend="llvm")
    before, _ = run(xs, [1, 2, 3])
    found, wide = run(xs, [1, 2, 2**40])
    assert wide.dtype == np.int64 and found.dtype == before.dtype
    assert_same(np.asarray(found), np.asarray(before))


def test_floats_that_strings_say_with_64_bits():
    def total(line, n):
        t = 0.0
        for word in line.split(","):
            t += float(word)
        return t, n * 3

    for backend in WIDER:
        lines, ns = ["1.5,2.25", "-3", "1e30"], [1, 2**40, 3]
        assert_same(ab.unbatch(ab.batched(total, backend=backend)(lines, ns)), list(map(total, lines, ns)))


@pytest.mark.parametrize("backend", ["auto", "llvm", "xla", "interpret"])
def test_shifts(backend):
    def left(x, k):
        return x << k

    def right(x, k):
        return x >> k

    def caught(x, k):
        try:
            return x << k, x >> k
        except ValueError:
            return -1, -1

    xs, ks = [1, 5, -9, 7], [0, 3, 31 if backend == "auto" else 2, 1]
    for f in (left, right, caught):
        assert_same(ab.unbatch(ab.batched(f, backend=backend)(xs, ks)), list(map(f, xs, ks)))
    for f in (left, right, lambda x, k: x << -1, lambda x, k: x >> -1):
        with pytest.raises(ab.ExampleError, match="ValueError: negative shift count"):
            ab.batched(f, backend=backend)(xs, [0, 3, -2, 1])
    assert_same(
        ab.unbatch(ab.batched(caught, backend=backend)(xs, [0, -1, 1, -5])), list(map(caught, xs, [0, -1, 1, -5]))
    )


@pytest.mark.parametrize("wrap", [jax.jit, lambda g: lambda xs: jax.vmap(g)(xs[None])[0]])
def test_under_jax_integers_keep_32_bits(wrap):
    """Also where calls before it have needed more."""
    run = ab.batched(in_a_loop, in_axes=(0, 0, None))
    assert run([3], [9.0], 2.0)[0] == in_a_loop(3, 9.0, 2.0)
    found = wrap(lambda xs: run([3], xs, 2.0))(np.array([0.3], np.float32))
    assert found.dtype == np.int32 and found[0] == in_a_loop(3, 0.3, 2.0)


def test_low_bits_are_not_checked(tmp_path):
    def f(a, b):
        return ((a * b + 7) ^ a) & 0xFFFF, (a << 3) - b

    ab.batched(f, backend="llvm", options=ab.options(dump=tmp_path))([3, 2**31 - 1], [4, 5])
    text = (tmp_path / "02-mark-integers.txt").read_text()
    assert text.count("exact=True") == 2  # of what is returned whole


def test_no_checks_where_intervals_tell(tmp_path):
    ab.batched(indices, backend="llvm", options=ab.options(dump=tmp_path))(KS, NS)
    text = (tmp_path / "02-mark-integers.txt").read_text()
    assert text.count("exact=True") == 3  # a product of two indices, one more, and the sum; not twice an index


NAMES = ("a", "b", "c")
OPERATORS = ("+", "-", "*", "//", "%")


@st.composite
def expressions(draw: st.DrawFn, depth: int = 2) -> str:
    if depth == 0 or draw(st.integers(0, 3)) == 0:
        return draw(st.sampled_from((*NAMES, "1", "2", "7", "len(ks)")))
    kind = draw(st.sampled_from((*OPERATORS, *OPERATORS, "neg", "abs", "pow", "shift", "min", "sum")))
    x, y = draw(expressions(depth - 1)), draw(expressions(depth - 1))
    match kind:
        case "//" | "%":
            return f"({x} {kind} (abs({y}) + 1))"
        case "neg" | "abs":
            return f"(-({x}))" if kind == "neg" else f"abs({x})"
        case "pow":
            return f"({x}) ** {draw(st.sampled_from((2, 3)))}"
        case "shift":
            return f"(({x}) << {draw(st.sampled_from((1, 5, 12)))})"
        case "min":
            return f"min({x}, {y})"
        case "sum":
            return f"sum([k * 3 + {x} for k in ks])"
    return f"({x} {kind} {y})"


@st.composite
def sources(draw: st.DrawFn) -> str:
    lines = ["import autobatch as ab", "", "", "@ab.batched", "def main(ks, a, b):", "    c = 1"]
    for _ in range(draw(st.integers(1, 4))):
        name = draw(st.sampled_from(NAMES))
        match draw(st.sampled_from(("set", "loop", "branch", "count"))):
            case "set":
                lines.append(f"    {name} = {draw(expressions())}")
            case "loop":
                lines += ["    for k in ks:", f"        {name} = {name} + k * {draw(expressions(1))}"]
            case "branch":
                lines += [f"    if {draw(expressions(1))} > {name}:", f"        {name} = {draw(expressions())}"]
            case "count":
                lines += [f"    for i in range(abs({name}) % 9):", f"        {name} = {draw(expressions(1))} - i"]
    return "\n".join([*lines, "    return (a % 1009) * 7 + b % 31 + c % 17", ""])


@pytest.mark.filterwarnings("ignore::autobatch.StructureWarning")
@settings(max_examples=20, phases=(Phase.explicit, Phase.generate))
@given(
    sources(),
    st.lists(
        st.tuples(
            st.lists(st.integers(-3000, 3000), min_size=1, max_size=4), st.integers(LEAST, MOST), st.integers(-99, 99)
        ),
        min_size=1,
        max_size=4,
    ),
)
def test_programs_on_integers(source, examples):
    """They are right, or a result has left 32 bits and the example fails. (What is traced, as for constants that are
    wide, has Python's integers.)"""
    function = load(source).__wrapped__
    columns = [list(x) for x in zip(*examples, strict=True)]
    for backend in ("llvm", "auto", "xla", "interpret"):
        found, failures = ab.batched(function, backend=backend, on_error="mask", options=TRACED)(*columns)
        failed = {f.index for f in failures.details}
        for k, example in enumerate(examples):
            value, left = narrowly(function, *example)
            assert (left and (Narrow.wide or backend not in WIDER)) if k in failed else found[k] == value


@pytest.mark.filterwarnings("ignore::autobatch.StructureWarning")
@pytest.mark.parametrize("backend", ["auto", "llvm", "xla", "interpret"])
def test_a_wide_constant_in_a_counted_loop(backend):
    """It is right or refused by name; a scan would have told in JAX's words."""

    def last(ks):
        c = 1
        for i in range(abs(c) % 9):
            c = 46341**2 - i
        return c % 17

    found, failures = ab.batched(last, backend=backend, on_error="mask", options=TRACED)([[0], [1]])
    assert {f.kind for f in failures.details} <= {"OverflowError"}
    assert len(failures.details) == 2 or found.tolist() == [last([0]), last([1])]


@pytest.mark.parametrize("kind", ["list", "float64", "float32"])
def test_programs_compute_the_same_with_64_bits(kind):
    """Arithmetic of Python's floats, and arrays of all kinds."""

    def f(x, ys):
        table = np.zeros(len(ys) + 1)
        for k in range(len(ys)):
            table[k + 1] = table[k] * 0.5 + ys[k] * x
        below, rest = divmod(x, 0.7)
        rounded = round(x, 2), round(x), int(x * 1000), x // 0.3, -x % 0.3, x**0.5, 2.0**x, math.atan2(x, 0.3)
        array = np.array([x, 2.0 * x, ys[0]])
        return table, below, rest, rounded, array / 3, array.argmax(), max(ys) / 7, jnp.ones((2, 2)) @ array[:2]

    xs: Any = [3.3, 0.5, 1.7]
    ys: Any = [[0.3, 0.2], [1.1], [2.2, 0.7, 0.9]]
    if kind != "list":
        xs, ys = np.array(xs, kind), [np.array(y, kind) for y in ys]
    run = ab.batched(f, backend="llvm")
    before = run(xs, ys)
    run.room.wide = True
    after = run(xs, ys)
    assert run.room.wide
    assert_same(after, before)
    assert [x.dtype for x in jax.tree.leaves(after)] == [x.dtype for x in jax.tree.leaves(before)]
