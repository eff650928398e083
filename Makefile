# `make demo` shows what Heaptide does, `make test` checks everything, `make help` lists the other targets.
#
# Results are in build/ and target/. PYTHON= names the interpreter for building and for the demo. By default that is the
# python3 on PATH if Heaptide supports it, else the newest supported one found.

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

ifndef PYTHON
PYTHON = $(eval PYTHON := $$(shell python3 scripts/pythons.py --first))$(or $(PYTHON),$(error no suitable Python))
endif

TOOLS := build/tools/bin
PIP_INSTALL := -m pip install --quiet --disable-pip-version-check
SOURCES := $(shell find crates python web/dist -type f -not -path '*/__pycache__/*' -not -name '*.so') Cargo.toml Cargo.lock pyproject.toml
# A pattern for the shell, not for make: make may have listed the folder before the wheel was built.
WHEEL := build/wheels/heaptide-*.whl
# A test binary of the Python module would need a shared libpython, which many machines lack; pytest covers it.
TESTED_CRATES := --workspace --exclude heaptide-extension
# Property tests use a fixed seed, so that a change never fails because of an unrelated case; `make soak` tries new cases.
CASES := PROPTEST_RNG_SEED=20261116
# One interpreter for every cargo call, so that none rebuilds what another built.
CARGO := PYO3_PYTHON=$(CURDIR)/$(TOOLS)/python cargo
PYTHON_FILES := python tests bench scripts examples
BENCH_VERSIONS := 3.11 3.12 3.13
GUARD_VERSION := 3.12
PLATFORM_VERSION := 3.12

# --- Targets for people -------------------------------------------------------------------------------------------------

.PHONY: help
help: ## List these targets.
	@sed -nE 's/^([a-z-]+):.*## (.*)/\1\t\2/p' $(firstword $(MAKEFILE_LIST)) | awk -F'\t' '{ printf "  make %-12s %s\n", $$1, $$2 }'

.PHONY: demo
demo: build/venv/.wheel ## Build the wheel, install it, profile a program that leaks, and print where.
	@mkdir -p build/demo
	build/venv/bin/heaptide run -f -o build/demo/memory-leak.tide examples/memory-leak/job.py
	build/venv/bin/heaptide stats build/demo/memory-leak.tide
	@echo
	@echo "Files written:"
	@ls build/wheels/*.whl build/demo/memory-leak.tide | sed 's/^/  /'
	@echo "The heaptide command of this demo is build/venv/bin/heaptide"

.PHONY: test
test: lint test-rust guard test-python test-platforms test-pages ## Check everything: formatting, lints, types, Rust tests, cost, pytest on every Python found, platforms, pages.

.PHONY: lint
lint: lint-rust lint-python ## Check formatting, clippy, ruff, mypy, the stubs, and the tree against its documents; change nothing.

.PHONY: test-rust
test-rust: build/tools/.ready ## Run the Rust tests.
	if cargo nextest --version >/dev/null 2>&1; then \
	    $(CASES) $(CARGO) nextest run $(TESTED_CRATES) --locked --no-tests=warn; \
	else \
	    $(CARGO) build -p heaptide-cli --locked --examples; \
	    $(CASES) $(CARGO) test $(TESTED_CRATES) --locked --lib --bins --tests; \
	fi

.PHONY: soak
soak: build/tools/.ready ## Run the Rust tests with 20,000 new cases per property; failing cases are stored.
	PROPTEST_CASES=20000 $(CARGO) test $(TESTED_CRATES) --locked --lib --tests

.PHONY: mutate
mutate: build/tools/.ready ## Run report commands on files changed at random, in one process; INPUTS=1000000, SAMPLES='job.tide job.heap'.
	CARGO_PROFILE_RELEASE_OVERFLOW_CHECKS=true $(CARGO) build --release -p heaptide-cli --locked --example mutate --target-dir target/mutate
	status=0; target/mutate/release/examples/mutate $(or $(INPUTS),100000) --report build/mutations.txt $(SAMPLES) \
	    >/dev/null 2>&1 || status=$$?; cat build/mutations.txt; exit $$status

.PHONY: kills
kills: build/venv/.wheel ## Kill recorded programs at random instants and check their captures; COUNT=1000 programs.
	build/venv/bin/python scripts/kill_trials.py $(or $(COUNT),100)

.PHONY: test-python
test-python: build/wheels/.built ## Run pytest on the installed wheel; ONLY=3.12 one version, ARGS='-k name' for pytest.
	$(TOOLS)/python -B scripts/test_all_pythons.py --wheel $(WHEEL) $(addprefix --only ,$(ONLY)) -- $(ARGS)

.PHONY: test-platforms
test-platforms: build/wheels/.built ## Run the wheel in real platforms, on one Python; PLATFORM=flyte one, ARGS='-k name' for pytest.
	python=$$(python3 scripts/pythons.py | awk '$$1 == "$(PLATFORM_VERSION)" { print $$2 }'); \
	    $${python:?CPython $(PLATFORM_VERSION) is not on PATH or in pyenv; install it to test the platforms} -B scripts/test_platforms.py \
	    --wheel $(WHEEL) $(addprefix --only ,$(PLATFORM)) -- $(ARGS)

.PHONY: test-cpython
test-cpython: build/wheels/.built ## Run CPython's own tests bare and recorded; ONLY=3.12, MODES=run,env, ARGS='test_os test_io'.
	$(TOOLS)/python -B scripts/test_cpython.py --wheel $(WHEEL) $(addprefix --only ,$(ONLY)) $(addprefix --modes ,$(MODES)) $(ARGS)

.PHONY: guard
guard: build/guard/.ready ## Count instructions of small recorded programs against committed ceilings; ARGS=--lower lowers them.
	@command -v valgrind >/dev/null || { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq valgrind >/dev/null; }
	build/guard/bin/python -B bench/guard/guard.py $(ARGS)

.PHONY: test-pages
test-pages: build/venv/.wheel ## Check the pages: their sources, that the committed ones are fresh, and in a browser.
	COMMAND_UNDER_TEST=$(CURDIR)/build/venv/bin/heaptide scripts/test-pages

.PHONY: web
web: ## Build the pages from web/src into web/dist; needs Node, which other targets can do without.
	cd web && npm install --no-save --no-audit --no-fund && npm run build

.PHONY: bench
bench: $(BENCH_VERSIONS:%=build/bench-%/.ready) ## Measure cost and size next to memray; write bench/results. REPS=5 repeats more.
	build/bench-$(lastword $(BENCH_VERSIONS))/bin/python bench/overhead.py $(addprefix --reps ,$(REPS)) \
	    $(BENCH_VERSIONS:%=--python build/bench-%/bin/python) --results bench/results --command 'make bench$(REPS:%= REPS=%)'
	build/bench-$(lastword $(BENCH_VERSIONS))/bin/python bench/load.py --callers 200 --seconds 30
	build/bench-$(lastword $(BENCH_VERSIONS))/bin/python bench/job_marks.py
	$(TOOLS)/python -B bench/attach_everywhere.py --wheel $(WHEEL) --rounds 40 --results bench/results

.PHONY: bench-attach
bench-attach: build/wheels/.built ## Attach to running programs and detach, on every Python found; ROUNDS=200 for the full measurement, ONLY=3.12 one version.
	$(TOOLS)/python -B bench/attach_everywhere.py --strict --wheel $(WHEEL) --rounds $(or $(ROUNDS),40) $(addprefix --only ,$(ONLY)) \
	    --results bench/results

.PHONY: sanitize
sanitize: build/venv/.wheel ## Check for memory errors: Rust tests under AddressSanitizer, recorded programs under valgrind.
	scripts/sanitize build/venv/bin/python

.PHONY: wheel
wheel: build/wheels/.built ## Build the release wheel into build/wheels, if a source changed.
	@ls build/wheels/*.whl

.PHONY: fmt
fmt: build/tools/.ready ## Format all Rust and Python sources.
	cargo fmt --all
	cargo fmt --manifest-path fuzz/Cargo.toml
	$(TOOLS)/ruff check --fix-only --quiet $(PYTHON_FILES)
	$(TOOLS)/ruff format $(PYTHON_FILES)

.PHONY: docs
docs: build/docs-tools/.ready ## Build the docs site into build/docs; fails on a broken link.
	build/docs-tools/bin/python -B scripts/docs_site.py --work build/docs-work --out build/docs

.PHONY: release
release: build/release-tools/.ready ## Build sdist and a wheel for old distributions into build/release; check them on every Python found.
	build/release-tools/bin/python -B scripts/release.py --out build/release --work target/release-wheel

# --- Internal targets ---------------------------------------------------------------------------------------------------

.PHONY: lint-rust
lint-rust: build/tools/.ready
	@cargo fmt --version >/dev/null 2>&1 && cargo clippy --version >/dev/null 2>&1 || rustup component add rustfmt clippy
	cargo fmt --all --check
	cargo fmt --manifest-path fuzz/Cargo.toml --check
	cargo check --manifest-path fuzz/Cargo.toml --locked --target-dir target/fuzz
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings

.PHONY: lint-python
lint-python: build/tools/.wheel
	$(TOOLS)/ruff check --no-cache $(PYTHON_FILES)
	$(TOOLS)/ruff format --check --no-cache $(PYTHON_FILES)
	MYPYPATH=python $(TOOLS)/mypy --cache-dir build/mypy --package heaptide
	$(TOOLS)/python -m mypy.stubtest heaptide._native
	$(TOOLS)/python -B scripts/tidy.py

build/tools/.ready: scripts/requirements.txt scripts/make_venv.py
	$(PYTHON) scripts/make_venv.py build/tools
	$(TOOLS)/python $(PIP_INSTALL) -r scripts/requirements.txt
	touch $@

build/docs-tools/.ready: docs/site/requirements.txt scripts/make_venv.py
	$(PYTHON) scripts/make_venv.py build/docs-tools
	build/docs-tools/bin/python $(PIP_INSTALL) -r docs/site/requirements.txt
	touch $@

build/release-tools/.ready: scripts/release-requirements.txt scripts/make_venv.py
	$(PYTHON) scripts/make_venv.py build/release-tools
	build/release-tools/bin/python $(PIP_INSTALL) -r scripts/release-requirements.txt
	touch $@

# The wheel is built once for all: it is an abi3 wheel, and its name does not change with its content. It replaces the previous
# one when it is complete, because others may use that one meanwhile.
build/wheels/.built: $(SOURCES) | build/tools/.ready
	rm -rf build/wheels/new
	$(TOOLS)/maturin build --release --locked --interpreter $(TOOLS)/python --out build/wheels/new
	cd build/wheels; wheel=$$(ls new); mv new/$$wheel .; find . -name '*.whl' ! -name $$wheel -delete; rmdir new
	touch $@

build/venv/.wheel: build/wheels/.built scripts/make_venv.py
	$(PYTHON) scripts/make_venv.py build/venv
	build/venv/bin/python $(PIP_INSTALL) --force-reinstall --no-deps $(WHEEL)
	touch $@

build/tools/.wheel: build/wheels/.built
	$(TOOLS)/python $(PIP_INSTALL) --force-reinstall --no-deps $(WHEEL)
	touch $@

# The ceilings hold for one version of Python.
build/guard/.ready: build/wheels/.built scripts/make_venv.py
	python=$$(python3 scripts/pythons.py | awk '$$1 == "$(GUARD_VERSION)" { print $$2 }'); \
	    $${python:?CPython $(GUARD_VERSION) is not on PATH or in pyenv; install it to run make guard} scripts/make_venv.py build/guard
	build/guard/bin/python $(PIP_INSTALL) --force-reinstall --no-deps $(WHEEL)
	touch $@

build/bench-%/.ready: build/wheels/.built bench/requirements.txt
	$$(python3 scripts/pythons.py | awk '$$1 == "$*" { print $$2 }') scripts/make_venv.py build/bench-$*
	build/bench-$*/bin/python $(PIP_INSTALL) --only-binary=:all: -r bench/requirements.txt
	build/bench-$*/bin/python $(PIP_INSTALL) --force-reinstall --no-deps $(WHEEL)
	touch $@
