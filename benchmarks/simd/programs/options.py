"""Prices of European options: the formula of Black and Scholes (1973), and the tree of Cox, Ross and Rubinstein (1979).

The polynomial for the normal distribution is 26.2.17 of Abramowitz and Stegun, as in ispc's example `options`.
"""

from __future__ import annotations

from math import exp, log, sqrt
from typing import Any

import jax.numpy as jnp

import autobatch as ab

STEPS = 64


def normal(x: float) -> float:
    """The distribution function of the normal distribution, to 7.5e-8."""
    z = abs(x)
    k = 1.0 / (1.0 + 0.2316419 * z)
    tail = k * (0.31938153 + k * (-0.356563782 + k * (1.781477937 + k * (-1.821255978 + k * 1.330274429))))
    w = 1.0 - 0.39894228040 * exp(-z * z / 2.0) * tail
    if x < 0.0:
        return 1.0 - w
    return w


@ab.batched
def call_option(price: float, strike: float, years: float, rate: float, volatility: float) -> float:
    """What the right to buy is worth, by the formula."""
    spread = volatility * sqrt(years)
    d1 = (log(price / strike) + (rate + volatility * volatility / 2.0) * years) / spread
    return price * normal(d1) - strike * exp(-rate * years) * normal(d1 - spread)


@ab.batched
def binomial_option(price: float, strike: float, years: float, rate: float, volatility: float) -> Any:
    """The same by a tree of `STEPS` steps: values at the end, brought back step by step, one fewer each time."""
    step = years / STEPS
    up = exp(volatility * sqrt(step))
    growth = exp(rate * step)
    rises = (growth - 1.0 / up) / (up - 1.0 / up)
    down = (1.0 - rises) / growth
    rises = rises / growth
    k = jnp.arange(STEPS + 1.0)
    values = jnp.maximum(0.0, price * up ** (2.0 * k - STEPS) - strike)
    for _ in range(STEPS):
        values = down * values[:-1] + rises * values[1:]
    return values[0]
