"""Writing functions in LLVM IR as text: fresh names, structured loops, blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from autobatch.backends.llvm.interrupts import Interrupts

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
        """A comment on the lines that follow: what they belong to, where that is wanted (`checked.py`)."""

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
