# Two commands on a fresh machine: `make demo` and `make test`. Both set up what they need.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: demo test quick lint format bench docs clean

demo: $(VENV)/.cli
	$(BIN)/node2seq train cora-r --baseline gcn

# A process for each core, each with one thread; more than four would need more memory than a laptop has.
PYTEST := $(BIN)/python -m pytest --numprocesses auto --maxprocesses 4 --dist worksteal

test: lint
	$(PYTEST)

quick: lint
	$(PYTEST) -m "not slow"

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.dev
	$(BIN)/python benchmarks/bench_conv.py

docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "The site is in site/index.html; $(BIN)/mkdocs serve shows it with its search."

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; v = sys.version_info; v >= (3, 11) or sys.exit(f"node2seq needs Python 3.11 or later; $(PYTHON) is {v.major}.{v.minor}. Name another one: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.cli: $(VENV)/bin/python pyproject.toml constraints.txt
	@echo "Setting up $(VENV): installing node2seq and what it runs on (torch is a few hundred MB) ..."
	$(PIP) -e '.[cli,tune]'
	@touch $@

$(VENV)/.dev: $(VENV)/.cli
	@echo "Setting up $(VENV): installing the test tools ..."
	$(PIP) -e '.[dev]'
	@touch $@

$(VENV)/.docs: $(VENV)/bin/python pyproject.toml constraints.txt
	@echo "Setting up $(VENV): installing what builds the documentation ..."
	$(PIP) -e '.[docs]'
	@touch $@

clean:
	rm -rf $(VENV) build dist site .pytest_cache .ruff_cache
