# The two commands of a fresh clone: make sweep, make test. `make help` lists the rest.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
RUNS ?= runs
OUT ?= bench
JOBS ?= 2

.DEFAULT_GOAL := help
.PHONY: help install sweep test lint ui bench gpu-check clean

help:  ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

install: $(STAMP)  ## a virtual environment in .venv with the locked dependencies

$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "error: Python 3.11 or newer is needed; name one: make PYTHON=/path/to/python3.12" >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

sweep: install  ## the long-sequence sweep on the device that is there, and its report
	$(BIN)/python -m suite +sweep=long_seq $(ARGS)

# A test needs one core; those of a file stay together, in order.
test: install  ## the tests, two at a time (JOBS=1: one after the other)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses $(JOBS) --dist loadfile $(ARGS)

lint: install  ## format, lint, types, import layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

ui: install  ## MLflow on http://127.0.0.1:5000
	$(BIN)/mlflow ui --backend-store-uri sqlite:///$(abspath $(RUNS))/mlflow.db --host 127.0.0.1

bench: install  ## the suite measures itself: tables here, JSON in bench/
	@mkdir -p $(OUT)
	@set -e; for script in tests/benchmarks/bench_*.py; do \
		$(BIN)/python $$script --out $(OUT)/$$(basename $$script .py).json; done

gpu-check:  ## under 5 minutes on a GPU; needs Hydra, torch and Lightning only
	$(if $(wildcard $(STAMP)),$(BIN)/python,$(PYTHON)) -m runners.gpu_check $(ARGS)

clean:  ## remove runs, reports and caches; keep .venv
	rm -rf $(RUNS) $(OUT) .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find reports -mindepth 1 -maxdepth 1 ! -name example ! -name baselines -exec rm -rf {} +
