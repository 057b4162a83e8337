"""A whole function as an object file for programs in C, which need neither Python nor JAX, with a header.

    mandelbrot.h    int64_t mandelbrot(const float *x, const float *y, int32_t *result0, void *scratch, begin, end)
    mandelbrot.o    the same, for one kind of processor; linked with -lm

Arrays that the function has closed over are in the object. What a row computes are the bits that it computes here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from autobatch.backends.llvm import machine_code
from autobatch.backends.llvm.lanes.program import CodeOperand, Result
from autobatch.backends.llvm.lanes.tensors import KEY
from autobatch.backends.llvm.targets import BY_LEVEL, ProcessorTarget
from autobatch.backends.llvm.whole.code import ENTRY, WholeCode, write
from autobatch.backends.llvm.whole.region import WholeRegion
from autobatch.backends.llvm.whole.running import words_dtype
from autobatch.errors import TargetError

C_TYPES = {
    "bool": "bool",
    "float16": "uint16_t",
    "bfloat16": "uint16_t",
    "float32": "float",
    "float64": "double",
    "complex64": "float _Complex",
    "complex128": "double _Complex",
    KEY: "uint32_t",
    **{f"{sign}int{bits}": f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}


@dataclass(frozen=True)
class ObjectFile:
    """`code` is the object file, `header` declares its function; a call needs `scratch` bytes of memory, aligned to 64.
    `width`: rows that it computes at once."""

    name: str
    target: ProcessorTarget
    code: bytes
    header: str
    operands: tuple[CodeOperand, ...]
    results: tuple[Result, ...]
    scratch: int
    width: int


def target_of(level: str) -> ProcessorTarget:
    """The kind of processor of a level as compilers name them. TargetError for others."""
    if level not in BY_LEVEL:
        raise TargetError(f"target={level!r}: machine code is for {', '.join(map(repr, BY_LEVEL))}")
    return BY_LEVEL[level]


def object_of(
    whole: WholeRegion, sites: bool, name: str, target: ProcessorTarget, held: Mapping[int, Any] = MappingProxyType({})
) -> ObjectFile:
    """The object file of a whole function, under a name of C's. `held`: operands that are in the object, by number.
    TargetError for a name that is none."""
    if not re.fullmatch(r"[A-Za-z]\w*", name):
        raise TargetError(f"{name!r} is no name of a function in C")
    with machine_code.written_for(target):
        made = write(whole, sites)
        code = machine_code.compile_object(_text(made, name, held), vectorize=True, target=target)
    given = {_named(v.hint, k): made.signature.operands[k] for k, v in enumerate(whole.region.args) if k not in held}
    results, scratch = made.signature.results, max(made.program.scratch, 1)
    header = _header(name, target, given, results, scratch, sites)
    return ObjectFile(name, target, code, header, tuple(given.values()), results, scratch, made.width)


def _named(hint: str, number: int) -> str:
    """The name of an operand in C, which no two have."""
    return f"{hint}_{number}" if re.fullmatch(r"[A-Za-z]\w*", hint) else f"operand_{number}"


def _text(made: WholeCode, name: str, held: Mapping[int, Any]) -> str:
    """The text with a function that hands the program its own arrays."""
    operands, results = made.signature.operands, len(made.signature.results)
    lines = []
    inside = {k: np.asarray(x).astype(words_dtype(operands[k])) for k, x in held.items()}
    for k, x in enumerate([*made.program.constants, *inside.values()]):
        content = np.ascontiguousarray(x).tobytes()
        data = "".join(f"\\{byte:02X}" for byte in content)
        lines.append(f'@own{k} = private unnamed_addr constant [{len(content)} x i8] c"{data}", align 64')
    given = [f"ptr %a{k}" for k in range(len(operands)) if k not in held]
    own = [f"ptr @own{k}" for k in range(len(made.program.constants))]
    places = {k: f"ptr @own{len(own) + n}" for n, k in enumerate(inside)}
    whole = [places.get(k, f"ptr %a{k}") for k in range(len(operands))]
    written = [f"ptr %r{k}" for k in range(results + 1)]
    rows = ["i64 %begin", "i64 %end"]
    lines.append(f"define i64 @{name}({', '.join([*given, *written, *rows])}) {{")
    lines.append(f"  %failed = call i64 @{ENTRY}({', '.join([*whole, *own, *written, *rows])})")
    lines.append("  ret i64 %failed\n}")
    hidden = re.sub(rf"^define (?=i64 @{ENTRY}\()", "define internal ", made.program.text, flags=re.MULTILINE)
    return "\n".join([hidden, *lines, ""])


def _header(
    name: str,
    target: ProcessorTarget,
    operands: Mapping[str, CodeOperand],
    results: Sequence[Result],
    scratch: int,
    sites: bool,
) -> str:
    def shape(x: Any, varies: bool) -> str:
        dims = [*(["rows"] if varies else []), *map(str, x.shape), *(["2"] if x.dtype == KEY else [])]
        return f"[{', '.join(dims)}]"

    parameters = [f"const {C_TYPES[o.dtype]} *{n},  // {shape(o, o.varies)}" for n, o in operands.items()]
    last = len(results) - 1 if sites else -1
    for k, r in enumerate(results):
        words = ", what each row has failed with: 0 if it has not" if k == last else ""
        parameters.append(f"{C_TYPES[r.dtype]} *{'status' if k == last else f'result{k}'},  // {shape(r, True)}{words}")
    listed = "\n    ".join([*parameters, f"void *scratch,  // {name.upper()}_SCRATCH bytes, aligned to 64"])
    return f"""// {name}, machine code for processors with {target.name}, written by autobatch.
//
// It computes the rows from `begin` to `end`; 0 is returned, or another number where one of them has failed. Threads
// may compute different rows of the same arrays at once, each with scratch memory of its own.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#define {name.upper()}_SCRATCH {scratch}
#ifdef __cplusplus
extern "C"
#endif
int64_t {name}(
    {listed}
    int64_t begin,
    int64_t end);
"""
