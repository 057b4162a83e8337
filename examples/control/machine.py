"""A small interpreter, differentiated through: a stack machine runs each example's program until it halts.

A program is a row of codes and one of numbers, data like any other; what its instructions compute decides where it
goes on, so programs have loops. The gradient by the constants in a program is that of the function that the program
is. It is checked: a program that finds a square root by Newton's steps has the derivative of a square root.

    python -m examples.control.machine [PROGRAMS]
"""

from __future__ import annotations

import sys
from typing import Any

import jax.numpy as jnp
import numpy as np

import autobatch as ab
from examples.control.check import check

HALT, PUSH, ADD, MULTIPLY, DIVIDE, COPY, LOAD, STORE, JUMP_IF_FAR = range(9)
CELLS, LONGEST, MOST = 2, 24, 200
TOLERANCE = 1e-4
Code = list[tuple[int, float]]


@ab.batched(in_axes=(0, 0))
def execute(codes: Any, constants: Any) -> Any:
    """What is on top of the stack when the program halts."""
    stack = [0.0 * constants[0]]
    cells = jnp.zeros(CELLS)
    place, turns = 0, 0
    code = codes[0, 0]
    while code != HALT and turns < MOST:
        argument = codes[place, 1]
        place, turns = place + 1, turns + 1
        if code == PUSH:
            stack.append(constants[argument])
        elif code == COPY:
            stack.append(stack[-1])
        elif code == LOAD:
            stack.append(cells[argument])
        elif code == STORE:
            cells = cells.at[argument].set(stack.pop())
        elif code == JUMP_IF_FAR:  # are the two numbers on top further apart than a thousandth?
            right = stack.pop()
            left = stack.pop()
            if abs(left - right) > 1e-3 * abs(right):
                place = argument
        else:
            right = stack.pop()
            left = stack.pop()
            if code == ADD:
                stack.append(left + right)
            elif code == MULTIPLY:
                stack.append(left * right)
            else:
                stack.append(left / right)
        code = codes[place, 0]
    return stack[-1]


def assembled(text: str) -> tuple[np.ndarray, np.ndarray]:
    """The codes and the constants of a program, one instruction a line; what is behind it is a number, a cell or a
    line."""
    names = ["halt", "push", "add", "multiply", "divide", "copy", "load", "store", "jump_if_far"]
    codes, constants = np.zeros((LONGEST, 2), np.int32), np.zeros(LONGEST, np.float32)
    for line, (name, *argument) in enumerate(map(str.split, text.strip().splitlines())):
        codes[line, 0] = names.index(name)
        if name == "push":
            codes[line, 1], constants[line] = line, float(argument[0])
        elif argument:
            codes[line, 1] = int(argument[0])
    return codes, constants


def square_root(x: float) -> tuple[np.ndarray, np.ndarray]:
    """Newton's steps from 1, until two that follow one another are equal to a thousandth."""
    return assembled(
        f"""push 1
        store 0
        push 0.5
        load 0
        push {x}
        load 0
        divide
        add
        multiply
        load 0
        store 1
        copy
        store 0
        load 1
        jump_if_far 2
        load 0
        halt"""
    )


def power(x: float, exponent: int) -> tuple[np.ndarray, np.ndarray]:
    """A product without a loop."""
    return assembled("\n".join([f"push {x}", *["copy"] * (exponent - 1), *["multiply"] * (exponent - 1), "halt"]))


def programs(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Codes, constants, and what the derivatives by all constants of a program add up to, weighed by their size: these
    are square roots of x and powers of x, whose x f'(x) are f / 2 and n f."""
    rng = np.random.default_rng(seed)
    made, wanted = [], []
    for k, x in enumerate(rng.uniform(1.0, 2.0, count).tolist()):
        exponent = int(rng.integers(2, 9))
        made.append(power(x, exponent) if k % 2 else square_root(8 * x))
        wanted.append(exponent * x**exponent if k % 2 else np.sqrt(8 * x) / 2)
    codes, constants = map(np.stack, zip(*made, strict=True))
    return codes, constants, np.array(wanted)


def main(count: int = 60) -> int:
    codes, constants, wanted = programs(count)
    few = 6
    worse = check("interpreter", execute, (codes, constants), TOLERANCE)
    worse |= check("of a few", execute, (codes[:few], constants[:few]), TOLERANCE, grads=(1,))
    slopes = np.asarray(ab.grad(execute, argnums=1)(codes, constants))
    is_x = (constants != 0.5) & (constants != 1.0)
    off = np.abs((slopes * constants * is_x).sum(1) / wanted - 1.0).max()
    print(f"  derivatives of square roots and powers, by programs: {off:.1e} off")
    return worse or int(off > 1e-2)


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
