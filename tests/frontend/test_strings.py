"""Strings of the examples: methods, indexing, formatting; all of it decided by structure."""

from __future__ import annotations

import pytest

from tests.frontend.batches import Programs, agree, fails, refused
from tests.frontend.examples import ITEMS, Kind

programs = Programs()


@programs.over(ITEMS)
def text_starts(i):
    return i.name.startswith("st"), i.name.endswith("p"), len(i.name)


@programs.over(ITEMS)
def text_in(i):
    return i.name in ("a", "stop"), "o" in i.name, i.name not in {"a"}, i.name < "b"


@programs.over(ITEMS)
def text_upper(i):
    return (
        1 if i.name.upper() == "STOP" else 0,
        i.name.lower().strip() == "other word",
        i.name.replace("s", "z").count("z"),
    )


@programs.over(ITEMS)
def text_index(i):
    return i.name[0] == "s", i.name[-1] in "pt", i.name[:2] == "st", i.name.find("t")


@programs.over(ITEMS)
def text_truth(i):
    return 1 if i.name else 0, not i.name, bool(i.name), i.name.isalpha(), i.name.istitle()


@programs.over(ITEMS, {"w_a": 1.0, "w_start": 2.0, "w_stop": 3.0, "w_Other word": 4.0})
def text_fkey(p, i):
    return p[f"w_{i.name}"], p["w_" + i.name]


@programs.over(ITEMS)
def text_chars(i):
    return sum(1 for c in i.name if c == "t"), [ord(c) for c in i.name], len(i.name.split())


@programs.over(ITEMS)
def text_int(i):
    return ord(i.name[0]) if len(i.name) == 1 else 0


@programs.over(ITEMS)
def text_enumname(i):
    return i.kind.name == "A", i.kind.value * 2, i.kind.name.lower() in ("a", "c")


@programs.over(ITEMS)
def text_two(i):
    return (i.name + (i.tag or "-")) == "stopq"


@programs.over(ITEMS)
def text_fmt(i):
    return len(f"{i.name}-{i.kind.name}"), len(str(i.name))


@programs.over(ITEMS)
def text_eqkind(i):
    return i.kind == Kind.A, i.kind is Kind.B, i.kind in (Kind.A, Kind.C)


@programs.over(["3", "41", "x"])
def text_parse(s):
    return int(s) if s.isdigit() else -1


@programs.over(["ab", "c", ""])
def text_loop(s):
    h = 0
    for c in s:
        h = h * 31 + ord(c)
    return h


@programs.over([["a", "bb"], [], ["bb", "ccc", "a"]])
def text_list(ws):
    return [len(w) for w in ws], [w.upper() == "A" for w in ws], sum(w.count("c") for w in ws), len("".join(["a", "b"]))


@programs.over(["12", "7", "0"])
def text_numbers(s):
    return (
        float(s) / 2,
        int(s, 8) if s != "9" else 0,
        "%s-%03d" % (s, len(s)) == f"{s}-00{len(s)}",
        s.partition("2")[0] == "1",
    )  # noqa: UP031


@pytest.mark.parametrize("program", programs, ids=str)
def test_batch_equals_loop(program):
    agree(program)


def test_what_does_not_fit_fails_like_python():
    fails(lambda s: int(s), ["3", "x", "41"])
    fails(lambda s: float(s), ["3", "x", "-1e-3"])
    fails(lambda s: ord(s[1]), ["ab", "c"])


def test_refusals():
    refused(lambda i: i.name.encode(), ITEMS, saying="the string method 'encode'")
    refused(lambda i: i.name.center(width=9) == "", ITEMS, saying="no named arguments")
