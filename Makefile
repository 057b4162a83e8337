# `make demo` and `make test` set up everything they need; nothing has to be installed by hand.
PYTHON ?= python3
VENV ?= .venv
WORKERS ?= 2
SST ?=
BIN := $(VENV)/bin
PYTEST := $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

# Files with tests marked `xla`: to collect all others a second time takes longer than some of these tests.
XLA_TESTS = $(shell grep -rl 'mark\.xla' tests --include='test_*.py')

.PHONY: demo test test-long check static lint types imports bench bench-masks bench-trees bench-training bench-peers check-jax-latest check-tpu check-cuda format clean

# Compares three ways to run a tree-LSTM, then trains one for a minute: `make demo OUT=FOLDER` says where picture and
# checkpoint go, SST=FOLDER takes the trees of the treebank there.
OUT ?= runs/demo
demo: $(VENV)/.examples
	$(BIN)/python -m examples.trees.demo
	$(BIN)/python -m examples.trees.sentiment --minutes 1 --hidden 64 --embedding 64 --out $(OUT) $(if $(SST),--data $(SST))

# Most tests compare results, and XLA compiles quickly for them (tests/quick_xla.py); then those that read what XLA makes.
test: $(VENV)/.dev
	AUTOBATCH_TESTS_XLA=quick $(PYTEST) -m "not long and not xla"
	$(PYTEST) -m "xla and not long" $(XLA_TESTS)

test-long: $(VENV)/.dev
	HYPOTHESIS_PROFILE=long $(PYTEST)

# Everything that CI runs. The cap of 1,000 lines a file and the ban on machine paths are tests (tests/test_architecture.py).
check: static test

static: lint types imports

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev
	$(BIN)/mypy --strict

imports: $(VENV)/.dev
	$(BIN)/lint-imports

bench: $(VENV)/.examples
	$(BIN)/python -m benchmarks.trees

bench-masks: $(VENV)/.examples
	$(BIN)/python -m benchmarks.masks --json masks.json

# Beside PyTorch and DyNet, each in an environment of its own; DyNet has wheels for Python 3.8 only, and is left out where
# there is none. `make bench-trees SST=FOLDER` takes the trees of the treebank there. One after another: all on one core,
# or `THREADS=2`.
PYTHON38 ?= python3.8
THREADS ?= 1
PEERS := .venv-torch/.installed .venv-dynet/.installed
AGAINST_PEERS = --torch .venv-torch/bin/python --dynet .venv-dynet/bin/python --threads $(THREADS) \
	--json $(1).json --picture $(1).png

bench-trees: $(VENV)/.examples $(PEERS)
	$(BIN)/python -m benchmarks.sentiment $(SST) $(call AGAINST_PEERS,sentiment)

bench-training: $(VENV)/.examples $(PEERS)
	$(BIN)/python -m benchmarks.sentiment $(SST) --train $(call AGAINST_PEERS,training)

bench-peers: bench-trees bench-training
	$(BIN)/python -m benchmarks.overhead --json overhead.json
	$(BIN)/python -m benchmarks.sequences $(call AGAINST_PEERS,sequences)
	$(BIN)/python -m benchmarks.dags $(call AGAINST_PEERS,dags)
	$(BIN)/python -m benchmarks.tagger $(SST) $(call AGAINST_PEERS,tagger)
	$(BIN)/python -m benchmarks.tagger $(SST) --train $(call AGAINST_PEERS,tagging)
	$(BIN)/python -m benchmarks.parsing $(call AGAINST_PEERS,parsing)
	$(BIN)/python -m benchmarks.parsing --train $(call AGAINST_PEERS,parsing-training)

.venv-torch/.installed:
	$(PYTHON) -m venv .venv-torch
	.venv-torch/bin/python -m pip install --quiet torch==2.13.0 numpy
	touch $@

.venv-dynet/.installed:
	mkdir -p .venv-dynet
	if command -v $(PYTHON38) > /dev/null; then $(PYTHON38) -m venv .venv-dynet && \
		.venv-dynet/bin/python -m pip install --quiet dyNET38==2.2 numpy; fi
	touch $@

# Programs compiled ahead of time for TPUs that are not here, by libtpu.
check-tpu: $(VENV)/.tpu
	$(PYTEST) tests/api/test_targets.py

# On a machine with a GPU of NVIDIA and its driver; the benchmark needs nvcc too.
check-cuda: $(VENV)/.dev
	$(BIN)/python -m pytest -m cuda tests/backends/cuda
	$(BIN)/python -m benchmarks.cuda

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The suite under the newest JAX that the interpreter can install, in an environment of its own. A new Python gets a
# newer JAX: `make check-jax-latest PYTHON=python3.12`.
check-jax-latest: .venv-jax-latest/.installed
	.venv-jax-latest/bin/pip install --quiet --upgrade jax jaxlib
	AUTOBATCH_TESTS_XLA=quick .venv-jax-latest/bin/python -m pytest -n $(WORKERS) --dist worksteal -m "not long and not xla"
	.venv-jax-latest/bin/python -m pytest -n $(WORKERS) --dist worksteal -m "xla and not long" $(XLA_TESTS)

# Environments. Each stamp is newer than pyproject.toml once its packages are installed.
$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.examples: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[benchmarks]'
	touch $@

$(VENV)/.dev: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $@ $(VENV)/.examples

$(VENV)/.tpu: $(VENV)/.dev
	$(BIN)/python -m pip install --quiet --editable '.[tpu]'
	touch $@

.venv-jax-latest/.installed: pyproject.toml
	$(PYTHON) -m venv .venv-jax-latest
	.venv-jax-latest/bin/python -m pip install --quiet --editable '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) .venv-jax-latest .venv-torch .venv-dynet .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
