# Everything happens in a virtual environment of its own, made on the first run.
# Override on the command line, e.g.  make test PYTHON=python3.12
PYTHON ?= python3
VENV ?= .venv
SUITE ?= smoke
PYTEST_ARGS ?= -n 2 --dist worksteal

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test bench clean

help:
	@echo "make demo    fit a model on a data set bundled with scikit-learn, print what it found, draw demo.png"
	@echo "make test    check style and types, then run the tests and the examples in the docstrings"
	@echo "make bench   run a benchmark suite and print its table (SUITE=smoke; see benchmarks/README.md)"
	@echo "make clean   remove $(VENV), caches and build outputs; benchmark results are kept"
	@echo
	@echo "The first run sets up $(VENV) with $(PYTHON) (3.11 or newer); later runs reuse it."

demo: $(VENV)/installed-plot
	@echo "Running the demo."
	@$(BIN)/python examples/demo.py

test: $(VENV)/installed-test
	@echo "Checking the style of the code."
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@echo "Checking the types."
	@$(BIN)/mypy
	@echo "Running the tests."
	@$(BIN)/pytest $(PYTEST_ARGS)

bench: $(VENV)/installed-bench
	@echo "Running the benchmark suite '$(SUITE)'."
	@$(BIN)/python -m benchmarks run $(SUITE)
	@$(BIN)/python -m benchmarks summarise benchmarks/results/$(SUITE).jsonl

clean:
	@echo "Removing $(VENV), caches and build outputs (benchmarks/results stays)."
	@rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis demo.png
	@find . -type d -name __pycache__ -prune -exec rm -rf {} +

# The stamps make the second run quick: a set-up is repeated only when
# pyproject.toml is newer than the last one.
$(VENV)/created:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python must be 3.11 or newer, got $$($(PYTHON) --version 2>&1)." \
	         "Name another one: make PYTHON=python3.12 ..."; exit 1; }
	@echo "Creating the virtual environment $(VENV) with $$($(PYTHON) --version)."
	@$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/installed-%: pyproject.toml | $(VENV)/created
	@echo "Installing btnkm with its '$*' extras into $(VENV) (a minute or two the first time)."
	@$(PIP) install --editable '.[$*]'
	@touch $@
