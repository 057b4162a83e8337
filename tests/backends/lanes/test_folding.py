"""What is known of an instruction while it is written is what LLVM computes."""

import ctypes

import llvmlite.binding as llvm
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autobatch.backends.llvm.lanes.writer import LaneValue, LaneWriter, of_bools, of_integers
from autobatch.backends.llvm.text import LlvmFunction, broadcast

COMPARED = [f"icmp {p}" for p in ("eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge")]
NAMES = ["add", "sub", "mul", "and", "or", "xor", *COMPARED]


def by_numpy(name, a, b, bits):
    of = np.dtype(f"{'u' if ' u' in name else ''}int{bits}")
    x, y = (np.int64(v).astype(f"int{bits}").astype(of) for v in (a, b))
    found = {"add": "add", "sub": "subtract", "mul": "multiply"}.get(name)
    with np.errstate(over="ignore"):
        if found is not None:
            return str(int(getattr(np, found)(x, y)))
        if name in ("and", "or", "xor"):
            return str(int(getattr(np, f"bitwise_{name}")(x, y)))
    way = {"e": "equal", "n": "not_equal"}.get(name[5]) or {
        "lt": "less",
        "le": "less_equal",
        "gt": "greater",
        "ge": "greater_equal",
    }[name[6:]]
    return "true" if getattr(np, way)(x, y) else "false"


@given(st.sampled_from(NAMES), st.sampled_from((8, 16, 32, 64)), st.data())
def test_integers(name, bits, data):
    numbers = st.integers(-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
    a, b = data.draw(numbers), data.draw(numbers)
    assert of_integers(name, str(a), str(b), bits) == by_numpy(name, a, b, bits)


@pytest.mark.parametrize("name", ["and", "or", "xor", "icmp eq", "icmp ne"])
@pytest.mark.parametrize("literal", ["true", "false"])
def test_bools(name, literal):
    meaning = {"and": np.logical_and, "or": np.logical_or, "xor": np.not_equal}
    compute = meaning.get(name) or (np.equal if name == "icmp eq" else np.not_equal)
    for pair in (("%x", literal), (literal, "%x")):
        found = of_bools(name, *pair)
        if found is None:
            continue
        for x in (False, True):
            given_ = {"%x": x, "true": True, "false": False}
            assert compute(*(given_[p] for p in pair)) == given_[found]


def test_unknown_operands_are_not_folded():
    assert of_integers("add", "%v1", "3", 32) is None
    assert of_bools("and", "%v1", "%v2") is None


def test_constants_of_gangs_are_no_instructions():
    f = LlvmFunction("void @f()")
    w = LaneWriter(f, 8)
    x = LaneValue("%x", "int32")
    w.instruction("add", x, w.constant(3, "int32"))
    assert str(f).count("\n  %") == 1 and "splat (i32 3)" in str(f)
    assert broadcast(f, 8, "float", "0x3FF0000000000000") == "splat (float 0x3FF0000000000000)"


@settings(max_examples=30, deadline=None)
@given(st.integers(-(2**31), 2**31 - 1), st.sampled_from([1, 2, 3, 7, -2, -5, 2**31 - 1, -(2**31), 0, -1]))
def test_division_by_a_constant(x, divisor):
    from autobatch.backends.llvm.lanes.elementwise import BY_NUMBER
    from autobatch.ir.ops import Op

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    f = LlvmFunction("i32 @f(i32 %x)")
    w = LaneWriter(f, 1)
    quotient = BY_NUMBER["div"](w, Op("div"), LaneValue("%x", "int32"), w.constant(divisor, "int32"))
    rest = BY_NUMBER["rem"](w, Op("rem"), LaneValue("%x", "int32"), w.constant(divisor, "int32"))
    f.do(f"ret i32 {w.instruction('xor', quotient, rest).text}")
    machine = llvm.Target.from_default_triple().create_target_machine()
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(str(f)), machine)
    engine.finalize_object()
    run = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int32)(engine.get_function_address("f"))
    if divisor == 0:
        wanted = -1 ^ x
    else:
        sign = -1 if (x < 0) != (divisor < 0) else 1
        q = sign * (abs(x) // abs(divisor))
        wanted = q ^ (x - q * divisor)
    assert run(x) == ctypes.c_int32(wanted).value
