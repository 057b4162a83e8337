"""`int()` of a number of an array was a Python int for the compiler, and none for the rule of the operation."""

import jax.numpy as jnp

import autobatch as ab


@ab.batched(in_axes=(None, 0))
def main(p, t):
    k = int(abs(jnp.sin(p["W"][t.n % 3]).sum()) * 2.9)
    return k, k % 2 + t.x
