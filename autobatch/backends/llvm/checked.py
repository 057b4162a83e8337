"""Machine code that proves each address before it loads or stores (`AUTOBATCH_CHECK_MEMORY=1`): it has to lie in an
array of the call, in its scratch memory, or on the stack.

    %v9 = load i32, ptr %v8       ->      %v9.p = call ptr @ab_inside(ptr %v8, i64 4, i64 17)
                                          %v9 = load i32, ptr %v9.p

An access that does not is one of some harmless bytes, and is raised behind the call with the line that it belongs to.
Slow, for tests: of one call at a time, and nothing of it is kept on disk. Calls of machine code that do not pass by
`WholeProgram.run`, as those of compiled handles, are not looked at: their arrays are not known.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

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
