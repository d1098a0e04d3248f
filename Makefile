# Everything a contributor types. Needs make and Python 3.11 or newer with its venv module; every target sets itself up.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RUNS := $(VENV)/.runs
READY := $(VENV)/.ready
PYTEST_ARGS ?= -n auto
DEMO_ARGS ?=
BENCH_ARGS ?=
LINTED := proxy signers policies tests benchmarks examples

.DEFAULT_GOAL := help
.PHONY: help setup demo test lint format bench clean

help: ## list the targets
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/make \1|\2/p' $(firstword $(MAKEFILE_LIST)) | while IFS='|' read -r t d; do printf '%-14s %s\n' "$$t" "$$d"; done

setup: $(READY) ## make .venv with the locked dependencies; instant when nothing has changed

# Stamps are written last, so a set-up that was cut short starts again, and a changed lock file is taken up. Bytecode is
# made here, since an environment may forbid the interpreter to write it, and each start would then compile the sources.
$(RUNS): requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Sluicegate needs Python 3.11 or newer; this is $$($(PYTHON) --version). Name another with: make PYTHON=python3.12 …" >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { echo "$(PYTHON) has no venv module. On Debian: apt-get install python3-venv" >&2; exit 1; }
	@echo "Setting up $(VENV), once"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@$(BIN)/python -m compileall -q proxy signers policies
	@touch $@

$(READY): $(RUNS) requirements-dev.lock pyproject.toml
	@echo "Adding what the tests use, once: some minutes, 1.7 GB"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

demo: $(RUNS) ## send one unmodified client's call through the proxy and show what happened to it
	@$(BIN)/python examples/demo.py $(DEMO_ARGS)

test: $(READY) ## run every test; those whose program is not installed are skipped by name
	@$(BIN)/python -m pytest $(PYTEST_ARGS)

lint: $(READY) ## ruff, mypy --strict and the import contracts
	@$(BIN)/ruff check $(LINTED)
	@$(BIN)/ruff format --check $(LINTED)
	@$(BIN)/mypy --strict
	@$(BIN)/mypy --strict benchmarks examples
	@$(BIN)/lint-imports

format: $(READY) ## rewrite the sources the way `make lint` wants them
	@$(BIN)/ruff check --fix-only --quiet $(LINTED)
	@$(BIN)/ruff format $(LINTED)

bench: $(READY) ## measure beside nginx, Envoy, mitmproxy and a bare relay; see docs/performance.md
	@$(BIN)/python benchmarks/run.py $(BENCH_ARGS)

clean: ## remove what the targets made
	rm -rf $(VENV) benchmarks/.work .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
