"""Minibatches are bound by machine code: `machine.py` takes the steps of `planning/stepped.py`."""
