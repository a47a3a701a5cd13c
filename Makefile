# make demo          watch it work: photos become shards, and shards a trained model
# make test          the gate: format, lint, types, tests
# make rules         all static checks, in half a minute: format, lint, types, imports, names, docs
# make test-fast     only the quick tests that need no TensorFlow
# make test-base     the tests of what works without TensorFlow, in .venv/base, where it isn't installed
# make test-several  the long tests, which take some minutes
# make test-frameworks  the tests with PyTorch, JAX and Grain, which it installs (1.3 GB)
# make format        fix formatting and what ruff can fix
# make docs          build the documentation in site/
# make notebook      update the notebook of the course page
# make pages         run all examples of the docs, so that the gate runs only changed pages
# make pictures      update the pictures in docs/images
# make readability   lower the counts of vague names and long functions in tests/rules
# make golden        update the expected output in tests/golden
# make fixtures      rebuild the files in fixtures/
# make bench         measure speed against alternatives
# make fuzz          fuzz for ten minutes (FUZZ_SECONDS=60 for one)
# make sanitize      test the functions in C with AddressSanitizer and UndefinedBehaviorSanitizer
# make clean         delete .venv and everything that was built
# Each target first installs what it needs into .venv.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
READY_TO_TEST := $(VENV)/.ready-to-test
READY_FOR_FRAMEWORKS := $(VENV)/.ready-for-frameworks
READY_TO_FUZZ := $(VENV)/.ready-to-fuzz
READY_FOR_DOCS := $(VENV)/.ready-for-docs

# The functions in C with sanitizers. Python itself is not built with them, so their libraries are loaded first, and
# leaks are Python's.
SANITIZED := .fuzz/_frames.abi3.so
SANITIZING_CC = $(CC) -O1 -g -std=c11 -Wall -Wextra -Wconversion -Wno-missing-field-initializers -Werror \
	-fsanitize=address,undefined -fno-sanitize-recover=all \
	-DPy_LIMITED_API=0x030b0000 -I$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("include"))')
WITH_SANITIZERS = LD_PRELOAD="$$($(CC) -print-file-name=libasan.so) $$($(CC) -print-file-name=libubsan.so)" \
	ASAN_OPTIONS=detect_leaks=0 PYTHONMALLOC=malloc TFRTOOL_FRAMES=$(SANITIZED)
BASE := $(VENV)/base
READY_BASE := $(BASE)/.ready

BUILT_FROM := pyproject.toml constraints.txt hatch_build.py $(wildcard tfrtool/records/*.[ch])

# What the tests are installed with. Without TensorFlow, `make test-fast EXTRAS=dev` works.
EXTRAS ?= dev,tensorflow

# The tests start many processes, which should not each compile the same modules.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo test run-tests test-base test-several test-fast test-frameworks check rules format bench docs notebook readability pages pictures fuzz sanitize fixtures golden clean

help:
	@sed -n 's/^# //p;/^$$/q' Makefile

# uv installs in a quarter of the time that pip takes. Bytecode is made on first use: most modules are never imported.
INSTALL := VIRTUAL_ENV=$(CURDIR)/$(VENV) $(BIN)/uv pip install --quiet -c constraints.txt
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "tfrtool needs Python 3.11 or later; try: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(BIN)/uv: | $(BIN)/python
	$(PIP) uv

$(READY): $(BUILT_FROM) | $(BIN)/uv
	$(INSTALL) -e '.[tensorflow]'
	@touch $@

$(READY_TO_TEST): $(BUILT_FROM) | $(BIN)/uv
	$(INSTALL) -e '.[$(EXTRAS)]'
	@# xprof reads traces of training in a test. Its dependencies are large and only needed to view them.
	@$(INSTALL) --no-deps xprof || echo "xprof can't be installed: its test will be skipped"
	@touch $@ $(READY) $(READY_FOR_DOCS)

# Only the dependencies of the package: tests find the package itself by PYTHONPATH.
$(READY_BASE): pyproject.toml constraints.txt | $(BIN)/uv
	@rm -rf $(BASE)
	$(BIN)/uv venv --quiet --python $(BIN)/python $(BASE)
	VIRTUAL_ENV=$(CURDIR)/$(BASE) $(BIN)/uv pip install --quiet -c constraints.txt -r pyproject.toml
	@touch $@

demo: $(READY)
	@PATH="$(CURDIR)/$(BIN):$$PATH" sh fixtures/demo.sh

test: $(READY_TO_TEST)
	@# The tests sometimes wait for servers and clusters, so the checks run in parallel.
	@$(MAKE) --no-print-directory --jobs 2 check run-tests

run-tests: $(READY_TO_TEST) $(READY_BASE)
	$(BIN)/python -m pytest --numprocesses 2 --dist loadscope --no-loadscope-reorder

test-base: $(READY_TO_TEST) $(READY_BASE)
	$(BIN)/python -m pytest tests/process/test_without_tensorflow.py

test-several: $(READY_TO_TEST)
	@# Properties are tested on more examples than in the gate.
	HYPOTHESIS_PROFILE=more $(BIN)/python -m pytest --numprocesses 2 --dist loadscope \
		--no-loadscope-reorder -m "several or more or hypothesis"

$(READY_FOR_FRAMEWORKS): $(READY_TO_TEST)
	@# pip, unlike uv, may be set up to know a build of PyTorch for CPUs.
	$(PIP) -e '.[frameworks]'
	@touch $@

test-frameworks: $(READY_FOR_FRAMEWORKS)
	$(BIN)/python -m pytest -m "" -k "torch or grain" tests/test_torch.py \
		tests/inspection/rows/test_decoded_records.py tests/contracts/test_examples.py

test-fast: $(READY_TO_TEST)
	$(BIN)/python -m pytest --numprocesses 2 --dist loadscope --no-loadscope-reorder -m "not tf and not slow and not several and not more"

check: $(READY_TO_TEST)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

rules: check
	$(BIN)/python -m pytest --quiet tests/rules

format: $(READY_TO_TEST)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(READY_TO_TEST)
	$(BIN)/python -m tests.bench

$(READY_FOR_DOCS): pyproject.toml constraints.txt | $(BIN)/uv
	$(INSTALL) -e '.[docs]'
	@touch $@

docs: $(READY_FOR_DOCS)
	@# Without the variable, Material prints an announcement about MkDocs 2.
	NO_MKDOCS_2_WARNING=1 TF_CPP_MIN_LOG_LEVEL=2 $(BIN)/mkdocs build --quiet --strict
	@echo "built site/index.html"

readability: $(READY_TO_TEST)
	$(BIN)/python -m tests.rules.readability

pages: $(READY_TO_TEST)
	$(BIN)/python -m tests.contracts.executed_pages

notebook: $(READY_TO_TEST)
	$(BIN)/python -m fixtures.course_notebook

pictures: $(READY_TO_TEST)
	$(BIN)/python fixtures/pictures.py

$(READY_TO_FUZZ): $(READY_TO_TEST)
	$(INSTALL) -e '.[fuzz]'
	@touch $@

fuzz: $(READY_TO_FUZZ) $(SANITIZED) .fuzz/frames_main .fuzz/features_main
	$(BIN)/python -m tests.fuzz.frames .fuzz/payloads.tfrecord
	for name in frames features; do \
		.fuzz/$${name}_main $$(($${FUZZ_SECONDS:-600} / 10 + 1)) $$(date +%s) .fuzz/payloads.tfrecord || exit; done
	FUZZ_SECONDS=$$(($${FUZZ_SECONDS:-600} / 10 + 1)) $(WITH_SANITIZERS) $(BIN)/python -m tests.fuzz.mutations frames framing
	$(BIN)/python -m tests.fuzz

$(SANITIZED): $(wildcard tfrtool/records/*.[ch]) | $(READY_TO_TEST)
	@mkdir -p .fuzz
	$(SANITIZING_CC) -shared -fPIC $(filter %.c,$^) -o $@

# Without Python: what calls it is left out, as nothing needs it.
.fuzz/%_main: tests/fuzz/%_main.c $(wildcard tests/fuzz/*.h tfrtool/records/*.[ch]) | $(READY_TO_TEST)
	@mkdir -p .fuzz
	$(SANITIZING_CC) -no-pie -fno-pie -ffunction-sections -fdata-sections -Wl,--gc-sections -Wl,--unresolved-symbols=ignore-all \
		$(filter-out %/_frames.c,$(filter %.c,$^)) -o $@

sanitize: $(SANITIZED)
	$(WITH_SANITIZERS) HYPOTHESIS_PROFILE=more $(BIN)/python -m pytest --quiet -p no:cacheprovider -m "not several" -k "not Python" \
		tests/records/test_frames.py tests/records/test_damage.py tests/records/test_reader.py \
		tests/examples/arrow/test_native_scan.py tests/inspection/rows/test_record_lines.py

fixtures: $(READY_TO_TEST)
	$(BIN)/python fixtures/make_fixtures.py

golden: $(READY_TO_TEST)
	UPDATE_GOLDEN=1 $(BIN)/python -m pytest --quiet tests/golden

clean:
	rm -rf $(VENV) demo site .fuzz .mypy_cache .ruff_cache .pytest_cache .hypothesis .emulators
