"""Dicts of several constant keys, whose values are of several types, used as records where numbers decide.

Each program is a plain function of `w`, that all examples share, and `x`, a number of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

PROGRAMS: list[Callable[[Any, Any], Any]] = []


def program(f: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    PROGRAMS.append(f)
    return f


@program
def best_of_rows(w: Any, x: Any) -> Any:
    rows = []
    k = 0
    while x < 3.0:
        x = x * 1.3 + 0.2
        rows.append({"n": 0, "s": 0.0, "v": w * x})
        i = k // 2
        rows[i]["n"] += 1
        rows[i]["s"] += x
        k = k + 1
    if not rows:
        return w * 0.0
    best = max(rows, key=lambda r: r["s"])
    best["v"] *= 2.0
    t = 0.0
    for r in rows:
        t = t * 0.9 + r["n"] * r["v"] + r["s"]
    return t + best["v"]


@program
def statistics(w: Any, x: Any) -> Any:
    """Records in a dict, one for each key that comes."""
    held: dict[int, dict[str, Any]] = {}
    k = 0
    while x < 3.0:
        x = x * 1.3 + 0.2
        key = k % 3
        if key not in held:
            held[key] = {"n": 0, "sum": 0.0, "last": None}
        r = held[key]
        r["n"] += 1
        r["sum"] += w * x
        r["last"] = x
        k += 1
    t = 0.0
    for key, r in held.items():
        t = t + r["sum"] / r["n"] + (r["last"] if r["last"] is not None else 0.0) * key
    return t


@program
def nested(w: Any, x: Any) -> Any:
    """Records in records, one of them in two, and lists as values."""
    a: dict[str, Any] = {"at": {"x": x, "y": w}, "items": [], "count": 3}
    b: dict[str, Any] = {"at": a["at"], "items": [w], "count": 4}
    k = 0
    while x < 3.0:
        x = x * 1.3 + 0.2
        c = a if k % 2 == 0 else b
        c["at"]["x"] += x
        c["items"].append(x * w)
        c["count"] += 1
        if x > 2.0:
            a, b = b, a
        k += 1
    first, second = sum(a["items"]), sum(b["items"])
    return a["at"]["x"] * a["count"] + b["at"]["y"] + first * 2 + second * b["count"] + len(a["items"])


@program
def methods(w: Any, x: Any) -> Any:
    rows: list[dict[str, Any]] = [dict(n=0, s=w), {"n": 1, "s": x}]
    k = 0
    t = 0.0
    while x < 3.0:
        x = x * 1.3 + 0.2
        r = rows[k % 2]
        r.update(s=r["s"] + x)
        r.update({"n": r["n"] + 1})
        c = r.copy()
        c["s"] = 100.0
        d = {**r, "s": 2.0}
        rows.append(d)
        if "n" in r and "z" not in r:
            t = t + r.get("n") + r.get("z", w) + len(r)
        for key, v in rows[k % 2].items():
            t = t + v * len(key)
        for key in r:
            t = t + r[key] * 0.5
        t += sum(r.values()) + d["s"]
        r["s"] = w
        if r == {"n": 3, "s": w}:
            t = t + 11
        if isinstance(r, dict) and r:
            t = t + 1
        match r:
            case {"n": 2 | 3 as n}:
                t = t + n
        k += 1
    rows.sort(key=lambda r: -r["s"])
    return t + rows[0]["s"] + sum(r["s"] for r in rows)


@program
def changed_under_its_loop(w: Any, x: Any) -> Any:
    """A view shows what the dict holds when each item is reached."""
    rows = [{"n": 0.0, "s": w}, {"n": 1.0, "s": x}]
    t = 0.0
    k = 0
    while x < 3.0:
        x = x * 1.3 + 0.2
        r = rows[k % 2]
        for key, v in r.items():
            t = t + v * len(key)
            r["s"] = r["s"] + x
        for i, v in enumerate(r.values()):
            t = t * 0.7 + v * i
            r["s"] = r["s"] + x
        k += 1
    return t


class Machine:
    def __init__(self, w: Any) -> None:
        self.state = {"a": 0, "b": w}
        self.log: list[dict[str, Any]] = []

    def step(self, x: Any) -> None:
        self.state["a"] += 1
        self.state["b"] *= x
        self.log.append({"x": x, "k": self.state["a"]})


@program
def of_objects(w: Any, x: Any) -> Any:
    machine = Machine(w)
    while x < 3.0:
        x = x * 1.3 + 0.2
        machine.step(x)
    return machine.state["a"] + machine.state["b"] + sum(e["x"] * e["k"] for e in machine.log)


def bump(r: dict[str, Any], x: Any) -> dict[str, Any]:
    r["n"] += 1
    r["s"] += x
    return r


@program
def given_to_functions(w: Any, x: Any) -> Any:
    r = {"n": 0, "s": w}
    while x < 3.0:
        x = x * 1.3 + 0.2
        q = bump(r, x)
        q["s"] *= 0.9
    return r["n"] + r["s"]


# ---- results

RESULTS: list[Callable[[Any, Any], Any]] = []


def result(f: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    RESULTS.append(f)
    return f


@result
def rows(w: Any, x: Any) -> Any:
    made = []
    k = 0
    while x < 3.0:
        x = x * 1.3 + 0.2
        made.append({"n": k, "s": x, "big": x > 2.0, "last": None if k == 0 else x})
        made[k // 2]["s"] += w
        k += 1
    return made


@result
def under_two_names(w: Any, x: Any) -> Any:
    made = [{"n": 0, "s": w}, {"n": 1, "s": x}]
    k = 0
    while x < 3.0:
        x = x * 1.3 + 0.2
        made[k % 2]["n"] += 1
        k += 1
    return made[0], made, {"a": made[1], "b": made}


@result
def of_keys(w: Any, x: Any) -> Any:
    held: dict[int, dict[str, Any]] = {}
    k = 0
    while x < 3.0:
        x = x * 1.3 + 0.2
        held.setdefault(k % 2, {"n": 0, "s": 0.0})
        held[k % 2]["n"] += 1
        k += 1
    return held


@result
def lists_and_records(w: Any, x: Any) -> Any:
    head: dict[str, Any] = {"v": [], "p": {"x": x, "k": (1, w)}}
    while x < 3.0:
        x = x * 1.3 + 0.2
        head["v"].append(x)
        head["p"]["x"] = x
    return head, head["p"]
