"""Kinds of processors: which one this is, the same bits on each that can be had here, and code for NEON."""

import struct

import jax.numpy as jnp
import numpy as np
import pytest

from autobatch.backends.llvm import machine_code
from autobatch.backends.llvm.machine_code import AVX2, AVX512, BY_WIDTH, NEON, SSE2, of_flags
from autobatch.backends.xla import product_kernels
from tests.backends.lanes.harness import compiled, written
from tests.backends.lanes.test_widths import COUNT, assert_same, rows

try:
    HOST = machine_code.host()
except machine_code.UnavailableError as error:
    pytest.skip(f"no machine code here: {error}", allow_module_level=True)


@pytest.mark.parametrize(
    ("flags", "wanted", "lanes"),
    [
        ("sse2 avx avx2 fma avx512f avx512vl", AVX512, 16),
        ("sse2 avx avx2 fma avx512f", AVX2, 8),
        ("sse2 avx avx2", SSE2, 4),  # no operation for a product and a sum
        ("sse2", SSE2, 4),
    ],
)
def test_the_widest_that_a_processor_has(flags, wanted, lanes):
    found = of_flags(set(flags.split()))
    assert found is wanted
    assert found.lanes == lanes


def test_a_processor_that_is_none():
    assert of_flags({"fpu", "asimd"}) is None


def test_products_have_a_kernel_for_wide_registers_alone(monkeypatch):
    monkeypatch.setattr(product_kernels, "host", lambda: machine_code.Host("an old one", SSE2))
    with pytest.raises(machine_code.UnavailableError, match="no kernel for SSE2"):
        product_kernels.vectors()


def numbers(a, b, m):
    """What calls the C library where there is no operation for it, sums, and a loop with a mask."""
    y = a * b + jnp.float32(0.1)
    k = jnp.int32(0)
    return (
        *(jnp.floor(a), jnp.ceil(a), jnp.round(a), y, y - b * b, jnp.exp(a), jnp.tanh(b), m.sum(), m @ m),
        *(jnp.sort(m), jnp.sin(a * 100), a.astype(jnp.float16), (a * b).astype(jnp.bfloat16), jnp.sqrt(abs(a)), k + 1),
    )


def test_results_are_the_same_bits_on_every_kind_of_processor():
    """With the same number of lanes, and so with any (`test_widths.py`)."""
    xs, live = (rows(), rows(), rows(19)), jnp.arange(COUNT) % 7 != 2
    kinds = BY_WIDTH[BY_WIDTH.index(HOST.target) :]
    assert_same({k.name: compiled(numbers, xs, [True] * 3, 4, k)(xs, live) for k in kinds})


def special(x, y):
    """What a processor may have instructions for, of numbers that they treat differently."""
    return jnp.exp(x), jnp.log(x), x**y, jnp.exp(y)


def test_instructions_of_one_processor_give_the_bits_of_all():
    """In vectors of 16 and 32 numbers, which AVX-512 has and others have not."""
    ends = [
        0.0,
        -0.0,
        np.inf,
        -np.inf,
        np.nan,
        -1.0,
        -1e-40,
        1e-45,
        1e-40,
        2.0**-126,
        1.0,
        0.75,
        1.5,
        3e38,
        88.8,
        -103.9,
    ]
    numbers = np.concatenate([ends, np.random.default_rng(0).normal(size=16), [89.5, -87.4, 0.1, 1e9, -1e9]])
    x, y = (a.ravel().astype(np.float32) for a in np.meshgrid(numbers, numbers))
    live, kinds = jnp.ones(len(x), bool), BY_WIDTH[BY_WIDTH.index(HOST.target) :]
    found = {
        f"{k.name} {n}": compiled(special, (x, y), [True] * 2, n, k)((x, y), live) for k in kinds for n in (1, 16, 32)
    }
    assert_same(found)
    assert not np.isnan(np.asarray(found[f"{HOST.target.name} 16"][1])[x > 0]).any()


def test_a_text_that_asks_for_steps_gets_them():
    made, _ = written(special, (rows(), rows()), [True] * 2, 16)
    assert "declare <16 x float> @ab_scaled.v16f32" in made.text
    for kind, instruction in ((AVX512, "vscalefps"), (AVX2, "vpslld")):
        text = machine_code.assembly(made.text, True, kind)
        assert instruction in text
        assert "ab_scaled" not in text, "no call"


def test_neon():
    """Assembled, as there is no such processor here: an object for AArch64, with products and sums of four lanes."""
    made, _ = written(numbers, (rows(), rows(), rows(19)), [True] * 3, NEON.lanes)
    code = machine_code.compile_object(made.text, True, NEON)
    assert code[:6] == b"\x7fELF\x02\x01"
    assert struct.unpack_from("<HH", code, 16) == (1, 183), "a relocatable object for AArch64"
    text = machine_code.assembly(made.text, True, NEON)
    for instruction in ("fmla\tv", "fadd\tv", "fsqrt\tv", ".4s"):
        assert instruction in text
    assert "bl\tfma" not in text, "an operation, not a call"


def test_every_kind_is_tried():
    assert {t.name for t in vars(machine_code).values() if isinstance(t, machine_code.ProcessorTarget)} == {
        *(t.name for t in BY_WIDTH),
        NEON.name,
    }
