"""Containers that have several names, or lie in lists: a change that something else would see is seen, or refused."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest

from tests.frontend.batches import Programs, agree
from tests.frontend.examples import LISTS


@dataclass
class Count:
    n: int = 0
    seen: list[int] = field(default_factory=list)


programs = Programs()


@programs.over(LISTS)
def copies_are_lists_of_their_own(xs):
    doubled = [2 * x for x in xs]
    extended, spread = [], [*doubled]
    extended.extend(doubled)
    extended.append(9)
    spread.append(1)
    return doubled, extended, spread


@programs.over(LISTS)
def augmented_under_two_names(xs):
    a = b = [1]
    a += xs
    b *= 2
    return a, b


@programs.over(LISTS)
def one_of_two_new_lists(xs):
    made = [1] if len(xs) > 1 else [2, 3]
    made.append(4)
    if len(xs) > 2:
        made.append(5)
    return made


@programs.over(LISTS)
def rows_are_copied(xs):
    rows = [[x] for x in xs]
    out = []
    for row in rows:
        row = list(row)
        row.append(1)
        out.append(row)
    return out, rows


@programs.over(LISTS)
def runs(xs):
    out, run = [], []
    for x in xs:
        run.append(x)
        if x % 2 == 0:
            out.append(run)
            run = []
    return out, run


@programs.over(LISTS)
def what_is_popped_is_changed(xs):
    todo = [Count(x) for x in xs]
    total = 0
    while todo:
        c = todo.pop()
        c.n += 1
        total += c.n
    return total


@programs.over(LISTS)
def a_copy_of_an_element(xs):
    counts = [Count(x) for x in xs]
    first = replace(counts[0]) if counts else Count()
    first.n += 5
    return [c.n for c in counts], first.n


@programs.over(LISTS)
def turn_of_a_loop(xs):
    counts = [Count(x) for x in xs]
    for c in counts:
        c.n = 7
    return [c.n for c in counts]


@programs.over(LISTS)
def one_of_two_objects(xs):
    a, b = Count(), Count()
    if len(xs) > 1:
        c = a
    else:
        c = b
    c.n = 3
    return a.n, b.n


@programs.over(LISTS)
def in_a_list_around_a_loop(xs):
    a = Count()
    held = [a]
    for x in xs:
        a.n += x
    return held[0].n


@pytest.mark.parametrize("program", programs, ids=str)
def test_batch_equals_loop(program):
    agree(program, jit=False)


@programs.over(LISTS)
def item_of_a_list(xs):
    rows = [[x] for x in xs]
    if rows:
        row = rows[0]
        row[0] = 5
    return rows


@programs.over(LISTS)
def one_of_two(xs):
    a, b = [1], [2]
    c = a if len(xs) > 1 else b
    c.append(3)
    return a, b


@programs.over(LISTS)
def found_by_a_function(xs):
    def first(rows):
        return rows[0]

    rows = [[x] for x in xs]
    if rows:
        row = first(rows)
        row.append(1)
    return rows
