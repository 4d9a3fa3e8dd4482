# `make test` and `make demo` work on a fresh clone with nothing but Python 3.11 or newer.

BIN := .venv/bin
export UV_PROJECT_ENVIRONMENT := .venv

.DEFAULT_GOAL := help
.PHONY: help setup check lint types layers drift test interop soak demo bench docs clean

help:  ## list the targets
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | sort

setup: .venv/.ready  ## create .venv with everything pinned in uv.lock

.venv/.ready: uv.lock pyproject.toml scripts/bootstrap
	@sh scripts/bootstrap
	@touch $@

# Workers that run out of tests take over half of what another has left.
PARALLEL := -n 2 --dist worksteal

test: check  ## the checks and all tests that need no other vendor's software
	$(BIN)/pytest $(PARALLEL)

check: lint types layers drift  ## lint, types, layers and drift of generated files, without tests

interop: setup  ## tests that need npm or the SDK of another vendor; CI runs them too
	@$(BIN)/pytest -m interop || { code=$$?; [ $$code = 5 ] && echo "interop: no test needs other software yet"; }

soak: setup  ## every kill point and every random walk of which `test` takes a sample; SOAK_TIME
	$(BIN)/pytest $(PARALLEL) -m soak

lint: setup
	$(BIN)/ruff check
	$(BIN)/ruff format --check

types: setup
	$(BIN)/mypy

layers: setup
	$(BIN)/lint-imports

drift: setup
	$(BIN)/python -m scripts.generate --check

docs: setup  ## regenerate the generated parts of docs/
	$(BIN)/python -m scripts.generate

demo: setup  ## run a bundled runbook for real against a small service, and verify its trace
	@sh scripts/demo $(BIN)

bench: setup  ## measure validation, start-up and the engine against their floors
	$(BIN)/python -m bench

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis dist build
