"""The machine that binds minibatches, as machine code: all steps one after another.

run(steps, count, machine)      machine: registers, arena, its room, what is used of it, chosen, examples, out
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autobatch.backends.llvm import machine_code
from autobatch.backends.llvm.binding.functions import WRITTEN
from autobatch.backends.llvm.binding.step import Step
from autobatch.backends.llvm.machine_code import UnavailableError
from autobatch.backends.llvm.text import LlvmFunction
from autobatch.planning.stepped import WORDS, StepMachine, StepOperation, Steps, StepState


def module() -> str:
    """All steps, and the loop that takes them."""
    parts = []
    for op in StepOperation:
        WRITTEN[op](written := Step(op))
        parts.append(written.text())
    f = LlvmFunction("i64 @run(ptr %steps, i64 %count, ptr %machine) nounwind")
    status = f.slot(0)
    with f.loop(0, "%count", 1) as n:
        step = f.at("%steps", f.mul(n, 8 * WORDS))
        calls = [
            (int(op), f"%{op.name} = call i64 @step_{op.name.lower()}(ptr {step}, ptr %machine)")
            for op in StepOperation
        ]
        done, never = f.name("done"), f.name("never")
        table = " ".join(f"i64 {key}, label %at_{key}" for key, _ in calls)
        f.do(f"switch i64 {f.load('i64', step)}, label %{never} [{table}]")
        for (key, call), op in zip(calls, StepOperation, strict=True):
            f.block(f"at_{key}", falls=False)
            f.do(call)
            f.set(status, f"%{op.name}")
            f.do(f"br label %{done}")
        f.block(never, falls=False)
        f.do("unreachable")
        f.block(done, falls=False)
        with f.when(f.let(f"icmp ne i64 {f.get(status)}, 0")):
            f.do(f"ret i64 {f.get(status)}")
            f.block(f.name("dead"), falls=False)
    f.do("ret i64 0")
    declared = [f"declare i64 @llvm.{name}.i64(i64, i64)" for name in ("smin", "smax")]
    return "\n".join([*declared, "", *parts, str(f)])


@cache
def binding_machine() -> StepMachine | None:
    """The machine; None where there is no machine code."""
    try:
        text = module()
        with machine_code.lock:
            code = machine_code.load(machine_code.target_name("binding", text), text, ("run",), vectorize=True)
    except UnavailableError:
        return None
    function = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p)(code.functions["run"])

    def run(steps: Steps, state: StepState, chosen: NDArray[np.int64], out: NDArray[Any]) -> int:
        arrays = (state.registers, state.arena, state.used, chosen, out)
        registers, arena, used, examples, numbers = (a.ctypes.data for a in arrays)
        given = np.array([registers, arena, len(state.arena), used, examples, len(chosen), numbers], np.int64)
        return int(function(steps.ctypes.data, len(steps), given.ctypes.data))

    return run
