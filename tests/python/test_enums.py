"""Members of enums that the function finds by their values."""

from __future__ import annotations

import enum

import jax.numpy as jnp
import numpy as np
import pytest

import autobatch as ab
from autobatch.errors import ExampleError


class Op(enum.IntEnum):
    ADD = 0
    MUL = 1
    NEG = 5


class Color(enum.Enum):
    RED = "r"
    BLUE = "b"
    BOTH = "rb"


def chosen_by_a_float(n, x):
    op = Op(int(x > 1.5)) if n > 0 else Op.ADD
    return x + 1 if op is Op.ADD else x * 2


def matched(n, x):
    match Op(n):
        case Op.ADD:
            return x + 1
        case Op.MUL:
            return x * 2
        case _:
            return -x


def of_words(s, x):
    k = Color(s)
    t = Color(s[:1]) if x > 1 else Color.BOTH
    return (x if k is t else x * 3) + len(t.value) + len(k.name)


def caught(n, x):
    try:
        op = Op(n)
    except ValueError:
        op = Op.NEG
    return op


def in_a_list(n, x):
    ops = [Op(k % 2) for k in range(n)]
    return sum(x if o == Op.MUL else 1.0 for o in ops) + {Op.ADD: 1.0, Op.MUL: 2.0, Op.NEG: 3.0}[Op(n % 2)]


def of_a_loop(n, x):
    k = 0
    while x > 0.4:
        x, k = x * 0.5, k + 1
    return Op(k % 2)


NUMBERS, WORDS, XS = [0, 1, 5], ["r", "rb", "b"], [1.0, 2.0, 0.5]


@pytest.mark.parametrize("backend", ["llvm", "xla", "auto"])
@pytest.mark.parametrize(
    ("function", "data"),
    [
        (chosen_by_a_float, NUMBERS),
        (matched, NUMBERS),
        (of_words, WORDS),
        (caught, [0, 1, 7]),
        (in_a_list, NUMBERS),
        (of_a_loop, NUMBERS),
    ],
    ids=lambda f: f.__name__ if callable(f) else "",
)
def test_agrees_with_python(function, data, backend):
    for a, b in zip(ab.unbatch(ab.batched(function, backend=backend)(data, XS)), map(function, data, XS), strict=True):
        assert a is b if isinstance(b, enum.Enum) else a == pytest.approx(b)


def test_gradient():
    slopes = ab.grad(ab.batched(matched), argnums=1)(NUMBERS, jnp.asarray(XS))
    np.testing.assert_allclose(slopes, [1.0, 2.0, -1.0])


def test_a_value_that_no_member_has():
    with pytest.raises(ExampleError, match="ValueError: not a valid Op"):
        ab.batched(matched)([3], [1.0])
