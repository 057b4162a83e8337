"""Programs compiled ahead of time for machines that are not here: `f.lower(...).compile(target=...)`."""

import importlib.util
import os
import subprocess
import sys
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autobatch as ab
from autobatch.common import runtime
from tests import quick_xla

has_libtpu = importlib.util.find_spec("libtpu") is not None
has_plugin = any(importlib.util.find_spec(f"jax_cuda{v}_plugin") is not None for v in (12, 13))
needs_libtpu = pytest.mark.skipif(
    not has_libtpu or quick_xla.ASKED,
    reason="libtpu is not installed, or would end the process for flags of XLA's that it does not know: make check-tpu",
)
needs_plugin = pytest.mark.skipif(not has_plugin, reason="JAX's plugin for CUDA is not installed")


@dataclass
class Node:
    value: float
    children: list["Node"]


@ab.batched(in_axes=(None, 0))
def energy(w, node):
    below = [energy(w, child) for child in node.children]
    return jnp.tanh(w @ (node.value * jnp.ones(32))).sum() + sum(below) / 2


@ab.batched
def root(x):
    y = x
    while abs(y * y - x) > 1e-3:
        y = (y + x / y) / 2
    return y


@ab.batched
def fibonacci(x):
    if x <= 1.0:
        return x
    return fibonacci(x - 1.0) + fibonacci(x - 2.0)


def tree(depth):
    return Node(0.1 * depth, [tree(depth - 1) for _ in range(depth % 3 + 1)] if depth else [])


NUMBERS = jnp.arange(1.0, 9.0)
PROGRAMS = {
    "frames": lambda: energy.lower(0.1 * jnp.ones((32, 32)), [tree(3), tree(4)]),
    "masks": lambda: root.lower(NUMBERS),
    "stack": lambda: fibonacci.lower(NUMBERS),
    "machine code": lambda: ab.batched(root.__wrapped__, backend="llvm").lower(NUMBERS),
}


@pytest.mark.tpu
@needs_libtpu
@pytest.mark.parametrize("kind", PROGRAMS)
def test_a_program_of_each_kind_is_compiled_for_a_tpu(kind):
    made = PROGRAMS[kind]().compile(target="tpu:v5e")
    assert made.executable.as_text().startswith("HloModule")
    assert "autobatch" not in "".join(line for line in made.as_text().splitlines() if "custom_call_target" in line)
    assert made.cost_analysis()["flops"] > 100
    memory = made.memory_analysis()
    assert 0 < memory.argument_size_in_bytes < memory.total
    assert "tpu:v5e (TPU v5 lite)" in str(made) and "flops" in str(made) and "temp" in str(made)
    with pytest.raises(ab.TargetError, match="executable is for tpu:v5e"):
        made(NUMBERS)


@pytest.mark.tpu
@needs_libtpu
@pytest.mark.parametrize("model", runtime.TPUS)
def test_each_generation_has_costs_of_its_own(model):
    made = PROGRAMS["masks"]().compile(target=f"tpu:{model}")
    assert made.cost_analysis()["optimal_seconds"] > 0


@pytest.mark.tpu
@needs_libtpu
def test_groups_by_shape_are_compiled_each():
    @ab.batched
    def length(x):
        return jnp.sort(x)[1]

    made = length.lower([np.ones(3), np.ones(5), np.ones(3)]).compile(target="tpu:v5e")
    assert len(made.executables) == 2
    assert made.cost_analysis()["flops"] == sum(e.made.cost_analysis()["flops"] for e in made.executables)


def steps():
    """Gradients of all kinds of programs, with a batch of trees as an argument."""
    data, w = ab.pack([tree(3), tree(4)]).plan(energy), 0.1 * jnp.ones((32, 32))
    energy(w, data)
    loss = lambda w, data: energy(w, data).mean()
    yield ab.lower(jax.value_and_grad(loss), w, data)
    for f in (root, fibonacci):
        yield ab.lower(jax.grad(lambda x, f=f: f(x).sum()), NUMBERS)


@pytest.mark.tpu
@needs_libtpu
def test_gradients_are_compiled_for_a_tpu():
    for step in steps():
        made = step.compile("tpu:v5e")
        assert "autobatch" not in "".join(x for x in made.as_text().splitlines() if "custom_call_target" in x)
        assert made.memory_analysis().total > 0


@needs_plugin
def test_gradients_are_compiled_for_a_gpu():
    for step in steps():
        assert step.compile("cuda:h100").memory_analysis().total > 0


@pytest.mark.tpu
@needs_libtpu
def test_two_processes_compile_at_once():
    code = (
        "import autobatch as ab, jax.numpy as jnp, sys\n"
        "from autobatch.common import runtime\n"
        "runtime.target('tpu:v5e')\n"
        "print('ready', flush=True)\n"
        "sys.stdin.readline()\n"
    )
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    environment.pop("ALLOW_MULTIPLE_LIBTPU_LOAD", None)
    start = lambda: subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    )
    with start() as first, start() as second:
        assert [p.stdout.readline() for p in (first, second)] == ["ready\n"] * 2
        for p in (first, second):
            p.communicate("\n", timeout=60)


@needs_plugin
@pytest.mark.parametrize("kind", PROGRAMS)
@pytest.mark.parametrize("model", ["a100", "h100", "b200"])
def test_a_program_is_compiled_for_a_gpu(kind, model):
    made = PROGRAMS[kind]().compile(target=f"cuda:{model}")
    assert "autobatch" not in made.as_text().partition("ENTRY")[2]
    assert made.memory_analysis().total > 0
    assert f"cuda:{model}" in str(made)


@pytest.mark.skipif(has_libtpu, reason="libtpu is installed")
def test_without_libtpu_the_error_says_what_to_install():
    with pytest.raises(ab.TargetError, match=r"pip install 'autobatch\[tpu\]'; no TPU is needed"):
        root.lower(NUMBERS).compile(target="tpu:v5e")


@pytest.mark.skipif(has_plugin, reason="JAX's plugin for CUDA is installed")
def test_without_the_plugin_the_error_says_what_to_install():
    with pytest.raises(ab.TargetError, match=r"pip install 'jax\[cuda13\]'"):
        root.lower(NUMBERS).compile(target="cuda:h100")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("gpu", "it is 'cpu', 'tpu', 'cuda', 'tpu:v2'"),
        ("cpu:avx2", "is not known"),
        ("tpu:v9", "known are tpu:v2, tpu:v3, tpu:v4, tpu:v5e"),
        ("cuda:h10", "known are cuda:a100, cuda:h100"),
        (5, "is not known"),
    ],
)
def test_an_unknown_target_is_refused_with_those_that_are_known(name, words):
    with pytest.raises(ab.TargetError, match=words):
        root.lower(NUMBERS).compile(target=name)


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="there is such a device")
@pytest.mark.parametrize("kind", ["tpu", "cuda"])
def test_a_device_that_is_not_here_has_to_be_named(kind):
    with pytest.raises(ab.TargetError, match="JAX finds no such device on this machine"):
        root.lower(NUMBERS).compile(target=kind)


def test_the_executable_of_this_machine_says_what_it_costs():
    made = root.lower(NUMBERS).compile()
    assert made.cost_analysis() == root.lower(NUMBERS).cost()
    assert made.memory_analysis().argument_size_in_bytes > 0
    assert "for this machine" in str(made) and "flops" in str(made)
    np.testing.assert_allclose(made(NUMBERS), np.sqrt(NUMBERS), atol=1e-3)


def test_a_program_for_the_cpu_of_this_machine_can_be_asked_for():
    made = root.lower(NUMBERS).compile(target="cpu")
    assert made.target == "cpu" and made.memory_analysis().total > 0


def test_compiling_for_another_machine_leaves_this_one_as_it_was():
    """What is traced for other machines is not what runs here."""
    before = np.asarray(root(NUMBERS))
    with runtime.made_for("tpu"):
        assert runtime.platform() == "tpu" and not runtime.is_for_here()
    assert runtime.platform() == jax.default_backend()
    np.testing.assert_array_equal(root(NUMBERS), before)
