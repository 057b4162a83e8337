"""`backend="llvm"`: a whole function as one function of machine code agrees with plain Python."""

import warnings
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import Phase, given, reject, settings

import autobatch as ab
from autobatch.backends.llvm import code, machine_code, program
from autobatch.backends.llvm.text import is_checking
from autobatch.call import inspection
from autobatch.common import cache
from autobatch.testing import NotEquivalent, assert_same, check_equivalence
from tests.backends.whole import drawn
from tests.backends.whole.programs import cases, chase, looked_up, mandel, newton, parameters, rooted, sort3
from tests.properties import masked, recursions

CASES = cases()


def batched(name, **kwargs):
    case = CASES[name]
    return ab.batched(case.function, in_axes=case.in_axes, backend="llvm", **kwargs), case.arguments


def assert_close(found, wanted):
    found, wanted = jax.tree.leaves(found), jax.tree.leaves(wanted)
    assert len(found) == len(wanted)
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", CASES)
def test_equals_plain_python(name):
    f, arguments = batched(name)
    found = f(*arguments)
    assert all(type(x) is np.ndarray for x in jax.tree.leaves(found))
    assert_close(ab.unbatch(found), f.loop(*arguments))


@pytest.mark.parametrize("name", ["mandel", "horner", "chase", "collatz"])
def test_handles_take_any_size_and_give_the_same_bits(name):
    f, arguments = batched(name)
    axes = CASES[name].in_axes
    handle = f.lower(*arguments).compile()
    assert handle.is_direct
    for count in (37, 16, 5, 1, 0):
        cut = [x if axes != 0 and axes[k] is None else x[:count] for k, x in enumerate(arguments)]
        found, whole = handle(*cut), f(*arguments)
        jax.tree.map(lambda a, b: np.testing.assert_array_equal(a, b[:count]), found, whole)


def test_handles_take_dicts_of_shared_arrays():
    """Whatever the order of their keys; with other keys or arrays the call is that of the function."""
    f = ab.batched(lambda p, x: p["b"] * x + p["a"][1], in_axes=(None, 0), backend="llvm")
    p, x = {"b": np.float32([2.0]), "a": np.float32([5.0, 6.0])}, np.arange(3, dtype=np.float32)
    handle = f.lower(p, x).compile()
    assert handle.is_direct
    for same in (p, dict(sorted(p.items())), {k: jnp.asarray(v) for k, v in p.items()}):
        np.testing.assert_array_equal(handle(same, x), [[6], [8], [10]])
    with pytest.raises(ab.PlanError, match="this executable is for"):
        handle({**p, "c": p["a"]}, x)
    with pytest.raises(ab.PlanError, match="this executable is for other calls .* call the function itself"):
        handle({"b": p["b"]}, x)  # of which there is no program, and none is made
    assert f.cache_info().specialisations == 1


def test_handles_know_dicts_whose_order_matters():
    def weighted(p, x):
        total = x
        for v in p.values():
            total = 2 * total + v
        return total

    f = ab.batched(weighted, in_axes=(None, 0), backend="llvm")
    p, x = {"b": np.float32(1.0) * np.ones(()), "a": np.zeros((), np.float32)}, np.ones(2, np.float32)
    handle = f.lower(p, x).compile()
    np.testing.assert_array_equal(handle(p, x), [6, 6])
    np.testing.assert_array_equal(f({"a": p["a"], "b": p["b"]}, x), [5, 5])


def test_any_number_of_threads_gives_the_same_bits(monkeypatch):
    monkeypatch.setattr(program, "CHUNK", 64)
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(2, 1000)).astype(np.float32)
    one, four = (ab.batched(mandel, backend="llvm", options={"threads": n}) for n in (1, 4))
    np.testing.assert_array_equal(one(x, y), four(x, y))
    monkeypatch.setattr(inspection, "MANY", 100)
    np.testing.assert_array_equal(one(x, y), four.lower(x, y).compile()(x, y))


class TestArrays:
    """What lies as the code reads it is read there; everything else is copied first, or refused."""

    x = np.linspace(-2, 1, 12).astype(np.float32)
    f = staticmethod(ab.batched(mandel, backend="llvm"))

    @pytest.fixture
    def wanted(self):
        return self.f(self.x, self.x)

    @pytest.fixture
    def handle(self):
        return self.f.lower(self.x, self.x).compile()

    def others(self):
        x = self.x
        yield "strided", np.repeat(x, 2)[::2]
        yield "backwards", np.ascontiguousarray(x[::-1])[::-1]
        read_only = x.copy()
        read_only.flags.writeable = False
        yield "read-only", read_only
        room = np.zeros(4 * len(x) + 1, np.uint8)
        room[1:] = x.view(np.uint8)
        yield "misaligned", room[1:].view(np.float32)
        yield "float64", x.astype(np.float64)

    def test_as_given(self, wanted, handle):
        for what, other in self.others():
            np.testing.assert_array_equal(self.f(other, self.x), wanted, err_msg=what)
            np.testing.assert_array_equal(handle(other, self.x), wanted, err_msg=what)

    def test_other_order_of_bytes_is_refused(self, handle):
        for call in (self.f, handle):
            with pytest.raises(ab.BatchError, match="newbyteorder"):
                call(self.x.astype(">f4"), self.x)

    def test_of_jax(self, wanted, handle):
        x = jnp.asarray(self.x)
        for call in (self.f, handle):
            found = call(x, self.x)
            assert isinstance(found, jax.Array)
            np.testing.assert_array_equal(found, wanted)

    def test_lists(self, wanted):
        np.testing.assert_array_equal(self.f(self.x.tolist(), self.x.tolist()), wanted)

    def test_handles_refuse_other_types(self, handle):
        with pytest.raises(ab.PlanError, match="this executable is for"):
            handle(np.arange(12, dtype=np.int32), self.x)
        with pytest.raises(ab.BatchError, match="12.*5|5.*12"):
            handle(self.x, self.x[:5])
        with pytest.raises(ab.BatchError):
            handle(np.float32(1), np.float32(1))

    def test_names_of_arguments(self, wanted, handle):
        np.testing.assert_array_equal(handle(self.x, im=self.x), wanted)

    def test_results_are_new_each_time(self, wanted, handle):
        first = handle(self.x, self.x)
        assert handle(self.x, self.x) is not first
        first[:] = -1
        np.testing.assert_array_equal(handle(self.x, self.x), wanted)


class TestFailures:
    i = np.array([0, 5, 2, -5, -6], np.int32)
    x = np.ones(5, np.float32)
    table = CASES["chase"].arguments[0]

    def test_name_example_and_line(self):
        f = ab.batched(chase, in_axes=(None, 0, 0), backend="llvm")
        for call in (f, f.lower(self.table, self.i, self.x).compile()):
            with pytest.raises(ab.ExampleError, match="i = table") as error:
                call(self.table, self.i, self.x)
            assert [(e.index, e.kind) for e in error.value.failures] == [(1, "IndexError"), (4, "IndexError")]

    def test_are_masked(self):
        f = ab.batched(chase, in_axes=(None, 0, 0), backend="llvm", on_error="mask")
        for call in (f, f.lower(self.table, self.i, self.x).compile()):
            found, failures = call(self.table, self.i, self.x)
            np.testing.assert_array_equal(found, [3, 0, 4, 3, 0])
            np.testing.assert_array_equal(failures.failed, [False, True, False, False, True])
            assert [e.index for e in failures] == [1, 4]

    def test_division_by_zero(self):
        f = ab.batched(lambda n, m: n // m, backend="llvm", on_error="mask")
        found, failures = f([7, -7, 3], [2, 2, 0])
        assert found.tolist() == [3, -4, 0]
        assert [(e.index, e.kind) for e in failures] == [(2, "ZeroDivisionError")]

    def test_endless_loop(self):
        def endless(x):
            while x > 0:
                x = x + 1.0
            return x

        f = ab.batched(endless, backend="llvm", options={"max_iterations": 100})
        with pytest.raises(ab.ExampleError, match="max_iterations=100"):
            f(np.array([-1.0, 1.0], np.float32))


@dataclass
class Node:
    value: float
    children: list["Node"]


def test_results_that_nest_as_the_examples_do():
    def total(node):
        return node.value, [total(c) for c in node.children]

    nodes = [Node(1.0, [Node(2.0, [])]), Node(3.0, [Node(1.0, [Node(4.0, [])]), Node(2.5, [])]), Node(0.5, [])]
    assert ab.unbatch(ab.batched(total, backend="llvm")(nodes)) == [total(n) for n in nodes]


class TestRefusals:
    def test_room_for_arrays(self, monkeypatch):
        def swapped(x):
            a = jnp.full((64, 250), x)
            b = a * a[::-1]
            while x < 5.0:
                x = x + 1.0
                a, b = b, jnp.sin(a + x)
            return a.sum() + b.sum()

        x = np.ones(2, np.float32)
        wanted = ab.batched(swapped, backend="llvm")(x)
        for stack, scratch in ((1 << 16, 1 << 28), (1 << 16, 1 << 16)):
            monkeypatch.setattr("autobatch.backends.llvm.lanes.writer.STACK", stack)
            monkeypatch.setattr("autobatch.backends.llvm.code.SCRATCH", scratch)
            if scratch > stack:
                np.testing.assert_allclose(ab.batched(swapped, backend="llvm")(x), wanted)
        with pytest.raises(ab.UnsupportedError, match=r"test_whole.py:\d+:\d+.*bytes for its arrays(.|\n)*jnp.full"):
            ab.batched(swapped, backend="llvm")(np.ones(2, np.float32))

    def test_operations_that_it_does_not_have(self):
        def solved(a):
            return jnp.linalg.eigh(a)[0]

        with pytest.raises(ab.UnsupportedError, match=r"eigh(.|\n)*jnp.linalg.eigh\(a\)(.|\n)*backend='xla'"):
            ab.batched(solved, backend="llvm")(np.zeros((2, 3, 3), np.float32))


def test_free_variables_are_read_again():
    scale = np.float32(2.0) * np.ones(3, np.float32)

    def scaled(x):
        return x * scale

    f = ab.batched(scaled, backend="llvm")
    x = np.ones((4, 3), np.float32)
    handle = f.lower(x).compile()
    np.testing.assert_array_equal(handle(x), 2 * x)
    scale = np.float32(3.0) * np.ones(3, np.float32)
    np.testing.assert_array_equal(f(x), 3 * x)
    np.testing.assert_array_equal(handle(x), 3 * x)


def test_under_jit_it_runs_as_xla_runs_it():
    case = CASES["sort3"]
    f = ab.batched(sort3, backend="llvm")
    np.testing.assert_array_equal(jax.jit(f)(case.arguments[0]), f(case.arguments[0]))


class TestGradients:
    """Derivatives are machine code too, and those that JAX takes of plain Python."""

    x = np.linspace(-1, 2, 21).astype(np.float32)
    i = (np.arange(21) % 7).astype(np.int32)
    calls = {
        "newton": (newton, (np.abs(x),)),
        "rooted": (rooted, (x,)),
        "looked_up": (looked_up, (i, x)),
        "stacked": (lambda p, v: jnp.stack([v[0] * p["a"], v[1]]).sum() * v[2], (np.stack([x, x + 1, x * x], 1),)),
    }

    @pytest.mark.parametrize("name", calls)
    def test_equal_those_of_plain_python(self, name):
        function, batch = self.calls[name]
        f = ab.batched(function, in_axes=(None, *(0 for _ in batch)), backend="llvm")
        wrt = (0, len(batch))
        values, found = ab.value_and_grad(f, wrt)(parameters(), *batch)
        assert all(type(x) is np.ndarray for x in jax.tree.leaves((values, found)))
        by_row = [jax.grad(function, wrt)(parameters(), *row) for row in zip(*batch, strict=True)]
        of_shared = jax.tree.map(lambda *rows: sum(rows), *(p for p, _ in by_row))
        assert_close(found, (of_shared, np.stack([g for _, g in by_row])))
        assert_close(values, f(parameters(), *batch))

    def test_any_number_of_threads_gives_the_same_bits(self, monkeypatch):
        monkeypatch.setattr(program, "CHUNK", 64)
        x = np.linspace(0.1, 2, 1000).astype(np.float32)
        f = lambda n: ab.batched(newton, in_axes=(None, 0), backend="llvm", options={"threads": n})
        one, four = (ab.grad(f(n), (0, 1))(parameters(), x) for n in (1, 4))
        jax.tree.map(np.testing.assert_array_equal, one, four)

    def test_arrays_of_jax(self):
        f = ab.batched(rooted, in_axes=(None, 0), backend="llvm")
        found = ab.grad(f, (0, 1))(parameters(), jnp.asarray(self.x))
        assert all(isinstance(x, jax.Array) for x in jax.tree.leaves(found))

    def test_examples_that_fail_have_none(self):
        f = ab.batched(looked_up, in_axes=(None, 0, 0), backend="llvm", on_error="mask")
        i = np.array([1, 9, 2], np.int32)
        (values, failures), (of_p, of_x) = ab.value_and_grad(f, (0, 2))(parameters(), i, np.ones(3, np.float32))
        assert [e.index for e in failures] == [1]
        np.testing.assert_allclose(of_p["a"], 3.0)
        np.testing.assert_allclose(of_x, [1.3, 0, 2.6])
        with pytest.raises(ab.ExampleError, match="example 1"):
            ab.grad(ab.batched(looked_up, in_axes=(None, 0, 0), backend="llvm"))(parameters(), i, np.ones(3, "f4"))

    def test_infinite_derivatives_of_examples_that_fail_are_none(self):
        """An example that fails has divided by zero before; of the others nothing is lost."""

        def failing(p, x):
            y = p["a"] / x + jnp.sqrt(x)
            assert x > 0, "no"
            return y

        f = ab.batched(failing, in_axes=(None, 0), backend="llvm", on_error="mask")
        x = np.array([4.0, 0.0, 1.0, -1.0], np.float32)
        (_, failures), (of_p, of_x) = ab.value_and_grad(f, (0, 1))(parameters(), x)
        assert [e.index for e in failures] == [1, 3]
        a = parameters()["a"]
        np.testing.assert_allclose(of_p["a"], 1.25, rtol=1e-6)
        np.testing.assert_allclose(of_x, [0.25 - a / 16, 0, 0.5 - a, 0], rtol=1e-6)

    @pytest.mark.parametrize("dtype", ["float32", "float64"])
    def test_of_quotients(self, dtype):
        """Of numbers and of arrays, by both, and by one that is under and over the line."""
        fun = lambda x, v: x / 3.0 + 2.0 / x + jnp.sum(v / (v + 1.0)) * (x / (x * x + 1.0))
        rng = np.random.default_rng(0)
        with jax.enable_x64(dtype == "float64"):
            x, v = (jnp.asarray(rng.uniform(0.5, 2.0, s), dtype) for s in ((33,), (33, 3)))
            found = ab.grad(ab.batched(fun, backend="llvm"), (0, 1))(x, v)
            wanted = jax.vmap(jax.grad(fun, (0, 1)))(x, v)
            tolerance = {"float32": 1e-5, "float64": 1e-12}[dtype]
            for a, b in zip(found, wanted, strict=True):
                np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)

    def test_axes(self):
        f = ab.batched(lambda v: v[0] * v[1], in_axes=1, backend="llvm")
        v = np.arange(6, dtype=np.float32).reshape(2, 3)
        np.testing.assert_array_equal(ab.grad(f)(v), v[::-1])

    def test_of_lists(self):
        """By the list itself XLA takes them: the result is a Batch."""
        f = ab.batched(rooted, in_axes=(None, 0), backend="llvm")
        of_p, of_x = ab.grad(f, (0, 1))(parameters(), [1.0, -2.0])
        assert_close(of_p, {"a": np.float32(1.0), "s": np.array([-2.0, 0.0, 0.0])})
        assert_close(ab.unbatch(of_x), [0.65, 0.5])


def test_backend_is_an_option():
    with ab.options(backend="llvm"), warnings.catch_warnings():
        found = ab.batched(lambda x: x + 1)(np.zeros(3, np.float32))
    assert type(found) is np.ndarray


def test_explain_says_what_runs():
    case = CASES["mandel"]
    text = str(ab.batched(mandel, backend="llvm").explain(*case.arguments))
    assert f"one function of machine code, {2 * machine_code.host().target.lanes} examples at once" in text


def products_of_all(count):
    """A function that holds so many numbers at once: each is read again after the last has been made."""
    written_out = tuple(range(count))

    def function(x):
        made = [x]
        for k in written_out[1:]:
            made.append(made[-1] * x + k)
        total = 0.0
        for k in written_out:
            total = total + made[k] * made[count - 1 - k]
        return total

    return function


def test_values_are_two_registers_where_they_fit():
    """The same bits with one."""
    target, x = machine_code.host().target, np.linspace(-1, 1, 41).astype(np.float32)
    for count, registers in ((target.registers // 8, 2), (2 * target.registers, 1)):
        f = ab.batched(products_of_all(count), backend="llvm")
        handle = f.lower(x).compile()
        assert handle.executable.width == registers * target.lanes
        np.testing.assert_allclose(handle(x), f.loop(x), rtol=1e-3)


@pytest.mark.parametrize("name", ["mandel", "horner", "chase", "collatz", "sort3"])
def test_gangs_of_one_register_and_of_two_give_the_same_bits(name, monkeypatch):
    f, arguments = batched(name)
    found = f(*arguments)
    monkeypatch.setattr(code, "_wider", lambda whole: ())
    again, _ = batched(name)
    jax.tree.map(np.testing.assert_array_equal, found, again(*arguments))


def swinging(x):
    """Its test holds again, later, for what has gone on behind the end."""
    n = 0
    while x < 1.0 and n < 50:
        x = 0.9 - 1.3 * x
        n += 1
    return n


def swinging_far(x):
    """The same with so much in a turn that lanes are refilled."""
    n = 0
    while x < 1.0 and n < 50:
        x = 0.9 - 1.3 * x + 0.01 * jnp.sin(x) * jnp.exp(-x * x)
        n += 1
    return n


@pytest.mark.parametrize("fun", [swinging, swinging_far])
def test_lanes_that_are_done_stay_so(fun):
    """Also where nobody reads what their test reads, so that it is not kept."""
    x, f = np.linspace(-0.9, 1.5, 75).astype(np.float32), ab.batched(fun, backend="llvm")
    np.testing.assert_array_equal(f(x), f.loop(x))


@pytest.mark.skipif(is_checking(), reason="nothing is kept on disk")
class TestFilesOfCode:
    """The cache of object files is no reason that a call fails."""

    x = np.linspace(-1, 1, 5).astype(np.float32)

    @pytest.fixture
    def folder(self, tmp_path, monkeypatch):
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        return tmp_path / "autobatch" / "kernels"

    def call(self):
        found = ab.batched(lambda x: x * 3.0 - 1.0, backend="llvm")(self.x)
        np.testing.assert_array_equal(found, self.x * np.float32(3) - np.float32(1))

    def test_a_file_is_kept_and_read(self, folder, monkeypatch):
        self.call()
        assert len(list(folder.glob("*whole*.o"))) == 1
        monkeypatch.setattr(machine_code, "compile_object", None)
        self.call()

    @pytest.mark.parametrize("content", [b"", b"rubbish", bytes(5000)])
    def test_a_damaged_file_is_made_again(self, folder, content):
        self.call()
        (path,) = folder.glob("*whole*.o")
        whole = path.read_bytes()
        path.write_bytes(content)
        self.call()
        assert path.read_bytes() == whole

    def test_a_full_disk(self, folder, monkeypatch):
        def full(*args, **kwargs):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(cache.tempfile, "NamedTemporaryFile", full)
        self.call()
        assert not list(folder.glob("*"))


@settings(max_examples=3, deadline=None, phases=(Phase.explicit, Phase.generate))
@given(program=drawn.programs(), batch=drawn.batches())
def test_random_programs(program, batch):
    try:
        check_equivalence(program.function, batch, (program.parameters(),), backends=("llvm",), grads=False, jit=False)
    except NotEquivalent as error:
        if not error.at_a_jump:
            raise
        reject()


@pytest.mark.parametrize("name", ["takeuchi", "ackermann", "minimax", "select", "is_even", "halved"])
def test_recursion(name):
    f, batch = recursions.cases()[name]
    f = ab.batched(f.__wrapped__, in_axes=(None, *(0 for _ in batch)), backend="llvm")
    batch = [np.asarray(x) if hasattr(x, "dtype") else x for x in batch]
    assert_same(ab.unbatch(f(recursions.parameters(), *batch)), f.loop(recursions.parameters(), *batch))


@pytest.mark.parametrize("function", [masked.guarded, masked.early_exit, masked.nested, masked.unlike])
def test_control_on_numbers(function):
    f = masked.batched(function, backend="llvm")
    x = np.array([0.0, 0.25, 1.5, 2.75, 7.0], np.float32)
    assert_same(ab.unbatch(f(masked.shared(), x)), f.loop(masked.shared(), x))


@pytest.mark.parametrize("mode", [None, "clip", "fill", "promise_in_bounds"])
def test_places_outside_of_an_array(mode):
    """What is written there is dropped unless it is clipped: also by the derivative of what is read there."""
    how = {} if mode is None else {"mode": mode}
    places = jnp.array([1, 0])
    read = lambda t, x: jnp.sum(jnp.sin(t.at[jnp.round(x).astype(int) + places].get(**how)))
    written = lambda t, x: t.at[jnp.round(x).astype(int) + places].add(x, **how)
    t, x = jnp.arange(1.0, 6.0, dtype=jnp.float32), np.float32([0, 3, 4, 11, -1, -9])
    f = ab.batched(read, in_axes=(None, 0), backend="llvm")
    wanted = jax.grad(lambda t: sum(jnp.nan_to_num(y) for y in f.loop(t, x)))(t)
    np.testing.assert_allclose(ab.grad(lambda t: jnp.sum(jnp.nan_to_num(f(t, x))))(t), wanted, rtol=1e-5)
    if mode != "fill":  # which gives NaN
        np.testing.assert_allclose(ab.grad(f)(t, x), wanted, rtol=1e-5)
    g = ab.batched(written, in_axes=(None, 0), backend="llvm")
    assert_close(ab.unbatch(g(t, x)), g.loop(t, x))
