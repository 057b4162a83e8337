"""`backend="cuda"`: kernels run thread by thread on the host, through all of the layer that calls the driver."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import Phase, given, reject, settings

import autobatch as ab
from autobatch.backends.cuda import program
from autobatch.testing import NotEquivalent, assert_same, check_equivalence
from tests.backends.cuda import fake
from tests.backends.whole import drawn, test_whole
from tests.backends.whole.programs import cases, chase, fib, looked_up, mandel, newton, parameters
from tests.properties import masked, recursions

CASES = cases()


def also(*given):
    return [pytest.param(x, marks=pytest.mark.long) for x in given]


GRADIENTS, assert_close = test_whole.TestGradients.calls, test_whole.assert_close


def batched(name, **kwargs):
    case = CASES[name]
    return ab.batched(case.function, in_axes=case.in_axes, backend="cuda", **kwargs), case.arguments


@pytest.mark.parametrize("name", CASES)
def test_equals_plain_python_with_the_bits_of_the_processor(gpu, name):
    f, arguments = batched(name)
    found = f(*arguments)
    assert all(type(x) is np.ndarray for x in jax.tree.leaves(found))
    assert_close(ab.unbatch(found), f.loop(*arguments))
    on_processor = ab.batched(CASES[name].function, in_axes=CASES[name].in_axes, backend="llvm")
    jax.tree.map(np.testing.assert_array_equal, found, on_processor(*arguments))


@pytest.mark.parametrize("count", [0, 1, 31, 32, 33, 129, 5000])
def test_batches_of_any_size(gpu, count):
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(2, count)).astype(np.float32)
    np.testing.assert_array_equal(ab.batched(mandel, backend="cuda")(x, y), ab.batched(mandel, backend="llvm")(x, y))


def test_large_batches_come_in_parts(gpu):
    """As many rows as there is memory for; fewer where it turns out that there is not."""
    x = np.linspace(-2, 2, 40_000).astype(np.float32)
    f = ab.batched(mandel, backend="cuda")
    wanted = ab.batched(mandel, backend="llvm")(x, x)
    for room in (1 << 19, 120_000):
        gpu.limit(room)
        gpu.forget()
        np.testing.assert_array_equal(f(x, x), wanted)
        assert sum(line.startswith("launch") for line in gpu.log) > 2
    gpu.limit(1000)
    with pytest.raises(ab.DeviceError, match="CUDA_ERROR_OUT_OF_MEMORY(.|\n)*bytes were asked for on Fake 9.0"):
        f(x, x)


def test_no_memory_is_lost(gpu):
    f, arguments = batched("horner")
    f(*arguments)
    before = gpu.held
    for _ in range(3):
        f(*arguments)
    assert gpu.held == before


class TestFailures:
    i = np.array([0, 5, 2, -5, -6], np.int32)
    x = np.ones(5, np.float32)
    table = CASES["chase"].arguments[0]

    def test_name_example_and_line(self, gpu):
        f = ab.batched(chase, in_axes=(None, 0, 0), backend="cuda")
        with pytest.raises(ab.ExampleError, match="i = table") as error:
            f(self.table, self.i, self.x)
        assert [(e.index, e.kind) for e in error.value.failures] == [(1, "IndexError"), (4, "IndexError")]

    def test_are_masked(self, gpu):
        f = ab.batched(chase, in_axes=(None, 0, 0), backend="cuda", on_error="mask")
        found, failures = f(self.table, self.i, self.x)
        np.testing.assert_array_equal(found, [3, 0, 4, 3, 0])
        np.testing.assert_array_equal(failures.failed, [False, True, False, False, True])
        assert [e.index for e in failures] == [1, 4]

    def test_a_recursion_that_is_too_deep(self, gpu):
        def deep(n):
            return 0 if n == 0 else deep(n - 1) + 1

        f = ab.batched(deep, backend="cuda", options={"max_depth": 200}, on_error="mask")
        found, failures = f(np.array([3, 150, 400], np.int32))
        assert found.tolist() == [3, 150, 0]
        assert [(e.index, e.kind) for e in failures] == [(2, "RecursionError")]


class TestStacks:
    def test_a_launch_whose_stacks_are_full_is_run_again(self, gpu, monkeypatch):
        monkeypatch.setattr(program, "ROOM", 64)
        f = ab.batched(fib, backend="cuda")
        n = np.arange(40, dtype=np.int32) % 14
        wanted = ab.batched(fib, backend="llvm")(n)
        np.testing.assert_array_equal(f(n), wanted)
        first = sum(line.startswith("launch") for line in gpu.log)
        gpu.forget()
        np.testing.assert_array_equal(f(n), wanted)
        assert first > 1 and sum(line.startswith("launch") for line in gpu.log) == 1, "what is needed is known now"

    def test_fewer_threads_where_memory_is_short(self, gpu):
        f = ab.batched(fib, backend="cuda")
        n = np.arange(3000, dtype=np.int32) % 9
        wanted = ab.batched(fib, backend="llvm")(n)
        gpu.limit(900_000)
        np.testing.assert_array_equal(f(n), wanted)
        launches = [line for line in gpu.log if line.startswith("launch")]
        assert launches == ["launch 1 x 128 on 1"], "one block, whose threads take one row after the other"


@pytest.mark.parametrize(
    "name",
    ["takeuchi", "is_even", "halved", *also("ackermann", "minimax", "select")],
)
def test_recursion(gpu, name):
    f, batch = recursions.cases()[name]
    f = ab.batched(f.__wrapped__, in_axes=(None, *(0 for _ in batch)), backend="cuda")
    batch = [np.asarray(x) if hasattr(x, "dtype") else x for x in batch]
    assert_same(ab.unbatch(f(recursions.parameters(), *batch)), f.loop(recursions.parameters(), *batch))


@pytest.mark.parametrize(
    "function",
    [masked.unlike, masked.nested, *also(masked.guarded, masked.early_exit)],
)
def test_control_on_numbers(gpu, function):
    f = masked.batched(function, backend="cuda")
    x = np.array([0.0, 0.25, 1.5, 2.75, 7.0], np.float32)
    assert_same(ab.unbatch(f(masked.shared(), x)), f.loop(masked.shared(), x))


@dataclass
class Node:
    value: float
    children: list["Node"]


class TestStructure:
    """Columns of objects are shared arrays: they go to the GPU as they are."""

    def test_lists_and_trees(self, gpu):
        def total(node):
            return node.value + sum([total(child) for child in node.children])

        def longest(scale, xs):
            return max([scale * x for x in xs]) if xs else -1.0

        trees = [Node(1.0, [Node(2.0, []), Node(3.0, [Node(4.0, [])])]), Node(5.0, [])]
        assert ab.batched(total, backend="cuda")(trees).tolist() == [10, 5]
        f = ab.batched(longest, in_axes=(None, 0), backend="cuda")
        assert f(2.0, [[1.0, 3.0], [], [2.0]]).tolist() == [6, -1, 4]


class TestDerivatives:
    @pytest.mark.parametrize("name", GRADIENTS)
    def test_equal_those_of_plain_python(self, gpu, name):
        function, batch = GRADIENTS[name]
        wrt = (0, len(batch))
        f, same = (ab.batched(function, in_axes=(None, *(0 for _ in batch)), backend=b) for b in ("cuda", "llvm"))
        found = ab.value_and_grad(f, wrt)(parameters(), *batch)
        by_row = [jax.grad(function, wrt)(parameters(), *row) for row in zip(*batch, strict=True)]
        of_shared = jax.tree.map(lambda *rows: sum(rows), *(p for p, _ in by_row))
        assert_close(found[1], (of_shared, np.stack([g for _, g in by_row])))
        jax.tree.map(np.testing.assert_array_equal, found, ab.value_and_grad(same, wrt)(parameters(), *batch))

    @pytest.mark.parametrize("size", [3, 300])
    def test_sums_over_many_rows_are_those_of_the_processor(self, gpu, size):
        """Bit for bit, in one launch and in many: in parts up to 256 numbers, one row after the other above."""
        w = np.linspace(0, 1, size).astype(np.float32)
        x = np.linspace(-1, 2, 9000).astype(np.float32)

        def f(w, x):
            return jnp.sum(jnp.sin(w * x))

        on_gpu, here = (ab.grad(ab.batched(f, in_axes=(None, 0), backend=b), (0, 1)) for b in ("cuda", "llvm"))
        wanted = here(w, x)
        jax.tree.map(np.testing.assert_array_equal, on_gpu(w, x), wanted)
        gpu.limit(50 * 4 * size * 4096 // 10)
        jax.tree.map(np.testing.assert_array_equal, on_gpu(w, x), wanted)

    def test_of_doubles(self, gpu):
        with jax.enable_x64(True):
            x = np.linspace(0.1, 2, 50)
            p = {"a": 1.3, "s": np.array([0.5, 1.5, 2.5])}
            found, wanted = (
                ab.grad(ab.batched(newton, in_axes=(None, 0), backend=b), (0, 1))(p, x) for b in ("cuda", "llvm")
            )
        jax.tree.map(np.testing.assert_array_equal, found, wanted)

    def test_of_no_examples(self, gpu):
        f = ab.batched(newton, in_axes=(None, 0), backend="cuda")
        of_p, of_x = ab.grad(f, (0, 1))(parameters(), np.zeros(0, np.float32))
        assert of_x.shape == (0,)
        assert jax.tree.map(np.sum, of_p) == {"a": 0, "s": 0}

    def test_examples_that_fail_have_none(self, gpu):
        f = ab.batched(looked_up, in_axes=(None, 0, 0), backend="cuda", on_error="mask")
        i = np.array([1, 9, 2], np.int32)
        (values, failures), (of_p, of_x) = ab.value_and_grad(f, (0, 2))(parameters(), i, np.ones(3, np.float32))
        assert [e.index for e in failures] == [1]
        np.testing.assert_allclose(of_p["a"], 3.0)
        np.testing.assert_allclose(of_x, [1.3, 0, 2.6])

    def test_where_there_is_no_kernel_is_refused(self, gpu):
        def deep(x, n):
            return x if n == 0 else 2.0 * deep(x, n - 1)

        f = ab.batched(deep, backend="cuda")
        with pytest.raises(ab.UnsupportedError, match="backend='cuda' has no kernel"):
            ab.grad(f)(np.ones(2, np.float32), np.array([1, 2], np.int32))


def test_sums_have_the_order_of_the_processor():
    assert program.parts_of(256) == 16 and program.parts_of(257) == 1


@settings(max_examples=2, deadline=None, phases=(Phase.explicit, Phase.generate))
@given(program=drawn.programs(), batch=drawn.batches())
def test_random_programs(fake_library, program, batch):
    with pytest.MonkeyPatch.context() as patch, fake.installed(fake_library, patch) as gpu:
        try:
            given_to = {"backends": ("cuda",), "grads": False, "jit": False}
            check_equivalence(program.function, batch, (program.parameters(),), **given_to)
        except NotEquivalent as error:
            if not error.at_a_jump:
                raise
            reject()
        assert gpu.broken == 0


class TestMemory:
    """What a function makes comes back, from the memory of each thread."""

    def test_lists(self, gpu):
        f = ab.batched(lambda rows: [sum(row) for row in rows], backend="cuda")
        assert ab.unbatch(f([[[1.0, 2.0], [3.0]], [[4.0]], []])) == [[3.0, 3.0], [4.0], []]

    def test_dicts_and_linked_objects(self, gpu):
        @dataclass
        class Link:
            value: float
            behind: "Link | None" = None

        def grown(w, xs):
            last, seen = None, {}
            for x in xs:
                if x * w > 1.0:
                    last = Link(x * w, last)
                    seen[int(x)] = seen.get(int(x), 0.0) + x
            return last, seen

        xs = [[1.0, 2.0, 3.0, 2.5], [0.25], []]
        found = ab.unbatch(ab.batched(grown, in_axes=(None, 0), backend="cuda")(1.0, xs))
        assert_same(found, [grown(1.0, x) for x in xs])


class TestRefusals:
    def test_operations_without_a_formula(self):
        def solved(a):
            return jnp.linalg.eigh(a)[0]

        with pytest.raises(ab.UnsupportedError, match=r"backend='cuda'(.|\n)*eigh(.|\n)*jnp.linalg.eigh\(a\)"):
            ab.batched(solved, backend="cuda").lower(np.zeros((2, 3, 3), np.float32))

    def test_matrices_of_size(self):
        with pytest.raises(ab.UnsupportedError, match="backend='cuda' has no kernel for this.*matrices of that size"):
            ab.batched(lambda a: (a @ a).sum(), backend="cuda").lower(np.zeros((2, 128, 128), np.float32))

    def test_derivatives_by_what_structure_holds(self, gpu):
        def weighed(w, xs):
            return sum([w * x for x in xs])

        f = ab.batched(weighed, in_axes=(None, 0), backend="cuda")
        assert f(2.0, [[1.0, 2.0], [3.0], []]).tolist() == [6, 6, 0]
        with pytest.raises(ab.UnsupportedError, match="backend='cuda' has no kernel for a derivative of a function of"):
            ab.grad(f)(2.0, [[1.0], [2.0]])
