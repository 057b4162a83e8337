"""Ctrl-C in machine code: loops ask now and then whether the call is still wanted, and leave the function if it is not.

A loop counts its turns, and after `TURNS` of them calls what looks at the clock, and `CYCLES` of it later asks Python,
which runs the handlers of signals only when it is asked. `PyErr_CheckSignals` does so in the main thread, and says
whether one has raised an exception; parts of the call on other threads read a flag. What asks touches no memory of the
program, and LLVM is told so: what loops read stays in registers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from autobatch.backends.llvm.text import LlvmFunction

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
