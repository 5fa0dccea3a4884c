# Everything below needs Python 3.10 or newer and make, and nothing else: `make help`.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
# What is built from source is built by the locked build tools, so they come first.
BUILD_TOOLS := setuptools|wheel|packaging

# Tests run in lanes, several at once, since most of them wait most of the time: for brokers, or for programs to start.
# Each lane has a broker and a Spark of its own, if it needs any. `rest` has what the others do not name.
LANES := unit kafka chaos programs rest
LANE_unit := tests/conformance tests/packaging tests/sim tests/unit
LANE_kafka := tests/kafka
LANE_chaos := tests/spark/test_chaos.py tests/spark/test_crash_points.py
LANE_programs := tests/spark/test_cluster_state.py tests/spark/test_example_programs.py tests/spark/test_process.py
LANE_rest := tests $(addprefix --ignore=,$(LANE_unit) $(LANE_kafka) $(LANE_chaos) $(LANE_programs))

.DEFAULT_GOAL := help
.PHONY: help demo test test-long lint types bench lock jars clean
.SUFFIXES:

help:  ## List the targets.
	@echo "make TARGET [PYTHON=python3.12]"
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-9s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

demo: jars  ## Run an application on 336,776 flights through an embedded Kafka broker, and watch it.
	@$(BIN)/python -m examples.demo

test: jars  ## Lint, check types and run all tests.
	@set -e; begun=$$(date +%s); \
	$(MAKE) --no-print-directory lint types; \
	echo "== pytest, in $(words $(LANES)) lanes at once; what they say comes at the end, and lies in $(VENV)/lane-*.log"; \
	failed=0; rm -f $(LANES:%=$(VENV)/lane-%.log); \
	$(MAKE) --no-print-directory --keep-going --jobs=$(words $(LANES)) $(LANES:%=lane-%) || failed=1; \
	for lane in $(LANES); do echo "== pytest, lane $$lane"; cat $(VENV)/lane-$$lane.log || failed=1; done; \
	test $$failed = 0; \
	echo "make test: ruff check, ruff format, lint-imports, mypy and pytest passed in $$(($$(date +%s) - begun)) s"

# It needs neither broker nor Spark, and takes what the others leave of the processor.
lane-unit: NICE := nice
# The shell gives way to pytest, so that whoever ends make ends it, too.
lane-%:
	@exec $(NICE) $(BIN)/python -m pytest -p no:cacheprovider $(LANE_$*) > $(VENV)/$@.log 2>&1
	@echo "$@: $$(tail -n 1 $(VENV)/$@.log)"

test-long: jars  ## Run tests with more cases, more kills and more time.
	@STREAMRT_LONG_TESTS=1 $(BIN)/python -m pytest tests/unit tests/sim tests/kafka/test_schema_registry.py \
	    tests/spark/test_chaos.py tests/spark/test_crash_points.py

lint: $(VENV)/.installed  ## Check style, format and who imports whom.
	@echo "== ruff check"; $(BIN)/ruff check .
	@echo "== ruff format --check"; $(BIN)/ruff format --check .
	@echo "== lint-imports"; $(BIN)/lint-imports

types: $(VENV)/.installed  ## Check types with mypy --strict.
	@echo "== mypy"; $(BIN)/mypy

bench: jars  ## Measure latency and throughput against an embedded broker.
	@$(BIN)/python -m bench.latency
	@$(BIN)/python -m bench.idle
	@$(BIN)/python -m bench.throughput
	@$(BIN)/python -m bench.stateful
	@$(BIN)/python -m bench.windows
	@$(BIN)/python -m bench.serializers

jars: $(VENV)/.installed  ## Fetch the Java libraries that are missing, and check the others.
	@$(BIN)/streamrt jars --set all

# The header says nothing of how this machine reaches the package index.
lock: $(VENV)/.installed  ## Resolve the dependencies anew into requirements.lock.
	@test -x $(BIN)/uv || $(PIP) install --quiet uv
	@printf 'setuptools>=77\nwheel\n' | $(BIN)/uv pip compile pyproject.toml - --quiet --upgrade \
	    --all-extras --universal --python-version 3.10 --generate-hashes --no-header --output-file $(VENV)/new.lock
	@{ echo "# Every dependency of StreamRT, its extras and its development tools, with hashes, for Python 3.10 to 3.13."; \
	   echo '# Made from pyproject.toml by `make lock`; do not edit by hand.'; \
	   cat $(VENV)/new.lock; } > requirements.lock
	@rm $(VENV)/new.lock

clean:  ## Delete the virtual environment, caches and build results.
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name .git -prune -o \( -name __pycache__ -o -name '*.egg-info' \) -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null \
	    || { echo "StreamRT needs Python 3.10 or newer, and '$(PYTHON)' is not: name one, as in: make PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) \
	    || { echo "'$(PYTHON) -m venv' failed (on Debian and Ubuntu it needs the package python3-venv)" >&2; rm -rf $(VENV); exit 1; }

$(VENV)/.installed: requirements.lock pyproject.toml | $(BIN)/python
	@echo "Installing the locked dependencies into $(VENV); the first time takes a few minutes"
	@awk '/^[a-z]/ {wanted = /^($(BUILD_TOOLS))==/} wanted' requirements.lock > $(VENV)/build-tools.lock
	@$(PIP) install --quiet --require-hashes --no-deps -r $(VENV)/build-tools.lock
	@$(PIP) install --quiet --require-hashes --no-build-isolation -r requirements.lock
	@$(PIP) install --quiet --no-deps --no-build-isolation -e .
	@touch $@
