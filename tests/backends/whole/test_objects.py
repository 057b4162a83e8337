"""Machine code as object files for programs in C: `f.lower(...).compile().export_object(...)`."""

import platform
import shutil
import subprocess

import jax.numpy as jnp
import numpy as np
import pytest

import autobatch as ab
from autobatch.backends.llvm import machine_code
from autobatch.backends.llvm.machine_code import AVX2, AVX512, BY_LEVEL
from benchmarks.simd import callgrind
from benchmarks.simd.peers import MissingError

try:
    HOST = machine_code.host()
except machine_code.UnavailableError as error:
    pytest.skip(str(error), allow_module_level=True)
if platform.machine() != "x86_64" or shutil.which("gcc") is None:
    pytest.skip("there is no gcc here that makes programs of these objects", allow_module_level=True)

TABLE = np.linspace(0.5, 2.0, 7).astype(np.float32)
WEIGHTS = jnp.asarray([0.25, 0.75], jnp.float32)


@ab.batched(in_axes=(None, 0, 0), backend="llvm")
def walk(scale, x, point):
    assert x < 3.0, "too far"
    turns = 0
    while x > 0.1:
        x = x - scale * TABLE[turns % 7] * 0.1
        turns += 1
    return turns, jnp.exp(point @ WEIGHTS), x


MAIN = """
#include <stdio.h>
#include <stdlib.h>
#include "walk.h"
int main(void) {
    float scale, x[ROWS], point[ROWS][2], e[ROWS], rest[ROWS];
    int32_t turns[ROWS], status[ROWS];
    FILE *file = fopen("given", "rb");
    if (!file || fread(&scale, 4, 1, file) != 1 || fread(x, sizeof x, 1, file) != 1) return 2;
    if (fread(point, sizeof point, 1, file) != 1) return 2;
    void *scratch = aligned_alloc(64, WALK_SCRATCH + 64 & ~63);
    int64_t failed = walk(&scale, x, &point[0][0], turns, e, rest, status, scratch, 0, 5);
    failed |= walk(&scale, x, &point[0][0], turns, e, rest, status, scratch, 5, ROWS);
    fwrite(turns, sizeof turns, 1, stdout);
    fwrite(e, sizeof e, 1, stdout);
    fwrite(rest, sizeof rest, 1, stdout);
    fwrite(status, sizeof status, 1, stdout);
    return failed ? 1 : 0;
}
"""
LEVELS = [name for name, kind in BY_LEVEL.items() if kind.flags <= HOST.target.flags or kind.bits < HOST.bits]
LEVELS = [name for name in LEVELS if name != "aarch64"]
ROWS = 21


def run(folder, scale, x, point):
    (folder / "main.c").write_text(MAIN.replace("ROWS", str(ROWS)))
    subprocess.run(["gcc", "-w", "main.c", "walk.o", "-o", "main", "-lm"], cwd=folder, check=True)
    (folder / "given").write_bytes(scale.tobytes() + x.tobytes() + point.tobytes())
    found = subprocess.run(["./main"], cwd=folder, capture_output=True)
    assert found.returncode in (0, 1)
    words = np.frombuffer(found.stdout, np.int32).reshape(4, ROWS)
    return words[0], words[1].view(np.float32), words[2].view(np.float32), words[3], found.returncode


@pytest.mark.parametrize("level", LEVELS)
def test_a_program_in_c_computes_the_same_bits(level, tmp_path):
    rng = np.random.default_rng(0)
    scale, x = np.float32(0.7), rng.uniform(0.0, 2.9, ROWS).astype(np.float32)
    point = rng.normal(size=(ROWS, 2)).astype(np.float32)
    handle = walk.lower(scale, x, point).compile()
    handle.export_object(tmp_path / "walk.o", target=level)
    *found, status, failed = run(tmp_path, scale, x, point)
    assert not failed and not status.any()
    for mine, theirs in zip(found, handle(scale, x, point)):
        np.testing.assert_array_equal(mine, np.asarray(theirs))
    x[3] = 4.0
    *_, status, failed = run(tmp_path, scale, x, point)
    assert failed and np.flatnonzero(status).tolist() == [3]


def test_the_header_says_what_the_function_takes(tmp_path):
    walk.lower(np.float32(1), np.ones(3, np.float32), np.ones((3, 2), np.float32)).compile().export_object(
        tmp_path / "steps.o", name="take_steps", target="aarch64"
    )
    header = (tmp_path / "steps.h").read_text()
    assert "processors with NEON" in header
    lines = [line.strip() for line in header.splitlines()]
    first = lines.index("int64_t take_steps(")
    assert [line.split("//")[1].strip() for line in lines[first + 1 : first + 8]] == [
        "[]", "[rows]", "[rows, 2]", "[rows]", "[rows]", "[rows]",
        "[rows], what each row has failed with: 0 if it has not",
    ]  # fmt: skip
    assert lines[first + 1].startswith("const float *") and lines[first + 4].startswith("int32_t *")


def test_other_targets_and_names_are_refused(tmp_path):
    handle = walk.lower(np.float32(1), np.ones(3, np.float32), np.ones((3, 2), np.float32)).compile()
    with pytest.raises(ab.TargetError, match="machine code is for 'x86-64', 'x86-64-v3'"):
        handle.export_object(tmp_path / "walk.o", target="riscv")
    with pytest.raises(ab.TargetError, match="'2walk' is no name of a function in C"):
        handle.export_object(tmp_path / "2walk.o")
    assert not list(tmp_path.iterdir())


def test_writing_for_another_processor_leaves_this_one_as_it_was():
    with machine_code.written_for(AVX2):
        assert machine_code.host().target is AVX2
        with machine_code.written_for(AVX512):
            assert machine_code.host().bits == 512
    assert machine_code.host() is HOST or machine_code.host() == HOST


@pytest.mark.skipif(shutil.which("valgrind") is None, reason="there is no valgrind")
def test_instructions_are_counted(tmp_path):
    kernel = callgrind.KERNELS["mandelbrot"](0.002)
    try:
        report = callgrind.count(kernel, callgrind.Peers(tmp_path, "no ispc"), tmp_path)
    except MissingError as error:
        pytest.skip(str(error))
    assert report["agrees"] and set(report["instructions"]) == {"gcc", "ours"}
    assert report["instructions"]["gcc"] > report["instructions"]["ours"] > kernel.count


def test_functions_of_structure_have_no_object(tmp_path):
    total = ab.batched(lambda words: sum(w * 2.0 for w in words), backend="llvm")
    with pytest.raises(ab.TargetError, match="takes objects or lists"):
        total.lower([[1.0], [2.0, 3.0]]).compile().export_object(tmp_path / "total.o")
