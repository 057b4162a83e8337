"""`str(x)` and f-strings of objects with `__str__`, and of exceptions that a handler looks at."""

from __future__ import annotations

from typing import Any

import pytest

import autobatch as ab


class Version:
    def __init__(self, a: int, b: int) -> None:
        self.a, self.b = a, b

    def __str__(self) -> str:
        return f"{self.a}.{self.b}"

    def __lt__(self, other: Version) -> bool:
        return (self.a, self.b) < (other.a, other.b)


class Rich(Exception):
    def __init__(self, n: int) -> None:
        super().__init__(n)
        self.n = n

    def __str__(self) -> str:
        return f"rich {self.n}"


class Short(ValueError):
    def __init__(self, need: int, have: int) -> None:
        super().__init__(f"need {need} more than {have}")
        self.need = need


def of_an_object(xs: list[float]) -> Any:
    v = Version(int(xs[0]), len(xs))
    return f"<{v}> {v!s}" + str(v)


def of_sorted_objects(xs: list[float]) -> Any:
    return [str(v) for v in sorted(Version(int(x), k) for k, x in enumerate(xs))]


def of_changed_objects(xs: list[float]) -> Any:
    vs = [Version(int(x), 0) for x in xs]
    for _ in xs:
        vs[0].b += 1
    return ",".join(str(v) for v in vs)


def of_constant_messages(xs: list[float]) -> Any:
    found = ""
    for x in xs:
        try:
            if x < 1.5:
                raise ValueError("low")
            if x > 4:
                raise RuntimeError("high")
        except (ValueError, RuntimeError) as e:
            found = found + str(e)
    return found


def of_an_exception_with_a_string(xs: list[float]) -> Any:
    try:
        if xs[0] > 2:
            raise Rich(int(xs[0]))
    except Rich as e:
        return str(e)
    return "fine"


def of_a_message_that_is_computed(xs: list[float]) -> Any:
    try:
        if len(xs) < 3:
            raise Short(3 - len(xs), len(xs))
    except Short as e:
        return f"{e}", e.need
    return "", 0


LISTS = [[3.0, 1.0], [5.0], [2.0, 2.0, 2.0]]
PROGRAMS = (
    *(of_an_object, of_sorted_objects, of_changed_objects, of_constant_messages),
    *(of_an_exception_with_a_string, of_a_message_that_is_computed),
)


@pytest.mark.parametrize("backend", ["auto", "llvm"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_as_python_does(program: Any, backend: str) -> None:
    assert ab.unbatch(ab.batched(program, backend=backend)(LISTS)) == [program(x) for x in LISTS]
