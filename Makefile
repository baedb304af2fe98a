# Everything happens in a virtual environment of its own, made on the first run.
# Override on the command line, e.g.  make test PYTHON=python3.12
PYTHON ?= python3
VENV ?= .venv
SUITE ?= smoke
EXPERIMENT ?= all
PYTEST_ARGS ?= -n 2 --dist worksteal

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
# Two examples at a time, one thread each; a warning is an error, and so is a link that leads nowhere.
SITE := docs/_build/html
BUILD_SITE = OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 \
  $(BIN)/sphinx-build -W --keep-going -n -q -b html docs $(SITE) && \
  $(BIN)/python tools/check_links.py $(SITE)

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo docs test bench reproduce clean

help:
	@echo "make demo    fit a model to simulated data, print what it found, draw demo.png"
	@echo "make docs    build the documentation, its examples run, in $(SITE)"
	@echo "make test    check style and types, run the tests and all examples, build the documentation"
	@echo "make bench   run a benchmark suite and print its table (SUITE=smoke; see benchmarks/README.md)"
	@echo "make reproduce   run the paper's experiments (EXPERIMENT=all; or fig3, table1, ...)"
	@echo "make clean   remove $(VENV), caches and build outputs; benchmark results are kept"
	@echo
	@echo "The first run sets up $(VENV) with $(PYTHON) (3.11 or newer); later runs reuse it."

demo: $(VENV)/installed-demo
	@echo "Running the demo."
	@$(BIN)/python examples/demo.py

docs: $(VENV)/installed-docs
	@echo "Building the documentation in $(SITE) (two minutes the first time)."
	@$(BUILD_SITE)

test: $(VENV)/installed-test-docs
	@echo "Checking the style of the code."
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@echo "Checking the types."
	@$(BIN)/mypy
	@sh tools/smoke $(BIN)/python
	@sh tools/browser
	@echo "Running the tests."
	@$(BIN)/pytest $(PYTEST_ARGS)
	@echo "Building the documentation, and checking its links."
	@$(BUILD_SITE)

bench: $(VENV)/installed-bench
	@echo "Running the benchmark suite '$(SUITE)'."
	@$(BIN)/python -m benchmarks run $(SUITE)
	@$(BIN)/python -m benchmarks summarise benchmarks/results/$(SUITE).jsonl

reproduce: $(VENV)/installed-bench
	@echo "Reproducing the paper's experiments in reproduction/ (resumable; BTNKM_DATA names the data)."
	@$(BIN)/python -m benchmarks.reproduce $(EXPERIMENT)

clean:
	@echo "Removing $(VENV), caches and build outputs (benchmarks/results stays)."
	@rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis demo.png
	@rm -rf docs/_build docs/_extra docs/gallery docs/api/generated
	@find . -type d -name __pycache__ -prune -exec rm -rf {} +

# The stamps make the second run quick: a set-up is repeated only when
# pyproject.toml is newer than the last one.
$(VENV)/created:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python must be 3.11 or newer, got $$($(PYTHON) --version 2>&1)." \
	         "Name another one: make PYTHON=python3.12 ..."; exit 1; }
	@echo "Creating the virtual environment $(VENV) with $$($(PYTHON) --version)."
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) install --upgrade 'pip>=25.1'
	@touch $@

# GROUPS of pyproject.toml; the demo needs an extra of users alone.
GROUPS = $(foreach group,$(subst -, ,$*),--group $(group))
$(VENV)/installed-demo: pyproject.toml | $(VENV)/created
	@echo "Installing btnkm with pictures into $(VENV) (a minute or two the first time)."
	@$(PIP) install --editable '.[plot]'
	@touch $@

$(VENV)/installed-%: pyproject.toml | $(VENV)/created
	@echo "Installing btnkm for $(subst -, and ,$*) into $(VENV) (a minute or two the first time)."
	@$(PIP) install --editable . $(GROUPS)
	@touch $@
