"""Kernels of `backend="cuda"` beside CUDA C++ by hand, compiled by nvcc."""
