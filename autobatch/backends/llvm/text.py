"""LLVM IR as text: functions with fresh names, structured loops and blocks, and the same text with checked addresses.

Under `AUTOBATCH_CHECK_MEMORY=1` machine code proves each address before it loads or stores: it has to lie in an array
of the call, in its scratch memory, or on the stack.

    %v9 = load i32, ptr %v8       ->      %v9.p = call ptr @ab_inside(ptr %v8, i64 4, i64 17)
                                          %v9 = load i32, ptr %v9.p

An access that does not is one of some harmless bytes, and is raised behind the call with the line that it belongs to.
Slow, for tests: of one call at a time, and nothing of it is kept on disk. Calls of machine code that do not pass by
`WholeProgram.run`, as those of compiled handles, are not looked at: their arrays are not known.
"""

from __future__ import annotations

import ctypes
import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np

# ---- functions


LONG = 1000
"""Lines of a function from which on formulas are called that stand in shorter ones."""


class LlvmFunction:
    """One function, written from the top. Values are strings such as `%3` or `42`; integers are `i64`.

    Variables of loops live in memory that is allocated at the entry; LLVM's pass `sroa` makes registers of them."""

    def __init__(self, head: str) -> None:
        """`head`: everything from the linkage to the attributes, such as `void @f(ptr %x) nounwind`."""
        self.head = head
        self._slots: list[str] = []
        self.declarations: dict[str, None] = {}
        self.metadata: list[str] = []
        self.called: set[str] = set()
        self._group: str | None = None
        self._lines: list[str] = []
        self._names = 0
        self.loops = 0
        self.interrupts: Interrupts | None = None
        """What loops ask now and then; None: nobody can be asked."""
        self.note = ""
        """A comment on the lines that follow: what they belong to, where that is wanted."""

    def __str__(self) -> str:
        return "\n".join([f"define {self.head} {{", "entry:", *self._slots, *self._lines, "}", ""])

    @property
    def is_long(self) -> bool:
        """Has it so many instructions that it takes LLVM a noticeable time?"""
        return len(self._lines) > LONG

    def name(self, stem: str) -> str:
        self._names += 1
        return f"{stem}{self._names}"

    def do(self, instruction: str) -> None:
        """An instruction without a value."""
        self._lines.append(f"  {instruction}{self.note}")

    def let(self, expression: str) -> str:
        """The value of an instruction."""
        name = "%" + self.name("v")
        self._lines.append(f"  {name} = {expression}{self.note}")
        return name

    def block(self, label: str, *, falls: bool = True) -> None:
        """Start a block; control falls into it from the one before, unless that has ended."""
        if falls:
            self.do(f"br label %{label}")
        self._lines.append(f"{label}:")

    def branch(self, condition: str, yes: str, no: str, rarely: bool = False) -> None:
        """`rarely`: it hardly ever goes to `yes`, so registers are for the other way."""
        hint = ""
        if rarely:
            hint = f", !prof !{len(self.metadata)}"
            self.metadata.append(f'!{len(self.metadata)} = !{{!"branch_weights", i32 1, i32 100000}}')
        self.do(f"br i1 {condition}, label %{yes}, label %{no}{hint}")

    # ---- integers and addresses

    def add(self, a: str, b: str | int) -> str:
        return self.let(f"add i64 {a}, {b}")

    def sub(self, a: str, b: str | int) -> str:
        return self.let(f"sub i64 {a}, {b}")

    def mul(self, a: str, b: str | int) -> str:
        return self.let(f"mul i64 {a}, {b}")

    def least(self, a: str, b: str | int) -> str:
        return self.let(f"call i64 @llvm.umin.i64(i64 {a}, i64 {b})")

    def ceiling(self, a: str, b: str | int) -> str:
        """a / b, rounded up."""
        return self.let(f"udiv i64 {self.add(a, self.sub(str(b), 1))}, {b}")

    def below(self, a: str, b: str | int) -> str:
        return self.let(f"icmp ult i64 {a}, {b}")

    def at(self, pointer: str, bytes: str | int) -> str:
        """The address so many bytes behind another."""
        return self.let(f"getelementptr i8, ptr {pointer}, i64 {bytes}")

    def load(self, type: str, pointer: str, bytes: str | int = 0, align: int = 8) -> str:
        return self.let(f"load {type}, ptr {self.at(pointer, bytes)}, align {align}")

    # ---- variables and loops

    def slot(self, start: str | int) -> str:
        """A variable of type i64."""
        name = "%" + self.name("slot")
        self._slots.append(f"  {name} = alloca i64")
        self.set(name, start)
        return name

    def vector_slot(self, type: str) -> str:
        """A variable of a type of vectors, which has no value yet."""
        name = "%" + self.name("slot")
        self._slots.append(f"  {name} = alloca {type}")
        return name

    def array_slot(self, element: str, count: int) -> str:
        """Memory for so many numbers, as long as the function runs."""
        name = "%" + self.name("slot")
        self._slots.append(f"  {name} = alloca [{count} x {element}], align 64")
        return name

    def place(self, pointer: str, bytes: int) -> str:
        """The address so many bytes behind a parameter, which is known everywhere."""
        name = "%" + self.name("slot")
        self._slots.append(f"  {name} = getelementptr i8, ptr {pointer}, i64 {bytes}")
        return name

    def cleared_slot(self, type: str, value: str) -> str:
        """A variable that is set once, when the function begins."""
        name = self.vector_slot(type)
        self._slots.append(f"  store {type} {value}, ptr {name}")
        return name

    def declare(self, declaration: str) -> None:
        """Something outside that the function calls."""
        self.declarations[declaration] = None

    def get(self, slot: str) -> str:
        return self.let(f"load i64, ptr {slot}")

    def set(self, slot: str, value: str | int) -> None:
        self.do(f"store i64 {value}, ptr {slot}")

    @contextmanager
    def loop(self, start: str | int, end: str | int, step: str | int, hints: Sequence[str] = ()) -> Iterator[str]:
        """for i in range(start, end, step), unsigned. `hints`: what LLVM's passes are told, as metadata. The test is
        behind each turn, as LLVM wants it: to move it there takes a third of its time where a function is long."""
        self.loops += 1
        slot = self.slot(start)
        body, done = self.name("body"), self.name("done")
        if isinstance(start, int) and isinstance(end, int) and start < end:
            self.block(body)
        else:
            self.branch(self.below(self.get(slot), end), body, done)
            self.block(body, falls=False)
        index, first = self.get(slot), len(self._lines)
        yield index
        if hints and any(_is_call(line) for line in self._lines[first:]):
            hints = ()  # LLVM makes no vectors of it, and would say so to whoever reads standard error
        after = self.add(index, step)
        self.set(slot, after)
        self.do(f"br i1 {self.below(after, end)}, label %{body}, label %{done}{self._hinted(hints)}")
        self.block(done, falls=False)

    @contextmanager
    def whilst(self, condition: Callable[[], str]) -> Iterator[None]:
        self.loops += 1
        head, body, done = self.name("head"), self.name("body"), self.name("done")
        self.block(head)
        self.branch(condition(), body, done)
        self.block(body, falls=False)
        yield
        self.ask()
        self.do(f"br label %{head}")
        self.block(done, falls=False)

    def ask(self, weight: int = 1) -> None:
        """A turn of a loop that may be long: is the call still wanted?"""
        if self.interrupts is not None:
            self.interrupts.ask(weight)

    def access_group(self) -> str:
        """The metadata node of loads and stores that no two turns of a parallel loop do to one place."""
        if self._group is None:
            self._group = f"!{len(self.metadata)}"
            self.metadata.append(f"{self._group} = distinct !{{}}")
        return self._group

    def _hinted(self, hints: Sequence[str]) -> str:
        """Metadata of a loop, which is its own first operand."""
        if not hints:
            return ""
        number = len(self.metadata)
        self.metadata.append(f"!{number} = distinct !{{!{number}, {', '.join(f'!{{{hint}}}' for hint in hints)}}}")
        return f", !llvm.loop !{number}"

    @contextmanager
    def when(self, condition: str, rarely: bool = False) -> Iterator[Callable[[], None]]:
        """if condition: ...; what is yielded, when it is called inside, ends this and begins `else`."""
        body, other, done = self.name("then"), self.name("else"), self.name("endif")
        begun = False

        def otherwise() -> None:
            nonlocal begun
            begun = True
            self.do(f"br label %{done}")
            self.block(other, falls=False)

        self.branch(condition, body, other, rarely)
        self.block(body, falls=False)
        yield otherwise
        self.do(f"br label %{done}")
        if not begun:
            self.block(other, falls=False)
            self.do(f"br label %{done}")
        self.block(done, falls=False)

    def choose(self, key: str, cases: Sequence[tuple[int, str]]) -> None:
        """The call that belongs to a key; the key is one of them."""
        names = [(number, self.name("case"), call) for number, call in cases]
        done, never = self.name("done"), self.name("never")
        table = " ".join(f"i64 {number}, label %{label}" for number, label, _ in names)
        self.do(f"switch i64 {key}, label %{never} [{table}]")
        for _, label, call in names:
            self.block(label, falls=False)
            self.do(call)
            self.do(f"br label %{done}")
        self.block(never, falls=False)
        self.do("unreachable")
        self.block(done, falls=False)


def _is_call(line: str) -> bool:
    """Does it call a function that LLVM has no vectors of?"""
    return " call " in line and ("@llvm." not in line or "@llvm.mem" in line)


def splat(scalar: str, number: str) -> str:
    """A vector of equal constants, of whichever length the place of it has (LLVM 18 or later)."""
    return f"splat ({scalar} {number})"


def broadcast(f: LlvmFunction, lanes: int, scalar: str, value: str) -> str:
    """A vector of equal elements."""
    if not value.startswith("%"):
        return splat(scalar, value)
    single = f.let(f"insertelement <{lanes} x {scalar}> poison, {scalar} {value}, i64 0")
    of = f"<{lanes} x {scalar}>"
    return f.let(f"shufflevector {of} {single}, {of} poison, <{lanes} x i32> zeroinitializer")


def lanes_below(f: LlvmFunction, lanes: int, count: str) -> str:
    """Which lanes are less than a count, that may be more than there are."""
    counts = broadcast(f, lanes, "i32", f.let(f"trunc i64 {f.least(count, lanes)} to i32"))
    numbers = ", ".join(f"i32 {n}" for n in range(lanes))
    return f.let(f"icmp ult <{lanes} x i32> <{numbers}>, {counts}")


# ---- interrupts
#
# Ctrl-C in machine code: loops ask now and then whether the call is still wanted, and leave the function if it is not.
#
# A loop counts its turns, and after `TURNS` of them calls what looks at the clock, and `CYCLES` of it later asks
# Python, which runs the handlers of signals only when it is asked. `PyErr_CheckSignals` does so in the main thread, and
# says whether one has raised an exception; parts of the call on other threads read a flag. What asks touches no memory
# of the program, and LLVM is told so: what loops read stays in registers.


TURNS = 1024
CYCLES = 1 << 26

STOPPED = 2
"""What a function returns whose call was left."""

OUTSIDE = ("PyGILState_Ensure", "PyErr_CheckSignals", "PyErr_NoMemory", "PyGILState_Release")
"""The functions of Python that are asked."""

HEADER = 64
"""Bytes before the scratch memory: the address of the flag, and when Python was asked, at first 0."""

_ASK = f"""
define internal i32 @autobatch_asked(ptr %scratch) noinline cold nounwind {{
entry:
  %since = getelementptr i8, ptr %scratch, i64 -56
  %before = load i64, ptr %since
  %now = call i64 @llvm.readcyclecounter()
  %gone = sub i64 %now, %before
  %late = icmp ugt i64 %gone, {CYCLES}
  br i1 %late, label %look, label %on
on:
  ret i32 0
look:
  store i64 %now, ptr %since
  %place = getelementptr i8, ptr %scratch, i64 -64
  %flag = load ptr, ptr %place
  %set = load volatile i32, ptr %flag
  %stopped = icmp ne i32 %set, 0
  br i1 %stopped, label %stop, label %ask
ask:
  %state = call i32 @PyGILState_Ensure()
  %raised = call i32 @PyErr_CheckSignals()
  call void @PyGILState_Release(i32 %state)
  ret i32 %raised
stop:
  ret i32 1
}}
define internal void @autobatch_no_memory() noinline cold nounwind {{
  %state = call i32 @PyGILState_Ensure()
  %none = call ptr @PyErr_NoMemory()
  call void @PyGILState_Release(i32 %state)
  ret void
}}
"""


class Interrupts:
    """The questions of one function. `scratch`: its scratch memory."""

    def __init__(self, f: LlvmFunction, scratch: str) -> None:
        self.f, self.scratch, self.label = f, scratch, f.name("stop")
        self.turns = f.cleared_slot("i64", "0")
        self.asks = False

    def ask(self, weight: int) -> None:
        """A turn of a loop, which counts as so many."""
        f = self.f
        self.asks = True
        turns = f.add(f.get(self.turns), weight)
        f.set(self.turns, turns)
        ask, on = f.name("ask"), f.name("on")
        f.branch(f.let(f"icmp ugt i64 {turns}, {TURNS}"), ask, on, rarely=True)
        f.block(ask, falls=False)
        f.set(self.turns, 0)
        effects = "nounwind memory(inaccessiblemem: readwrite)"
        asked = f.let(f"call i32 @autobatch_asked(ptr {self.scratch}) {effects}")
        f.branch(f.let(f"icmp ne i32 {asked}, 0"), self.label, on, rarely=True)
        f.block(on, falls=False)

    def give_up(self) -> None:
        """There is no memory left: the function is left, with an exception that says so."""
        self.asks = True
        self.f.do("call void @autobatch_no_memory()")
        self.f.do(f"br label %{self.label}")

    def leave(self, behind: Sequence[Callable[[], None]]) -> str:
        """Write where the function is left, behind its end; what it has taken is given back. The text that it needs."""
        if not self.asks:
            return ""
        self.f.block(self.label, falls=False)
        for write in behind:
            write()
        self.f.do(f"ret i64 {STOPPED}")
        for of in ("i32 @PyGILState_Ensure()", "i32 @PyErr_CheckSignals()", "ptr @PyErr_NoMemory()"):
            self.f.declare(f"declare {of}")
        self.f.declare("declare void @PyGILState_Release(i32)")
        self.f.declare("declare i64 @llvm.readcyclecounter()")
        return _ASK


# ---- outside
#
# Functions outside that machine code calls, by name: of the C library, of Python, and of BLAS.
#
# Those of the C library are what a stack needs, what LLVM makes of loops, and what it calls where a processor has no
# operation. BLAS is that of SciPy (OpenBLAS in its wheels), through the pointers that `scipy.linalg.cython_blas` has
# for Cython; SciPy is loaded when code needs it.


BLAS = tuple(f"{of}{name}" for of in "sd" for name in ("gemm", "gemv"))
"""Products of matrices, and of a matrix and a vector, of single and double precision."""

BLAS_NAME = "autobatch_{}"
"""What machine code calls them."""


@cache
def library() -> Mapping[str, int]:
    """The addresses of the functions, by the names that machine code has for them."""
    library = ctypes.CDLL("libm.so.6")  # and with it the C library
    rounding = [f"{name}{of}" for name in ("fma", "floor", "ceil", "rint", "round", "roundeven") for of in ("", "f")]
    names = ("malloc", "realloc", "free", "memcpy", "memmove", "memset", *rounding)
    found = {}
    for name, of in (*((n, library) for n in names), *((n, ctypes.pythonapi) for n in OUTSIDE)):
        address = ctypes.cast(getattr(of, name), ctypes.c_void_p).value
        assert address is not None
        found[name] = address
    return _Outside(found)


class _Outside(Mapping[str, int]):
    def __init__(self, found: Mapping[str, int]) -> None:
        self._found = found
        self._blas = {BLAS_NAME.format(name): name for name in BLAS}

    def __getitem__(self, name: str) -> int:
        return _of_blas(self._blas[name]) if name in self._blas else self._found[name]

    def __iter__(self) -> Iterator[str]:
        return iter((*self._found, *self._blas))

    def __len__(self) -> int:
        return len(self._found) + len(self._blas)


def _of_blas(name: str) -> int:
    capsule = import_module("scipy.linalg.cython_blas").__pyx_capi__[name]
    of, pointer = ctypes.pythonapi.PyCapsule_GetName, ctypes.pythonapi.PyCapsule_GetPointer
    of.restype, of.argtypes = ctypes.c_char_p, [ctypes.py_object]
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return int(pointer(capsule, of(capsule)))


# ---- checked addresses


MOST = 512
_table = np.zeros(2 * MOST, np.int64)
_known = np.zeros(1, np.int64)
_report = np.zeros(4, np.int64)
_harmless = np.zeros(1 << 16, np.uint8)
_lock, _adding = threading.Lock(), threading.Lock()
_sites: list[str] = []

STACK = 1 << 26
"""Bytes from the frame of a check on that are the stack's."""


def is_checking() -> bool:
    return os.environ.get("AUTOBATCH_CHECK_MEMORY") == "1"


class OutsideError(RuntimeError):
    """Machine code would have read or written what is nobody's: a fault of autobatch."""


def allow(array: Any) -> None:
    """The bytes of an array are the call's own."""
    with _adding:
        k = int(_known[0])
        if k == MOST:
            raise RuntimeError(f"more than {MOST} allocations in one call with AUTOBATCH_CHECK_MEMORY=1")
        _table[2 * k : 2 * k + 2] = array.ctypes.data, array.ctypes.data + array.nbytes
        _known[0] = k + 1


@contextmanager
def checked(arrays: Sequence[Any]) -> Iterator[None]:
    """A call that may touch these arrays, and what `allow` adds. Raises OutsideError behind it."""
    if not is_checking():
        yield
        return
    with _lock:
        _known[0], _report[:] = 0, 0
        for array in arrays:
            allow(array)
        try:
            yield
        finally:
            _known[0] = 0
        count, site, address, size = _report.tolist()
    if count:
        raise OutsideError(
            f"{count} accesses of memory that is nobody's, the first of {size} bytes at {address:#x}: {_sites[site]}"
        )


_LOAD = re.compile(r"(?P<head>  %\S+ = load (?:volatile )?(?P<type>.+?), ptr )(?P<pointer>%[^\s,]+)(?P<rest>.*)")
_STORE = re.compile(r"(?P<head>  store (?P<type><\d+ x \S+?>|\S+) .*, ptr )(?P<pointer>%[^\s,]+)(?P<rest>.*)")
_SEVERAL = re.compile(
    r"(?P<head>.*@llvm\.masked\.\w+\.v\d+(?P<type>\w+?)[.(].*?(?P<kind>\bptr|<\d+ x ptr>) )(?P<pointer>%[^\s,]+)"
    r"(?P<rest>, i32 \d+, <(?P<lanes>\d+) x i1> (?P<mask>splat \(i1 \w+\)|zeroinitializer|<i1 [^>]*>|%[^\s,)]+).*)"
)
_WHOLE = re.compile(r"  call void @llvm\.mem(?:cpy|set)\S+\(ptr (%\S+), (?:ptr (%\S+)|i8 0), i64 (\d+), i1 false\)")
_REALLOC = re.compile(r"  (?P<new>%\S+) = call ptr @realloc\(ptr (?P<old>[^\s,]+), i64 (?P<bytes>[^\s)]+)\)")
_BYTES = {"half": 2, "bfloat": 2, "float": 4, "double": 8, "ptr": 8, "f16": 2, "bf16": 2, "f32": 4, "f64": 8}


def _size(type: str) -> int:
    if found := re.fullmatch(r"[<\[](\d+) x (.+)[>\]]", type):
        count = int(found[1])
        return -(-count // 8) if found[2] == "i1" else count * _size(found[2])
    return -(-int(type[1:]) // 8) if type[0] == "i" else _BYTES[type]


_CONSTANT = re.compile(r"^(@\S+) = .*?constant (\[\d+ x \S+?\]) ", re.MULTILINE)


def instrumented(text: str) -> str:
    """A module whose accesses of memory are checked, but for those of variables."""
    made: list[str] = []
    widths: set[int] = set()
    variables: set[str] = set()
    constants = [(m[1], _size(m[2])) for m in _CONSTANT.finditer(text)]
    for number, line in enumerate(text.splitlines()):
        if line.startswith("define"):
            variables = set()
            made += [line]
            continue
        if line == "entry:":
            made += [line, *(f"  call void @ab_grown(ptr {name}, ptr {name}, i64 {size})" for name, size in constants)]
            continue
        if " = alloca " in line:
            variables.add(line.split(" = ")[0].strip())
        if whole := _WHOLE.match(line):
            for k, pointer in enumerate(p for p in whole.groups()[:2] if p is not None and p not in variables):
                check = f"call ptr @ab_inside(ptr {pointer}, i64 {whole[3]}, i64 {len(_sites)})"
                made.append(f"  %checked{number}.{k} = {check}")
                line = line.replace(f"ptr {pointer},", f"ptr %checked{number}.{k},")
            made.append(line)
            _sites.append(line.partition(" ; ")[2] or line.strip())
            continue
        found = _LOAD.match(line) or _STORE.match(line) or _SEVERAL.match(line)
        if found is None or found["pointer"] in variables:
            made.append(line)
            if grown := _REALLOC.match(line):
                made.append(f"  call void @ab_grown(ptr {grown['old']}, ptr {grown['new']}, i64 {grown['bytes']})")
            continue
        kind, mask = "ptr", ""
        if found.re is _SEVERAL:
            kind, mask = found["kind"], f"<{found['lanes']} x i1> {found['mask']}, "
            widths.add(int(found["lanes"]))
        check = "ab_inside" if not mask else f"ab_{'run' if kind == 'ptr' else 'inside'}.v{found['lanes']}"
        operands = f"{kind} {found['pointer']}, i64 {_size(found['type'])}, {mask}i64 {len(_sites)}"
        made.append(f"  %checked{number} = call {kind} @{check}({operands})")
        made.append(f"{found['head']}%checked{number}{found['rest']}")
        _sites.append(line.partition(" ; ")[2] or line.strip())
    numbers = {"stack": STACK, "most": MOST}
    places: dict[str, Any] = {"known": _known, "table": _table, "report": _report, "harmless": _harmless}
    numbers |= {name: held.ctypes.data for name, held in places.items()}
    made += [_ONE.format(**numbers), _GROWN.format(**numbers)]
    return "\n".join([*made, *(_LANES.format(n=n) for n in sorted(widths))])


_ONE = """
declare ptr @llvm.frameaddress.p0(i32)
define internal ptr @ab_inside(ptr %p, i64 %size, i64 %site) noinline nounwind {{
entry:
  %begin = ptrtoint ptr %p to i64
  %end = add i64 %begin, %size
  %frame = call ptr @llvm.frameaddress.p0(i32 0)
  %least = ptrtoint ptr %frame to i64
  %most = add i64 %least, {stack}
  %above = icmp uge i64 %begin, %least
  %under = icmp ule i64 %end, %most
  %stacked = and i1 %above, %under
  br i1 %stacked, label %fine, label %look
look:
  %known = inttoptr i64 {known} to ptr
  %count = load volatile i64, ptr %known
  %table = inttoptr i64 {table} to ptr
  %unknown = icmp eq i64 %count, 0
  br i1 %unknown, label %fine, label %head
head:
  %k = phi i64 [ 0, %look ], [ %next, %more ]
  %left = icmp ult i64 %k, %count
  br i1 %left, label %more, label %wrong
more:
  %twice = shl i64 %k, 1
  %first = getelementptr i64, ptr %table, i64 %twice
  %second = getelementptr i64, ptr %first, i64 1
  %from = load volatile i64, ptr %first
  %to = load volatile i64, ptr %second
  %next = add i64 %k, 1
  %a = icmp uge i64 %begin, %from
  %b = icmp ule i64 %end, %to
  %inside = and i1 %a, %b
  br i1 %inside, label %fine, label %head
fine:
  ret ptr %p
wrong:
  %report = inttoptr i64 {report} to ptr
  %before = load volatile i64, ptr %report
  %after = add i64 %before, 1
  store volatile i64 %after, ptr %report
  %new = icmp eq i64 %before, 0
  br i1 %new, label %note, label %done
note:
  %r1 = getelementptr i64, ptr %report, i64 1
  store volatile i64 %site, ptr %r1
  %r2 = getelementptr i64, ptr %report, i64 2
  store volatile i64 %begin, ptr %r2
  %r3 = getelementptr i64, ptr %report, i64 3
  store volatile i64 %size, ptr %r3
  br label %done
done:
  %harmless = inttoptr i64 {harmless} to ptr
  ret ptr %harmless
}}
"""
_GROWN = """
define internal void @ab_grown(ptr %old, ptr %new, i64 %size) noinline nounwind {{
entry:
  %was = ptrtoint ptr %old to i64
  %begin = ptrtoint ptr %new to i64
  %end = add i64 %begin, %size
  %known = inttoptr i64 {known} to ptr
  %count = load volatile i64, ptr %known
  %table = inttoptr i64 {table} to ptr
  br label %head
head:
  %k = phi i64 [ 0, %entry ], [ %next, %more ]
  %left = icmp ult i64 %k, %count
  br i1 %left, label %more, label %append
more:
  %twice = shl i64 %k, 1
  %first = getelementptr i64, ptr %table, i64 %twice
  %from = load volatile i64, ptr %first
  %next = add i64 %k, 1
  %same = icmp eq i64 %from, %was
  br i1 %same, label %set, label %head
append:
  %reserved = atomicrmw add ptr %known, i64 1 seq_cst
  %room = icmp ult i64 %reserved, {most}
  br i1 %room, label %set, label %full
set:
  %place = phi i64 [ %k, %more ], [ %reserved, %append ]
  %begins = shl i64 %place, 1
  %p0 = getelementptr i64, ptr %table, i64 %begins
  %p1 = getelementptr i64, ptr %p0, i64 1
  store volatile i64 %begin, ptr %p0
  store volatile i64 %end, ptr %p1
  ret void
full:
  store volatile i64 {most}, ptr %known
  ret void
}}
"""
_LANES = """
define internal <{n} x ptr> @ab_inside.v{n}(<{n} x ptr> %p, i64 %size, <{n} x i1> %mask, i64 %site) noinline nounwind {{
entry:
  br label %head
head:
  %k = phi i64 [ 0, %entry ], [ %next, %tail ]
  %made = phi <{n} x ptr> [ %p, %entry ], [ %now, %tail ]
  %left = icmp ult i64 %k, {n}
  br i1 %left, label %lane, label %done
lane:
  %on = extractelement <{n} x i1> %mask, i64 %k
  br i1 %on, label %check, label %tail
check:
  %one = extractelement <{n} x ptr> %p, i64 %k
  %good = call ptr @ab_inside(ptr %one, i64 %size, i64 %site)
  %set = insertelement <{n} x ptr> %made, ptr %good, i64 %k
  br label %tail
tail:
  %now = phi <{n} x ptr> [ %made, %lane ], [ %set, %check ]
  %next = add i64 %k, 1
  br label %head
done:
  ret <{n} x ptr> %made
}}
define internal ptr @ab_run.v{n}(ptr %p, i64 %size, <{n} x i1> %mask, i64 %site) noinline nounwind {{
entry:
  br label %head
head:
  %k = phi i64 [ 0, %entry ], [ %next, %tail ]
  %made = phi ptr [ %p, %entry ], [ %now, %tail ]
  %left = icmp ult i64 %k, {n}
  br i1 %left, label %lane, label %done
lane:
  %on = extractelement <{n} x i1> %mask, i64 %k
  br i1 %on, label %check, label %tail
check:
  %far = mul i64 %k, %size
  %one = getelementptr i8, ptr %p, i64 %far
  %good = call ptr @ab_inside(ptr %one, i64 %size, i64 %site)
  %same = icmp eq ptr %good, %one
  %kept = select i1 %same, ptr %made, ptr %good
  br label %tail
tail:
  %now = phi ptr [ %made, %lane ], [ %kept, %check ]
  %next = add i64 %k, 1
  br label %head
done:
  ret ptr %made
}}
"""
