"""Orders by radix are stable orders."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from autobatch.planning.numbering import stable_order

numbers = st.one_of(st.integers(0, 5), st.integers(2**16 - 2, 2**16 + 2), st.integers(2**32 - 2, 2**32 + 2))


@given(st.lists(numbers))
def test_equal_keys_stay_in_order(keys: list[int]) -> None:
    assert stable_order(np.array(keys, np.int64)).tolist() == sorted(range(len(keys)), key=keys.__getitem__)
