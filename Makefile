# `make train` and `make test` set everything up themselves; `make help` lists the rest.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Two test processes, one thread each; a file's tests stay together.
PARALLEL := -n 2 --dist loadfile --no-loadscope-reorder
# What training needs, and everything.
STAMP := $(VENV)/.installed
ALL := $(VENV)/.installed-dev
PIP := $(BIN)/python -m pip install --disable-pip-version-check -c constraints.txt -e
# With COVERAGE=on, `make test` measures coverage on the way, and `make test-all` after it does not run the same tests again.
MEASURE := $(if $(COVERAGE),--cov --cov-report=)
# Tests start many processes, and each would compile the same files.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help install train test test-unit test-all lint docs notebooks dist evidence bench-digits clean

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

# A stamp is written last, so an interrupted installation is repeated and a finished one is not.
$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "error: Python 3.11 or newer is needed; try make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
	$(PIP) .
	@touch $@

$(ALL): $(STAMP)
	$(PIP) '.[dev]'
	@touch $@

install: $(ALL) ## make .venv and install l2d with all extras and tools, pinned (only when they changed)

train: $(STAMP) ## train and score a router on digits; other choices: make train ARGS="method=tdef setup=I"
	$(BIN)/l2d train $(ARGS)

test: $(ALL) ## the tests, five minutes on two cores; ARGS="tests/core -k hand" chooses some
	$(BIN)/python -m pytest $(PARALLEL) $(MEASURE) $(or $(ARGS),-m 'not full')

# The rooms that no run passes through as a whole.
UNIT := $(addprefix tests/,utils config core data costs methods networks lightning)

test-unit: $(ALL) ## the quick tests of equations, data and networks, a minute
	$(BIN)/python -m pytest $(PARALLEL) -m 'not slow and not full' $(or $(ARGS),$(UNIT))

test-all: $(ALL) ## what `make test` leaves out: packaging, notebooks, tutorials, commands of the documents, a browser, a real search; and 95 % line coverage
	$(BIN)/python -m pytest $(PARALLEL) --cov $(if $(COVERAGE),--cov-append -m full)

lint: $(ALL) ## ruff (lint and format) and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(ALL) ## the documentation site, into site/; open site/index.html
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet

evidence: $(ALL) ## every table of the documents, again from the files of bench/results
	$(BIN)/python bench/evidence.py

notebooks: $(ALL) ## run the notebooks in examples/ and keep their outputs
	cd examples && ../$(BIN)/jupyter execute --inplace quickstart.ipynb your_own_table.ipynb your_own_log.ipynb plans.ipynb people.ipynb

dist: $(ALL) ## sdist and wheel, checked, into dist/
	$(BIN)/python -m build --no-isolation
	$(BIN)/python -m twine check --strict dist/*

bench-digits: $(ALL) ## five methods x five seeds on digits: mean ± std, into bench/results/, docs/digits.md and docs/guide.md
	$(BIN)/python bench/digits.py

clean: ## remove .venv and caches; runs/ stays
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage build dist site
