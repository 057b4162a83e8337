"""Errors of examples inside compiled computations: who says them, and what that leaves alone."""

import jax
import jax.numpy as jnp
import pytest

import autobatch as ab
from autobatch.compiler import executables


@ab.batched
def doubled(x):
    assert x > 0, "not positive"
    while x < 100.0:
        x = x * 2
    return x


X = jnp.asarray([1.0, 2.0, 3.0])


def test_the_error_names_examples_and_lines():
    with pytest.raises(Exception, match=r"(?s)ExampleError: 1 of .*example 1 at .*not positive"):
        jax.block_until_ready(jax.jit(doubled)(X.at[1].set(-1.0)))


def test_a_gradient_that_fails():
    gradient = jax.jit(jax.grad(lambda x: doubled(x).sum()))
    assert gradient(X).tolist() == [128.0, 64.0, 64.0]
    with pytest.raises(Exception, match="not positive"):
        jax.block_until_ready(gradient(-X))


def test_under_vmap():
    scaled = jax.jit(jax.vmap(lambda s: doubled(s * X))).lower(jnp.ones(2)).compile()
    assert scaled(jnp.asarray([1.0, 2.0])).tolist() == [[128.0, 128.0, 192.0]] * 2
    with pytest.raises(Exception, match="not positive"):
        jax.block_until_ready(scaled(jnp.asarray([1.0, -2.0])))


@pytest.mark.cpu
def test_there_is_no_callback_of_jax():
    """With one, JAX would neither keep the program in its cache nor call it without Python."""
    lowered = jax.jit(doubled).lower(X)
    assert "callback" not in lowered.as_text()
    assert executables.TARGET in lowered.as_text()


def test_an_example_whose_result_nobody_wants_fails_all_the_same():
    with pytest.raises(Exception, match="example 1 at"):
        jax.block_until_ready(jax.jit(lambda x: doubled(x)[0])(X.at[1].set(-1.0)))


@pytest.mark.cpu
def test_what_cannot_be_said_is_an_error_too(monkeypatch):
    monkeypatch.setattr(executables, "raise_what", lambda *_: 1 / 0)
    with pytest.raises(Exception, match="what it was cannot be said"):
        jax.block_until_ready(jax.jit(doubled)(-X))
