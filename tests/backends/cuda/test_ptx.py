"""PTX of all programs is what NVIDIA's assembler takes, for each kind of GPU; skipped where it is not installed."""

import re
import shutil
import subprocess

import jax
import pytest

import autobatch as ab
from autobatch.backends.cuda import device, program
from autobatch.backends.llvm.lanes.ops import LeafOperations, shape_of
from autobatch.backends.llvm.lanes.program import CodeOperand, CodeSignature, Result
from autobatch.backends.llvm.machine_code import RefusedError
from tests.backends.lanes import test_ops
from tests.backends.lanes.harness import equations
from tests.backends.whole import test_whole
from tests.backends.whole.programs import cases, parameters
from tests.properties import recursions

CASES = cases()
FUSED = re.compile(r"\t(?:mul|add|sub|mad|div|sqrt)\.(?!rn|hi|lo|wide|cc|[su]\d)\S*f\d\d\b")
"""Arithmetic on floats that says not how it rounds: the assembler may fuse it."""
ROUGH = re.compile(r"\t\w+\S*\.(?:ftz|approx|full)\S*")
"""What loses small numbers, or is off by more than half a unit in the last place."""


def _works():
    try:
        found = subprocess.run(["ptxas", "--version"], capture_output=True, text=True, check=False)
    except OSError:
        return False
    return found.returncode == 0 and "release" in found.stdout


needs_ptxas = pytest.mark.skipif(
    not _works(), reason=f"no ptxas that works here ({shutil.which('ptxas')}); it comes with CUDA's toolkit"
)


def assemble(text, of, folder):
    """Registers of each kernel, and what does not fit into them."""
    path = folder / f"{of.name}.ptx"
    path.write_text(text)
    command = ["ptxas", "-v", f"-arch={of.name}", path, "-o", folder / "out.cubin"]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    spills = sum(int(n) for n in re.findall(r"(\d+) bytes spill stores", made.stderr))
    return [int(n) for n in re.findall(r"Used (\d+) registers", made.stderr)], spills


def check(text, folder, most=128):
    for of in device.ARCHITECTURES:
        made = device.assembled(text, of)
        assert f".target {of.name}" in made and f".version {of.version}" in made
        assert not FUSED.findall(made) and not ROUGH.findall(made), "each operation rounds as on the processor"
        registers, spills = assemble(made, of, folder)
        assert registers and max(registers) <= most and spills == 0, (of.name, registers, spills)


def lowered(function, in_axes, arguments):
    return ab.batched(function, in_axes=in_axes, backend="cuda").lower(*arguments).program.compiled.native


LONG = pytest.mark.long


@needs_ptxas
class TestAssembled:
    @pytest.mark.parametrize("name", CASES)
    def test_programs(self, name, tmp_path):
        case = CASES[name]
        check(lowered(case.function, case.in_axes, case.arguments).kernel.text, tmp_path)

    @pytest.mark.parametrize(
        "name", ["takeuchi", *(pytest.param(n, marks=LONG) for n in ("ackermann", "minimax", "select", "halved"))]
    )
    def test_recursion(self, name, tmp_path):
        f, batch = recursions.cases()[name]
        axes = (None, *(0 for _ in batch))
        check(lowered(f.__wrapped__, axes, (recursions.parameters(), *batch)).kernel.text, tmp_path)

    @pytest.mark.parametrize("name", test_whole.TestGradients.calls)
    def test_derivatives(self, name, tmp_path):
        function, batch = test_whole.TestGradients.calls[name]
        native = lowered(function, (None, *(0 for _ in batch)), (parameters(), *batch))
        args = native.whole.region.args
        wrt = [k for k, x in enumerate(args) if x.type.dtype == "float32"]
        check(program.write_gradient(native.whole, native.sites, 0, wrt).text, tmp_path)

    @pytest.mark.parametrize("text", [program.sums_text(), program.packing_text()], ids=["sums", "packing"])
    def test_kernels_beside_them(self, text, tmp_path):
        check(text, tmp_path)


def of_operation(function, ones):
    inputs, body, results, arrays = equations(function, *ones)
    operands = tuple(CodeOperand(*shape_of(x.type), True) for x in inputs)
    signature = CodeSignature(operands, tuple(Result(*shape_of(r.type)) for r in results), False)

    def run(gang, xs):
        leaves = LeafOperations(gang.w, gang.constant)
        env = dict(zip(inputs, xs, strict=True))
        leaves.run(body, env, results, arrays)
        return [leaves.read(r, env, arrays) for r in results]

    return program.written(signature, run, program.DEVICE, False, False)


def together(kernels):
    """One module of kernels, with names of their own."""
    llvm = pytest.importorskip("llvmlite.binding")
    whole = None
    for k, made in enumerate(kernels):
        parsed = llvm.parse_assembly(made.text.replace("@run(", f"@run{k}(", 1))
        if whole is None:
            whole = parsed
        else:
            whole.link_in(parsed)
    return str(whole)


@needs_ptxas
@pytest.mark.parametrize(
    "name",
    [n if n.startswith("more floats of 16") else pytest.param(n, marks=pytest.mark.long) for n in test_ops.GROUPS],
)
def test_every_operation(name, tmp_path):
    """Whatever the table of operations has is written for a GPU too: by formulas of our own, and nothing is called."""
    wide, make = test_ops.GROUPS[name]
    with jax.enable_x64(wide):
        made = [of_operation(function, [x[0] for x in rows]) for function, rows in make().values()]
    text = device.assembled(together(made), device.SM90)
    registers, _ = assemble(text, device.SM90, tmp_path)
    assert len(registers) == len(made)
    assert not FUSED.findall(text) and not ROUGH.findall(text)


def test_what_is_looked_for_is_found():
    assert FUSED.findall("\tmul.f32 \t%r3, %r2, %r2;") and not FUSED.findall("\tmul.rn.f32 \t%r3;\tmul.lo.s64 \t%r;")
    assert ROUGH.findall("\tsqrt.approx.ftz.f32 \t%r1, %r2;") and not ROUGH.findall("\tsqrt.rn.f32 \t%r1, %r2;")


def test_a_function_of_the_c_library_is_refused_by_name():
    f = program.DeviceFunction("")
    f.declare("declare float @llvm.fma.f32(float, float, float)")
    with pytest.raises(RefusedError, match="it calls erff of the C library"):
        f.declare("declare float @erff(float)")
