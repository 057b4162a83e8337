"""A whole function for one example as a kernel for GPUs of NVIDIA: a thread for each example.

`program.py` writes it with the emitter of `backends/llvm/lanes/`, `device.py` makes PTX of it, `device.py` calls the
driver, `arrays.py` is what comes from other libraries and goes to them, `running.py` runs a kernel over a batch.
"""
