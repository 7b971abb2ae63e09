# Two commands do everything from a bare clone: `make demo` and `make test`. Both need Python 3.11 to 3.13 and make.
# All that is installed goes into .venv, pinned by constraints.txt; `make clean` removes it.

PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null && echo $$p && break; done)
VENV := .venv
BIN := $(VENV)/bin
# Errors alone: a machine's pip may warn of each of its own settings.
PIP := PIP_CONSTRAINT=constraints.txt PIP_DISABLE_PIP_VERSION_CHECK=1 $(BIN)/python -m pip -qq
WORKERS ?= 2
comma := ,
DEMO_OUT ?= demo-out
ROUNDS ?= 20
SEED ?= 1
RAY_ROUNDS ?=
CHAOS_JSON ?=
TEST_WORKERS ?= 2

# uv installs in seconds what takes pip minutes; pip does it where uv cannot be had.
define install
	@if [ -x $(BIN)/uv ]; then \
		VIRTUAL_ENV=$(VENV) $(BIN)/uv pip install --quiet --only-binary :all: --no-binary corpusmill -c constraints.txt --build-constraint constraints.txt $(1); \
	else \
		$(PIP) install --only-binary :all: $(1); \
	fi
	@touch $@
endef

.PHONY: help setup model demo demo-ray train-demo mix-demo test equal chaos lint types check clean

help:
	@echo "make demo    set up, make a small crawl on the spot, run the whole pipeline on it, stream and resume (two minutes)"
	@echo "make demo-ray   the same as a job of a Ray started for it, its files compared with those of a local run (two minutes)"
	@echo "make train-demo   a small training run that is killed, meets a harmful document, finds it and goes on without (a minute)"
	@echo "make mix-demo   topics of a crawl become components, small proxies find their weights, a verdict ships them (ten minutes)"
	@echo "make test    set up, run the tests, TEST_WORKERS=2 files at a time"
	@echo "make equal   a recipe run locally, on Ray, as a job and through the death of a node: a table of hashes (some minutes)"
	@echo "make chaos   kill and damage runs on purpose; ROUNDS=20 SEED=1, a fifth of the rounds on Ray (RAY_ROUNDS=N: so many)"
	@echo "make check   lint, types and tests;  make clean removes the environment and all outputs"

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "corpusmill needs Python 3.11, 3.12 or 3.13; name one: make PYTHON=/path/to/python3.12"; exit 1; }
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) install uv || echo "uv cannot be installed here: going on with pip, which takes minutes"

$(VENV)/.pipeline: pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing the pipeline into $(VENV)"
	$(call install,-e '.[pipeline]')

$(VENV)/.test: $(VENV)/.pipeline
	@echo "installing the test tools into $(VENV)"
	$(call install,-e '.[pipeline$(comma)test]')

# By pip alone: a machine's pip is where a CPU build of torch is configured. Without torch its tests are skipped, by name.
$(VENV)/.torch: constraints.txt | $(BIN)/python
	@echo "installing torch into $(VENV)"
	@if $(PIP) install "$$(grep '^torch==' constraints.txt)"; then touch $@; \
	else echo "torch cannot be installed here: the tests of shards/torch.py will be skipped"; fi
	@$(PIP) install --no-deps "$$(grep '^megatron-core==' constraints.txt)" || echo "megatron-core cannot be installed here: what it reads is tested by a reader of our own"

setup: $(VENV)/.pipeline

# Once into the user's model cache; nothing is fetched when it is there.
model: $(VENV)/.pipeline
	@$(BIN)/corpusmill model get lid.176

demo: model
	@$(BIN)/corpusmill demo --out $(DEMO_OUT) --workers $(WORKERS)

# Anew each time: files that stood would be reused, and equal without a run.
demo-ray: model
	@rm -rf $(DEMO_OUT)/on-ray
	@$(BIN)/python -m corpusmill.jobs.demo_ray --out $(DEMO_OUT)/on-ray --workers $(WORKERS)

train-demo: $(VENV)/.pipeline $(VENV)/.torch
	@$(BIN)/python examples/demo.py $(DEMO_OUT)/train

mix-demo: $(VENV)/.pipeline $(VENV)/.torch
	@$(BIN)/python -m corpusmill.jobs.mix_demo --out $(DEMO_OUT)/mix --workers $(WORKERS)

test: $(VENV)/.test $(VENV)/.torch
	@$(BIN)/corpusmill model get lid.176 || echo "the language model cannot be had here: its tests will be skipped"
	@$(BIN)/python -m pytest -q -m "not slow" -n $(TEST_WORKERS) $(TESTS)

# One recipe by 1 and 2 local workers, on Ray, as a job, and on two nodes of which one is killed: the sha256 of each.
equal: model $(VENV)/.test
	@$(BIN)/python -m pytest -q -s -m slow tests/test_equality.py

# Runs that are killed, stopped and damaged on purpose: the same command has to finish with the bytes of an undisturbed one.
chaos: $(VENV)/.test
	@PYTHONPATH=$(CURDIR):$(CURDIR)/tests $(BIN)/python -m chaos --rounds $(ROUNDS) --seed $(SEED) $(if $(RAY_ROUNDS),--ray $(RAY_ROUNDS)) $(if $(CHAOS_JSON),--json $(CHAOS_JSON))

lint: $(VENV)/.test
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .

types: $(VENV)/.test
	@$(BIN)/mypy

check: lint types test

clean:
	rm -rf $(VENV) $(DEMO_OUT) dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis
