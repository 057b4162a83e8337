"""Functions that are refused: one for each construct. The messages are golden files."""

import random
import time

import jax.numpy as jnp
import numpy as np

total = 0


def uses_try(n):
    try:
        return n
    finally:
        input("left")


def uses_with(t):
    with open("x") as f:
        return f.read(t)


def uses_global(n):
    global total
    total += n
    return total


def uses_yield(t):
    def g():
        yield t.word

    return reversed(g())


async def uses_async(n):
    return n


def uses_await(n):
    async def g():
        return n

    return g()


def uses_class(t):
    word = t.word

    class A:
        def f(self):
            return word

    return A().f()


def uses_input(n):
    input(n)
    return n


def uses_random(n):
    return n + random.random()


def uses_numpy_random(n):
    return n + np.random.rand()


def uses_time(n):
    return n + time.time()


def uses_format(x):
    return f"{x}"


def uses_set(n):
    return frozenset({n, 1})


def uses_frozenset(xs):
    return frozenset(x for x in xs)


def assigns_array_item(x):
    y = jnp.ones(3) * x
    y[0] = 1
    return y


MADE_OUTSIDE = [1]


def changes_argument(xs):
    MADE_OUTSIDE.append(2)
    return len(MADE_OUTSIDE) + len(xs)


def list_as_key(n):
    return {(n, [n]): 1}


def truth_of_array(x):
    if jnp.ones(3) * x > 0:
        return 1
    return 2


def unknown_name(n):
    return n + undefined_name  # noqa: F821


def unknown_attribute(t):
    return t.colour


def unknown_field_of_text(t):
    return t.name.encode()


def missing_argument(n):
    def g(a, b):
        return a + b

    return g(n)


def unknown_argument(n):
    def g(a):
        return a

    return g(n, c=1)


def shapes_differ(n):
    return jnp.ones(3) + jnp.ones(4) * n


def dynamic_shape(n):
    return jnp.zeros(n)


def branch_types(n):
    if n > 0:
        x = jnp.ones(3)
    else:
        x = jnp.ones((4, 2))
    return x


def branch_dtypes(n):
    return jnp.ones(3) if n > 0 else jnp.ones(3, int)


def result_types(n):
    if n > 0:
        return jnp.ones(3)
    return jnp.ones(3, bool)


def loop_types(xs):
    s = jnp.zeros(3)
    for _ in xs:
        s = jnp.stack([s, s])
    return s


def recursion_types(n):
    if n == 0:
        return jnp.zeros(1)
    return jnp.stack([recursion_types(n - 1)])


def starred_list(xs):
    return divmod(*xs)


def sorts(xs):
    return sorted(xs, reverse=len(xs) > 1)


def deletes_item(t):
    held = [{"a": jnp.ones(2), "b": jnp.ones((3, 3))}]
    del held[0]["a"]
    return t.word


def imports_star(n):
    return eval("n")


def counts_variables(n):
    return n + len(vars())


def uses_is_on_numbers(n):
    return n is 3  # noqa: F632


def reads_unset(n):
    y = x + 1  # noqa: F821, F841
    x = n
    return x


def too_many_statics(n):
    def g(k, names):
        return k if k == 0 else g(k - 1, (*names, "a"))

    return g(n, ())


def raises_nothing(n):
    if n > 0:
        raise
    return n


def lambda_in_result(n):
    return lambda: n


def unpacks_too_few(n):
    a, b = (n, n, n)
    return a + b


def with_type_argument(n):
    return type(lambda: n)


def attribute_of_a_number(x):
    return 1 if x.left is None else 2


def index_that_is_no_integer(xs):
    return xs[1.0]


def text_as_index(xs):
    return xs["a"]


def range_of_a_float(x):
    return [1 for _ in range(x)]


UNEVEN = {"a": np.float32(1.0), "b": np.ones(3, np.float32)}


def computes_with_one_of_several_types(t):
    return UNEVEN[t.name] * t.word


def returns_one_of_several_types(t):
    return {"a": abs, "b": len}[t.name]


def hands_on_one_of_several_types(t):
    return jnp.sin(UNEVEN[t.name])


def changes_inner_dict(n):
    held = {0: {}, 1: {}}
    for k in range(n):
        held[k % 2]["even" if k % 2 == 0 else "odd"] = k
        held[0]["name"] = abs
    return len(held[0])
