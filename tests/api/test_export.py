"""Programs as files: `f.export` here, `ab.load_exported` in a process that has no source of the function."""

import json
import os
import re
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autobatch as ab
from autobatch.data import storage
from autobatch.testing import assert_same

HERE = {"gpu": "cuda"}.get(jax.default_backend(), jax.default_backend())

pytest.importorskip(
    "flatbuffers", reason="jax.export writes programs with flatbuffers: pip install 'autobatch[export]'"
)


@dataclass
class Node:
    value: float
    children: list["Node"]


class Pair(NamedTuple):
    word: str
    numbers: list[int]


def tree(depth, seed=0.0):
    return Node(0.1 * depth + seed, [tree(depth - 1, seed) for _ in range(depth % 3 + 1)] if depth else [])


TREES = [tree(3), tree(1, 0.5), tree(4), Node(2.0, [])]
W = np.random.default_rng(0).normal(size=(4, 4)).astype(np.float32)


@ab.batched(in_axes=(None, 0))
def energy(w, node):
    below = [energy(w, child) for child in node.children]
    return jnp.tanh(w @ (node.value * jnp.ones(4))).sum() + sum(below) / 2


@ab.batched
def root(x):
    if x < 0:
        raise ValueError(f"{x} has no root")
    y = x
    while abs(y * y - x) > 1e-3:
        y = (y + x / y) / 2
    return y


@ab.batched
def fibonacci(x):
    if x <= 1.0:
        return x
    return fibonacci(x - 1.0) + fibonacci(x - 2.0)


@ab.batched
def values(node):
    return [node.value, *[v for child in node.children for v in values(child)]]


@ab.batched
def deepest(node):
    best, most = node, 0
    for child in node.children:
        if len(child.children) > most:
            best, most = child, len(child.children)
    return {"best": best, "count": most}


@ab.batched
def doubled(node):
    return Node(2 * node.value, [doubled(c) for c in node.children])


@ab.batched(on_error="mask")
def second(node):
    return node.children[1].value, node.value


@ab.batched
def spoken(pair):
    return pair.word == "up", sum(n * n for n in pair.numbers)


@ab.batched(in_axes=(None, 0, 0))
def apart(w, left, right):
    return jnp.abs(w * (left.value - right.value)) + sum(apart(w, a, b) for a, b in zip(left.children, right.children))


@ab.batched(in_axes=(None, 0, None))
def limited(w, node, depth):
    if depth == 0:
        return w * node.value
    return w * node.value + sum(limited(w, c, depth - 1) for c in node.children)


@ab.batched(in_axes=({"a": None, "b": 0}, None))
def mixed(held, kind):
    return jnp.sin(held["a"]) * held["b"] if kind == "sine" else held["a"] + held["b"]


BASE = np.arange(4.0, dtype=np.float32)


@ab.batched
def closed(x):
    return BASE * x


class Model:
    def __init__(self, w):
        self.w = w

    @ab.batched
    def scaled(self, node):
        return self.w * node.value


PAIRS = [Pair("up", [1, 2]), Pair("down", []), Pair("up", [3])]
X = np.array([1.0, 4.0, 9.0], np.float32)
CALLS = {
    "frames": (energy, (W, TREES)),
    "masks": (root, (X,)),
    "stack": (fibonacci, (X,)),
    "machine code": (ab.batched(root.__wrapped__, backend="llvm"), (X,)),
    "lists": (values, (TREES,)),
    "nodes": (deepest, (TREES,)),
    "objects": (doubled, (TREES,)),
    "failures": (second, (TREES,)),
    "strings": (spoken, (PAIRS,)),
    "two trees": (apart, (np.float32(2.0), TREES, TREES[::-1])),
    "integers": (limited, (np.float32(2.0), TREES, 2)),
    "containers": (mixed, ({"a": W, "b": np.stack([W, 2 * W])}, "sine")),
    "free variables": (closed, (X,)),
    "methods": (Model(np.float32(3.0)).scaled, (TREES,)),
}


def exported(tmp_path, f, args, **options):
    path = tmp_path / "f.program"
    f.export(path, *args, platforms=HERE, **options)
    return ab.load_exported(path)


def assert_same_results(found, expected):
    if isinstance(expected, tuple) and isinstance(expected[-1], ab.Failures):
        (found, failed), (expected, wanted) = found, expected
        assert failed.failed.tolist() == wanted.failed.tolist() and failed.details == wanted.details
    assert_same(ab.unbatch(found), ab.unbatch(expected))


def run_time(args):
    return [x for x in args if not isinstance(x, str)]


@pytest.mark.parametrize("kind", CALLS)
def test_what_is_loaded_returns_what_the_function_returns(kind, tmp_path):
    f, args = CALLS[kind]
    loaded = exported(tmp_path, f, args)
    assert_same_results(loaded(*run_time(args)), f(*args))
    assert f.__name__ in repr(loaded) and str(loaded.count) in str(loaded)


@pytest.mark.parametrize("kind", ["frames", "masks", "lists", "strings", "failures", "nodes", "two trees"])
def test_fewer_examples_than_it_was_exported_for(kind, tmp_path):
    f, args = CALLS[kind]
    loaded = exported(tmp_path, f, args)
    fewer = [x[:2] if isinstance(x, list) or x is X else x for x in args]
    assert_same_results(loaded(*fewer), f(*fewer))


def test_other_examples_are_packed_and_planned_where_it_is_loaded(tmp_path):
    loaded = exported(tmp_path, energy, (W, TREES))
    others = [tree(2, 1.0), tree(4, -0.5), tree(0)]
    np.testing.assert_allclose(loaded(W + 1, others), energy(W + 1, others), rtol=1e-5)
    packed = loaded.pack(others)
    np.testing.assert_allclose(loaded(W, packed), energy(W, others), rtol=1e-5)
    small = exported(tmp_path, energy, (W, [tree(4), *[Node(1.0, [])] * 7]))
    np.testing.assert_allclose(small(W, [tree(4)]), energy(W, [tree(4)]), rtol=1e-5)
    np.testing.assert_allclose(loaded(W, packed[[2, 0]]), energy(W, others)[jnp.array([2, 0])], rtol=1e-5)


def test_it_can_be_differentiated_as_often_as_was_asked_for(tmp_path):
    @ab.batched(in_axes=(None, 0))
    def total(w, node):
        return jnp.tanh(w * node.value) + sum(total(w, c) for c in node.children)

    loaded = exported(tmp_path, total, (jnp.float32(2.0), TREES), vjp_order=1)
    packed = loaded.pack(TREES)
    gradient = jax.grad(lambda w: loaded(w, packed).sum())
    np.testing.assert_allclose(gradient(0.5), ab.grad(total)(0.5, TREES), rtol=1e-5)
    np.testing.assert_allclose(jax.jit(gradient)(0.5), gradient(0.5), rtol=1e-6)
    few = loaded.pack(TREES[:3])
    np.testing.assert_allclose(jax.jit(loaded)(0.5, few), total(0.5, TREES[:3]), rtol=1e-5)
    with pytest.raises(ValueError, match="No VJP is available"):
        jax.grad(gradient)(0.5)


@pytest.mark.parametrize("kind", ["frames", "masks", "stack", "machine code"])
def test_no_machine_code_of_ours_is_in_a_file(kind, tmp_path):
    f, args = CALLS[kind]
    path = tmp_path / "f.program"
    f.export(path, *args)
    loaded = ab.load_exported(path)
    assert loaded.platforms == ("cpu", "cuda", "tpu")
    called = set(re.findall(r"custom_call @(\w+)", loaded.exported.mlir_module()))
    assert not [name for name in called if name.startswith("autobatch")]


def test_examples_that_fail_are_named_where_it_is_loaded(tmp_path):
    with pytest.raises(ab.ExampleError, match="example 1 at .*ValueError: -4.0 has no root"):
        exported(tmp_path, root, (X,))(np.array([1.0, -4.0], np.float32))

    @ab.batched
    def first(words):
        return words[0] * 2.0

    loaded = exported(tmp_path, first, ([[1.0], [2.0, 3.0]],))
    with pytest.raises(ab.ExampleError, match="example 0 at .*IndexError") as error:
        loaded([[]])
    assert error.value.count == 1


def test_calls_that_it_was_not_exported_for_are_refused(tmp_path):
    loaded = exported(tmp_path, energy, (W, TREES))
    refused = [
        ((W[:2], TREES), ab.BatchError, r"w: exported for float32\[4x4\]; given float32\[2x4\]"),
        (({"w": W}, TREES), ab.BatchError, "arguments: exported for"),
        ((W, [1.0]), ab.BatchError, "the examples: exported for Node; given float"),
        ((W, TREES * 2), ab.BatchError, "for batches of at most 4 examples, and 8 were given; cut the batch"),
        ((W, []), ab.BatchError, "there is nothing to compute"),
        ((W, [tree(8)]), ab.PlanError, "rows of .*, and the exported program has room for"),
        ((W,), TypeError, "its parameters are"),
    ]
    for args, kind, words in refused:
        with pytest.raises(kind, match=words):
            loaded(*args)
    with pytest.raises(ab.BatchError, match="depth decides structure, and the program was exported for the value 2"):
        exported(tmp_path, limited, (np.float32(2.0), TREES, 2))(np.float32(2.0), TREES, 3)
    with jax.enable_x64(True), pytest.raises(ab.BatchError, match="exported with jax_enable_x64 off"):
        loaded(W, TREES)


def test_what_cannot_be_exported_is_refused(tmp_path):
    path = tmp_path / "f.program"
    with pytest.raises(ab.TargetError, match="it takes some of 'cpu', 'cuda', 'tpu'"):
        root.export(path, X, platforms=("gpu",))
    with pytest.raises(ab.BatchError, match="2 groups by the shapes"):
        ab.batched(lambda x: jnp.pad(x, 1)[1]).export(path, [np.ones(3), np.ones(5)])
    with pytest.raises(ab.BatchError, match="runs on the host alone"):
        ab.batched(root.__wrapped__, backend="interpret").export(path, X)
    assert not list(tmp_path.iterdir())


def test_a_program_for_another_platform_says_so(tmp_path):
    path = tmp_path / "f.program"
    root.export(path, X, platforms=("tpu",))
    with pytest.raises(ab.TargetError, match=r"exported for tpu, and JAX computes on \w+ here"):
        ab.load_exported(path)(X)


def test_files_that_are_damaged_or_something_else_are_refused(tmp_path):
    path, other = tmp_path / "f.program", tmp_path / "other"
    root.export(path, X, platforms=HERE)
    whole = path.read_bytes()
    for content in (whole[: len(whole) // 2], b"", b"PK\x03\x04 no zip", whole[:200] + b"\0" * 64 + whole[264:]):
        other.write_bytes(content)
        with pytest.raises(ab.FileError, match="is not a file that f.export wrote, or it is damaged: .*; export it"):
            ab.load_exported(other)
    ab.pack([1, 2]).save(other)
    with pytest.raises(ab.FileError, match="the format is 'autobatch columns 3'"):
        ab.load_exported(other)
    with np.load(path) as held:
        text = {**json.loads(bytes(held["text"])), "format": "autobatch program 0"}
        storage.write(other, text, {name: held[name] for name in held.files if name not in ("text", "sha256")})
    with pytest.raises(ab.FileError, match="the format is 'autobatch program 0'.* export it again"):
        ab.load_exported(other)


USERS = """
    import jax.numpy as jnp
    import numpy as np
    import autobatch as ab
    from dataclasses import dataclass

    @dataclass
    class Leaf:
        word: str
        number: float

    @dataclass
    class Inner:
        left: "Leaf | Inner"
        right: "Leaf | Inner"

    @ab.batched(in_axes=(None, 0))
    def total(w, node):
        if isinstance(node, Leaf):
            assert node.number < 100, "too large"
            return w * node.number if node.word == "up" else w * 0
        return total(w, node.left) + jnp.tanh(total(w, node.right))

    TWO = Inner(Leaf("up", 1.0), Leaf("down", 2.0))
    EXAMPLES = [TWO, Leaf("up", 3.0), Inner(Inner(Leaf("up", 1.0), Leaf("up", 2.0)), Leaf("up", 5.0))]

    def main():
        w = np.arange(3, dtype=np.float32)
        total.export("total.program", w, EXAMPLES, platforms=("cpu", "tpu"))
        ab.pack(EXAMPLES).save("examples.npz")
        np.save("expected", total(w, EXAMPLES))
"""
ELSEWHERE = """
    import importlib.util
    import numpy as np
    import autobatch as ab

    assert importlib.util.find_spec("users") is None
    try:
        ab.load("examples.npz")
    except ab.BatchError as error:
        assert "'users:Inner': users is not imported; import its module" in str(error)
    else:
        raise AssertionError
    total = ab.load_exported("total.program")
    w, expected = np.arange(3, dtype=np.float32), np.load("expected.npy")
    batch = ab.load("examples.npz")
    np.testing.assert_allclose(total(w, batch), expected, rtol=1e-6)
    np.testing.assert_allclose(total(w, batch[[2, 0]]), expected[[2, 0]], rtol=1e-6)
    Leaf, Inner = total.classes["Leaf"], total.classes["Inner"]
    made = [Leaf(word="up", number=3.0), Inner(left=Leaf(word="up", number=1.0), right=Leaf(word="no", number=2.0))]
    np.testing.assert_allclose(total(w, made), expected[[1, 0]], rtol=1e-6)
    assert repr(batch[1]) == "Leaf(word='up', number=3.0)"
    try:
        total(w, [made[0], Leaf(word="up", number=200.0)])
    except ab.ExampleError as error:
        assert "example 1 at" in str(error) and "users.py" in str(error) and "too large" in str(error), error
    else:
        raise AssertionError
    print("fine")
"""


def test_a_process_without_the_source_calls_it(tmp_path):
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    (here / "users.py").write_text(textwrap.dedent(USERS))
    root_of_package = os.path.dirname(os.path.dirname(ab.__file__))

    def python(code, folder, path):
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([root_of_package, *path]), "JAX_PLATFORMS": "cpu"}
        command = [sys.executable, "-c", textwrap.dedent(code)]
        found = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
        assert found.returncode == 0, found.stderr
        return found.stdout

    python("import users; users.main()", there, [str(here)])
    assert python(ELSEWHERE, there, []).strip() == "fine"
