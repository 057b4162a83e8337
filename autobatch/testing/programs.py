"""`programs`: a Hypothesis strategy of random per-example programs, with the data to run them on.

A drawn program is a module with functions that call each other on the children of a tree, and an entry `main`. Numbers
stay bounded, so that batched and plain results agree closely.
"""

from __future__ import annotations

import itertools
import linecache
import math
import types
import weakref
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import numpy as np
from hypothesis import strategies as st

from autobatch.api.batched import Batched
from autobatch.testing.memory import MemoryWriter, _DrawnNames
from autobatch.testing.writing import INTEGER, NUMBER, DrawnScope, Lines, StatementWriter

# ---- constructs
#
# Random programs of what Python decides in a way of its own: constants that loops test, zeros with a sign, exceptions
# of arithmetic, values that the path taken does not use, closures, objects that all examples share.
#
# Each construct is a row of Python text in a table; names in braces are filled in as in `memory.py`, with these:
#
#     {n}          a variable that holds a number of Python
#     {x} {y} {z}  an expression of such numbers, and two that are simple
#     {c}          a condition, mostly on computed numbers
#     {d}          a small number without a variable: mostly 0.0, -0.0, 1.0, ...
#     {k}          an integer of the example
#     {o} {p}      operations that raise in Python for some numbers, and what catches it
#     {r}          what the function returns
#     {v}          three floats
#     {e} {f} {g}  new names
#
# A line `...` stands for further statements. A program takes plain numbers, so that it compiles quickly:
# `main(p, root, xs, x, y, k)`, of which `p` and the tree `root` are shared.


CONSTRUCTS: Mapping[str, tuple[str, ...]] = {
    "constant while": (
        "{e} = 0\nwhile 0 < 5:\n    {e} += 1\n    {n} = {n} * 0.5 + 0.1093\n    if {c} or {e} > 4:\n        break\n"
        "    ...",
        "{e} = 0\nwhile 1 < 2:\n    {e} += 1\n    if {c}:\n        return {r}\n    if {e} > 3:\n        break\n    ...",
        "{e}, {f} = 0, 3\nwhile {e} < {f}:\n    {e} += 1\n    if {c}:\n        return {r}\n    ...",
        "{e}, {f} = 0, 3\nwhile {e} < {f}:\n    {e} += 1\n    ...\n    if {c}:\n        break\nelse:\n    ...",
        "{e}, {f} = 0, 3\nwhile {e} < {f}:\n    {f} -= 1\n    if {c}:\n        continue\n"
        "    {n} = {n} * 0.5 + {e}\nelse:\n"
        "    return {r}",
        "{e}, {f} = 0.0, 2.0\nwhile {e} < {f}:\n    {g} = ({e} + {f}) / 2\n    if {f} - {e} < 0.1:\n        break\n"
        "    if {g} > {y}:\n        {f} = {g}\n    else:\n        {e} = {g}\nelse:\n    {n} = 7.0\n{n} = {n} + {e}",
        "{e} = [1.0, {y}, -0.5]\nwhile {e}:\n    {n} = {n} * 0.5 + {e}.pop()\n    if {c}:\n        break\nelse:\n"
        "    {n} = {n} + 2.0",
        "{e} = [0.25, 0.5]\nwhile {e}:\n    if {c}:\n        return {r}\n    {n} = {e}.pop() * {n}\n    ...",
        "{e}, {f} = [1.0], 0\nwhile {e}:\n    {n} = {n} * 0.5 + {e}.pop(0)\n    if {c} and {f} < 3:\n"
        "        {e}.append({n} + 1.0)\n"
        "        {f} += 1\n"
        "else:\n    ...",
        "while True:\n    if {c}:\n        return {r}\n    ...\n    break",
        "{e} = 0\nwhile True:\n    {e} += 1\n    {n} = {n} * 0.5 + 0.3\n"
        "    if not {n} > 0.7013 or {e} > 9:\n        break\n    if {c}:\n        break\nelse:\n    {n} = 9.0",
        "while 1 > 2:\n    {n} = 5.0\nelse:\n    ...",
        "{e} = 4\nwhile {e}:\n    {e} -= 1\n    if {c}:\n        break\nelse:\n    {n} = -{n}\n{n} = {n} + {e}",
    ),
    "equal constants": (
        "{n} = [0.0, -0.0][{k} % 2]",
        "{n} = {n} + [0.0, -0.0][{k} % 2]",
        "{n} = {n} * (0.0, -0.0, 0.0, -0.0)[{k} % 4]",
        "{n} = float(np.array([0.0, -0.0])[{k} % 2])",
        "{n} = {n} + np.array([[0.0, -0.0], [-0.0, 0.0]])[{k} % 2, ({k} + 1) % 2]",
        "{e} = [True, 1, 1.0][{k} % 3]\n{n} = {n} * {e}",
        "{e} = [False, 0, 0.0, -0.0][{k} % 4]\n{n} = {e} * {y}",
        "{n} = {{0: 0.0, 1: -0.0}}[{k} % 2]",
        "{n} = -0.0 if {c} else 0.0",
        "if {c}:\n    {n} = -0.0\nelse:\n    {n} = 0.0",
        "{e} = 0.0\nif {c}:\n    {e} = -0.0\n{n} = {n} * 0.5 + sign({e})",
        "{n} = 0.0\nfor {e} in (0.0, -0.0):\n    {n} = {e}\n    if {c}:\n        break",
        "{n} = sign([0.0, -0.0][{k} % 2]) + sign((-0.0, 0.0)[{k} % 2]) * 0.25",
        "{e} = [-0.0, 0.0]\n{e}[{k} % 2] = {y}\n{n} = {e}[0]",
        "{e} = [0.0, -0.0]\n{e}.append({y})\n{n} = {e}[{k} % 3]",
        "{n} = -{n}",
        "{n} = {n} * -0.0",
        "{n} = 0.0 - {n}",
        "{n} = -0.0 + {y}",
        "{n} = {d} * {y} + {d}",
        "{n} = max({d}, {d})",
        "{n} = min({d}, {y}, {d})",
        "{n} = abs({d} * {y})",
        "{n} = sum([-0.0, -0.0], -0.0) * {y}",
        "{n} = float(round({y} / 4.0)) if abs({y}) < 9.0 else -0.0",
        "{n} = {d} if {y} == {d} else {y}",
        "{e} = {y} == 0.0 and 1.0 / math.copysign(2.0, {y})\n{n} = {n} + {e}",
        "{e} = {y} or {d}\n{n} = {e}",
        "{e} = {y} and {d}\n{n} = {e}",
        "{e} = {d}\nwhile {e} == 0.0:\n    {e} = {e} + 1.0\n    {n} = -0.0\n    if {c}:\n        {n} = 0.0",
    ),
    "raises": (
        "try:\n    {n} = {o}\nexcept {p}:\n    {n} = {y}",
        "try:\n    {n} = {o}\nexcept {p}:\n    {n} = {d}\nelse:\n    ...",
        "try:\n    {n} = {n} * 0.5\n    {n} = {n} + {o}\nexcept {p}:\n    {n} = {n} + 0.25",
        "try:\n    {n} = {o}\nexcept {p}:\n    ...\nfinally:\n    {n} = {n} * 0.5",
        "try:\n    {e} = {o}\nexcept ZeroDivisionError:\n    {n} = 1.5\nexcept (ValueError, OverflowError):\n"
        "    {n} = 2.5\n"
        "else:\n    {n} = {e}",
        "try:\n    {n} = ratio({y}, {z})\nexcept ZeroDivisionError:\n    {n} = {d}",
        "try:\n    try:\n        {n} = {o}\n    except ValueError:\n        {n} = 1.0 / {y}\n"
        "except ArithmeticError:\n    {n} = {z}",
        "for {e} in range(3):\n    try:\n        {n} = {n} * 0.5 + {o}\n    except {p}:\n        break\n    ...",
        "for {e} in (1.0, 0.0, -2.0):\n    try:\n        {n} = {y} / {e}\n    except ZeroDivisionError:\n"
        "        continue\n    ...",
        "{e} = 0\nwhile {n} < 2.3 and {e} < 4:\n    {e} += 1\n    try:\n        {n} = {n} * 0.5 + {o}\n"
        "    except {p}:\n"
        "        {n} = {n} + 1.0",
        "try:\n    {n} = {o}\nexcept {p}:\n    return {r}",
        "try:\n    if {c}:\n        raise ValueError\n    {n} = {o}\nexcept ValueError:\n    {n} = {z}",
        "if {c}:\n    try:\n        {n} = {o}\n    except {p}:\n        {n} = -1.0",
        "try:\n    if {c}:\n        {n} = {o}\n    else:\n        {n} = {z}\nexcept {p}:\n    {n} = 0.125",
        "try:\n    {n} = {o} if {c} else {z}\nexcept {p}:\n    pass",
        "try:\n    {n} = {o}\nexcept {p} as {e}:\n    {n} = 0.5 if isinstance({e}, ValueError) else -0.5",
        "try:\n    {e} = [{y}, {z}]\n    {n} = sum([1.0 / {f} for {f} in {e}])\nexcept ZeroDivisionError:\n"
        "    {n} = -2.0",
    ),
    "uncaught": (
        "{n} = {o}",
        "if {c}:\n    {n} = {o}",
        "{n} = {o} if {c} else {y}",
        "{n} = {c} and {o} > 0.5",
        "for {e} in range(2):\n    {n} = {n} * 0.5 + {o}",
    ),
    "unused": (
        "{e} = jnp.log({y})\nif {y} > 0.25:\n    {n} = {n} + {e}",
        "{e} = jnp.sqrt({y})\nif {c} and {y} > 0.0:\n    {n} = {n} * {e}\nelse:\n    ...",
        "{e} = jnp.log({n})\nif not {n} > 0.1037:\n    return {r}\n{n} = {n} - {e}",
        "{e} = jnp.sqrt(abs({y})) * {z}\n{n} = {e} if {y} != 0.0 else {z}",
        "{e} = jnp.divide({z}, {y})\nif {y} != 0.0:\n    {n} = {n} + {e}",
        "{e} = jnp.exp({y} * 500.0)\nif {y} < 0.5:\n    {n} = {n} + {e}",
        "{e} = {v} / {y}\nif {c} and {y} != 0.0:\n    {n} = {n} + {e}[{k} % 3]",
        "{e} = jnp.sqrt({v} * {y})\n{n} = {n} + ({e}.sum() if {c} else {z})",
        "for {e} in range(3):\n    {f} = jnp.sqrt({y} - {e})\n    if {y} <= {e}:\n        continue\n"
        "    {n} = {n} * 0.5 + {f}",
        "for {e} in range(3):\n    {f} = jnp.log({n})\n    if not {n} > 0.0:\n        break\n    {n} = {n} * 0.5 + {f}",
        "{e} = 0\n{f} = {z}\nwhile {e} < 3:\n    {e} += 1\n    {f} = jnp.log({y})\n    if {c}:\n        break\n"
        "    ...\n"
        "if {y} > 0.25:\n    {n} = {n} + {f}",
        "{e} = jnp.power({y}, 0.5)\n{f} = [{z}, {e}]\n{n} = {f}[1 if {y} > 0.0173 else 0]",
        "{e} = jnp.linalg.norm({v} * {y})\nif {y} > 0.0173:\n    {n} = {n} + {e}",
        "{e} = jnp.arctan2({y}, {z})\nif abs({y}) > 0.0173:\n    {n} = {n} * 0.5 + {e}",
    ),
    "ties": (
        "{n} = min({n}, {y})",
        "{n} = max({y}, {n}, {z})",
        "{n} = max([{y}, {z}, {y}])",
        "{n} = abs({y} - {z})",
        "{n} = {n} + abs({y})",
        "{n} = max({n}, 0.0) + min({y}, 0.0)",
        "{n} = jnp.maximum({y}, {z})",
        "{n} = jnp.minimum({n}, {d}) + jnp.abs({y})",
        "{e} = [0.25 if a != a else a for a in ({n}, {y}, {z})]\n{n} = sorted({e})[{k} % 3]",
        "{n} = max(xs, default={y})",
        "{n} = min([{y}, -{y}], key=abs)",
        "{n} = jnp.max({v} * {y})",
        "{n} = {n} + jnp.maximum({v}, {y}).sum()",
        "if {y} >= {z}:\n    {n} = {y} * 2.0\nelse:\n    {n} = {z} * 3.0",
        "{n} = min(max({n}, -1.0), 1.0)",
        "for {e} in xs:\n    {n} = max({n}, {e})\n    if {c}:\n        continue\n    ...",
    ),
    "closures": (
        "{e} = {v} * {y}\ndef {g}(a):\n    return jnp.sum({e} * a)\n{n} = {g}({n})\n{f} = 0\n"
        "while {n} < 2.3017 and {f} < 4:\n    {f} += 1\n    {n} = jnp.tanh({g}({n})) + 0.75",
        "{e} = {v}\n{g} = lambda a: {e}[{k} % 3] * a\n{n} = {g}({n})\n{f} = 0\nwhile {c} and {f} < 3:\n    {f} += 1\n"
        "    {n} = {g}({n}) + 0.1093",
        "{e} = [{y}, 0.5]\ndef {g}(a):\n    return a * 0.5 + {e}[{k} % 2]\n{n} = {g}({n})\n{f} = 0\n"
        "while {n} < 2.3017 and {f} < 4:\n    {f} += 1\n    {n} = {g}({n}) + 0.3\n    ...",
        "def {g}(a):\n    return a * 0.5 + sum(xs)\n{n} = {g}({n})\n{f} = 0\nwhile {c} and {f} < 3:\n    {f} += 1\n"
        "    {n} = {g}({n})",
        "{e} = [{y}]\ndef {g}(a):\n    {e}.append(a * 0.5)\n    return {e}[0] + len({e})\n{n} = {g}({n})\n{f} = 0\n"
        "while {c} and {f} < 3:\n    {f} += 1\n    {n} = {n} * 0.5 + {g}({n})\n{n} = {n} + sum({e})",
        "{e} = 0\ndef {g}(a):\n    nonlocal {e}\n    {e} += 1\n    return a * 0.5 + {e}\n{n} = {g}({n})\n"
        "while {e} < 4 and {c}:\n    {n} = {g}({n})",
        "{e} = {y}\n{g} = lambda a: a * 0.5 + {e}\n{f} = 0\n{n} = {g}({n})\nwhile {c} and {f} < 3:\n    {f} += 1\n"
        "    {e} = {e} * 0.5 + 0.1\n    {n} = {g}({n})",
        "{e} = np.array([0.0, -0.0, 0.5])\n{g} = lambda a: a * {e}[{k} % 3]\n{f} = 0\nwhile {f} < 3:\n    {f} += 1\n"
        "    {n} = {g}({n})\n    if {c}:\n        break",
        "{e} = {v}\ndef {g}(a, i):\n    if i < 1:\n        return a + {e}[i]\n"
        "    return {g}(a * 0.5, i - 1) + {e}[i % 3]\n"
        "{n} = {g}({n}, 0)\n{f} = 0\nwhile {c} and {f} < 3:\n    {f} += 1\n    {n} = {g}({n}, {f})",
        "{e} = [lambda a: a * 0.5, lambda a: a + {y}]\n{f} = 0\nwhile {f} < 3 and {n} < 2.3017:\n    {f} += 1\n"
        "    {n} = {e}[{f} % 2]({n}) + 0.25",
    ),
    "shared objects": (
        "{e}, {f} = root, 0\nwhile {e}.low is not None and {f} < 4:\n    {f} += 1\n    {n} = {n} * 0.5 + {e}.at\n"
        "    {e} = {e}.low if {n} < {e}.at else {e}.high\n    if {e} is None:\n        break\n"
        "{n} = {n} + (0.25 if {e} is None else {e}.at)",
        "{e} = root\nwhile {e} is not None:\n    {n} = {n} * 0.5 + {e}.at * {y}\n"
        "    {e} = {e}.low if {c} else {e}.high",
        "{e} = root\nwhile {e} is not None:\n    if {c}:\n        break\n    {n} = {n} + {e}.at\n"
        "    {e} = {e}.high\nelse:\n"
        "    {n} = -{n}",
        "{e} = root\nwhile {e} is not None:\n    if {y} < {e}.at:\n        {e} = {e}.low\n    elif {y} > {e}.at:\n"
        "        {e} = {e}.high\n    else:\n        return {r}\n    {n} = {n} * 0.5 + 0.125",
        "{e} = root\nfor {f} in range(3):\n    {n} = {n} * 0.5 + {e}.count * {e}.at\n"
        "    if {c} and {e}.low is not None:\n"
        "        {e} = {e}.low",
        "{e} = [root]\nwhile {e}:\n    {f} = {e}.pop()\n    {n} = {n} * 0.5 + {f}.at\n"
        "    if {f}.low is not None and {c}:\n"
        "        {e}.append({f}.low)\n    if {f}.high is not None:\n        {e}.append({f}.high)",
        "{n} = {n} * 0.5 + below(root, {y})",
        "{n} = {n} + root.at * (root.low.at if {c} else root.high.at)",
        "{e} = [root, root.low, root.high]\n{f} = {e}[{k} % 3]\nfor {g} in {e}:\n"
        "    if abs({g}.at - {y}) < abs({f}.at - {y}):\n        {f} = {g}\n{n} = {n} * 0.5 + {f}.at * {f}.count",
        "{e} = sum([below({f}, {y}) * 0.5 for {f} in (root.low, root.high) if {f} is not None])\n{n} = {n} + {e}",
        "{e} = min([root, root.low, root.high], key=lambda a: abs(a.at - {y}))\n{n} = {n} * 0.5 + {e}.at",
        "{e} = None\nfor {f} in [root.low, root, root.high]:\n    if {e} is None and {f}.at > {y}:\n"
        "        {e} = {f}\n"
        "{n} = {n} if {e} is None else {n} * 0.5 + {e}.at",
    ),
    "lists of examples": (
        "{e} = [xs if {c} else [{y}, {z}]]\n{f} = [[{y}], [0.5]]\n{f}[{k} % 2][0] += {x}\n"
        "{n} = {n} * 0.5 + sum({e}[0]) + sum({f}[{k} % 2])",
        "{e}, {f} = [xs, [{y}]], [[0.5], []]\n{f}[1].append({n})\n"
        "{n} = {n} * 0.5 + sum([sum(a) * 0.5 for a in {e}]) + {f}[1][0]",
        "{e} = [xs]\nfor {f} in range(3):\n    {g} = {e}.pop()\n    {n} = {n} * 0.5 + sum({g})\n"
        "    {e}.append([{y}, {n}] if {c} else xs)",
        "{e} = xs\n{f} = [[0.0], [0.0]]\nfor {g} in range(3):\n    {f}[{g} % 2][0] += sum({e})\n"
        "    {e} = [{y} * a for a in {e}] if {c} else xs\n{n} = {n} * 0.5 + {f}[0][0]",
        "{e} = None\n{f} = [[{y}]]\n{f}[0].append({z})\nfor {g} in range(2):\n    if {c}:\n        {e} = xs\n"
        "    elif {n} > 0.1037:\n        {e} = [{y}]\n"
        "{n} = {n} * 0.5 + (0.25 if {e} is None else sum({e})) + sum({f}[0])",
    ),
    "changed where they are read": (
        "{e} = [0.5, {y}, {x}]\nheapq.heapify({e})\nheapq.heappush({e}, heapq.heappop({e}) + {z})\n"
        "{n} = {n} * 0.5 + {e}[0] - len({e})",
        "{e} = [0.0, 0.0]\nfor {f} in xs:\n    heapq.heappush({e}, heapq.heappop({e}) + {f})\n"
        "{n} = {n} * 0.5 + max({e})",
        "{e} = [{y}, 0.5]\n{e} = {e} + [{e}.pop() * {x}, {n}]\n{n} = {e}[0] + {e}[1] * 0.5 + len({e})",
        "{e} = [{y}, 0.25]\nfor {f} in range(3):\n    {e} = [{n}] + {e} + [{e}.pop() + {x}]\n    if {c}:\n"
        "        break\n{n} = {n} * 0.5 + sum({e})",
        "{e} = [{y}, {z}]\n{f} = [sum(a) if a else 0.5 for a in [{e}, [{e}.pop(0) + {x}]]]\n{n} = {f}[0] - {f}[1]",
        "{e} = [{y}, {z}, 0.5]\n{n} = {n} * 0.5 + max({e}, [{e}.pop() + {x}])[0] + len({e})",
        "{e} = sorted([{y}, {z}, 0.5])\nbisect.insort({e}, {e}.pop(0) + 0.5)\n"
        "{n} = {n} * 0.5 + {e}[0] + {e}[-1] * 0.25",
    ),
    "extremes": (
        "{n} = max([{y}, {z}, {x}])",
        "{n} = {n} * 0.5 + min([{y}, *xs, {z}])",
        "{n} = max({x}, {y}) - min({z}, {n})",
        "{n} = {n} * 0.5 + max(xs + [{y}]) + min([{f} * {z} for {f} in xs] + [{n}])",
        "{e} = {y}\nfor {f} in xs:\n    {e} = max({e}, {f} * {z})\n{n} = {n} * 0.5 + {e}",
        "{e} = [{y}]\nfor {f} in xs:\n    if {f} < 0.5:\n        {e}.append({f} * {z})\n"
        "{n} = max({e}) + min({e}) * 0.5",
        "{e}, {f} = [], 0\nwhile {f} < 3:\n    {f} += 1\n    {e}.append({n} * {y})\n    if {c}:\n        break\n"
        "{n} = max({e}) * 0.5 + min({e})",
        "{n} = max(({f} for {f} in ({x}, {y}, {z}) if {f} < 1.0), default={z})",
        "{n} = min(({x}, {y}, {z}), key=lambda a: a * {y})",
        "{e} = [[{y}, {x}], [{z}], xs + [{n}]]\n{n} = max([min({f}) for {f} in {e}])",
        "{e} = {y} * math.inf\n{n} = {n} * 0.5 + min({e}, 2.0) - max({e} * {z}, -2.0)",
        "{e} = {z} * (math.inf if {c} else -1.0)\n{f} = {e} * {y}\nif {f} < 2.0:\n    {n} = {f} * 0.5\n",
    ),
    "counted": (
        "{e} = 0\nwhile {e} < 5 and {c}:\n    {n} = {n} * 0.5 + {x}\n    {e} += 1\n{n} = {n} + {e} * 0.25",
        "{e}, {f} = 0, 1\nwhile {e} < 7 and {n} < 2.3:\n    {n} = {n} * 0.5 + 0.7\n    {e} += {f}\n"
        "    {f} = 3 - {f}\n{n} = {n} + {e} * 0.25 - {f}",
        "{e} = [0.5, -0.25, 1.5, 0.75]\nfor {f} in range(4):\n    {n} = {n} * 0.5 + {e}[{f}]\n    if {c}:\n"
        "        break\n    ...\n{n} = {n} + {f} * 0.125",
        "{e}, {f} = 0, 0\nwhile {f} < 6:\n    if {c}:\n        {e} += 1\n    if {n} > 1.7:\n        break\n"
        "    {n} = {n} * 0.5 + {e}\n    {f} += 1\n{n} = {n} + {e} * 0.25 + {f} * 0.125",
        "{e} = [0.0] * 5\nfor {f} in range(5):\n    {e}[{f}] = {n} + {f}\n    {n} = {n} * 0.5 + {e}[{f} // 2]\n"
        "    if {c}:\n        break\n{n} = {n} + {e}[1] - {e}[4] * 0.5",
        "{e} = 0\nfor {f} in range(3):\n    {e} = {f}\n    while {e} < 5 and {n} < 1.9:\n"
        "        {n} = {n} * 0.75 + 0.5\n        {e} += 1\n{n} = {n} - {e} * 0.25",
        "{e} = 0\nwhile not ({e} == 2 and {n} > 0.3):\n    {n} = {n} * 0.5 + 0.4\n    {e} += 1\n    if {e} > 5:\n"
        "        break\n{n} = {n} + {e} * 0.5",
        "{e} = [0, 1, 2, 3]\nfor {f} in range(4):\n    {g} = (k + {f} * 3) % 4\n    while {e}[{g}] != {g}:\n"
        "        {g} = {e}[{g}]\n    if {c} and {g} < {f}:\n        {e}[{g}] = {f}\n    {n} = {n} * 0.5 + {g} * 0.25",
        "{e} = [0.5, {y}]\nfor {f} in range(3):\n    if {c}:\n        {e}.append({n} + {f})\n"
        "    {n} = {n} * 0.5 + {e}[-1] + len({e}) * 0.125",
        "{e}, {f} = 1, 0.5\nwhile {e} < 40 and {n} < 2.1:\n    if {c}:\n        {n} = {n} * 0.5 + {f}\n"
        "    {e}, {f} = {e} * 2 + 1, {f} * 0.75\n{n} = {n} + {f} * {e}",
    ),
    "recursions": (
        "def {g}(a, i):\n    if i <= 0:\n        return a + {y}\n    return {g}(a * 0.5, i - 1) * 0.75 + a\n"
        "{n} = {n} * 0.5 + {g}({x}, {k} % 4)",
        "def {g}(i):\n    if i >= len(xs):\n        return {y}\n    return xs[i] * {z} + 0.5 * {g}(i + 1)\n"
        "{n} = {n} * 0.5 + {g}(0)",
        "def {g}(a, i):\n    if a > 1.5 or i > 4:\n        return a * {y}\n"
        "    return 0.5 * {g}(a * 0.5 + 0.9, i + 1) + {g}(a + 1.0, i + 2) * 0.25\n{n} = {n} * 0.5 + {g}({x}, 0)",
        "def {g}(t):\n    if t is None:\n        return {y}\n"
        "    return t.at * 0.5 * {g}(t.low) + {g}(t.high) * 0.75\n{n} = {n} * 0.5 + {g}(root) * {z}",
        "def {g}(t, a):\n    if t is None:\n        return a * 0.5\n    if a < t.at:\n"
        "        return {g}(t.low, a + t.count * 0.125)\n    return {g}(t.high, a * 0.75) + t.at\n"
        "{n} = {n} * 0.5 + {g}(root, {n})",
        "def {g}(i, a, b):\n    if i >= len(xs):\n        return a - b * 0.5\n"
        "    return {g}(i + 1, b * xs[i], a + {y})\n{n} = {n} * 0.5 + {g}(0, {x}, {z})",
        "def {g}(a, i):\n    if i > 3 or a > 2.0:\n        return a, i\n"
        "    b, j = {g}(a * 0.5 + 0.7, i + 1)\n    return b * 0.5 + a * {y}, j + 1\n"
        "{e}, {f} = {g}({x}, 0)\n{n} = {n} * 0.5 + {e} + {f} * 0.25",
        "def {g}(a, i):\n    if i == 0:\n        return a\n    for b in xs:\n        a = a * 0.5 + b\n        if {c}:\n"
        "            break\n    return {g}(a * {y}, i - 1) + 0.5 * a\n{f} = 0\nwhile {c} and {f} < 3:\n    {f} += 1\n"
        "    {n} = {n} * 0.5 + {g}({x}, {f} % 3)",
        "def {e}(a, i):\n    return a * {y} if i == 0 else {g}(a * 0.5, i - 1) + 0.25\n"
        "def {g}(a, i):\n    return a + {z} if i == 0 else 0.5 * {e}(a + 0.5, i - 1) - {e}(a * 0.25, i // 2)\n"
        "{n} = {n} * 0.5 + {e}({x}, {k} % 4)",
    ),
    "branches": (
        "if {c}:\n    ...\nelse:\n    ...",
        "if {c}:\n    return {r}",
        "if {c}:\n    {n} = {x}\nelif {c}:\n    ...\nelse:\n    return {r}",
        "for {e} in range({k} % 3 + 1):\n    if {c}:\n        continue\n    ...",
        "for {e} in xs:\n    {n} = {n} * 0.5 + {e}\n    if {c}:\n        return {r}\n    ...",
        "{e} = 0\nwhile {n} < 2.3017 and {e} < 4:\n    {e} += 1\n    {n} = {n} * 0.5 + 1.3\n    ...",
        "for {e} in range({k} % 4):\n    for {f} in range(2):\n        {n} = {n} * 0.5 + {e}\n        if {c}:\n"
        "            break\n"
        "    else:\n        ...",
    ),
}
"""Statements by what they are about. `branches`: what the others stand in, and between."""

RAISING = (
    "1.0 / {y}",
    "{z} / {y}",
    "{z} // {y}",
    "{z} % {y}",
    "divmod({z}, {y})[1]",
    "math.sqrt({y})",
    "math.log({y})",
    "math.exp({y} * 400.0)",
    "math.pow({z}, {y})",
    "math.acos({y})",
    "math.fmod({z}, {y})",
    "float(int(small({y})))",
    "int(small({y}) * 2.0) / 8",
    "math.floor(small({y})) / 8",
    "float(round(small({y})))",
    "{y} ** -2",
    "abs({y}) ** -0.5",
    "{y} ** 2",
    "float({k}) / {k}",
    "float(7 // {k})",
    "float(7 % {k})",
    "math.log({y}) / {z}",
    "1.0 / math.sqrt({y})",
)
CATCHING = (
    *("ZeroDivisionError", "ValueError", "OverflowError", "ArithmeticError", "Exception"),
    *(
        "(ZeroDivisionError, ValueError)",
        "(ValueError, OverflowError, ZeroDivisionError)",
        "(ValueError, ArithmeticError)",
    ),
)
CONSTANTS = ("0.0", "-0.0", "1.0", "0.5", "-1.0", "2.0", "math.inf", "-math.inf", "math.nan", "1e38")
SPECIAL = (0.0, -0.0, 1.0, -1.0, 0.5, 2.0, math.inf, -math.inf, math.nan, 1e38, -1e38, 1e100)
"""Floats of the data that are drawn again and again: ties, thresholds of functions, and what is hard to compute with.
None is subnormal: XLA takes such numbers for zero on a CPU, so it divides by zero where Python does not. No product of
two leaves 64 bits: where it is added to others it is rounded once (`fma`), so infinity comes later than in Python."""

HEADER = '''
"""A drawn program."""

import bisect
import heapq
import math

import jax.numpy as jnp
import numpy as np

import autobatch as ab


def sign(x):
    return 0.5 if x != x else {copysign}(1.0, x)


def ratio(a, b):
    return a / b


def small(x):
    return x if not 1e15 < abs(x) < math.inf else 0.5  # integers of a batch have 64 bits


def below(node, x):
    if node is None:
        return 0.0
    return node.at + below(node.low if x < node.at else node.high, x)

'''


class ConstructWriter(MemoryWriter):
    """Draws programs on plain numbers out of `CONSTRUCTS`, of those that are `wanted`; `used` says of which."""

    def __init__(self, draw: Callable[[st.SearchStrategy[Any]], Any], wanted: tuple[str, ...]) -> None:
        super().__init__(draw, True, False, True, (), ())
        self.used = set[str]()
        self.wanted = wanted
        self.traceable = self.chance(2)
        if self.traceable:  # what raises in Python does not where JAX traces
            self.wanted = tuple(w for w in self.wanted if w not in ("raises", "uncaught")) or ("branches",)
        self.header = HEADER.format(copysign="jnp.copysign" if self.traceable else "math.copysign")

    # ---- statements

    def statement(self, s: DrawnScope, depth: int) -> Lines:
        kind = self.pick(self.wanted) if depth > 1 or self.chance(2) else "simple"
        if kind == "simple" or depth <= 0:
            target = self.pick(s.of(NUMBER))
            return [f"{target} = {self.pick([f'{target} * 0.5 + ', ''])}{self.number(s, 1)}"], s
        self.used.add(kind)
        row = self.pick(CONSTRUCTS[kind])
        lines = self.filled(row, s, depth)
        if not self.traceable and any(text in row for text in ("jnp", "{v}", "np.array")):
            lines.append("x, y = float(x), float(y)")  # numbers of JAX and NumPy do not raise
        return lines, s

    def filled(self, row: str, s: DrawnScope, depth: int) -> list[str]:
        """A row, its names filled in, and statements where it has dots."""
        names = _DrawnNames(partial(self.drawn, s, "", 1))
        lines: list[str] = []
        for line in row.split("\n"):
            indent = line[: len(line) - len(line.lstrip())]
            if line.strip() == "...":
                more, _ = self.statement(s, depth - 1)
                lines += [indent + text for text in more]
            else:
                lines.append(line.format_map(names))
        return lines

    def drawn(self, s: DrawnScope, name: str, depth: int, field: str) -> str:
        draw: dict[str, Callable[[], str]] = {
            "n": lambda: self.pick(s.of(NUMBER)),
            "x": partial(self.number, s, 1),
            "y": partial(self.number, s, 0),
            "z": partial(self.number, s, 0),
            "c": partial(self.boolean, s),
            "d": lambda: self.pick(CONSTANTS),
            "k": lambda: self.pick(s.of(INTEGER)),
            "o": lambda: self.filled(self.pick(RAISING), s, 0)[0],
            "p": lambda: self.pick(CATCHING),
            "r": partial(self.result, s),
            "v": lambda: self.pick(['p["b"]', 'p["W"][k % 3]', f"jnp.sin(p['b'] * {self.pick(s.of(NUMBER))})"]),
        }
        return draw[field]() if field in draw else self.fresh(field)

    # ---- expressions of plain numbers

    def number(self, s: DrawnScope, depth: int = 2) -> str:
        simple = [*s.of(NUMBER), *s.of(NUMBER), self.pick(CONSTANTS), "0.5", "(k * 0.5)"]
        if depth <= 0:
            return self.pick(simple)
        x, y = self.pick(s.of(NUMBER)), self.pick(simple)
        forms = [
            f"{x} * {y}",
            f"({x} - {y})",
            f"{x} + {y}",
            f"-{x}",
            f'({x} * p["w"])',
            f"({y} if {self.boolean(s)} else {x})",
        ]
        forms += [f"jnp.tanh({x})", f"max({x}, {y})"] if self.traceable else [f"math.tanh({x})", f"min({x}, {y})"]
        return self.pick([*simple, *forms])

    def boolean(self, s: DrawnScope, depth: int = 1) -> str:
        x, y, k = self.pick(s.of(NUMBER)), self.number(s, 0), self.pick(s.of(INTEGER))
        forms = [f"{x} > 0.1037", f"{x} < {y}", f"{x} <= 0.0", f"{x} == {y}", f"{x} != {y}", f"not {x} < 0.6053"]
        forms += [
            f"{k} % 2 == 0",
            f"({x} > -0.3071 and {y} < 0.4051)",
            f"({x} < -0.3071 or {k} > 2)",
            f"-1.0 < {x} < 1.0",
        ]
        return self.pick(forms)

    # ---- functions

    def result(self, s: DrawnScope) -> str:
        return f"x, y, sign({self.pick(['x', 'y'])})"

    def program(self) -> str:
        s, lines = DrawnScope({"x": NUMBER, "y": NUMBER, "k": INTEGER}), list[str]()
        calls = self.chance(4)
        if calls:
            lines += self.whole("part", s, 1)
        lines += ["@ab.batched(in_axes=(None, None, 0, 0, 0, 0))"]
        call = [f"x, y, {self.fresh('u')} = part(p, root, xs, {self.number(s, 0)}, y, k)"] if calls else []
        return self.header + "\n".join([*lines, *self.whole("main", s, 1 if calls else 2, call)]) + "\n"

    def whole(self, name: str, s: DrawnScope, most: int, before: list[str] | None = None) -> list[str]:
        lines = list(before or ())
        for _ in range(self.draw(st.integers(1, most))):
            more, s = self.statement(s, 2)
            lines += more
        lines.append(f"return {self.result(s)}")
        of = "xs: list[float]" if name == "main" else "xs"  # the lists of all examples may be empty
        return [f"def {name}(p, root, {of}, x, y, k):", *("    " + line for line in lines), "", ""]


_FLOATS = st.floats(-2, 2, allow_subnormal=False).map(lambda x: round(x, 6))


@dataclass
class Tree:
    """Data of random programs: something of every kind that a field can hold."""

    x: float
    n: int
    tag: str
    v: np.ndarray[Any, Any]
    kids: list[Tree] = field(default_factory=list)
    xs: list[float] = field(default_factory=list)
    ns: list[int] = field(default_factory=list)
    next: Tree | None = None


@dataclass
class Cell:
    """What random programs make of objects: they change its fields, and link it to others."""

    value: float
    n: int = 0
    next: Cell | None = None


@dataclass
class Spot:
    """A node of a search tree that all examples share."""

    at: float
    count: int = 0
    low: Spot | None = None
    high: Spot | None = None


@dataclass(frozen=True)
class Program:
    """A program as Python source: `function(parameters(), trees)` runs it for a list of `Tree`. `constructs`: what it
    is made of, where it is one of `constructs()`; that takes a search tree and numbers instead."""

    source: str
    constructs: tuple[str, ...] = ()

    @cached_property
    def function(self) -> Batched[..., Any]:
        """Its entry, batched over trees. The first parameter is shared."""
        return load(self.source)

    @staticmethod
    def parameters() -> dict[str, Any]:
        """The shared argument: a number `w`, a vector `b` and a matrix `W`."""
        rng = np.random.default_rng(3)
        return {"w": np.float64(0.75), "b": rng.normal(size=3), "W": rng.normal(size=(3, 3))}

    def __repr__(self) -> str:
        return f"Program:\n{self.source}"


_numbers = itertools.count()


def load(source: str) -> Batched[..., Any]:
    """The function `main` of a module that is no file: the compiler finds its text as debuggers do."""
    name = f"<drawn program {next(_numbers)}>"
    module = types.ModuleType(name)
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    exec(compile(source, name, "exec"), module.__dict__)
    main: Batched[..., Any] = module.__dict__["main"]
    weakref.finalize(main, linecache.cache.pop, name, None)
    return main


def programs(
    *,
    numeric: bool = False,
    recursion: bool = False,
    small: bool = False,
    memory: Collection[str] = (),
    computed: Collection[str] = ("lists",),
    numbers: bool = False,
) -> st.SearchStrategy[Program]:
    """A strategy of random programs: recursion over trees, nested loops and branches, early exits, comprehensions,
    numbers, small arrays, lists and strings.

    `numeric`: conditions and numbers of turns may depend on computed numbers, not on structure alone. `recursion`: so
    may calls; that is a part of `numeric`. `small`: one function of one or two statements, which compile quickly.
    `memory`: what programs make, alias, change and read for themselves, of "lists", "inner" (lists in lists that are
    changed where they stand), "queues", "dicts", "tallies" (sets and counters), "objects" and "strings". `computed`:
    those of them that are changed under data-dependent control flow, too. `numbers`: the results are numbers and arrays
    alone, as machine code returns them.

        @given(program=programs(), batch=st.lists(trees(), min_size=2, max_size=2))
        def test_agreement(program, batch):
            check_equivalence(program.function, batch, (program.parameters(),))
    """

    def written(draw: Any) -> Program:
        of_numbers = numeric or recursion
        writer = (
            MemoryWriter(draw, of_numbers, recursion, small, memory, computed)
            if memory
            else StatementWriter(draw, of_numbers, recursion, small)
        )
        writer.numbers = numbers
        return Program(writer.program())

    return st.composite(written)()


def constructs(*wanted: str) -> st.SearchStrategy[Program]:
    """A strategy of small programs of what Python decides in a way of its own (`CONSTRUCTS`; all of them where none is
    named). They take `parameters()`, a `search_tree()`, and columns of `numbers()`."""

    def written(draw: Any) -> Program:
        writer = ConstructWriter(draw, wanted or tuple(CONSTRUCTS))
        source = writer.program()
        return Program(source, tuple(sorted(writer.used)))

    return st.composite(written)()


def search_tree() -> Spot:
    """What programs of `constructs()` walk through, shared by all examples."""
    low = Spot(-0.5, 1, Spot(-1.25, 3), Spot(0.0, 2))
    return Spot(0.25, 4, low, Spot(1.0, 0, None, Spot(2.0, 1)))


Numbers = tuple[list[float], float, float, int]
"""An example of programs of `constructs()`."""


def numbers(size: int = 6) -> st.SearchStrategy[list[Numbers]]:
    """Batches for programs of `constructs()`: ordinary numbers, and those where Python raises, ties or keeps a sign."""
    special = st.one_of(st.sampled_from(SPECIAL), _FLOATS)
    elements = st.one_of(_FLOATS, _FLOATS, special)
    rows = st.tuples(st.lists(elements, max_size=3), special, special, st.integers(-2, 5))
    plain: list[Numbers] = [([0.5, -0.25], 0.375, -1.125, 1), ([], 0.0, -0.0, 2)]
    return st.lists(rows, min_size=size - 2, max_size=size - 2).map(lambda made: [*plain, *made])


_VECTORS = st.lists(_FLOATS, min_size=3, max_size=3).map(np.array)


@st.composite
def trees(draw: Any, nodes: int = 4) -> Tree:
    """A strategy of data for random programs: trees of at most so many nodes."""

    def node() -> Tree:
        lists = draw(st.lists(_FLOATS, max_size=2)), draw(st.lists(st.integers(-2, 5), max_size=2))
        return Tree(draw(_FLOATS), draw(st.integers(-2, 5)), draw(st.sampled_from("abc")), draw(_VECTORS), [], *lists)

    made = [node()]
    for _ in range(draw(st.integers(0, nodes - 1))):
        one, above = node(), draw(st.sampled_from(made))
        if above.next is None and draw(st.booleans()):
            above.next = one
        else:
            above.kids.append(one)
        made.append(one)
    return made[0]


def typical_tree() -> Tree:
    """A tree that has something in every field: with it, the types of a batch do not depend on what is drawn."""
    leaf = Tree(-0.5, 1, "b", np.array([0.5, -1.0, 0.25]), [], [0.5], [3, -1])
    other = Tree(0.75, 4, "c", np.array([1.0, 0.0, -0.25]), [leaf], [], [], leaf)
    return Tree(0.25, 2, "a", np.array([0.0, 2.0, 1.0]), [leaf, other], [0.25, -0.5], [1, 2], other)


def batches(size: int = 4) -> st.SearchStrategy[list[Tree]]:
    """Batches for random programs: a typical tree, drawn ones, and one of them twice."""
    drawn = st.lists(trees(), min_size=size - 2, max_size=size - 2)
    return drawn.map(lambda made: [typical_tree(), *made, made[0]])
