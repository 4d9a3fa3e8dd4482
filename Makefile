# `make test` and `make demo` work on a fresh clone with nothing but Python 3.11 or newer.

BIN := .venv/bin
export UV_PROJECT_ENVIRONMENT := .venv
# Where it is set, every process that a test starts compiles gert again.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help setup check lint types layers drift test interop soak demo demo-debate demo-runner bench docs pictures dist clean

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | sort

setup: .venv/.ready  ## create .venv with everything pinned in uv.lock

.venv/.ready: uv.lock pyproject.toml scripts/bootstrap
	@sh scripts/bootstrap
	@touch $@

# Twice as many workers as CI has cores, because tests also wait; one that runs out of tests takes over half of another's.
WORKERS ?= 4
PARALLEL = -n $(WORKERS) --dist worksteal

test: check  ## the checks and all tests that need no other vendor's software
	$(BIN)/pytest $(PARALLEL)

check: lint types layers drift  ## lint, types, layers and drift of generated files, without tests

# pytest is not called for nothing: a summary of no tests looks as if there were none at all.
INTEROP = $(shell grep -rl --include='*.py' 'pytest\.mark\.interop' tests)

interop: setup  ## tests that need npm or the SDK of another vendor; CI runs them too
	@$(if $(INTEROP),$(BIN)/pytest -m interop $(INTEROP),echo "interop: no test needs other software yet")

soak: setup  ## what `test` takes a sample of: every kill point, walk and backend, more examples; about 15 minutes
	$(BIN)/pytest $(PARALLEL) -m soak
	GERT_TEST_TIMES=40 $(BIN)/pytest $(PARALLEL) -m "hypothesis and not soak"

lint: setup
	$(BIN)/ruff check
	$(BIN)/ruff format --check

types: setup
	$(BIN)/mypy

layers: setup
	$(BIN)/lint-imports

drift: setup
	$(BIN)/python -m scripts.generate --check

docs: setup  ## regenerate the generated parts of docs/, and build the site into build/site
	$(BIN)/python -m scripts.generate
	$(BIN)/python -m scripts.site

pictures: setup  ## make the pictures of the docs again: terminals, the screen, the approval page, a report
	$(BIN)/python -m scripts.pictures
	$(BIN)/python -m scripts.pictures_tui

dist: setup  ## build wheel, source package, bill of materials and checksums, and try them on every Python there is
	$(BIN)/python -m scripts.dist

demo: setup  ## run a bundled runbook for real against a small service, and verify its trace
	@sh scripts/demo $(BIN)

demo-debate: setup  ## agents debate offline with scripted models, and a judge decides
	@sh scripts/demo-debate $(BIN)

demo-runner: setup  ## call a vendor through an approved plan and a one-shot runner, offline
	@sh scripts/demo-runner $(BIN)

bench: setup  ## measure validation, start-up and the engine against their floors
	$(BIN)/python -m bench

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis .interop dist build
