# Each goal works alone on a clean checkout: it makes .venv, installs, runs. A second run installs nothing.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.PHONY: quickstart test test-all test-hostile test-peers lint bench clean

$(READY): pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[dev]"
	touch $(READY)

quickstart: $(READY)
	$(BIN)/python recipes/quickstart.py

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

test: lint
	HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 -m "not slow and not peers and not hostile"

test-all: lint
	HF_HUB_OFFLINE=1 $(BIN)/python -m pytest -m "not peers and not hostile"

# HOSTILE_INPUTS=1000000 make test-hostile fuzzes for hours; the default is minutes.
test-hostile: $(READY)
	HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m hostile tests

test-peers: $(READY)
	$(BIN)/python -m pytest -m peers tests

bench: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[dev,bench]"
	$(BIN)/python recipes/bench.py

clean:
	rm -rf .venv build *.egg-info .pytest_cache .ruff_cache
