"""Free variables: closures, globals, `self`; and what all functions that are reached contribute to the key."""

from __future__ import annotations

import enum
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autobatch as ab
from tests.api.nodes import close, trees
from tests.api.page.oracle import agrees

X = np.arange(3.0, dtype=np.float32)

weight = jnp.float32(2.0)
factor = 3
table = {"a": np.float32(1.0), "b": np.float32(10.0)}
settings = {"layers": 2, "act": "tanh"}


class Level(enum.Enum):
    LOW = 1
    HIGH = 2


level = Level.LOW


def helper(x):
    return x * factor


def compiled(f) -> int:
    return f.cache_info().specialisations


def make(w):
    return ab.batched(lambda x: x * w)


# ---- arrays


def test_a_global_array_is_a_hidden_shared_argument(monkeypatch):
    """Its present value is read at every call, and another value of the same type is no other program."""
    f = ab.batched(lambda x: x * weight)
    close(f(X), 2 * X)
    monkeypatch.setitem(globals(), "weight", jnp.float32(5.0))
    close(f(X), 5 * X)
    assert compiled(f) == 1


def test_a_global_array_of_another_shape_is_another_program(monkeypatch):
    """Types belong to the program."""
    f = ab.batched(lambda x: x * weight)
    f(X)
    monkeypatch.setitem(globals(), "weight", jnp.ones(2))
    assert f(X).shape == (3, 2)
    assert compiled(f) == 2


def test_an_array_of_a_closure_is_read_again():
    """So is a variable of an enclosing function."""
    w = jnp.float32(2.0)

    @ab.batched
    def f(x):
        return x * w

    close(f(X), 2 * X)
    w = jnp.float32(7.0)
    close(f(X), 7 * X)
    assert compiled(f) == 1


def test_arrays_inside_containers_and_objects_are_read_again():
    """A dict of parameters in a global or a closure: its arrays are read where they lie."""
    params = {"layers": [{"w": np.float32(2.0)}], "b": np.float32(1.0)}
    f = ab.batched(lambda x: x * params["layers"][0]["w"] + params["b"])
    close(f(X), 2 * X + 1)
    params["layers"][0]["w"] = np.float32(5.0)
    close(f(X), 5 * X + 1)
    assert compiled(f) == 1


def test_a_closed_over_tracer_works_under_jit():
    """A hidden shared argument may be traced like any other."""
    step = jax.jit(lambda w: make(w)(X).sum())
    close(step(2.0), 6)
    close(step(3.0), 9)

    @jax.jit
    def nested(w):
        @ab.batched
        def f(t):
            if t.left is None:
                return w["scale"] * t.x
            return f(t.left) + f(t.right) + w["scale"] * t.x

        return f(trees())

    close(nested({"scale": jnp.float32(2.0)}), [2, 18, 70])


def test_one_function_takes_a_tracer_and_then_a_number():
    """What it closes over may change between calls, in and out of jit."""
    held = {"w": jnp.float32(1.0)}
    f = ab.batched(lambda x: x * held["w"])

    def step(w):
        held["w"] = w
        return f(X)

    close(f(X), X)
    close(jax.jit(step)(jnp.float32(2.0)), 2 * X)
    held["w"] = jnp.float32(3.0)
    close(f(X), 3 * X)


# ---- numbers, functions, everything else


@pytest.mark.parametrize(
    "name, function, other",
    [
        ("factor", lambda x: x * factor, 5),
        ("settings", lambda x: x * settings["layers"], {"layers": 4}),
        ("level", lambda x: x * 2 if level is Level.LOW else x * 7, Level.HIGH),
        ("helper", lambda x: helper(x), lambda x: x - 1),
        ("factor", lambda x: helper(x), 6),
        ("table", lambda x: x * sum(table.values()), {"a": np.float32(1.0)}),
        ("table", lambda x: x * len(table), {}),
        ("helper", lambda x: jnp.sum(jnp.stack([helper(x), x])), jnp.sin),
    ],
    ids=["int", "dict", "enum", "function", "global of a helper", "keys", "length", "library"],
)
def test_python_values_are_guarded(monkeypatch, name, function, other):
    """A change is noticed at the next call: numbers, containers, enum members, functions, what helpers read."""
    f = ab.batched(function)
    close(f(X), [function(x) for x in X])
    before = compiled(f)
    close(f(X), [function(x) for x in X])
    assert compiled(f) == before, "the same values: the same program"
    monkeypatch.setitem(globals(), name, other)
    close(f(X), [function(x) for x in X])
    assert compiled(f) == before + 1
    monkeypatch.undo()
    close(f(X), [function(x) for x in X])
    assert compiled(f) == before + 1, "the old values: the old program"


def test_the_closure_of_a_helper_is_guarded():
    """A variable that only a helper closes over."""
    n = 2

    def inner(x):
        return x + n

    f = ab.batched(lambda x: inner(x) * 2)
    close(f(X), (X + 2) * 2)
    n = 5
    close(f(X), (X + 5) * 2)


def test_a_variable_that_appears_where_there_was_none():
    """A key that the function asks for, and an attribute."""
    options = {"scale": 2.0}
    f = ab.batched(lambda x: x * options.get("shift", 1.0) if "shift" in options else x * options["scale"])
    close(f(X), 2 * X)
    options["shift"] = 10.0
    close(f(X), 10 * X)


def test_a_default_argument_is_read_when_the_function_is_made():
    """As in Python: the default belongs to the function."""
    n = 2

    def f(x, k=n):
        return x * k

    g = ab.batched(f, in_axes=(0,))
    close(g(X), 2 * X)
    n = 3
    close(g(X), 2 * X)


class Model:
    def __init__(self, w, depth):
        self.w, self.depth = jnp.float32(w), depth

    @ab.batched
    def score(self, x):
        for _ in range(self.depth):
            x = x * self.w
        return x


def test_self_is_read_again():
    """Arrays of the object are run-time values, its ints are guarded."""
    model = Model(2.0, 2)
    close(model.score(X), 4 * X)
    model.w = jnp.float32(3.0)
    close(model.score(X), 9 * X)
    model.depth = 3
    close(model.score(X), 27 * X)


@pytest.mark.parametrize("change", ["append", "item", "attribute", "global", "update", "augmented"])
def test_mutating_a_free_variable_is_refused(change):
    """The function runs once for many examples, at any time, in any order: there is no moment to change things."""
    seen, held, model = [0], {}, Model(1.0, 1)

    def append(x):
        seen.append(x)
        return x

    def item(x):
        held["last"] = x
        return x

    def attribute(x):
        model.depth = 4
        return x

    def update(x):
        held.update(a=x)
        return x

    def rebind(x):
        global factor
        factor = 4
        return x

    def augmented(x):
        seen[0] += x
        return x

    chosen = {
        "append": append,
        "item": item,
        "attribute": attribute,
        "global": rebind,
        "update": update,
        "augmented": augmented,
    }[change]
    with pytest.raises(ab.UnsupportedError, match="(?s)test_section_1_free.py:.*\\^"):
        ab.batched(chosen)(X)
    assert seen == [0] and held == {} and model.depth == 1 and factor == 3


# ---- threads


def test_one_function_in_several_threads():
    """One program is compiled, and every thread gets its own result."""
    f = ab.batched(lambda p, t: p * t.x, in_axes=(None, 0))
    found = run_together([lambda k=k: f(float(k), trees()) for k in range(8)])
    for k, result in enumerate(found):
        close(result, [k, 2 * k, 5 * k])
    assert compiled(f) == 1


def test_several_functions_that_call_each_other_in_several_threads():
    """Compiling two functions at a time does not lock them against each other."""

    @ab.batched
    def even(n: int):
        return 1.0 if n == 0 else odd(n - 1) * 0.5

    @ab.batched
    def odd(n: int):
        return 0.0 if n == 0 else even(n - 1) * 2.0

    found = run_together([lambda f=f: f([0, 1, 4]) for f in (even, odd) * 3])
    for k, result in enumerate(found):
        close(result, [[1, 0, 1], [0, 2, 0]][k % 2])


def test_a_batch_is_planned_and_cut_in_several_threads():
    """One data set serves all threads."""
    data = ab.pack(trees() * 20)
    f = ab.batched(lambda p, t: p * t.x, in_axes=(None, 0))
    found = run_together([lambda k=k: f(1.0, data[k : k + 3]) for k in range(12)])
    for k, result in enumerate(found):
        close(result, [[1, 2, 5][(k + i) % 3] for i in range(3)])


def test_options_and_disable_belong_to_their_thread():
    """What one thread sets, no other sees."""
    f = ab.batched(lambda x: x * 2)
    inside = threading.Barrier(2)

    def with_disable():
        with ab.disable(), ab.options(max_rows=7):
            inside.wait()
            return f.options().max_rows, f(X)

    def without():
        inside.wait()
        return f.options().max_rows, f(X)

    (one, a), (other, b) = run_together([with_disable, without])
    assert one == 7 and other != 7
    close(a, b)


def run_together(calls):
    """The results of calls, each in a thread of its own."""
    found = [None] * len(calls)
    errors = []

    def run(k):
        try:
            found[k] = calls[k]()
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(k,)) for k in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, errors
    return found


def test_the_same_closure_made_twice_is_two_functions():
    """Each keeps its own variables."""
    double, triple = make(jnp.float32(2.0)), make(jnp.float32(3.0))
    close(double(X), 2 * X)
    close(triple(X), 3 * X)
    agrees(double, X)
