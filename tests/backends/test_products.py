"""The kernel for matrix products: against NumPy, by itself and in XLA programs; the files it is kept in."""

import ctypes
import dataclasses
import logging
import os
import subprocess
import sys
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import autobatch as ab
from autobatch.backends.llvm import machine_code
from autobatch.backends.llvm.machine_code import HANDLER, LinkError, UnavailableError, link
from autobatch.backends.xla import product_kernels, rows
from autobatch.backends.xla.product_kernels import AVX2, AVX512, CHUNK, ProductKernel, load, module
from autobatch.backends.xla.rows import LEAST, MANY, choose
from autobatch.common import cache
from autobatch.options import OptionError
from autobatch.passes.equations import row_product
from tests.passes.frames.programs import parameters, random_tree, schedule_of, tree_lstm

try:
    HOST = machine_code.host()
except UnavailableError as error:
    pytest.skip(str(error), allow_module_level=True)

VECTORS = [AVX2] + ([AVX512] if HOST.bits == 512 else [])
KERNELS = [ProductKernel(dtype, vectors) for vectors in VECTORS for dtype in ("float32", "float64")]
TOLERANCE = {"float32": 1e-5, "float64": 1e-12}
CANARY = 1e30

Words = ctypes.c_int64


def handler(kernel: ProductKernel):
    return ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(load(kernel)[1])


class Frame:
    """A call frame as XLA lays it out, over NumPy arrays."""

    def __init__(self, arguments, results):
        self.kept = [arguments, results]
        lists = [self.pointers([self.buffer(x) for x in xs]) for xs in (arguments, results)]
        words = [0] * 22
        words[7], words[9] = len(arguments), lists[0]
        words[12], words[14] = len(results), lists[1]
        self.address = self.words(words)

    def words(self, values):
        held = (Words * len(values))(*values)
        self.kept.append(held)
        return ctypes.addressof(held)

    def pointers(self, addresses):
        return self.words(addresses)

    def buffer(self, x):
        return self.words([48, 0, 11, x.ctypes.data, x.ndim, self.words([*x.shape, 0])])


def packed(w: np.ndarray, kernel: ProductKernel) -> np.ndarray:
    """In panels; what is past the last column is never seen, whatever it is."""
    k, n = w.shape
    panels = -(-n // kernel.panel)
    out = np.full((panels, k, kernel.panel), np.nan, w.dtype)
    for column in range(n):
        out[column // kernel.panel, :, column % kernel.panel] = w[:, column]
    return out


def multiplied(call, kernel: ProductKernel, sources, w, tile: int, count: int | None = None) -> np.ndarray:
    """The product by the kernel. Everything around its operands and its result is checked or poison."""
    m = next(len(x) if index is None else len(index) for x, index in sources)
    n = w.shape[1]
    room = -(-w.shape[0] // kernel.chunk) * kernel.chunk
    guarded = np.full(m * n + 128, CANARY, kernel.dtype)
    out = guarded[64:-64].reshape(m, n)
    behind = np.full(tile * room + 128, CANARY, kernel.dtype)
    scratch = behind[64:-64].reshape(tile, room)
    scratch[:] = np.nan
    arguments = []
    for x, index in sources:
        arguments += [x, np.zeros(0, np.int32) if index is None else index]
    counts = [] if count is None else [np.array(count, np.int32)]
    frame = Frame([*arguments, packed(w, kernel), *counts], [out, scratch])
    assert call(frame.address) is None
    for guard in (guarded[:64], guarded[-64:], behind[:64], behind[-64:]):
        assert (guard == CANARY).all(), "written outside"
    return out


def drawn(rng, dtype, m, widths, dense=()):
    """Sources of so many columns: rows of a larger array, some of them twice, the others NaN; or all rows."""
    sources, whole = [], []
    for k, width in enumerate(widths):
        rows = m if k in dense else m // 2 + 3
        x = np.full((rows, width), np.nan, dtype)
        index = None if k in dense else rng.integers(0, max(1, rows - 2), m).astype(np.int32)
        live = np.arange(rows) if index is None else np.unique(index)
        x[live] = rng.normal(size=(len(live), width))
        sources.append((x, index))
        whole.append(x if index is None else x[index])
    return sources, np.concatenate(whole, axis=1)


def check(call, kernel, rng, m, widths, n, dense=(), tile=None):
    sources, whole = drawn(rng, kernel.dtype, m, widths, dense)
    w = rng.normal(size=(sum(widths), n)).astype(kernel.dtype) / sum(widths)
    found = multiplied(call, kernel, sources, w, tile or m)
    wanted = whole.astype(np.float64) @ w.astype(np.float64)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=TOLERANCE[kernel.dtype], err_msg=f"{m} {widths} {n} {dense}")


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: f"{k.dtype}x{k.lanes}")
def test_every_number_of_rows_and_of_columns(kernel):
    call, rng = handler(kernel), np.random.default_rng(0)
    for m in range(1, 71):
        for n in {1, kernel.lanes - 1, kernel.lanes, kernel.lanes + 1, kernel.panel, int(rng.integers(1, 100))}:
            check(call, kernel, rng, m, [int(rng.integers(1, 50))], n)
    for n in range(1, 100):
        check(call, kernel, rng, 9, [5], n)
    for k in range(1, 70):
        check(call, kernel, rng, 5, [k], 7)


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: f"{k.dtype}x{k.lanes}")
@settings(max_examples=60)
@given(data=st.data())
def test_sources_side_by_side(kernel, data):
    m = data.draw(st.integers(1, 150))
    widths = data.draw(st.lists(st.integers(1, 40), min_size=1, max_size=4))
    dense = data.draw(st.sets(st.integers(0, len(widths) - 1)))
    tile = data.draw(st.integers(1, m))
    check(handler(kernel), kernel, np.random.default_rng(m), m, widths, data.draw(st.integers(1, 80)), dense, tile)


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: f"{k.dtype}x{k.lanes}")
def test_rows_past_the_count_are_zero(kernel):
    call, rng = handler(kernel), np.random.default_rng(0)
    for m, n, count in [(1, 1, 0), (5, 3, 2), (17, 33, 16), (40, 9, 40), (40, 9, 99), (40, 9, -1), (7, 5, 0)]:
        live = min(max(count, 0), m)
        x, w = rng.normal(size=(m, 6)).astype(kernel.dtype), rng.normal(size=(6, n)).astype(kernel.dtype)
        x[live:] = np.nan
        found = multiplied(call, kernel, [(x, None)], w, m, count)
        np.testing.assert_allclose(found[:live], x[:live] @ w, rtol=0, atol=TOLERANCE[kernel.dtype] * 10)
        assert (found[live:] == 0).all()


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: f"{k.dtype}x{k.lanes}")
@settings(max_examples=40)
@given(data=st.data())
def test_matrices_in_panels(kernel, turned, data):
    """Every element is where the product reads it, the last panel ends with zeros, and nothing else is written."""
    rows = data.draw(st.lists(st.integers(1, 70), min_size=1, max_size=3))
    width, rng = data.draw(st.integers(1, 70)), np.random.default_rng(0)
    matrices = [rng.normal(size=(n, width)).astype(kernel.dtype) for n in rows]
    whole = np.concatenate(matrices)
    wanted = np.nan_to_num(packed(whole.T if turned else whole, kernel))
    guarded = np.full(wanted.size + 128, CANARY, kernel.dtype)
    out = guarded[64:-64].reshape(wanted.shape)
    call = handler(ProductKernel(kernel.dtype, kernel.vectors, "pack"))
    assert call(Frame([np.zeros(int(turned), np.int32), *matrices], [out]).address) is None
    np.testing.assert_array_equal(out, wanted)
    assert (guarded[:64] == CANARY).all() and (guarded[-64:] == CANARY).all(), "written outside"


def test_the_metadata_names_the_version():
    metadata = (Words * 8)()
    extension = (Words * 4)(32, 1, 0, ctypes.addressof(metadata))
    frame = (Words * 22)(0, ctypes.addressof(extension))
    assert handler(KERNELS[0])(ctypes.addressof(frame)) is None
    assert np.frombuffer(metadata, np.int32)[6:9].tolist() == [0, 3, 0]


# ---- in XLA programs


PACKING = product_kernels.registered("float32", "pack")


def operands(seed=0, m=6, k=(3, 4), n=5):
    rng = np.random.default_rng(seed)
    sources, whole = drawn(rng, "float32", m, k, dense=(1,))
    sources = [(jnp.nan_to_num(x), index if index is None else jnp.asarray(index)) for x, index in sources]
    return sources, whole, jnp.asarray(rng.normal(size=(sum(k), n)), jnp.float32)


def native(sources, w):
    parts = [w[:2], w[2:]]
    return rows.multiply(sources, rows.pack(parts, False, PACKING), product_kernels.registered("float32"))


def native_turned(sources, w):
    return rows.multiply(sources, rows.pack([w.T], True, PACKING), product_kernels.registered("float32"))


def native_counted(sources, w):
    packed = rows.pack([w], False, PACKING)
    more = [(x, None if index is None else jnp.concatenate([index, index])) for x, index in sources]
    more = [(x if index is not None else jnp.concatenate([x, x]), index) for x, index in more]
    count = sources[1][0].shape[0]
    found = rows.multiply(more, packed, product_kernels.registered("float32"), jnp.asarray(count))
    return found[:count] + found[count:]


def plain(sources, w):
    return jnp.concatenate([rows.rows_of(s) for s in sources], axis=1) @ w


TRANSFORMED = {
    "call": lambda f, x, w: f(x, w),
    "jit": lambda f, x, w: jax.jit(lambda w: f(x, w))(w),
    "vmap over matrices": lambda f, x, w: jax.vmap(lambda w: f(x, w))(jnp.stack([w, 2 * w])),
    "vmap over rows": lambda f, x, w: jax.vmap(lambda a: f([(a, x[0][1]), x[1]], w))(jnp.stack([x[0][0], x[0][0] + 1])),
    "grad": lambda f, x, w: jax.grad(lambda w, a: (f([(a, x[0][1]), x[1]], w) ** 3).sum(), (0, 1))(w, x[0][0]),
    "jvp": lambda f, x, w: jax.jvp(lambda w: f(x, w), (w,), (w * w,)),
    "hessian": lambda f, x, w: jax.hessian(lambda w: (f(x, w) ** 3).sum())(w),
    "jit of vmap of grad": lambda f, x, w: jax.jit(jax.vmap(jax.grad(lambda w: (f(x, w) ** 2).sum())))(w[None]),
    "grad of vmap": lambda f, x, w: jax.grad(lambda ws: jax.vmap(lambda w: f(x, w) ** 2)(ws).sum())(w[None]),
    "checkpoint": lambda f, x, w: jax.grad(jax.checkpoint(lambda w: (f(x, w) ** 2).sum()))(w),
    "loop": lambda f, x, w: jax.lax.fori_loop(0, 3, lambda _, w: w.at[:5].set(f(x, w)[:5]), w),
}


@pytest.mark.parametrize("form", [native, native_turned, native_counted])
@pytest.mark.parametrize("name", TRANSFORMED)
def test_transformations(name, form):
    sources, _, w = operands()
    found, wanted = (TRANSFORMED[name](f, sources, w) for f in (form, plain))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5), found, wanted)


def test_threads_share_an_executable():
    calls = [operands(seed, m=40, k=(30, 20), n=70) for seed in range(4)]
    run = jax.jit(lambda arrays, indices, w: native(list(zip(arrays, indices)), w))
    wrong: list[int] = []

    def work(seed):
        sources, whole, w = calls[seed]
        arrays, indices = zip(*sources)
        for _ in range(50):
            if not np.allclose(run(arrays, indices, w), whole @ np.asarray(w), atol=1e-4):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


# ---- in batched functions


def trees(count=20):
    rng = np.random.default_rng(5)
    return [random_tree(rng, int(rng.integers(1, 12))) for _ in range(count)]


@pytest.mark.parametrize("x64", [False, True])
def test_tree_lstm(x64):
    with jax.enable_x64(x64):
        p = jax.tree.map(lambda x: x.astype(jnp.float64 if x64 else jnp.float32), parameters(12))
        wanted = tree_lstm.loop(p, trees())
        with ab.options(products="native", loops="xla", widths=(16, 5)):
            hlo = tree_lstm.lower(p, trees()).as_text("backend")
            found = ab.unbatch(tree_lstm(p, trees()))
    assert hlo.count('custom_call_target="autobatch_product_') == 3, "one for each width, one for all leaves"
    for a, b in zip(found, wanted):
        jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=1e-12 if x64 else 2e-5), a, b)


def test_vmap_and_gradients_over_parameters():
    def total(p):
        return sum(x.sum() for x in tree_lstm(p, batch))

    p, batch = parameters(), tree_lstm.pack(trees(5))
    both = jax.tree.map(lambda x: jnp.stack([x, 2 * x]), p)
    for run in (lambda: jax.grad(total)(p), lambda: jax.vmap(total)(both), lambda: jax.vmap(jax.grad(total))(both)):
        with ab.options(products="xla"):
            wanted = run()
        with ab.options(products="native"):
            found = run()
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), found, wanted)


# ---- what is chosen


def product():
    schedule = schedule_of(tree_lstm, parameters(), trees(3))
    (loop,) = [s for s in schedule.steps if hasattr(s, "tasks")]
    (found,) = [p for t in loop.tasks for e in t.equations if (p := row_product(e)) is not None]
    return found


def test_auto_takes_the_kernel_where_it_was_measured_to_win(monkeypatch):
    one = product()
    size = one.contracted * one.columns
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0}, raising=False)
    assert choose("auto", one, 1 + LEAST // size).kernel is not None
    assert "too little work" in choose("auto", one, (LEAST - 1) // size).why
    assert choose("auto", one, 1 + MANY // size).kernel is not None
    large = dataclasses.replace(one.weight, type=dataclasses.replace(one.weight.type, shape=(2048, 1024)))
    assert "so large a matrix" in choose("auto", dataclasses.replace(one, weight=large), 64).why
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1}, raising=False)
    assert "among 2 cores" in choose("auto", one, 1 + MANY // size).why
    assert choose("native", one, 1).kernel is not None
    assert choose("xla", one, 64).kernel is None


def test_half_precision_stays_with_xla():
    p = jax.tree.map(lambda x: x.astype(jnp.bfloat16), parameters())
    with ab.options(products="native"):
        (level,) = [q for q in tree_lstm.explain(p, trees(3)).data["products"] if q["place"]["kind"] == "level"]
    assert {m["by"] for m in level["multipliers"]} == {"xla"}
    assert "float32 and float64 alone, not for bfloat16" in level["multipliers"][0]["why"]


def test_without_a_kernel(monkeypatch, caplog):
    """`native` raises; `auto` runs without, and `explain` and the log say why."""

    def absent(dtype, operation="product"):
        raise UnavailableError("llvmlite cannot be imported; pip install 'autobatch[native]'")

    by_xla = tree_lstm.with_settings(backend="xla")
    monkeypatch.setattr(product_kernels, "registered", absent)
    with pytest.raises(OptionError, match="'native', but there is no kernel: llvmlite cannot be imported"):
        with ab.options(products="native"):
            by_xla(parameters(), trees(2))
    with ab.options(products="auto"), caplog.at_level(logging.DEBUG, "autobatch"):
        explained = by_xla.explain(parameters(), trees(2))
        by_xla(parameters(), trees(2))
    assert "xla at 128, 64, 32, 16, 8, 4 (llvmlite cannot be imported; pip install 'autobatch[native]')" in str(
        explained
    )
    assert "by XLA: llvmlite cannot be imported" in caplog.text


# ---- what is kept on disk


@pytest.fixture
def folder(monkeypatch, tmp_path):
    monkeypatch.setattr(machine_code, "user_cache_folder", lambda: tmp_path)
    return tmp_path / "kernels"


def test_objects_are_kept(folder, monkeypatch):
    name, _ = load(KERNELS[0])
    assert [f.name for f in folder.iterdir()] == [f"{name}.o"]
    monkeypatch.setattr(machine_code, "compile_object", lambda *_: pytest.fail("compiled again"))
    check(handler(KERNELS[0]), KERNELS[0], np.random.default_rng(0), 7, [3], 9)


@pytest.mark.parametrize("damage", [lambda b: b[: len(b) // 2], lambda b: b"", lambda b: b[:99] + b"?" + b[100:]])
def test_damaged_objects_are_made_anew(folder, damage):
    name, _ = load(KERNELS[0])
    path = folder / f"{name}.o"
    whole = path.read_bytes()
    path.write_bytes(damage(whole))
    check(handler(KERNELS[0]), KERNELS[0], np.random.default_rng(0), 7, [3], 9)
    assert len(path.read_bytes()) == len(whole)


def test_files_that_are_no_objects_are_made_anew(folder, caplog):
    name, _ = load(KERNELS[0])
    path = folder / f"{name}.o"
    cache.write(path, b"nothing")
    check(handler(KERNELS[0]), KERNELS[0], np.random.default_rng(0), 7, [3], 9)
    assert f"{path} is not usable (it is no object file for x86-64): compiled again" in caplog.text
    assert cache.read(path)[:4] == b"\x7fELF"


def test_objects_that_are_not_ours_are_refused(folder):
    whole = machine_code.compile_object(module(KERNELS[0]))
    with pytest.raises(LinkError, match="no function elsewhere"):
        link(whole, ["elsewhere"])
    with pytest.raises(LinkError):
        link(whole[:200], [HANDLER])
    outside = "declare void @f()\ndefine void @handler() {\n  call void @f()\n  ret void\n}\n"
    with pytest.raises(LinkError, match="refers to something outside"):
        link(machine_code.compile_object(outside), [HANDLER])


PROCESS = """
import logging, sys
import numpy as np
import autobatch as ab
from tests.passes.frames.programs import parameters, random_tree, tree_lstm
logging.getLogger("jax._src.compiler").setLevel(logging.DEBUG)
logging.basicConfig(stream=sys.stdout)
trees = [random_tree(np.random.default_rng(k), 4 + k) for k in range(6)]
with ab.options(products="native", compilation_cache=sys.argv[1]):
    print(np.asarray(tree_lstm(parameters(), trees)[0]).sum())
print("llvmlite" in sys.modules)
"""


@pytest.mark.long
def test_a_second_process_compiles_nothing(tmp_path):
    """Neither XLA nor LLVM: the executable comes from JAX's cache, the kernel that it calls from ours."""

    def run():
        environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "home"), "JAX_PLATFORMS": "cpu"}
        command = [sys.executable, "-c", PROCESS, str(tmp_path / "xla")]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout

    first, second = run(), run()
    assert first.splitlines()[-1] == "True" and second.splitlines()[-1] == "False"
    assert first.splitlines()[-2] == second.splitlines()[-2]
    assert "Persistent compilation cache hit" in second and "hit for 'jit__lambda'" not in first


def test_a_folder_that_cannot_be_written_to(folder, monkeypatch):
    folder.parent.joinpath("kernels").write_text("a file where the folder should be")
    check(handler(KERNELS[0]), KERNELS[0], np.random.default_rng(0), 7, [3], 9)


def test_chunks_are_cache_lines():
    assert all(k.chunk * k.bytes == CHUNK and k.panel * k.bytes * 8 == 2 * k.vectors.bits for k in KERNELS)
