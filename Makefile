# The two commands: `make demo` and `make test`. `make help` lists the rest.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PORT ?= 8000
DATA ?= var/demo

.PHONY: help demo venv test chaos soak check format clean

help:
	@echo "make demo [PORT=8000] [DATA=var/demo] [ONCE=1]   the product, with four sample jobs"
	@echo "make test                                        all tests, on SQLite and PostgreSQL"
	@echo "make chaos [SEED=n]                              150 jobs while everything is killed at random"
	@echo "make soak [N=2000] [SEED=n]                      the same for longer, with ten reboots"
	@echo "make check                                       style, types, layers, migrations, schema"
	@echo "make format                                      rewrite the code in the project's style"
	@echo "make venv                                        only the virtual environment"

demo: $(VENV)/.runtime
	@$(BIN)/python scripts/demo.py --port "$(PORT)" --data "$(DATA)" $(if $(ONCE),--once)

venv: $(VENV)/.development

test: $(VENV)/.development
	@scripts/test $(BIN)/python

CHAOS = $(BIN)/python -m tests.postgres $(BIN)/python -m tests.chaos $(if $(SEED),--seed $(SEED))

chaos: $(VENV)/.development
	@$(CHAOS)

soak: $(VENV)/.development
	@$(CHAOS) --jobs $(or $(N),2000) --reboots 10 --least-kills 500 --submit-every 0.7 --minutes 240

check: $(VENV)/.development
	@scripts/check $(BIN)

format: $(VENV)/.development
	$(BIN)/ruff check --fix --quiet .
	$(BIN)/ruff format --quiet .

clean:
	rm -rf $(VENV) var .mypy_cache .ruff_cache .pytest_cache .import_linter_cache

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or newer is needed: make PYTHON=/path/to/python3.11 ..."; exit 1; }
	@$(PYTHON) -m venv $(VENV) || \
	  { echo "Python can make no virtual environment; on Debian: apt install python3-venv"; \
	    rm -rf $(VENV); exit 1; }

$(VENV)/.runtime: requirements.txt | $(BIN)/python
	@echo "Installing what requirements.txt names into $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.txt
	@touch $@

$(VENV)/.development: requirements-dev.txt requirements.txt | $(BIN)/python
	@echo "Installing what requirements-dev.txt names into $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-dev.txt
	@touch $@ $(VENV)/.runtime
