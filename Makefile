# make demo   the tool at work, from photographs to a trained model
# make test   everything that must hold before a change goes in
# make test-several   the tests that the gate has no time for, in some minutes
# make test-fast   of the tests those that need no TensorFlow and are quick
# make docs   the documentation, as a site in site/
# make tables the option tables in docs/commands, from the help
# make fuzz   ten minutes of coverage-guided fuzzing; FUZZ_SECONDS=60 is one
# They set up .venv first, with what they need.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
READY_TO_TEST := $(VENV)/.ready-to-test
READY_TO_FUZZ := $(VENV)/.ready-to-fuzz
READY_FOR_DOCS := $(VENV)/.ready-for-docs

# The tests start many processes, none of which should compile the same modules again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo test run-tests test-several test-fast check format bench docs tables pictures fuzz fixtures clean

help:
	@sed -n 's/^# //p' Makefile

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
		{ echo "tfrtool needs Python 3.10 or later; try: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	@touch $@

$(READY_TO_TEST): $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@# It reads traces of training; what it depends on is for looking at them, and much.
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --no-deps xprof || \
		echo "xprof is not to be had here: its test will be skipped"
	@touch $@

demo: $(READY)
	@PATH="$(CURDIR)/$(BIN):$$PATH" sh fixtures/demo.sh

test: $(READY_TO_TEST)
	@# Tests wait for servers and clusters now and then, which leaves room for the checks.
	@$(MAKE) --no-print-directory --jobs 2 check run-tests

run-tests: $(READY_TO_TEST)
	$(BIN)/python -m pytest --numprocesses 2 --dist loadscope --no-loadscope-reorder -m "not several and not more"

test-several: $(READY_TO_TEST)
	@# Properties that the gate tries on few examples are tried on more.
	HYPOTHESIS_PROFILE=more $(BIN)/python -m pytest --numprocesses 2 --dist loadscope \
		--no-loadscope-reorder -m "several or more or hypothesis"

test-fast: $(READY_TO_TEST)
	$(BIN)/python -m pytest --numprocesses 2 --dist loadscope --no-loadscope-reorder -m "not tf and not slow and not several and not more"

check: $(READY_TO_TEST)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(READY_TO_TEST)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(READY_TO_TEST)
	$(BIN)/python -m tests.bench

$(READY_FOR_DOCS): $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	@touch $@

docs: $(READY_FOR_DOCS)
	@# What it says otherwise is about another program that its makers have begun.
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict
	@echo "the documentation is in site/index.html"

tables: $(READY_TO_TEST)
	$(BIN)/python -m fixtures.option_tables

pictures: $(READY_TO_TEST)
	$(BIN)/python fixtures/pictures.py

$(READY_TO_FUZZ): $(READY_TO_TEST)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[fuzz]'
	@touch $@

fuzz: $(READY_TO_FUZZ)
	$(BIN)/python -m tests.fuzz

fixtures: $(READY_TO_TEST)
	$(BIN)/python fixtures/make_fixtures.py

clean:
	rm -rf $(VENV) demo site .fuzz .mypy_cache .ruff_cache .pytest_cache .hypothesis .emulators
