"""Arrays that lie on several devices, and `jax.shard_map` as it is by default, with types that say what varies."""

import os
import subprocess
import sys

import pytest

import autobatch as ab

LONG = [pytest.param(name, marks=pytest.mark.long) for name in ("loop", "product", "checked", "nested")]


@pytest.mark.parametrize("name", ["failing", *LONG])
def test_two_devices(name):
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=2"
    root = os.path.dirname(os.path.dirname(ab.__file__))
    found = subprocess.run(
        [sys.executable, "-m", "tests.api.sharded", name],
        cwd=root,
        env={**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert found.stdout.strip() == "fine", found.stderr[-3000:]
