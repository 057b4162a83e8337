"""What arms compute again, and what they do not."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autobatch as ab
from autobatch.ir.core import Apply, walk
from autobatch.ir.parser import parse
from autobatch.ir.rewrite import Fresh
from autobatch.vectorize.guarded import Guard


def both_hand_on(x):
    y = jnp.log(x) / x
    if jnp.exp(x) > 3:
        return y * 2
    return 1 - y


def one_hands_on(x):
    y = jnp.sqrt(x)
    if jnp.exp(x) > 3:
        return y * 2
    return x


def one_compares(x):
    y = jnp.sqrt(x)
    if jnp.exp(x) > 3:
        return y * 2
    if jnp.exp(y) > 1.65:
        return x
    return -x


XS = jnp.asarray([0.0, 0.5, 1.5, 4.0], jnp.float32)


PROGRAM = """module()

func @f(%0: float32[]) -> (float32[]):
  %1: float32[] = log[accuracy=None](%0)
  %2: bool[] = gt(%0, 0.5: float32[])
  %5: float32[] = if %2 then:
    %3: float32[] = sub(1.0: float32[], %1)
    yield %3
  else:
    OTHER
  return %5
"""


@pytest.mark.parametrize(
    ("other", "copies"),
    [
        ("yield %1", 1),
        ("%4: float32[] = sin[accuracy=None](%1)\n    yield %4", 1),
        ("yield %0", 2),
        ("%4: float32[] = sign(%1)\n    yield %4", 3),
    ],
)
def test_what_both_arms_hand_on_is_computed_once(other, copies):
    """That of `sign` does not pass on a derivative."""
    module = parse(PROGRAM.replace("OTHER", other))
    region = module.functions[0].region
    device = {r for i in walk(region) for r in i.results} | set(region.args)
    guarded = Guard(Fresh(module), device).region(region, {})
    assert sum(i.op.name == "log" for i in walk(guarded) if isinstance(i, Apply)) == copies


@pytest.mark.parametrize("fun", [one_hands_on, one_compares])
def test_what_an_arm_does_not_use_reaches_no_gradient(fun):
    """The derivative of the root is infinite at 0, where no arm uses it."""
    found = jax.jit(ab.grad(ab.batched(fun, backend="interpret")))(XS)
    wanted = [1.0 if fun is one_hands_on or x > 0.25 else -1.0 for x in XS]
    wanted = [1 / np.sqrt(float(x)) if x > 1 else w for x, w in zip(XS, wanted, strict=True)]
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_gradients_of_what_both_arms_hand_on():
    xs = XS[1:]
    found = jax.jit(ab.grad(ab.batched(both_hand_on, backend="interpret")))(xs)
    np.testing.assert_allclose(found, [jax.grad(both_hand_on)(x) for x in xs], rtol=1e-5)
