# `make test` and `make demo` work on a fresh clone with nothing but Python 3.11 or newer.

BIN := .venv/bin
export UV_PROJECT_ENVIRONMENT := .venv

.DEFAULT_GOAL := help
.PHONY: help setup check lint types layers drift test demo bench docs clean

help:  ## list the targets
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | sort

setup: .venv/.ready  ## create .venv with everything pinned in uv.lock

.venv/.ready: uv.lock pyproject.toml scripts/bootstrap
	@sh scripts/bootstrap
	@touch $@

test: check  ## everything CI runs: lint, types, layers, drift and tests

check: lint types layers drift  ## the same as `test`
	$(BIN)/pytest -n 2

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
