"""The thread of a `Loader`: what it does ahead of time, how it fails, and that it ends."""

import gc
import subprocess
import sys
import threading
import time

import jax
import numpy as np
import pytest

import autobatch as ab
from autobatch.call.loader import Prefetched
from autobatch.call.specialise import SpecialisedProgram
from autobatch.options import current
from tests.api.nodes import chain, close, params, total


def _threads():
    return [t for t in threading.enumerate() if t.name == "autobatch-prefetch"]


def _wait_for(condition):
    """Threads end soon, not at once."""
    limit = time.monotonic() + 20
    while not condition() and time.monotonic() < limit:
        time.sleep(0.002)
    return condition()


@pytest.fixture(autouse=True)
def no_thread_is_left():
    assert _wait_for(lambda: not _threads())
    yield
    gc.collect()
    assert _wait_for(lambda: not _threads()), _threads()


# ---- results ahead


@pytest.mark.parametrize("ahead", [1, 3])
def test_so_many_results_are_made_ahead_and_no_more(ahead):
    made = []
    results = Prefetched(lambda k: made.append(k) or k, range(10), ahead)
    for k in range(10):
        assert _wait_for(lambda: len(made) >= min(k + ahead, 10))
        time.sleep(0.01)
        assert len(made) == min(k + ahead, 10)
        assert next(results) == k
    assert next(results, "end") == "end" and next(results, "end") == "end"


def test_tables_are_bound_and_moved_by_the_thread(monkeypatch):
    """After the first call of the function, its caller binds nothing and hands over arrays of the device."""
    function = ab.batched(total.__wrapped__, in_axes=(None, 0))  # no programs of other tests
    data = function.pack([chain(n % 5 + 1) for n in range(40)])
    expected = np.asarray(function(params(), data))
    binders, bind = [], SpecialisedProgram.bind
    monkeypatch.setattr(
        SpecialisedProgram, "bind", lambda *a: (binders.append(threading.current_thread().name), bind(*a))[1]
    )
    loader = ab.Loader(data, 8, device=jax.devices()[0])
    step = jax.jit(function)
    for batch in loader:
        assert all(isinstance(x, jax.Array) for x in jax.tree.leaves(batch))
        close(function(params(), batch), expected[loader.indices])
        close(step(params(), batch), expected[loader.indices])
    assert set(binders) == {"autobatch-prefetch"} and len(binders) == len(loader)


def test_a_loader_without_a_thread_moves_batches_too():
    data = total.pack([chain(2), chain(3)])
    total(params(), data)
    for batch in ab.Loader(data, 1, prefetch=0, device=jax.devices()[0]):
        assert not _threads()
        assert all(isinstance(x, jax.Array) for x in jax.tree.leaves(batch))


def test_the_thread_sees_the_settings_of_the_loop():
    def settings(_):
        device = jax.config.jax_default_device
        return current().max_rows, jax.config.jax_enable_x64, device

    device = jax.devices()[0]
    with ab.options(max_rows=17), jax.enable_x64(True), jax.default_device(device):
        held = Prefetched(settings, [0], 1)
    assert next(held) == (17, True, device)
    assert next(Prefetched(settings, [0], 1))[1:] == (jax.config.jax_enable_x64, None)


def test_on_a_cpu_batches_stay_where_they_are():
    data = total.pack([chain(2), chain(3)])
    expected = np.asarray(total(params(), data))
    loader = ab.Loader((data, np.arange(2.0)), 1)
    for batch, x in loader:
        close(total(params(), batch), expected[loader.indices])
        assert isinstance(x, jax.Array), "the user's own arrays are JAX's, on every device"
    for batch in ab.Loader(data, 1):
        held = {type(x) for x in jax.tree.leaves(batch)}
        assert held == ({np.ndarray} if jax.default_backend() == "cpu" else {type(x)})


def test_a_device_is_taken():
    device = jax.devices()[0]
    data = total.pack([chain(2), chain(3)])
    total(params(), data)
    for batch, x in ab.Loader((data, np.arange(2)), 1, device=device):
        assert all(leaf.committed for leaf in jax.tree.leaves((batch, x)))


# ---- failures


class Fails(np.ndarray):
    """An array whose row 3 cannot be read."""

    def __getitem__(self, index):
        if np.any(np.asarray(index) == 3):
            raise OSError("the disk is gone")
        return np.asarray(self)[index]


@pytest.mark.parametrize("prefetch", [0, 2])
def test_errors_of_the_thread_are_raised_by_the_loop(prefetch):
    loader = ab.Loader(np.arange(10.0).view(Fails), 1, shuffle=False, prefetch=prefetch)
    seen = []
    with pytest.raises(OSError, match="the disk is gone") as caught:
        for x in loader:
            seen.append(float(x[0]))
    assert seen == [0, 1, 2]
    assert any(entry.name == "__getitem__" for entry in caught.traceback), "says where it failed"
    assert loader.state()["batch"] == 3, "a restored loader tries that batch again"


@pytest.mark.parametrize(("error", "raised"), [(KeyboardInterrupt, KeyboardInterrupt), (StopIteration, RuntimeError)])
def test_nothing_comes_after_an_error(error, raised):
    """An error never looks like the end of an epoch."""

    def make(k):
        raise error

    held = Prefetched(make, [0, 1], 2)
    with pytest.raises(raised):
        next(held)
    assert next(held, "end") == "end"


# ---- the end of the thread


def test_leaving_the_loop_ends_the_thread():
    loader = ab.Loader(np.arange(1000), 1)
    for _ in loader:
        assert len(_threads()) == 1
        break
    assert _wait_for(lambda: not _threads())
    with pytest.raises(ZeroDivisionError):
        for _ in loader:
            1 / 0
    assert _wait_for(lambda: not _threads())


def test_an_iterator_that_nobody_holds_ends_its_thread():
    iterator = iter(ab.Loader(np.arange(1000), 1))
    next(iterator)
    assert len(_threads()) == 1
    del iterator
    assert _wait_for(lambda: not _threads())

    holder: dict = {"iterator": iter(ab.Loader(np.arange(1000), 1))}
    holder["itself"] = holder
    next(holder["iterator"])
    del holder
    gc.collect()
    assert _wait_for(lambda: not _threads())


def test_an_iterator_that_was_never_asked_starts_no_thread():
    iterator = iter(ab.Loader(np.arange(10), 1))
    assert not _threads()
    del iterator


def test_two_loops_at_once():
    loader = ab.Loader(np.arange(6), 2)
    both = [[a.tolist() for a in x] for x in zip(loader, loader, strict=True)]
    wanted = [o.tolist() for o in loader.order(0)]
    assert both == [[o, o] for o in wanted] and loader.epoch == 1


def test_the_interpreter_ends_while_a_thread_works():
    program = """
import numpy as np, autobatch as ab
from tests.api.nodes import chain, params, total
data = total.pack([chain(n % 9 + 1) for n in range(2000)])
total(params(), data[:8])
iterator = iter(ab.Loader(data, 8, prefetch=100))
next(iterator)
print("done")
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "done\n", "")
