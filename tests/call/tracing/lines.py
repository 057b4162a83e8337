"""One-line programs of plain Python, by chapters: what it does with strings, dicts, iterators, objects and arrays. `w`
is a shared number, the other argument an example."""

from __future__ import annotations

import bisect
import enum
import functools
import itertools
import math
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

F = [[0.9, 0.4, -0.7, 1.3], [0.5], [1.4, 0.3, 0.8], [0.61, -2.0]]
S = ["hello world", "ab", "banana split", "Queue"]
W = [["the", "cat", "sat"], ["a"], ["the", "dog", "the", "cat"], ["zebra", "cat"]]
VOCAB = {"the": 0, "cat": 1, "sat": 2, "dog": 3, "<unk>": 4}
E = np.arange(15.0, dtype=np.float32).reshape(5, 3) / 10
WEIGHT = {"n": 0.5, "v": 2.0, "x": -1.0}
COUNTS, SCALE = {"a": 3}, 2.5


@dataclass
class Tok:
    word: str
    x: float
    tag: str = "n"


class P(NamedTuple):
    a: Any
    b: Any = 1.0


@dataclass(frozen=True)
class D:
    a: Any
    b: Any = 2.0
    tag: str = "t"


class Custom(Exception):
    def __init__(self, n):
        self.n = n


class Vec:
    def __init__(self, xs):
        self.xs = xs

    def __len__(self):
        return len(self.xs)

    def __getitem__(self, k):
        return self.xs[k]

    def __iter__(self):
        return iter(self.xs)

    def __contains__(self, n):
        return n == len(self.xs)

    def __add__(self, o):
        return Vec([a + b for a, b in zip(self.xs, o.xs)])

    def __mul__(self, k):
        return Vec([a * k for a in self.xs])

    def __rmul__(self, k):
        return Vec([k * a for a in self.xs])

    def __neg__(self):
        return Vec([-a for a in self.xs])

    def __eq__(self, o):
        return len(self.xs) == len(o.xs)

    def __hash__(self):
        return len(self.xs)

    def __lt__(self, o):
        return len(self.xs) < len(o.xs)

    def __bool__(self):
        return len(self.xs) > 1

    def __call__(self, k):
        return self.xs[0] * k

    def __matmul__(self, o):
        return sum((a * b for a, b in zip(self.xs, o.xs)))

    def __iadd__(self, o):
        self.xs = self.xs + o.xs
        return self

    def __setitem__(self, k, v):
        self.xs[k] = v

    def __enter__(self):
        return self

    def __exit__(self, *a):
        return False

    def __str__(self):
        return f"Vec{len(self.xs)}"

    @property
    def first(self):
        return self.xs[0]

    @functools.cached_property
    def total(self):
        return sum(self.xs)

    @classmethod
    def of(cls, *xs):
        return cls(list(xs))

    @staticmethod
    def twice(x):
        return 2 * x


class Base:
    k = 2.0

    def f(self, x):
        return x * self.k


class Derived(Base):
    k = 3.0

    def f(self, x):
        return super().f(x) + 1


class Slots:
    __slots__ = ("a",)

    def __init__(self, a):
        self.a = a


class Op(enum.Enum):
    ADD = 1
    MUL = 2


T = [
    [Tok("the", 1.0), Tok("cat", 2.0, "v")],
    [Tok("a", 0.5)],
    [Tok("dog", 1.5), Tok("the", 0.25), Tok("zebra", 3.0, "x")],
]
Program = Callable[[Any, Any], Any]

STRINGS: dict[str, Program] = {
    "len": lambda w, s: w * len(s),
    "ord": lambda w, s: w * sum((ord(c) - 97 for c in s)),
    "ord_index": lambda w, s: w * (ord(s[0]) - ord("a")),
    "chr": lambda w, s: (chr(ord(s[0]) + 1), w),
    "slice": lambda w, s: (s[1:], s[::-1], s[:2], w),
    "starts": lambda w, s: w if s.startswith("b") else 2 * w if s.endswith(("e", "d")) else 3 * w,
    "in": lambda w, s: w if "an" in s else -w,
    "split_len": lambda w, s: w * len(s.split()),
    "count": lambda w, s: w * s.count("l"),
    "find": lambda w, s: w * s.find("n"),
    "upper": lambda w, s: (s.upper(), w),
    "isupper": lambda w, s: w * sum((1 for c in s if c.isupper())),
    "join": lambda w, s: ("-".join(s), w),
    "join_list": lambda w, s: (" ".join([p.title() for p in s.split()]), w),
    "reversed": lambda w, s: w * sum((i for i, c in enumerate(reversed(s)) if c == "e")),
    "palindrome": lambda w, s: w if s == s[::-1] else 2 * w,
    "sorted": lambda w, s: ("".join(sorted(s)), w),
    "set": lambda w, s: w * len(set(s)),
    "zip": lambda w, s: w * sum((a == b for a, b in zip(s, s[1:]))),
    "replace": lambda w, s: (s.replace("a", "o").strip(), w),
    "format": lambda w, s: (f"{s}-{len(s):03d}", w),
    "percent": lambda w, s: ("%s:%d" % (s, len(s)), w),
    "dotformat": lambda w, s: ("{}:{}".format(s, len(s)), w),
    "mult": lambda w, s: (s * 2 + "!", w),
    "cmp": lambda w, s: w if s < "c" else 2 * w,
    "min": lambda w, s: (min(s), max(s), w),
    "encode": lambda w, s: w * sum(s.encode()),
    "int": lambda w, s: w * int("1" + "0" * len(s)) if len(s) < 6 else w,
    "regex": lambda w, s: w * len(re.findall("[aeiou]+", s)),
    "caesar": lambda w, s: ("".join((chr((ord(c) - 97 + 3) % 26 + 97) if c.isalpha() else c for c in s.lower())), w),
    "neg_index": lambda w, s: (s[-1] + s[-2:], w),
    "step": lambda w, s: (s[::2], s[1::3], s[-1:0:-1], w),
    "splitsep": lambda w, s: (s.split("a")[0], len(s.split("a")), w),
    "iter_enum": lambda w, s: w * sum((k for k, c in enumerate(s) if c == "l")),
    "eq_chars": lambda w, s: w * sum((1 for a, b in zip(s, reversed(s)) if a == b)),
    "any": lambda w, s: w if any((c.isupper() for c in s)) else -w,
    "find_missing": lambda w, s: (w * s.find("z"), s.rfind("l")),
    "ljust": lambda w, s: (s.ljust(12, ".") + "|", s.zfill(3), s.center(15), w),
    "fmt": lambda w, s: (f"{len(s):>5}|{s!r:.4}|{s:^14}", w),
    "bool": lambda w, s: w if s and (not s[:0]) else -w,
    "trans": lambda w, s: (s.translate(str.maketrans("abc", "xyz")), w),
    "lines": lambda w, s: len((s + "\n" + s).splitlines()) * w,
    "ordmap": lambda w, s: jnp.array([ord(c) for c in s]).sum() * w,
    "onehot": lambda w, s: sum((jnp.eye(3)[ord(c) % 3] for c in s)) * w,
    "type": lambda w, s: w if isinstance(s, str) and type(s) is str else -w,
    "list": lambda w, s: (list(s), w),
    "tuple": lambda w, s: (tuple(s)[0], w),
    "setin": lambda w, s: w * sum((c in {"a", "e"} for c in s)),
    "maxkey": lambda w, s: (max(s, key=s.count), w),
    "pickdict": lambda w, s: {"h": w, "a": 2.0}.get(s[0], -1.0),
    "int_parse": lambda w, s: int(str(len(s)) + "0") * w + float("1.5"),
}
WORDS: dict[str, Program] = {
    "in": lambda w, xs: w * sum((VOCAB[x] if x in VOCAB else VOCAB["<unk>"] for x in xs)),
    "join": lambda w, xs: (" ".join(xs), w),
    "max": lambda w, xs: (max(xs, key=len), max(xs), w),
    "index": lambda w, xs: w * xs.index("cat") if "cat" in xs else w,
    "sorted": lambda w, xs: (sorted(xs), sorted(xs, key=len)[0], w),
}
TOKENS: dict[str, Program] = {
    "vocab": lambda w, ts: sum((jnp.sum(E[VOCAB.get(t.word, 4)]) * t.x for t in ts)) * w,
    "first": lambda w, ts: (ts[0].word[0], w * ts[0].x),
    "weights": lambda w, ts: sum((WEIGHT[t.tag] * t.x for t in ts)) * w,
    "missing": lambda w, ts: w * sum((VOCAB[t.word] for t in ts if t.word in VOCAB)),
}
GENERATORS: dict[str, Program] = {
    "next_gen": lambda w, xs: next((i for i in range(10) if i * i > len(xs)), -1) * w,
    "any": lambda w, xs: w if any((i * i == len(xs) for i in range(5))) else -w,
    "all": lambda w, xs: w if all((i != len(xs) for i in range(3))) else -w,
    "max": lambda w, xs: max((len(xs) % (k + 1) for k in range(4))) * w,
    "sorted": lambda w, xs: w * sorted((k * 7 % 5 for k in range(len(xs))))[0],
    "dict": lambda w, xs: dict(((k, x * w) for k, x in enumerate(xs[:1]))),
}
FUNCTIONS: dict[str, Program] = {
    "nt_asdict": lambda w, xs: P(w, xs[0])._asdict(),
    "dc_result": lambda w, xs: D(w, xs[0]),
    "reduce": lambda w, xs: functools.reduce(lambda a, b: a * w + b, xs),
    "reduce_init": lambda w, xs: functools.reduce(lambda a, b: a * w + b, xs, 1.0),
    "reduce_mul": lambda w, xs: functools.reduce(operator.mul, xs, w),
    "itemgetter": lambda w, xs: w * sum(map(operator.itemgetter(1), [(1, x) for x in xs])),
}
ITERTOOLS: dict[str, Program] = {
    "product_rep": lambda w, xs: w * sum((a * b + c for a, b, c in itertools.product(range(len(xs)), repeat=3))),
    "chain": lambda w, xs: sum((x * w for x in itertools.chain(xs, [1.0, 2.0], xs))),
    "chain_from": lambda w, xs: sum(itertools.chain.from_iterable(([x, w] for x in xs))),
    "accumulate": lambda w, xs: list(itertools.accumulate(xs, lambda a, b: a * w + b)),
    "accumulate0": lambda w, xs: sum(itertools.accumulate(xs)) * w,
    "pairwise": lambda w, xs: sum(((a - b) * w for a, b in itertools.pairwise(xs))) + w,
    "ziplongest": lambda w, xs: sum((a * b * w for a, b in itertools.zip_longest(xs, [1.0, 2.0], fillvalue=3.0))),
    "combinations": lambda w, xs: sum((a * b * w for a, b in itertools.combinations(xs, 2))) + w,
    "permutations": lambda w, xs: sum((a - 2 * b for a, b in itertools.permutations(xs, 2))) * w,
    "cwr": lambda w, xs: sum((a * b for a, b in itertools.combinations_with_replacement(xs, 2))) * w,
    "takewhile": lambda w, xs: w * sum(itertools.takewhile(lambda k: k < len(xs), range(10))),
    "dropwhile": lambda w, xs: w * sum(itertools.dropwhile(lambda k: k < len(xs), range(10))),
    "islice": lambda w, xs: sum((x * w for x in itertools.islice(xs, 1, None))),
    "islice2": lambda w, xs: sum((x * w for x in itertools.islice(xs, 2))),
    "count": lambda w, xs: sum((x * k for x, k in zip(xs, itertools.count(2)))) * w,
    "cycle": lambda w, xs: sum((x * k for x, k in zip(xs, itertools.cycle([1, -1])))) * w,
    "repeat": lambda w, xs: sum((x * k for x, k in zip(xs, itertools.repeat(2)))) * w,
    "groupby": lambda w, xs: ({k: len(list(v)) for k, v in itertools.groupby([1, 1, 2])}, w),
    "starmap": lambda w, xs: sum(itertools.starmap(lambda a, b: a * b, zip(xs, xs))) * w,
    "compress": lambda w, xs: sum(itertools.compress(xs, [1, 0, 1, 0])) * w,
    "filterfalse": lambda w, xs: w * sum(itertools.filterfalse(lambda k: k % 2, range(len(xs) + 3))),
    "batched": lambda w, xs: w * sum((len(list(itertools.islice(xs, k, k + 2))) for k in range(0, len(xs), 2))),
    "map_filter": lambda w, xs: sum(map(lambda k: k * w, filter(lambda k: k % 2, range(len(xs) + 2)))),
}
BUILTINS: dict[str, Program] = {
    "zip_strict": lambda w, xs: sum((a * b for a, b in zip(xs, list(xs), strict=True))) * w,
    "bisect": lambda w, xs: w * bisect.bisect_left([1, 3, 5, 7], len(xs)),
    "math": lambda w, xs: w * math.comb(5, len(xs)) + math.gcd(12, len(xs)) + math.factorial(len(xs)),
    "sorted_len": lambda w, xs: sum((len(g) * w for g in sorted([xs, [1.0, 2.0]], key=len))),
}
OBJECTS: dict[str, Program] = {
    "len": lambda w, xs: len(Vec(xs)) * w,
    "getitem": lambda w, xs: Vec(xs)[len(xs) - 1] * w,
    "slice": lambda w, xs: sum(Vec(xs)[1:]) * w,
    "iter": lambda w, xs: sum((v * w for v in Vec(xs))),
    "contains": lambda w, xs: w if 2 in Vec(xs) else -w,
    "add": lambda w, xs: sum((Vec(xs) + Vec(xs) * w).xs),
    "rmul": lambda w, xs: sum((w * Vec(xs)).xs),
    "neg": lambda w, xs: sum(-Vec(xs)) * w,
    "eq": lambda w, xs: w if Vec(xs) == Vec([1.0, 2.0]) else -w,
    "lt": lambda w, xs: w if Vec(xs) < Vec([1.0, 2.0]) else -w,
    "bool": lambda w, xs: w if Vec(xs) else -w,
    "call": lambda w, xs: Vec(xs)(w),
    "matmul": lambda w, xs: Vec(xs) @ Vec(xs) * w,
    "str": lambda w, xs: (str(Vec(xs)), w),
    "prop": lambda w, xs: Vec(xs).first * w,
    "class": lambda w, xs: Vec.of(w, xs[0]).first + Vec.twice(w),
    "key": lambda w, xs: {Vec(xs): w}[Vec([1.0] * len(xs))],
    "sorted": lambda w, xs: sorted([Vec(xs), Vec([w, w])])[0].first,
    "super": lambda w, xs: Derived().f(w) + Base().f(xs[0]),
    "getattr": lambda w, xs: getattr(Vec(xs), "first") * w + getattr(Vec(xs), "nope", 1.0) + hasattr(Vec(xs), "of"),
    "isinstance": lambda w, xs: sum((v.first if isinstance(v, Vec) else v for v in [Vec(xs), w])),
}
ARRAYS: dict[str, Program] = {
    "array": lambda w, xs: np.array(xs).sum() * w,
    "array_sym": lambda w, xs: np.array([x * w for x in xs]).sum(),
    "jstack": lambda w, xs: jnp.stack([x * w for x in xs]).sum(),
    "jarray": lambda w, xs: jnp.array([x * w for x in xs]).sum(),
    "concat": lambda w, xs: jnp.concatenate([jnp.ones(2) * x * w for x in xs]).sum(),
    "npsum": lambda w, xs: np.sum([x * w for x in xs]),
    "linspace": lambda w, xs: (np.linspace(0, 1, len(xs)) * w).sum(),
    "onehot": lambda w, xs: np.eye(5)[len(xs)] * w,
    "argsort": lambda w, xs: w * int(np.argsort([3, 1, 2])[0]),
    "where": lambda w, xs: np.where(np.arange(3) < len(xs), w, 0.0),
}
STATEMENTS: dict[str, Program] = {
    "starlist": lambda w, xs: sum([*xs, w, *xs]),
    "chained": lambda w, xs: w if 1 < len(xs) <= 3 else -w,
    "global": lambda w, xs: w * COUNTS["a"] + SCALE,
    "lambda_sort": lambda w, xs: [v * w for v, k in sorted(zip(xs, range(len(xs))), key=lambda p: -p[1])],
}
PYTHON: dict[str, Program] = {
    "str_cmp_case": lambda w, xs: w if "Zebra" < "apple" else -w,
    "bool_ops_str": lambda w, xs: (("a" if len(xs) > 1 else "") or "empty", w),
    "num_str": lambda w, xs: (str(len(xs)) + repr(2) + str(True) + str(None) + str(1.5), w),
    "int_float_key": lambda w, xs: {1: w, 2.0: 3.0}[len(xs) and 1.0],
    "max_str": lambda w, xs: (max(["b", "abc"], key=len) + min("xyz"), w),
    "sort_stable": lambda w, xs: (sorted([(1, "b"), (0, "z"), (1, "a")], key=lambda p: p[0])[1][1], w),
    "int_div_neg": lambda w, xs: -7 // 2 * w + -7 % 3 + divmod(-len(xs), 3)[0],
    "round_py": lambda w, xs: round(2.5) + round(len(xs) * 0.5) + round(2.675, 2) * w,
    "big_shift": lambda w, xs: w * (1 << len(xs) & 7 | 8 ^ 3),
    "minmax_args": lambda w, xs: min(len(xs), 2, 3) * w + max(len(xs), 2),
    "sum_bool": lambda w, xs: sum([True, len(xs) > 1]) * w,
    "none_or_zero": lambda w, xs: None or 0 or w,
}
LINES: dict[str, tuple[dict[str, Program], list[Any]]] = {
    "strings": (STRINGS, S),
    "words": (WORDS, W),
    "tokens": (TOKENS, T),
    "generators": (GENERATORS, F),
    "functions": (FUNCTIONS, F),
    "itertools": (ITERTOOLS, F),
    "builtins": (BUILTINS, F),
    "objects": (OBJECTS, F),
    "arrays": (ARRAYS, F),
    "statements": (STATEMENTS, F),
    "python": (PYTHON, F),
}
