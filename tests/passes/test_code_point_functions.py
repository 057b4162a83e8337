"""Functions of code points agree with the methods of `str`, on words with letters of all kinds."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from autobatch.ir import strings
from autobatch.passes import code_point_functions
from autobatch.passes.arena_memory import ranks

ROOM = 24
LETTERS = (
    "a",
    "A",
    "b",
    "é",
    "ß",
    "ŉ",
    "Ǆ",
    "ǅ",
    "İ",
    "ı",
    "ς",
    "ﬃ",
    "1",
    "²",
    "٣",
    "_",
    " ",
    "\t",
    "-",
    "+",
    "·",
    "ª",
)
PARTS = ("", "a", "aa", "ab", " ", "-", "_1", "ba")


def words(seed: int) -> list[str]:
    draw = random.Random(seed)
    drawn = ["".join(draw.choices(LETTERS, k=draw.randrange(6))) for _ in range(12)]
    alike = ["".join(draw.choices("ab -", k=draw.randrange(8))) for _ in range(12)]
    return ["", " 12 ", "-1_000", "+7", "1__2", "_1", "1_", "- 1", "٣2", "aaaa", "Ab Ba", *drawn, *alike]


def given(xs: Sequence[Any]) -> list[Any]:
    if isinstance(xs[0], str):
        behind = [ord("a")] * ROOM  # may be anything
        rows = [[*map(ord, x), *behind][:ROOM] for x in xs]
        return [jnp.asarray([*map(len, xs)]), jnp.asarray(rows, jnp.int32)]
    return [jnp.asarray(xs)]


def by_letters(name: str, rows: Iterable[Any]) -> list[Any]:
    """The results for rows of operands, of all at once."""
    columns = [*zip(*rows, strict=True)]
    of = jax.jit(jax.vmap(code_point_functions.function(name, 0, [isinstance(x[0], str) for x in columns])))
    found = of(*(part for x in columns for part in given(x)))
    if len(found) == 2:
        return ["".join(map(chr, letters[:n])) for n, letters in zip(*(x.tolist() for x in found), strict=True)]
    return found[0].tolist()  # type: ignore[no-any-return]


def expected(name: str, rows: Iterable[Any]) -> list[Any]:
    if name == "fits_int":
        return [strings.call("fits", ("int", ...), x) for x in rows]
    return [strings.call(name, (...,) * len(x), x) for x in rows]


def pairs(seed: int) -> list[tuple[str, str]]:
    return [*itertools.product(words(seed), PARTS)]


ALONE = ("isalpha isdigit isalnum isspace isnumeric isdecimal isascii isprintable isidentifier isupper islower istitle "
         "upper lower casefold swapcase title capitalize strip lstrip rstrip split_count fits_int").split()  # fmt: skip
OF_TWO = "find rfind startswith endswith count strip lstrip rstrip removeprefix removesuffix __lt__ __ge__".split()


@pytest.mark.parametrize("name", ALONE)
def test_functions_of_a_word(name: str) -> None:
    every = [(w,) for w in (*words(1), *words(2), *words(3), *LETTERS)]
    assert by_letters(name, every) == expected(name, every)


@pytest.mark.parametrize("name", OF_TWO)
def test_functions_of_two(name: str) -> None:
    assert by_letters(name, pairs(4)) == expected(name, pairs(4))


def test_numbers_that_are_too_wide() -> None:
    digits = ("2147483647", "2147483648", "-2147483648", "-2147483649", "00000000002", "3000000000", "99999999999")
    every = [(w,) for w in (*digits, "1_999_999_999", "x", "")]
    assert by_letters("is_narrow", every) == expected("is_narrow", every)


def test_numerals() -> None:
    every = [(w,) for w in words(5) if strings.call("fits", ("int", ...), [w])]
    assert by_letters("int", every) == [int(w) for (w,) in every]


def test_parts() -> None:
    every = [x for x in pairs(6) if x[1]]
    for how in (
        every,
        [(*x, 1) for x in every],
        [(w,) for w in words(7)],
        *([(w, k) for w in words(8)] for k in (-1, 0, 1)),
    ):
        split = [w.split(*([None] if rest and isinstance(rest[0], int) else []), *rest) for w, *rest in how]  # type: ignore[arg-type]
        assert by_letters("split_count", how) == [*map(len, split)]
        rows = [(x, k, part) for x, parts in zip(how, split, strict=True) for k, part in enumerate(parts)]
        assert by_letters("split_item", [(x[0], k, *x[1:]) for x, k, _ in rows]) == [part for _, _, part in rows]
    for name in ("partition_item", "rpartition_item"):
        rows = [(w, k, s) for (w, s), k in itertools.product(every, range(3))]
        assert by_letters(name, rows) == expected(name, rows)


def test_replacements() -> None:
    for new, most in (("", -1), ("xy", -1), ("xy", 2)):
        rows = [(w, s, new, most) for w, s in pairs(9) if len(w.replace(s, new)) <= ROOM]
        assert by_letters("replace", rows) == expected("replace", rows)


def test_pads() -> None:
    rows = [*itertools.product(words(10), (0, 3, 4, 9))]
    for name in ("zfill", "ljust", "rjust", "center"):
        assert by_letters(name, rows) == expected(name, rows)
    assert by_letters("centred", [(*x, "*") for x in rows]) == [f"{w:*^{width}}" for w, width in rows]


@pytest.mark.parametrize("name", ["find", "rfind"])
def test_parts_that_are_looked_for(name: str) -> None:
    ends = [*itertools.product((-9, -2, 0, 3, 9), (-9, -1, 2, 9))]
    rows = [(*x, *e) for x, e in itertools.product(pairs(11), ends)]
    assert by_letters(name, rows) == [getattr(w, name)(s, *e) for w, s, *e in rows]
    rows = [(*x, start) for x, (start, _) in itertools.product(pairs(11), ends)]  # type: ignore[misc]
    assert by_letters(name, rows) == [getattr(w, name)(s, *e) for w, s, *e in rows]


def test_order() -> None:
    every = words(12)[:ROOM]
    (found,) = ranks(jnp.asarray(len(every)), *given(every))
    assert found.tolist() == [sum(x < w for x in every) for w in every]
