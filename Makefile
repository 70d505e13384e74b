# Each target makes the virtual environment when it is missing. `verify` never writes; `fix` does.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
SEEDS ?= 100
JOBS ?= $(shell nproc)

# `make power-cuts` needs root, for loop devices.
.PHONY: demo fuzz test test-groups test-rest verify fix sim sim-shrink mutants mutation export-kills ordered-consumers spark-test chaos chaos-nightly chaos-mutants chaos-bench commits compose-test power-cuts bench bench-peers proto lock wheel docs clean

$(READY): requirements.lock pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	touch $@

demo: $(READY)
	$(BIN)/dledger demo

# Two halves at once, for both mostly wait; the second is all that the first is not.
GROUPS := tests/scenarios tests/mutants tests/spark tests/integration
test: verify
	$(MAKE) --jobs=2 test-groups test-rest
	$(MAKE) chaos

test-groups: $(READY)
	$(BIN)/python -m pytest $(GROUPS)

test-rest: $(READY)
	$(BIN)/python -m pytest $(GROUPS:%=--ignore=%)

verify: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/basedpyright --level error
	$(BIN)/lint-imports --no-cache
	$(BIN)/python proto/generate.py --check
	$(BIN)/python client/generate_sync.py --check
	$(BIN)/python docs/generate.py --check
	$(BIN)/python -m pytest tests/tidy

# Judges the messages of the commits since BASE; run it before a push.
BASE ?= @{upstream}
commits: $(READY)
	$(BIN)/python -m tests.tidy.commits $(BASE)

fix: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/python client/generate_sync.py
	$(BIN)/python docs/generate.py

proto: $(READY)
	$(BIN)/python proto/generate.py

sim: $(READY)
	$(BIN)/python -m tests.sim.run sim --seeds $(SEEDS) --jobs $(JOBS) $(if $(SEED),--seed $(SEED)) \
	  $(if $(STORY),--story) $(if $(UNTIL),--until $(UNTIL))

# Fewer faults, fewer clients and less time of a seed that fail the same: SEED=17.
sim-shrink: $(READY)
	$(BIN)/python -m tests.sim.run shrink --seed $(SEED)

export-kills: $(READY)
	$(BIN)/python -m tests.programs.killed_exporters --kills 150 $(if $(SEED),--seed $(SEED))
	$(BIN)/python -m tests.programs.killed_exporters --kills 50 --engine spark $(if $(SEED),--seed $(SEED))

ordered-consumers: $(READY)
	$(BIN)/python -m tests.programs.ordered_consumers out/ordered-consumers-$$(date +%H%M%S)

# Readers of bytes, each for SECONDS: TARGET=batch-view for one. Without atheris our own engine.
SECONDS ?= 20
fuzz: $(READY)
	$(BIN)/python -m pip install --quiet --no-deps --only-binary :all: --require-hashes \
	  -r tests/fuzz/requirements.lock || echo "no atheris for this machine: our own engine fuzzes"
	$(BIN)/python -m tests.fuzz.run --seconds $(SECONDS) $(if $(TARGET),--target $(TARGET))

mutants: $(READY)
	$(BIN)/python -m tests.sim.run mutants

mutation: $(READY)
	$(BIN)/python -m tests.mutants.mutation $(MODULES)

chaos: $(READY)
	$(BIN)/python -m jepsen_tests suite smoke --jobs $(JOBS)

chaos-nightly: $(READY)
	$(BIN)/python -m jepsen_tests suite nightly --rounds 3 --jobs $(JOBS)

chaos-mutants: $(READY)
	$(BIN)/python -m jepsen_tests mutants --jobs $(JOBS)

chaos-bench: $(READY)
	$(BIN)/python -m jepsen_tests.checkers.bench

compose-test: $(READY)
	$(BIN)/python -m pytest tests/compose

# Part of `make test`, too. Java 17 or 21 of the machine, or else that of a wheel.
spark-test: $(READY)
	$(BIN)/python -m pytest tests/spark tests/unit/spark -rs

power-cuts: $(READY)
	POWER_CUTS=20 $(BIN)/python -m pytest tests/integration/test_power_cut.py

bench: $(READY)
	$(BIN)/python -m bench

# Beside other systems: an hour and a half, with nothing else running.
# PEERS="--quick", PEERS="--only dledger,etcd --rounds 1".
bench-peers: $(READY)
	$(BIN)/python -m bench.peers $(PEERS)

LOCK := $(BIN)/uv pip compile --quiet --generate-hashes --no-header --no-annotate --no-emit-index-url --universal
# The second is what the container image holds, the fourth what builds it: of the same versions.
# The third is the clients that bench/peers installs for itself.
lock: $(READY)
	$(LOCK) --all-extras --group dev --python-version 3.11 --output-file requirements.lock pyproject.toml
	$(LOCK) --extra broker --constraint requirements.lock --python-version 3.11 \
	  --output-file deploy/requirements.lock pyproject.toml
	$(LOCK) --group peers --constraint requirements.lock --python-version 3.11 \
	  --output-file bench/peers/requirements.lock pyproject.toml
	$(LOCK) --group build --constraint requirements.lock --python-version 3.11 \
	  --output-file deploy/build.lock

# `build` holds what an earlier build copied there; the wheel would hold it, too.
wheel: $(READY)
	rm -rf build dist
	$(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .
	rm -rf build

# Complete in itself: readers need no network. `python -m http.server --directory site` serves it.
docs: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

clean:
	rm -rf $(VENV) build dist site *.egg-info out
