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

# One worker more than CI has cores, because tests also wait; one that runs out of tests takes over half of another's.
PARALLEL := -n 3 --dist worksteal

test: check  ## the checks and all tests that need no other vendor's software
	$(BIN)/pytest $(PARALLEL)

check: lint types layers drift  ## lint, types, layers and drift of generated files, without tests

interop: setup  ## tests that need npm or the SDK of another vendor; CI runs them too
	@$(BIN)/pytest -m interop || { code=$$?; [ $$code = 5 ] && echo "interop: no test needs other software yet"; }

soak: setup  ## what `test` takes a sample of: every kill point, walk and backend; about 15 minutes
	$(BIN)/pytest $(PARALLEL) -m soak
	GERT_TEST_EXAMPLES=3000 $(BIN)/pytest $(PARALLEL) tests/kernel/template/test_laws.py

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
