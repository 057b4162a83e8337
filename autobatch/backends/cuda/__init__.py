"""A whole function for one example as a kernel for GPUs of NVIDIA: a thread for each example.

`program.py` writes it with the emitter of `backends/llvm/lanes/`, and runs it over a batch; `device.py` makes PTX of it
and calls the driver, and has the arrays that come from other libraries and go to them.
"""
