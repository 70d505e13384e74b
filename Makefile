# Every target makes its own virtual environment when it is missing. `verify` never writes; `fix` does.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
SEEDS ?= 100
JOBS ?= $(shell nproc)

# `make power-cuts` needs root, for loop devices.
.PHONY: demo test verify fix sim mutants power-cuts bench proto lock clean

$(READY): requirements.lock pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	touch $@

demo: $(READY)
	$(BIN)/dledger demo

test: verify
	$(BIN)/python -m pytest

verify: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/basedpyright --level error
	$(BIN)/lint-imports --no-cache
	$(BIN)/python proto/generate.py --check
	$(BIN)/python client/generate_sync.py --check
	$(BIN)/python -m pytest tests/tidy

fix: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/python client/generate_sync.py

proto: $(READY)
	$(BIN)/python proto/generate.py

sim: $(READY)
	$(BIN)/python -m tests.sim.run sim --seeds $(SEEDS) --jobs $(JOBS) $(if $(SEED),--seed $(SEED))

mutants: $(READY)
	$(BIN)/python -m tests.sim.run mutants

power-cuts: $(READY)
	POWER_CUTS=20 $(BIN)/python -m pytest tests/integration/test_power_cut.py

bench: $(READY)
	$(BIN)/python -m bench

lock: $(READY)
	$(BIN)/uv pip compile --quiet --extra dev --generate-hashes --no-header --no-annotate --no-emit-index-url \
	  --python-version 3.11 --universal --output-file requirements.lock pyproject.toml

clean:
	rm -rf $(VENV) build dist *.egg-info out
