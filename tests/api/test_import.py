"""What importing the package does not do: JAX is started by the first call, not before."""

import socket
import subprocess
import sys

PROGRAM = """
import functools
import pkgutil

import autobatch as ab

@ab.batched
def f(x):
    return x * 2.0 if x > 0 else x

@functools.partial(ab.batched, backend="llvm")
def g(x):
    return f(x) + 1.0

df = ab.grad(f)
for module in pkgutil.walk_packages(ab.__path__, "autobatch."):
    if module.name.startswith("autobatch.testing") or module.name.endswith("__main__"):
        continue
    __import__(module.name)

from jax._src import xla_bridge
assert not xla_bridge.backends_are_initialized()

import jax
jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", 2)
jax.distributed.initialize("localhost:PORT", num_processes=1, process_id=0)
assert len(jax.devices()) == 2
"""


def free_port():
    with socket.socket() as s:
        s.bind(("localhost", 0))
        return s.getsockname()[1]


def test_jax_is_not_started():
    program = PROGRAM.replace("PORT", str(free_port()))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
