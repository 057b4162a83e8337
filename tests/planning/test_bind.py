"""Binding: distinct rows by counting, stable orders by radix, windows, size classes."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from autobatch.planning.numbering import distinct_rows, longest_paths, stable_order
from autobatch.planning.plan import SizeClasses, Stock, cover, of_word, windows

small = arrays.arrays(np.int64, st.integers(0, 40), elements=st.integers(0, 30))
large = arrays.arrays(np.int64, st.integers(0, 40), elements=st.integers(0, 2**40))


@given(small | large, st.integers(0, 100))
def test_distinct_rows_are_the_first_of_those_that_are_equal(numbers, room):
    first, which = distinct_rows(numbers, 1 + int(numbers.max(initial=-1)), room)
    seen: dict[int, int] = {}
    for row, number in enumerate(numbers.tolist()):
        seen.setdefault(number, row)
    np.testing.assert_array_equal(first, list(seen.values()))
    np.testing.assert_array_equal(first[which], [seen[n] for n in numbers.tolist()])


@given(small | large)
def test_stable_order_is_a_stable_argsort(keys):
    np.testing.assert_array_equal(stable_order(keys), np.argsort(keys, kind="stable"))


@given(st.integers(0, 700), st.sampled_from([(8,), (16, 4), (128, 64, 16, 8)]))
def test_a_cover_holds_every_row_and_wastes_less_than_its_narrowest_window_needs(rows, widths):
    found = cover(rows, widths, tuple(8.0 + w for w in widths))
    assert sum(found) >= rows
    assert not found or sum(found) - found[-1] < rows
    assert list(found) == sorted(found, reverse=True)


@given(st.lists(st.integers(0, 90), max_size=12), st.sampled_from([(8,), (16, 4), (32, 16, 8)]))
def test_the_windows_of_a_level_are_those_of_its_cover(counts, widths):
    costs = tuple(8.0 + w for w in widths)
    words, firsts = windows(np.array(counts, np.int64), widths, costs)
    assert len(words) == firsts[-1] <= sum(counts), "the table of windows has room for as many as there are rows"
    _, kind = of_word(words, len(widths))
    found = [kind[a:b].tolist() for a, b in pairwise(firsts)]
    assert [[widths[k] for k in level] for level in found] == [list(cover(n, widths, costs)) for n in counts]


@given(st.lists(st.integers(1, 70), min_size=1, max_size=12))
def test_windows_of_a_level_write_it_whole_and_nothing_behind_it_where_rows_allow(counts):
    widths = (16, 4)
    words, firsts = windows(np.array(counts), widths, (24.0, 12.0))
    starts, kind = of_word(words, len(widths))
    ends = np.cumsum(counts)
    for k, end in enumerate(ends):
        written: set[int] = set()
        for n in range(firsts[k], firsts[k + 1]):
            width = widths[kind[n]]
            written.update(range(starts[n], starts[n] + width))
            assert starts[n] + width <= max(end, width)
        assert written >= set(range(end - counts[k], end))


@given(st.integers(0, 2**30))
def test_levels_are_longest_paths(seed):
    rng = np.random.default_rng(seed)
    rows = int(rng.integers(1, 30))
    edges = [(a, b) for a in range(rows) for b in range(a + 1, rows) if rng.random() < 0.15]
    source = np.array([a for a, _ in edges], np.int64)
    target = np.array([b for _, b in edges], np.int64)
    weight = rng.integers(0, 2, len(edges))
    level, stuck = longest_paths(rows, source, target, weight)
    expected = np.zeros(rows, np.int64)
    for b in range(rows):
        into = [expected[a] + w for (a, c), w in zip(edges, weight, strict=True) if c == b]
        expected[b] = max(into, default=0)
    np.testing.assert_array_equal(level, expected)
    assert not len(stuck)


def test_rows_on_a_cycle_are_found():
    level, stuck = longest_paths(4, np.array([0, 1, 2]), np.array([1, 2, 1]), np.ones(3, np.int64))
    assert stuck.tolist() == [1, 2]
    assert level[3] == 0


def test_one_size_class_serves_batches_of_one_size():
    sizes = SizeClasses(least=16)
    rng = np.random.default_rng(0)
    made = {sizes.capacities({0: int(n), 1: int(2.1 * n)}) for n in rng.integers(900, 1100, 200)}
    assert len(made) <= 3


@given(st.data())
def test_a_cut_is_each_table_of_each_example(data):
    """Tables over two spaces; one points to rows of the other, and value numbers may be kept apart by example."""
    count = data.draw(st.integers(1, 5))
    lengths = np.array(
        data.draw(st.lists(st.lists(st.integers(0, 4), min_size=2, max_size=2), min_size=count, max_size=count))
    )
    starts = np.concatenate([np.zeros((1, 2), np.int64), lengths.cumsum(0)])
    rng = np.random.default_rng(data.draw(st.integers(0, 2**20)))
    values = [rng.integers(-9, 9, starts[-1, 0]), rng.integers(0, 5, starts[-1, 1]), rng.integers(0, 7, starts[-1, 1])]
    stock = Stock(count)
    first, second = stock.add_space(starts[:, 0]), stock.add_space(starts[:, 1])
    numbers = [stock.add(values[0], first), stock.add(values[1], second, first), stock.add_numbers(values[2], second)]
    chosen, apart = (
        np.array(data.draw(st.lists(st.integers(0, count - 1), max_size=6)), np.int64),
        data.draw(st.booleans()),
    )
    found = stock.closed().cut(chosen, apart)
    rows = [[np.arange(starts[e, k], starts[e + 1, k]) for e in chosen.tolist()] for k in range(2)]
    begin = np.cumsum([0, *(len(r) for r in rows[0])])
    size = 1 + int(values[2].max(initial=-1))
    wanted = [
        [values[0][r] for r in rows[0]],
        [values[1][r] + begin[k] for k, r in enumerate(rows[1])],
        [values[2][r] + apart * k * size for k, r in enumerate(rows[1])],
    ]
    for number, parts in zip(numbers, wanted, strict=True):
        np.testing.assert_array_equal(found.tables[number], np.concatenate([np.zeros(0, np.int64), *parts]))
    assert [found.counts[first], found.counts[second]] == [sum(map(len, r)) for r in rows]


def test_equal_tables_and_spaces_are_held_once():
    stock = Stock(2)
    space, again = stock.add_space(np.array([0, 2, 5])), stock.add_space(np.array([0, 2, 5]))
    values = np.array([1, 2, 3, 4, 5])
    plain, same = stock.add(values, space), stock.add(values.copy(), again)
    other, numbers = stock.add(values, space, space), stock.add_numbers(values, space)
    assert space == again and plain == same and len({plain, other, numbers}) == 3
    found = stock.closed().cut(np.array([1, 0]), apart=True)
    assert [found.tables[k].tolist() for k in (plain, other, numbers)] == [
        [3, 4, 5, 1, 2],
        [3, 4, 5, 4, 5],
        [3, 4, 5, 7, 8],
    ]


def test_a_cut_of_no_tables_counts_rows():
    stock = Stock(2)
    space = stock.add_space(np.array([0, 2, 5]))
    found = stock.closed().cut(np.array([1, 0, 1]))
    assert found.tables == [] and found.counts[space] == 8
