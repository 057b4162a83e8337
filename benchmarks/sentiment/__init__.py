"""Speed of the binary tree-LSTM over sentences beside PyTorch and DyNet; see `benchmarks/README.md`."""
