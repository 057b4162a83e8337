"""The option `refill`: asked for, forbidden, or as it pays; `explain` says which, and why."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autobatch as ab
from autobatch.backends.llvm.lanes.refill import Refilled
from autobatch.options import OptionError


def cheap(x, n):
    """A turn does little; computed numbers end the loop."""
    x = jnp.sqrt(x + 1.0)
    while x < n:
        x = x * 1.25 + 0.5
    return x


def dear(x, n):
    x, k = jnp.sqrt(x + 1.0), 0.0
    while k < n:
        x = jnp.sin(x) * jnp.sin(x + 1.0) + jnp.sin(x * 0.5) * jnp.sin(x + k)
        k = k + 0.5 + x * x * 0.125
    return x, k


def two(x, n):
    k = x = jnp.sqrt(x + 1.0)
    while k < n:
        k = k + 1.0
    while x < n:
        x = x + 0.5
    return x, k


X, N = np.linspace(0, 3, 70, dtype=np.float32), np.random.default_rng(0).integers(0, 40, 70).astype(np.float32)


@pytest.fixture
def written(monkeypatch):
    made = []
    write = Refilled.run_all
    monkeypatch.setattr(Refilled, "run_all", lambda self: (made.append(self), write(self))[1])
    return made


@pytest.mark.parametrize("backend", ["llvm", "xla"])
@pytest.mark.parametrize(
    "function, refill, refilled, why",
    [
        (cheap, "auto", False, "to take the next row costs more"),
        (cheap, True, True, "makes room for the next (asked for"),
        (dear, "auto", True, "makes room for the next (a turn has"),
        (dear, False, False, "refill=False is asked for"),
        (two, True, False, ""),
    ],
)
def test_what_is_asked_for_is_done_and_explained(written, backend, function, refill, refilled, why):
    f = ab.batched(function, backend=backend, options={"refill": refill})
    found = jax.tree.map(np.asarray, f(X, N))
    assert bool(written) == (refilled or (function is two and backend == "xla"))  # each loop is an operation there
    said = str(f.explain(X, N)).replace("next: ", "next (")
    assert why in " ".join(said.split())
    jax.tree.map(np.testing.assert_array_equal, found, ab.batched(function, backend=backend)(X, N))


def test_other_values_are_refused():
    with pytest.raises(OptionError, match="'auto', True or False"):
        ab.options(refill="never")
