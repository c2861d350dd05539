# make demo | test | lint | bench | clean -- each sets up .venv first when it is missing or out of date.
SHELL := /bin/sh
PY := .venv/bin/python
JOBS ?= 2
SEEDS ?= 1
FRESH ?= 0

.PHONY: demo test lint format bench clean install

install: .venv/.installed

.venv/.installed: setup.py pyproject.toml constraints.txt tools/bootstrap.sh
	@sh tools/bootstrap.sh

demo: .venv/.installed
	@$(PY) -m grrm.cli demo --seeds $(SEEDS) $(if $(filter 1,$(FRESH)),--fresh)

test: .venv/.installed
	@$(PY) -m pytest -n $(JOBS) --dist worksteal tests

lint: .venv/.installed
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@$(PY) -m mypy
	@$(PY) -m importlinter.cli lint || .venv/bin/lint-imports

format: .venv/.installed
	@$(PY) -m ruff check --fix .
	@$(PY) -m ruff format .

clean:
	@rm -rf .venv build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
