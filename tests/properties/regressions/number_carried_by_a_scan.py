"""A Python float that a uniform loop in a loop over children hands on lost the type of a Python float."""

import jax.numpy as jnp

import autobatch as ab


@ab.batched(in_axes=(None, 0))
def main(p, t):
    return carried(p, t)


def carried(p, t):
    x = t.x
    for c in t.kids:
        x = x + carried(p, c)
        for _ in range(3):
            x = jnp.tanh(x)
    return x
