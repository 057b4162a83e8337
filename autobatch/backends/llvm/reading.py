"""The machine that reads Python objects, made once and kept on disk as all machine code is."""

from __future__ import annotations

import ctypes
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache

from autobatch.backends.llvm import machine_code
from autobatch.backends.llvm.machine_code import UnavailableError
from autobatch.backends.llvm.text import LlvmFunction
from autobatch.data.reading import (
    BOOL,
    DECLINED,
    FLOAT,
    FULL,
    FULL_LOG,
    INT,
    LACKING,
    MANY_TUPLES,
    NONE,
    OBJECT,
    OTHER,
    PRIME,
    STRING,
    UNKNOWN_SHAPE,
    UNKNOWN_TYPE,
    ColumnSlot,
    ColumnWrite,
    Home,
    ListHome,
    ObjectKind,
    ObjectReader,
    ReaderState,
    Sort,
)

# ---- functions
#
# The functions that visit Python objects, as LLVM IR: they call CPython, by whose lock no other thread runs meanwhile.
#
#     read(state)     visits all objects of the examples, in pre-order, and writes a log of what each of them holds;
#                     then gives each of them a row, if there is a schema, and it has a place for all that they hold
#     fill(state)     the log, visit after visit -> the columns of the schema
#
# `data/reading.py` says what lies where. Where lists, tuples and floats have what they hold was looked up before;
# what others hold, functions of CPython's stable interface say. None of these runs code of the user:
# attributes are those of instances and slots alone, keys of dicts are strings.


CALLED = {
    "PyLong_AsLongLongAndOverflow": "i64 (ptr, ptr)",
    "PyObject_GetAttr": "ptr (ptr, ptr)",
    "PyDict_Size": "i64 (ptr)",
    "PyDict_Next": "i32 (ptr, ptr, ptr, ptr)",
    "PyDict_Keys": "ptr (ptr)",
    "PyDict_Values": "ptr (ptr)",
    "PySequence_List": "ptr (ptr)",
    "PyList_Append": "i32 (ptr, ptr)",
    "PyObject_Hash": "i64 (ptr)",
    "PyUnicode_Compare": "i32 (ptr, ptr)",
    "PyErr_Clear": "void ()",
    "Py_IncRef": "void (ptr)",
    "Py_DecRef": "void (ptr)",
}
"""The functions of CPython that are called, with their types."""


@dataclass(frozen=True)
class ObjectLayout:
    """Where the type of an object stands, the value of a float, the size of a list or tuple, the pointers to the items
    of a tuple, and the pointer to those of a list."""

    type: int
    float_value: int
    size: int
    tuple_items: int
    list_items: int


SHAPED = (ObjectKind.TUPLE, ObjectKind.DICT, ObjectKind.PLAIN)
"""The kinds of objects whose table depends on what they hold."""


class _FunctionWriter:
    """Writes one function of the state, which returns a status, 0 where all is well."""

    def __init__(self, head: str, layout: ObjectLayout) -> None:
        self.f = LlvmFunction(f'{head} nounwind "no-builtins"')
        self.layout = layout

    def text(self) -> str:
        self.f.do("ret i64 0")
        return str(self.f)

    def field(self, k: ReaderState) -> str:
        return self.f.load("i64", "%state", 8 * k)

    def pointer(self, k: ReaderState) -> str:
        return self.f.load("ptr", "%state", 8 * k)

    def put(self, k: ReaderState, value: str) -> None:
        self.f.do(f"store i64 {value}, ptr {self.f.at('%state', 8 * k)}")

    def word(self, table: str, index: str) -> str:
        return self.f.load("i64", self.f.at(table, self.f.mul(index, 8)))

    def address(self, table: str, index: str) -> str:
        return self.f.load("ptr", self.f.at(table, self.f.mul(index, 8)))

    def put_word(self, table: str, index: str, value: str) -> None:
        self.f.do(f"store i64 {value}, ptr {self.f.at(table, self.f.mul(index, 8))}")

    def call(self, name: str, *arguments: str) -> str:
        return self.f.let(f"call {CALLED[name].split(' ', 1)[0]} @{name}({', '.join(arguments)})")

    def do(self, name: str, *arguments: str) -> None:
        self.f.do(f"call {CALLED[name].split(' ', 1)[0]} @{name}({', '.join(arguments)})")

    def type_of(self, x: str) -> str:
        return self.f.load("ptr", x, self.layout.type)

    def is_a(self, x: str, type: ReaderState) -> str:
        return self.f.let(f"icmp eq ptr {self.type_of(x)}, {self.pointer(type)}")

    def size_of(self, x: str) -> str:
        return self.f.load("i64", x, self.layout.size)

    def item(self, x: str, is_list: bool, k: str) -> str:
        """An item of a list or tuple."""
        items = self.f.load("ptr", x, self.layout.list_items) if is_list else self.f.at(x, self.layout.tuple_items)
        return self.f.load("ptr", self.f.at(items, self.f.mul(k, 8)))

    def stop(self, condition: str, status: str | int, about: str | None = None) -> None:
        """Leave with a status where a condition holds, which is rare; `about`: the object that it is about."""
        f = self.f
        with f.when(condition):
            if about is not None:
                self.put(ReaderState.ABOUT, f.let(f"ptrtoint ptr {about} to i64"))
                self.do("Py_IncRef", f"ptr {about}")
            f.do(f"ret i64 {status}")
            f.block(f.name("dead"), falls=False)

    def check(self, status: str) -> None:
        self.stop(self.f.let(f"icmp ne i64 {status}, 0"), status)

    def is_(self, a: str, b: str | int) -> str:
        return self.f.let(f"icmp eq i64 {a}, {b}")

    def is_handed(self, code: str) -> str:
        """Is a leaf an object that Python makes a column of?"""
        f = self.f
        return f.let(f"and i1 {f.let(f'icmp uge i64 {code}, {STRING}')}, {f.let(f'icmp ule i64 {code}, {OTHER}')}")

    def number(self, pointer: str) -> str:
        return self.f.let(f"ptrtoint ptr {pointer} to i64")

    def mixed(self, number: str) -> str:
        f = self.f
        whole = f.mul(number, _signed(PRIME))
        return f.let(f"xor i64 {whole}, {f.let(f'lshr i64 {whole}, 29')}")

    @contextmanager
    def probe(self, start: str, mask: str) -> Iterator[tuple[str, str]]:
        """Linear probing: the index of each place in turn, until what stands inside branches to what is yielded too."""
        f = self.f
        slot = f.slot(0)
        f.set(slot, start)
        found = f.name("found")
        head = f.name("probe")
        f.block(head)
        yield f.let(f"and i64 {f.get(slot)}, {mask}"), found
        f.set(slot, f.add(f.get(slot), 1))
        f.do(f"br label %{head}")
        f.block(found, falls=False)

    def leave_to(self, condition: str, label: str) -> None:
        f = self.f
        goes = f.name("goes")
        f.branch(condition, label, goes)
        f.block(goes, falls=False)


def _kind(layout: ObjectLayout) -> str:
    """The entry of the type of an object: its kind, and its table; null where it is not known."""
    w = _FunctionWriter("internal ptr @entry(ptr noalias %state, ptr %x)", layout)
    f = w.f
    of, last = w.number(w.type_of("%x")), w.pointer(ReaderState.LAST)
    with f.when(w.is_(f.load("i64", last), of)):
        f.do(f"ret ptr {last}")
        f.block(f.name("dead"), falls=False)
    types, place = w.pointer(ReaderState.TYPES), f.slot(0)
    with w.probe(w.mixed(of), w.field(ReaderState.TYPES_MASK)) as (index, found):
        entry = f.at(types, f.mul(index, 24))
        f.set(place, w.number(entry))
        held = f.load("i64", entry)
        w.leave_to(w.is_(held, of), found)
        with f.when(w.is_(held, 0)):
            f.do("ret ptr null")
            f.block(f.name("dead"), falls=False)
    w.put(ReaderState.LAST, f.get(place))
    f.do(f"ret ptr {f.let(f'inttoptr i64 {f.get(place)} to ptr')}")
    return str(f)


def _note(layout: ObjectLayout) -> str:
    """What a value is, in the log. Of an object its address, until it is visited."""
    w = _FunctionWriter("internal i64 @note(ptr noalias %state, ptr %x, i64 %at)", layout)
    f = w.f
    w.stop(f.let("icmp eq ptr %x, null"), DECLINED)
    code, payload = f.slot(FLOAT), f.slot(0)
    with f.when(w.is_a("%x", ReaderState.FLOAT_TYPE)) as otherwise:
        f.set(payload, f.load("i64", "%x", layout.float_value))
        otherwise()
        with f.when(w.is_a("%x", ReaderState.INT_TYPE)) as or_else:
            flag = f.slot(0)
            f.set(code, INT)
            f.set(payload, w.call("PyLong_AsLongLongAndOverflow", "ptr %x", f"ptr {flag}"))
            w.stop(f.let(f"icmp ne i32 {f.let(f'load i32, ptr {flag}')}, 0"), DECLINED)
            or_else()
            _note_other(w, code, payload)
    w.put_word(w.pointer(ReaderState.PAYLOAD), "%at", f.get(payload))
    f.do(f"store i8 {f.let(f'trunc i64 {f.get(code)} to i8')}, ptr {f.at(w.pointer(ReaderState.CODES), '%at')}")
    return w.text()


def _note_other(w: _FunctionWriter, code: str, payload: str) -> None:
    """The same for what is no number of these."""
    f = w.f
    entry = f.let("call ptr @entry(ptr noalias %state, ptr %x)")
    w.stop(f.let(f"icmp eq ptr {entry}, null"), UNKNOWN_TYPE, "%x")
    kind = f.load("i64", entry, 8)
    f.set(code, f.let(f"call i64 @llvm.umin.i64(i64 {kind}, i64 {OBJECT})"))
    w.stop(w.is_(kind, ObjectKind.REFUSED), DECLINED)
    with f.when(w.is_(kind, BOOL)) as or_object:
        f.set(payload, f.let(f"zext i1 {f.let(f'icmp eq ptr %x, {w.pointer(ReaderState.TRUE)}')} to i64"))
        or_object()
        f.set(payload, f.let(f"select i1 {w.is_(kind, NONE)}, i64 0, i64 {w.number('%x')}"))


class _ShapeWriter(_FunctionWriter):
    """A function about the shape of `%of`, a tuple, a dict or a plain object with the attributes `%x`, which holds
    `%size` values."""

    def __init__(self, result: str, kind: ObjectKind, layout: ObjectLayout, more: str = "") -> None:
        head = f"internal i64 @{result}_{kind.name.lower()}(ptr noalias %state, ptr %of, ptr %x, i64 %size{more})"
        super().__init__(head, layout)
        self.has_names, self.has_types = kind is not ObjectKind.TUPLE, kind is not ObjectKind.PLAIN
        self.places = [self.f.slot(0) for _ in range(3)]

    @contextmanager
    def each(self, ended: int) -> Iterator[tuple[str, str, str]]:
        """The number, key and value of each item; where there are fewer, `ended` is returned."""
        f = self.f
        begin, key, value = self.places
        f.set(begin, 0)
        with f.loop(0, "%size", 1) as k:
            if self.has_names:
                more = self.call("PyDict_Next", "ptr %x", f"ptr {begin}", f"ptr {key}", f"ptr {value}")
                self.stop(f.let(f"icmp eq i32 {more}, 0"), ended)
                yield k, f.let(f"load ptr, ptr {key}"), f.let(f"load ptr, ptr {value}")
            else:
                yield k, "null", self.item("%x", False, k)


def _same(kind: ObjectKind, layout: ObjectLayout) -> str:
    """Is this the shape whose words begin at `%at`?"""
    w = _ShapeWriter("same", kind, layout, ", i64 %at")
    f, words = w.f, w.pointer(ReaderState.WORDS)

    def need(condition: str) -> None:
        w.stop(f.let(f"xor i1 {condition}, true"), 0)

    need(w.is_(w.word(words, f.add("%at", 2)), w.number(w.type_of("%of"))))
    need(w.is_(w.word(words, "%at"), "%size"))
    with w.each(0) as (k, name, x):
        here = f.add("%at", f.add(f.mul(k, 3), 3))
        if w.has_types:
            need(w.is_(w.word(words, f.add(here, 1)), w.number(w.type_of(x))))
        if w.has_names:
            wanted = w.address(words, here)
            with f.when(f.let(f"icmp ne ptr {wanted}, {name}")):
                need(f.let(f"icmp eq ptr {w.type_of(name)}, {w.pointer(ReaderState.STRING)}"))
                need(w.is_(f.let(f"sext i32 {w.call('PyUnicode_Compare', f'ptr {wanted}', f'ptr {name}')} to i64"), 0))
    f.do("ret i64 1")
    return str(f)


def _shape(kind: ObjectKind, layout: ObjectLayout) -> str:
    """Its shape, by the types of what it holds, and the keys: where it stands among the shapes; -1 where it is not
    known, -2 where it has none. Mostly it is that of the one before."""
    w = _ShapeWriter("shape", kind, layout)
    f, last = w.f, w.field(ReaderState.LAST_SHAPE)

    def is_same(at: str) -> str:
        return w.is_(
            f.let(f"call i64 @same_{kind.name.lower()}(ptr noalias %state, ptr %of, ptr %x, i64 %size, i64 {at})"), 1
        )

    with f.when(f.let(f"icmp ne i64 {last}, 0")):
        w.stop(is_same(last), last)
    hash, place = f.slot(f.add("%size", w.number(w.type_of("%of")))), f.slot(0)
    with w.each(-2) as (_, name, x):
        w.stop(f.let(f"icmp eq ptr {x}, null"), -2)
        if w.has_names:
            w.stop(f.let(f"icmp ne ptr {w.type_of(name)}, {w.pointer(ReaderState.STRING)}"), -2)
            f.set(hash, w.mixed(f.add(f.get(hash), w.call("PyObject_Hash", f"ptr {name}"))))
        if w.has_types:
            f.set(hash, w.mixed(f.add(f.get(hash), w.number(w.type_of(x)))))
    with w.probe(f.get(hash), w.field(ReaderState.SHAPES_MASK)) as (index, found):
        at = w.word(w.pointer(ReaderState.SHAPES), index)  # where its words begin; 0: nothing is here
        w.stop(w.is_(at, 0), -1)
        f.set(place, at)
        w.leave_to(is_same(at), found)
    w.put(ReaderState.LAST_SHAPE, f.get(place))
    f.do(f"ret i64 {f.get(place)}")
    return str(f)


def _is_table(layout: ObjectLayout) -> str:
    """Are the keys of a dict data?"""
    w = _FunctionWriter("internal i64 @is_table(ptr noalias %state, ptr %x)", layout)
    f, begin, key, value = w.f, *(w.f.slot(0) for _ in range(3))
    size = w.call("PyDict_Size", "ptr %x")
    w.stop(w.is_(size, 0), 1)
    with f.loop(0, size, 1):
        more = w.call("PyDict_Next", "ptr %x", f"ptr {begin}", f"ptr {key}", f"ptr {value}")
        w.stop(f.let(f"icmp eq i32 {more}, 0"), 0)
        w.stop(f.let(f"icmp ne ptr {w.type_of(f.let(f'load ptr, ptr {key}'))}, {w.pointer(ReaderState.STRING)}"), 1)
    f.do(f"ret i64 {w.field(ReaderState.KEYS)}")
    return str(f)


def _visit(layout: ObjectLayout) -> str:
    """Visit one object: `%at` is where the log has it."""
    w = _FunctionWriter("internal i64 @visit(ptr noalias %state, ptr %x, i64 %at)", layout)
    f = w.f
    entry = f.let("call ptr @entry(ptr noalias %state, ptr %x)")
    kind, table = f.load("i64", entry, 8), f.slot(f.load("i64", entry, 16))
    payload, number = w.pointer(ReaderState.PAYLOAD), w.field(ReaderState.VISITS_USED)
    w.stop(f.let(f"icmp uge i64 {number}, {w.field(ReaderState.ROOM)}"), FULL)
    is_value = f.slot(0)
    f.set(is_value, 0)
    with f.when(w.is_(kind, ObjectKind.TUPLE)):  # but the empty one, which is one object
        f.set(is_value, f.least(w.size_of("%x"), 1))
    with f.when(w.is_(f.get(is_value), 1)) as otherwise:
        tuples = f.add(w.field(ReaderState.TUPLES), 1)
        w.put(ReaderState.TUPLES, tuples)
        w.stop(f.let(f"icmp ugt i64 {tuples}, {MANY_TUPLES}"), DECLINED)  # one that is written out again and again?
        otherwise()  # anything but a tuple is one object, wherever the example holds it
        seen, me = w.pointer(ReaderState.SEEN), w.number("%x")
        with w.probe(w.mixed(me), w.field(ReaderState.SEEN_MASK)) as (index, found):
            place = f.at(seen, f.mul(index, 16))
            held, when = f.load("i64", place), f.load("i64", place, 8)
            with f.when(w.is_(held, me)):
                with f.when(f.let(f"icmp uge i64 {when}, {w.field(ReaderState.START)}")):
                    w.put_word(payload, "%at", when)
                    f.do("ret i64 0")
                    f.block(f.name("dead"), falls=False)
                f.do(f"store i64 {number}, ptr {f.at(place, 8)}")
                f.do(f"br label %{found}")
                f.block(f.name("dead"), falls=False)
            with f.when(w.is_(held, 0)):
                f.do(f"store i64 {me}, ptr {place}")
                f.do(f"store i64 {number}, ptr {f.at(place, 8)}")
                f.do(f"br label %{found}")
                f.block(f.name("dead"), falls=False)
    w.put_word(payload, "%at", number)
    size, shape, held, is_table = f.slot(0), f.slot(0), f.slot(0), f.slot(0)
    f.set(held, w.number("%x"))
    tables = w.pointer(ReaderState.TABLES)

    def of_dict() -> None:
        with f.when(f.let(f"icmp ne i64 {f.get(table)}, 0")):  # no defaultdict
            f.set(is_table, f.let("call i64 @is_table(ptr noalias %state, ptr %x)"))
        one = w.is_(f.get(is_table), 1)
        f.set(size, f.let(f"select i1 {one}, i64 2, i64 {w.call('PyDict_Size', 'ptr %x')}"))

    def with_dict() -> None:
        attributes = own("PyObject_GetAttr", f"ptr {w.pointer(ReaderState.DICT_NAME)}")
        f.set(held, w.number(attributes))
        f.set(size, w.call("PyDict_Size", f"ptr {attributes}"))

    def own(function: str, name: str) -> str:
        """An attribute, which the object holds."""
        x = w.call(function, "ptr %x", name)
        with f.when(f.let(f"icmp eq ptr {x}, null")):
            w.do("PyErr_Clear")
            f.do(f"ret i64 {DECLINED}")
            f.block(f.name("dead"), falls=False)
        w.do("Py_DecRef", f"ptr {x}")
        return x

    _by_kind(
        w,
        kind,
        {
            (ObjectKind.LIST, ObjectKind.TUPLE, ObjectKind.ITEMS): lambda: f.set(size, w.size_of("%x")),
            (ObjectKind.DICT,): of_dict,
            (ObjectKind.SET,): lambda: f.set(size, "1"),
            (ObjectKind.PLAIN,): with_dict,
            (ObjectKind.FIELDS,): lambda: f.set(size, w.word(tables, f.mul(f.get(table), 2))),
        },
    )
    parts = f.let(f"inttoptr i64 {f.get(held)} to ptr")
    for each in SHAPED:
        with f.when(f.let(f"and i1 {w.is_(kind, each)}, {w.is_(f.get(is_table), 0)}")):
            arguments = f"ptr %state, ptr %x, ptr {parts}, i64 {f.get(size)}"
            f.set(shape, f.let(f"call i64 @shape_{each.name.lower()}({arguments})"))
            w.stop(w.is_(f.get(shape), -1), UNKNOWN_SHAPE, "%x")
            w.stop(w.is_(f.get(shape), -2), DECLINED)
            f.set(table, w.word(w.pointer(ReaderState.WORDS), f.add(f.get(shape), 1)))
    n, log = f.get(size), w.field(ReaderState.LOG_USED)
    w.stop(f.let(f"icmp ugt i64 {f.add(log, n)}, {w.field(ReaderState.LOG_ROOM)}"), FULL_LOG)

    def note(x: str, k: str) -> None:
        w.check(f.let(f"call i64 @note(ptr noalias %state, ptr {x}, i64 {f.add(log, k)})"))

    def items(is_list: bool) -> Callable[[], None]:
        def read() -> None:
            with f.loop(0, n, 1) as k:
                note(w.item("%x", is_list, k), k)

        return read

    def made(function: str, k: str) -> None:
        """A list that the object makes is one of its values."""
        x = w.call(function, "ptr %x")
        w.stop(f.let(f"icmp eq ptr {x}, null"), DECLINED)
        w.call("PyList_Append", f"ptr {w.pointer(ReaderState.MADE)}", f"ptr {x}")
        w.do("Py_DecRef", f"ptr {x}")
        note(x, k)

    def of_keys() -> None:
        with f.when(w.is_(f.get(is_table), 1)) as otherwise:
            made("PyDict_Keys", "0")
            made("PyDict_Values", "1")
            otherwise()
            values()

    def values() -> None:
        begin, key, value, words = f.slot(0), f.slot(0), f.slot(0), w.pointer(ReaderState.WORDS)
        order = f.add(f.get(shape), 5)  # the third word of each item: where the value of this key goes
        with f.loop(0, n, 1) as k:
            more = w.call("PyDict_Next", f"ptr {parts}", f"ptr {begin}", f"ptr {key}", f"ptr {value}")
            w.stop(f.let(f"icmp eq i32 {more}, 0"), DECLINED)
            note(f.let(f"load ptr, ptr {value}"), w.word(words, f.add(order, f.mul(k, 3))))

    def attributes() -> None:
        names, first = w.pointer(ReaderState.NAMES), w.word(tables, f.add(f.mul(f.get(table), 2), 1))
        with f.loop(0, n, 1) as k:
            note(own("PyObject_GetAttr", f"ptr {w.address(names, f.add(first, k))}"), k)

    _by_kind(
        w,
        kind,
        {
            (ObjectKind.LIST,): items(True),
            (ObjectKind.TUPLE, ObjectKind.ITEMS): items(False),
            (ObjectKind.DICT,): of_keys,
            (ObjectKind.SET,): lambda: made("PySequence_List", "0"),
            (ObjectKind.PLAIN,): values,
            (ObjectKind.FIELDS,): attributes,
        },
    )
    w.put_word(w.pointer(ReaderState.VISITS), number, f.get(table))
    w.put_word(w.pointer(ReaderState.OBJECTS), number, w.number("%x"))
    w.put_word(w.pointer(ReaderState.PLACES), number, "-1")
    w.put_word(w.pointer(ReaderState.SIZES), number, n)
    w.put(ReaderState.VISITS_USED, f.add(number, 1))
    w.put(ReaderState.LOG_USED, f.add(log, n))
    with f.loop(0, n, 1) as k:
        w.check(f.let(f"call i64 @push(ptr noalias %state, i64 {f.add(log, f.sub(f.sub(n, k), 1))})"))
    return w.text()


def _by_kind(
    w: _FunctionWriter,
    kind: str,
    cases: Mapping[tuple[int, ...], Callable[[], None]],
    otherwise: str = f"ret i64 {DECLINED}",
) -> None:
    """What is done with objects of some kinds, and with others."""
    f, done, never = w.f, w.f.name("done"), w.f.name("never")
    labels = [f.name("kind") for _ in cases]
    table = " ".join(f"i64 {int(k)}, label %{label}" for label, kinds in zip(labels, cases, strict=True) for k in kinds)
    f.do(f"switch i64 {kind}, label %{never} [{table}]")
    for label, do in zip(labels, cases.values(), strict=True):
        f.block(label, falls=False)
        do()
        f.do(f"br label %{done}")
    f.block(never, falls=False)
    f.do(otherwise)
    f.block(done, falls=False)


def _push(layout: ObjectLayout) -> str:
    """An object of the log is visited later."""
    w = _FunctionWriter("internal i64 @push(ptr noalias %state, i64 %at)", layout)
    f = w.f
    code = f.load("i8", f.at(w.pointer(ReaderState.CODES), "%at"), align=1)
    with f.when(f.let(f"icmp eq i8 {code}, {OBJECT}")):
        used = w.field(ReaderState.STACK_USED)
        w.stop(f.let(f"icmp uge i64 {used}, {w.field(ReaderState.ROOM)}"), FULL)
        w.put_word(w.pointer(ReaderState.STACK), used, "%at")
        w.put(ReaderState.STACK_USED, f.add(used, 1))
    return w.text()


def _read(layout: ObjectLayout) -> str:
    """All examples, one after another."""
    w = _FunctionWriter("i64 @read(ptr noalias %state)", layout)
    f = w.f
    count, payload = w.field(ReaderState.COUNT), w.pointer(ReaderState.PAYLOAD)
    w.stop(f.let(f"icmp ugt i64 {count}, {w.field(ReaderState.LOG_ROOM)}"), FULL_LOG)
    w.put(ReaderState.LOG_USED, count)  # the roots come first
    with f.loop(0, count, 1) as i:
        x = w.item(w.pointer(ReaderState.EXAMPLES), True, i)
        number = w.field(ReaderState.VISITS_USED)
        w.stop(f.let(f"icmp uge i64 {number}, {w.field(ReaderState.ROOM)}"), FULL)
        w.put_word(w.pointer(ReaderState.VISITS), number, "-1")
        w.put_word(w.pointer(ReaderState.SIZES), number, "0")
        w.put(ReaderState.VISITS_USED, f.add(number, 1))
        w.put(ReaderState.START, number)
        w.put(ReaderState.TUPLES, "0")
        w.check(f.let(f"call i64 @note(ptr noalias %state, ptr {x}, i64 {i})"))
        w.check(f.let(f"call i64 @push(ptr noalias %state, i64 {i})"))
        with f.whilst(lambda: f.let(f"icmp ne i64 {w.field(ReaderState.STACK_USED)}, 0")):
            top = f.sub(w.field(ReaderState.STACK_USED), 1)
            w.put(ReaderState.STACK_USED, top)
            at = w.word(w.pointer(ReaderState.STACK), top)
            held = w.address(payload, at)
            w.check(f.let(f"call i64 @visit(ptr noalias %state, ptr {held}, i64 {at})"))
    w.stop(w.is_(w.field(ReaderState.ROOT), -1), 0)
    w.check(f.let("call i64 @number(ptr noalias %state)"))
    codes = w.pointer(ReaderState.CODES)
    with f.loop(0, w.field(ReaderState.LOG_USED), 1) as k:  # from here on they are held by us
        code = f.load("i8", f.at(codes, k), align=1)
        with f.when(w.is_handed(f.let(f"zext i8 {code} to i64"))):
            w.do("Py_IncRef", f"ptr {w.address(payload, k)}")
    return w.text()


class _LogReader(_FunctionWriter):
    """A function that goes over the log."""

    def code(self, at: str) -> str:
        code = self.f.load("i8", self.f.at(self.pointer(ReaderState.CODES), at), align=1)
        return self.f.let(f"zext i8 {code} to i64")

    def entry(self, table: ReaderState, width: int, row: str, k: int) -> str:
        return self.word(self.pointer(table), self.f.add(self.f.mul(row, width), k))

    def slot(self, number: str, k: ColumnSlot) -> str:
        return self.entry(ReaderState.SLOTS, len(ColumnSlot), number, k)

    def home(self, number: str, k: Home) -> str:
        return self.entry(ReaderState.HOMES, len(Home), number, k)

    def home_beside(self, slot: str, at: str) -> str:
        """The home of a value that is no record and stands where records are; -1 where it is none."""
        f, found = self.f, self.f.slot(-1)
        homes = self.slot(slot, ColumnSlot.HOMES)
        with f.when(f.let(f"icmp sge i64 {homes}, 0")):
            code, sort = self.code(at), f.slot(-1)
            with f.when(self.is_(code, OBJECT)) as otherwise:
                with f.when(self.is_(self.table(at), Sort.LIST)):
                    f.set(sort, Sort.LIST)
                otherwise()
                f.set(sort, f.add(code, Sort.LEAF))
            with f.when(f.let(f"icmp sge i64 {f.get(sort)}, 0")):
                home = f.add(homes, f.get(sort))
                with f.when(f.let(f"icmp sge i64 {self.home(home, Home.COUNTER)}, 0")):
                    f.set(found, home)
        return f.get(found)

    def table(self, at: str) -> str:
        """The table of an object of the log."""
        return self.word(self.pointer(ReaderState.VISITS), self.word(self.pointer(ReaderState.PAYLOAD), at))

    def list(self, number: str, k: ListHome) -> str:
        return self.entry(ReaderState.LISTS, len(ListHome), number, k)

    def counted(self, counter: str, n: str | int) -> str:
        """The rows that a counter has had so far; there are `n` more."""
        counts = self.pointer(ReaderState.COUNTS)
        found = self.word(counts, counter)
        self.put_word(counts, counter, self.f.add(found, n))
        return found

    def column(self, number: str) -> str:
        return self.address(self.pointer(ReaderState.ADDRESSES), number)

    def visits(
        self,
        example: Callable[[str], None],
        a_list: Callable[[str, str, str], tuple[str, str]],
        record: Callable[[str, str], tuple[str, str]],
        value: Callable[[str, str, str], None],
    ) -> None:
        """All visits, in order: of each example `example(number)`; of a list `a_list(visit, its place, size)`, of any
        other object `record(visit, its home)`, which give the first slot and row of its values; then each
        `value(slot, row, where the log has it)`."""
        f = self.f
        at, begun = f.slot(self.field(ReaderState.COUNT)), f.slot(0)
        with f.loop(0, self.field(ReaderState.VISITS_USED), 1) as visit:
            table, n = (
                self.word(self.pointer(ReaderState.VISITS), visit),
                self.word(self.pointer(ReaderState.SIZES), visit),
            )
            with f.when(self.is_(table, -1)) as otherwise:
                k = f.get(begun)
                example(k)
                value(self.field(ReaderState.ROOT), k, k)
                f.set(begun, f.add(k, 1))
                otherwise()
                first, row, step = f.slot(0), f.slot(0), f.slot(0)
                place = self.word(self.pointer(ReaderState.PLACES), visit)
                with f.when(self.is_(table, 0)) as or_else:
                    one = a_list(visit, place, n)
                    f.set(step, 0)
                    f.set(first, one[0])
                    f.set(row, one[1])
                    or_else()
                    one = record(visit, place)
                    f.set(step, 1)
                    f.set(first, one[0])
                    f.set(row, one[1])
                slots, rows = f.get(step), f.let(f"xor i64 {f.get(step)}, 1")
                start, index, here = f.get(first), f.get(row), f.get(at)
                with f.loop(0, n, 1) as k:
                    value(f.add(start, f.mul(k, slots)), f.add(index, f.mul(k, rows)), f.add(here, k))
                f.set(at, f.add(here, n))


def _place(layout: ObjectLayout) -> str:
    """Is there a place for a value where it stands? A list is in one place, and so is a dict whose keys are data."""
    w = _LogReader("internal i64 @place(ptr noalias %state, i64 %slot, i64 %at)", layout)
    f, code = w.f, w.code("%at")
    with f.when(w.is_(code, OBJECT)):
        target, places = w.word(w.pointer(ReaderState.PAYLOAD), "%at"), w.pointer(ReaderState.PLACES)
        table, mine = w.table("%at"), f.slot(-1)
        with f.when(w.is_(table, Sort.LIST)) as otherwise:
            f.set(mine, w.slot("%slot", ColumnSlot.LIST))
            otherwise()
            f.set(mine, table)
            with f.when(f.let(f"icmp slt i64 {table}, {Sort.LEAF}")):
                homes = w.slot("%slot", ColumnSlot.HOMES)
                w.stop(w.is_(homes, -1), LACKING)
                f.set(mine, f.add(homes, table))
            store = w.slot("%slot", ColumnSlot.STORE)
            w.stop(f.let(f"icmp ne i64 {w.home(f.get(mine), Home.COUNTER)}, {store}"), LACKING)
        held = w.word(places, target)
        w.stop(w.is_(f.get(mine), -1), LACKING)
        with f.when(w.is_(held, -1)) as known:
            w.put_word(places, target, f.get(mine))
            known()
            w.stop(f.let(f"icmp ne i64 {held}, {f.get(mine)}"), LACKING)
    allowed = f.let(f"lshr i64 {w.slot('%slot', ColumnSlot.ALLOWED)}, {code}")
    w.stop(w.is_(f.let(f"and i64 {allowed}, 1"), 0), LACKING)
    return w.text()


def _number(layout: ObjectLayout) -> str:
    """The rows of all visits, and where those of each example start."""
    w = _LogReader("internal i64 @number(ptr noalias %state)", layout)
    f, rows = w.f, w.pointer(ReaderState.ROWS)
    counts, starts, width = (
        w.pointer(ReaderState.COUNTS),
        w.pointer(ReaderState.STARTS),
        f.add(w.field(ReaderState.COUNT), 1),
    )

    def begin(k: str) -> None:
        w.put(ReaderState.ABOUT, k)
        with f.loop(0, w.field(ReaderState.COUNTERS), 1) as c:
            w.put_word(starts, f.add(f.mul(c, width), k), w.word(counts, c))

    def a_list(visit: str, place: str, n: str) -> tuple[str, str]:
        w.put_word(rows, visit, w.counted(w.list(place, ListHome.COUNTER), 1))
        return w.list(place, ListHome.SLOT), w.counted(w.list(place, ListHome.VALUES), n)

    def record(visit: str, home: str) -> tuple[str, str]:
        w.put_word(rows, visit, w.counted(w.home(home, Home.COUNTER), 1))
        return w.home(home, Home.FIRST), "0"

    def value(slot: str, row: str, at: str) -> None:
        home, inner = w.home_beside(slot, at), f.slot(slot)
        with f.when(f.let(f"icmp sge i64 {home}, 0")):
            w.counted(w.home(home, Home.COUNTER), 1)
            f.set(inner, w.home(home, Home.FIRST))
        w.check(f.let(f"call i64 @place(ptr noalias %state, i64 {f.get(inner)}, i64 {at})"))

    w.visits(begin, a_list, record, value)
    begin(w.field(ReaderState.COUNT))
    return w.text()


def _put(layout: ObjectLayout) -> str:
    """A value into its column."""
    w = _LogReader("internal void @put(ptr noalias %state, i64 %slot, i64 %row, i64 %at)", layout)
    f, code, bits = w.f, w.code("%at"), w.word(w.pointer(ReaderState.PAYLOAD), "%at")
    with f.when(f.let(f"icmp sge i64 {w.slot('%slot', ColumnSlot.MASK)}, 0")):
        none = f.let(f"zext i1 {w.is_(code, NONE)} to i8")
        f.do(f"store i8 {none}, ptr {f.at(w.column(w.slot('%slot', ColumnSlot.MASK)), '%row')}")
    column, kind = w.slot("%slot", ColumnSlot.COLUMN), w.slot("%slot", ColumnSlot.WRITTEN)

    def number() -> None:
        w.put_word(w.column(column), "%row", bits)

    def real() -> None:
        is_real, whole = w.is_(code, FLOAT), f.let(f"sitofp i64 {bits} to double")
        value = f.let(f"select i1 {is_real}, double {f.let(f'bitcast i64 {bits} to double')}, double {whole}")
        f.do(f"store double {value}, ptr {f.at(w.column(column), f.mul('%row', 8))}")

    def truth() -> None:
        f.do(f"store i8 {f.let(f'trunc i64 {bits} to i8')}, ptr {f.at(w.column(column), '%row')}")

    def reference() -> None:
        is_there, found = w.is_(code, OBJECT), f.slot(-1)
        with f.when(is_there):
            f.set(found, w.word(w.pointer(ReaderState.ROWS), bits))
        f.do(f"store i32 {f.let(f'trunc i64 {f.get(found)} to i32')}, ptr {f.at(w.column(column), f.mul('%row', 4))}")

    def other() -> None:
        with f.when(w.is_handed(code)):
            w.put_word(w.column(column), "%row", bits)

    cases: Mapping[tuple[int, ...], Callable[[], None]] = {
        (ColumnWrite.NOT,): lambda: None,
        (ColumnWrite.INT,): number,
        (ColumnWrite.FLOAT,): real,
        (ColumnWrite.BOOL,): truth,
        (ColumnWrite.ROW,): reference,
        (ColumnWrite.OBJECT,): other,
    }
    _by_kind(w, kind, cases, "unreachable")
    f.do("ret void")
    return str(f)


def _fill(layout: ObjectLayout) -> str:
    """All values into the columns of the schema."""
    w = _LogReader("i64 @fill(ptr noalias %state)", layout)
    f, rows = w.f, w.pointer(ReaderState.ROWS)

    def put32(column: str, row: str, value: str) -> None:
        f.do(f"store i32 {f.let(f'trunc i64 {value} to i32')}, ptr {f.at(w.column(column), f.mul(row, 4))}")

    def a_list(visit: str, place: str, n: str) -> tuple[str, str]:
        begin = w.counted(w.list(place, ListHome.VALUES), n)
        put32(w.list(place, ListHome.OFFSETS), w.word(rows, visit), begin)
        return w.list(place, ListHome.SLOT), begin

    def record(visit: str, home: str) -> tuple[str, str]:
        row = w.counted(w.home(home, Home.COUNTER), 1)
        put32(w.home(home, Home.TAGS), row, w.home(home, Home.TAG))
        return w.home(home, Home.FIRST), row

    def value(slot: str, row: str, at: str) -> None:
        home, to, its = w.home_beside(slot, at), f.slot(slot), f.slot(row)
        with f.when(f.let(f"icmp sge i64 {home}, 0")):
            new = w.counted(w.home(home, Home.COUNTER), 1)
            put32(w.home(home, Home.TAGS), new, w.home(home, Home.TAG))
            put32(w.slot(slot, ColumnSlot.COLUMN), row, new)
            f.set(to, w.home(home, Home.FIRST))
            f.set(its, new)
        f.do(f"call void @put(ptr noalias %state, i64 {f.get(to)}, i64 {f.get(its)}, i64 {at})")

    w.visits(lambda k: None, a_list, record, value)
    return w.text()


def _signed(n: int) -> int:
    """The last 64 bits."""
    return (n + (1 << 63)) % (1 << 64) - (1 << 63)


def module(layout: ObjectLayout) -> str:
    """All functions."""
    declared = []
    for name, type in CALLED.items():
        result, arguments = type.split(" ", 1)
        declared.append(f"declare {result} @{name}{arguments}")
    declared.append("declare i64 @llvm.umin.i64(i64, i64)")
    shapes = [write(kind, layout) for kind in SHAPED for write in (_same, _shape)]
    written = [f(layout) for f in (_kind, _note, _push, _is_table, _visit, _place, _number, _read, _put, _fill)]
    return "\n".join([*declared, "", *shapes, *written])


@cache
def reading_machine() -> ObjectReader | None:
    """The machine; None where there is no machine code, and for a Python that is not CPython with its lock."""
    if sys.implementation.name != "cpython" or sysconfig.get_config_var("Py_GIL_DISABLED"):
        return None
    layout = object_layout()
    if layout is None:
        return None
    addresses = {name: ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value or 0 for name in CALLED}
    try:
        text = module(layout)
        name = machine_code.target_name("reading", text)
        with machine_code.lock:
            code = machine_code.load(name, text, ("read", "fill"), addresses)
    except UnavailableError:
        return None
    kind = ctypes.PYFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)  # it keeps the lock
    read, fill = (kind(code.functions[name]) for name in ("read", "fill"))

    return ObjectReader(read, fill)


def object_layout() -> ObjectLayout | None:
    """Where objects have what they hold, as some show; None where they are not as CPython's are."""
    pointer = ctypes.sizeof(ctypes.c_void_p)
    kind = object.__basicsize__ - pointer
    layout = ObjectLayout(kind, float.__basicsize__ - pointer, kind + pointer, tuple.__basicsize__, kind + 2 * pointer)
    for held in ([], [1.5], [2.5, None, "a"]):
        items = tuple(held)
        at = ctypes.c_void_p.from_address(id(held) + layout.list_items).value or 0
        words = [ctypes.c_ssize_t.from_address(id(x) + layout.size).value for x in (held, items)]
        types = [ctypes.c_void_p.from_address(id(x) + layout.type).value for x in (held, items, 1.5)]
        if words != [len(held)] * 2 or types != [id(list), id(tuple), id(float)]:
            return None
        for k, x in enumerate(held):
            places = at + k * pointer, id(items) + layout.tuple_items + k * pointer
            if any(ctypes.c_void_p.from_address(p).value != id(x) for p in places):
                return None
            if type(x) is float and ctypes.c_double.from_address(id(x) + layout.float_value).value != x:
                return None
    return layout
