"""example, loop, disable, lower, caches, threads, errors of examples."""

import logging
import threading
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autobatch as ab
from tests.api.nodes import Node, close, doubled, params, total, trees


def test_example_is_plain_python():
    assert float(total.example(params(), trees()[1])) == 18
    inner = ab.batched(lambda t: total(params(), t) + 1)
    assert float(inner.example(trees()[1])) == 19


def test_a_batched_function_inside_a_library_call_is_one_activation():
    step = ab.batched(lambda c, x: jnp.tanh(c + x))
    f = ab.batched(lambda xs: jax.lax.scan(lambda c, x: (step(c, x), c), jnp.float32(0), xs)[0])
    xs = np.arange(12, dtype=np.float32).reshape(3, 4)
    close(f(xs), f.loop(xs))
    close(ab.batched(lambda xs: jax.vmap(lambda x: step(x, x))(xs))(xs), np.tanh(2 * xs))


def test_loop_is_example_over_the_batch():
    assert [float(x) for x in total.loop(params(), trees())] == [2, 18, 70]
    assert [float(x) for x in total.loop(params(), ab.pack(trees())[[1, 0]])] == [18, 2]
    f = ab.batched(lambda x, y: x + y, in_axes=(0, None))
    close(f.loop(np.arange(3.0), 1.0), [1, 2, 3])


def test_disable_runs_plainly_and_stacks():
    seen = []

    @ab.batched
    def f(t):
        seen.append(type(t.x))
        return t.x * 2, [t.x], "a"

    with ab.disable():
        with ab.disable():
            pass
        numbers, lists, names = f(trees())
    assert seen == [float] * 3
    close(numbers, [2, 4, 10])
    assert ab.unbatch(lists) == [[1], [2], [5]] and ab.unbatch(names) == ["a"] * 3
    seen.clear()
    assert doubled([[1]]).to_list() == [[2]] and not seen


def test_disable_is_of_one_thread():
    f = ab.batched(lambda x: x * 2)
    with ab.disable():
        f(np.ones(2))
        assert f.cache_info().specialisations == 0
        thread = threading.Thread(target=lambda: f(np.ones(1)))
        thread.start()
        thread.join()
    assert f.cache_info().specialisations == 1


def test_cache_info_counts():
    f = ab.batched(lambda p, t: p * t.x, in_axes=(None, 0))
    assert f.cache_info() == ab.CacheInfo(0, 0, 0)
    f(1.0, trees())
    f(2.0, trees())
    info = f.cache_info()
    assert (info.specialisations, info.executables) == (1, 1)
    f(jnp.ones(3), trees())
    assert f.cache_info().specialisations == 2


def test_the_log_names_what_changed(caplog):
    f = ab.batched(lambda p, t: p * t.x, in_axes=(None, 0))
    with caplog.at_level(logging.INFO, logger="autobatch"):
        f(jnp.ones(2), trees())
        f(jnp.ones(3), trees())
        f(jnp.ones(3), [Node(1.0)])
    texts = [r.getMessage() for r in caplog.records if "size class" not in r.getMessage()]
    assert "shared changed from float32[2] to float32[3]" in texts[1]
    assert len(texts) == 2, "a leaf-only batch has the schema that was seen before"


@pytest.mark.cpu
def test_caches_are_bounded():
    f = ab.batched(lambda p, x: p + x, in_axes=(None, 0), options={"cache_size": 2})
    for n in range(1, 5):
        f(jnp.ones(n), np.ones(3))
    assert f.cache_info().specialisations == 2


def test_the_log_names_the_size_class(caplog):
    f = ab.batched(lambda t: t.x * 2, backend="xla")
    with caplog.at_level(logging.INFO, logger="autobatch"):
        f(trees())
        f(trees() * 500)
    assert "another size class" in caplog.records[-1].getMessage()


def test_threads_compile_once():
    f = ab.batched(lambda p, t: p * t.x, in_axes=(None, 0))
    results = []
    threads = [threading.Thread(target=lambda: results.append(f(2.0, trees()))) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert f.cache_info().specialisations == 1
    for r in results:
        close(r, [2, 4, 10])


def test_lower_shows_every_stage():
    lowered = total.lower(params(), trees())
    assert "def total" in lowered.as_text("source")
    assert "func @total" in lowered.as_text("example")
    assert lowered.as_text("spmd") and lowered.as_text("fissioned")
    assert "HloModule" in lowered.as_text("backend")
    assert lowered.cost()["flops"] >= 0
    with pytest.raises(ab.BatchError, match="the stages are"):
        lowered.as_text("tape")


def test_a_compiled_executable_is_for_one_size_class():
    run = total.lower(params(), trees()).compile()
    close(run(params(3.0), trees()), total(params(3.0), trees()))
    with pytest.raises(ab.PlanError, match="this executable is for"):
        run(params(), trees() * 300)


def test_the_interpreter_agrees():
    f = ab.batched(total.__wrapped__, in_axes=(None, 0), backend="interpret")
    close(f(params(), trees()), total(params(), trees()))
    with ab.options(backend="interpret"):
        close(ab.batched(lambda p, t: p * t.x, in_axes=(None, 0))(2.0, trees()), [2, 4, 10])


def test_more_rows_than_the_option_allows():
    f = ab.batched(total.__wrapped__, in_axes=(None, 0), backend="xla", options=ab.options(max_rows=3))
    with ab.options(max_rows=1000), pytest.raises(ab.PlanError, match="max_rows"):
        f(params(), trees())
    g = ab.batched(total.__wrapped__, in_axes=(None, 0), backend="xla")
    with ab.options(max_rows=3), pytest.raises(ab.PlanError, match="max_rows"):
        g(params(), trees())
    close(g(params(), trees()), [2, 18, 70])


# ---- examples that fail


@ab.batched
def second(words):
    if len(words) > 3:
        raise ValueError("too long")
    return words[1] * 2


BATCH = [[1, 2], [3], [4, 5, 6], [1, 2, 3, 4]]


def test_failures_are_raised_after_the_batch():
    with pytest.raises(ab.ExampleError) as caught:
        second(BATCH)
    failures = caught.value.failures
    assert [f.index for f in failures] == [1, 3]
    assert [f.kind for f in failures] == ["IndexError", "ValueError"]
    assert "too long" in failures[1].message and failures[1].line > 0
    assert "example 1" in str(caught.value)


def test_failures_can_be_masked():
    f = ab.batched(second.__wrapped__, on_error="mask")
    result, failures = f(BATCH)
    assert failures.failed.tolist() == [False, True, False, True]
    assert result.tolist() == [4, 0, 10, 0]
    assert [x.index for x in failures] == [1, 3]
    result, failures = f(BATCH[:1])
    assert result.tolist() == [4] and not failures.failed.any()


def test_failures_can_be_masked_under_jit():
    f = ab.batched(second.__wrapped__, on_error="mask")
    data = f.pack(BATCH)
    f(data)
    result, failures = jax.jit(f)(data)
    assert result.tolist() == [4, 0, 10, 0]
    assert failures.failed.tolist() == [False, True, False, True]


def test_failures_of_structure_are_raised_under_jit_too():
    data = second.pack(BATCH)
    second(data[[0, 2]])
    assert jax.jit(second)(data[[0, 2]]).tolist() == [4, 10]
    with pytest.raises(ab.ExampleError, match="example 1"):
        jax.jit(second)(data[[0, 1]])


def test_disable_reports_failures_alike():
    with ab.disable(), pytest.raises(ab.ExampleError) as caught:
        second(BATCH)
    assert [(f.index, f.kind) for f in caught.value.failures] == [(1, "IndexError"), (3, "ValueError")]
    with ab.disable():
        result, failures = ab.batched(second.__wrapped__, on_error="mask")(BATCH)
    assert result.tolist() == [4, 0, 10, 0] and failures.failed.tolist() == [False, True, False, True]


def test_errors_have_one_root():
    for cls in (ab.UnsupportedError, ab.TypeConflictError, ab.BatchError, ab.PlanError, ab.ExampleError):
        assert issubclass(cls, ab.Error)


# ---- calls and derivatives of a tree-LSTM


def leaf_cell(p, x):
    return jnp.tanh(p["Wx"] @ x), p["Wx"] @ x


def cell(p, hl, cl, hr, cr):
    z = p["U"] @ jnp.concatenate([hl, hr])
    return jnp.tanh(z), cl + cr


@dataclass
class Word:
    label: int
    word: int = -1
    left: "Word | None" = None
    right: "Word | None" = None


@ab.batched(in_axes=(None, 0))
def encode(p, t):
    if t.left is None:
        return leaf_cell(p, p["emb"][t.word])
    return cell(p, *encode(p, t.left), *encode(p, t.right))


@ab.batched(in_axes=(None, 0))
def loss(p, t):
    return -jax.nn.log_softmax(encode(p, t)[0] @ p["Wo"])[t.label]


def words(rng, size):
    if size == 1:
        return Word(int(rng.integers(3)), int(rng.integers(20)))
    left = int(rng.integers(1, size))
    return Word(int(rng.integers(3)), -1, words(rng, left), words(rng, size - left))


def test_the_api_in_one_piece():
    rng = np.random.default_rng(0)
    examples = [words(rng, int(rng.integers(1, 12))) for _ in range(128)]
    shapes = {"emb": (20, 4), "Wx": (4, 4), "U": (4, 8), "Wo": (4, 3)}
    p = {k: jnp.asarray(rng.normal(size=s), jnp.float32) for k, s in shapes.items()}
    h, c = encode(p, examples)
    assert h.shape == c.shape == (128, 4)
    data = ab.pack(examples).plan(encode, loss)
    traces = []

    @jax.jit
    def step(p, b):
        traces.append(1)
        return loss(p, b).mean()

    for _ in range(5):
        index = rng.permutation(len(data))[:64]
        close(step(p, data[index]), np.mean([float(loss.example(p, examples[k])) for k in index[:64]]))
    assert len(traces) <= 4
    close(h[:3], [encode.example(p, t)[0] for t in examples[:3]])


def test_the_executables_that_were_used_last_stay(caplog):
    """Of more size classes than the option says, that which was used longest ago goes."""
    f = ab.batched(lambda t: t.x * 2, backend="xla", options={"cache_size": 2})

    def compiles(count):
        caplog.clear()
        with caplog.at_level(logging.INFO, logger="autobatch"):
            assert f([Node(1.0)] * count).tolist() == [2.0] * count
        return any("another size class" in m for m in caplog.messages)

    assert [compiles(n) for n in (1, 300, 1, 2000, 1, 300)] == [False, True, False, True, False, True]
    assert f.cache_info().executables == 2
